"""A whole crawl of real documentation pages on loopback, delays at zero, everything else on.

The web server has a core of its own. Figures are pages (robots.txt and 404s not counted) per CPU second of the
crawl process, all threads, user and system, start included.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.crawling import ROOT, Crawl, write_seeds
from tests.mockweb import MockWeb
from tests.mockweb.folder import FolderSite
from tests.realdocs import documentation

HOSTS = 2000
SETTINGS = {
    "KROWL_DELAY_MIN": 0,
    "KROWL_DELAY_FACTOR": 0,
    "KROWL_COMMIT_INTERVAL": 1,
    "STATS_CLASS": "scrapy.statscollectors.MemoryStatsCollector",
}


def measure(runs: int) -> dict[str, Any]:
    """Median, least and most of so many crawls."""
    found = [_once() for _ in range(runs)]
    rates = [figures["pages_per_cpu_second"] for figures in found]
    return {
        "runs": found,
        "pages_per_cpu_second": statistics.median(rates),
        "least": min(rates),
        "most": max(rates),
    }


def _once() -> dict[str, float]:
    docs = documentation()
    with tempfile.TemporaryDirectory() as scratch, MockWeb(folder=docs, hosts=HOSTS) as web:
        os.sched_setaffinity(web.pid, {1})
        site = FolderSite(docs, HOSTS, web.port)
        seeds = write_seeds(Path(scratch) / "seeds.txt", site.urls.values())
        crawl = Crawl(Path(scratch) / "job", arguments={"seeds": seeds}, settings=SETTINGS)
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(
            ["taskset", "-c", "0", *crawl.command()], cwd=ROOT, check=True, capture_output=True
        )
        after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        pages = sum(entry.path != "/robots.txt" for entry in web.log())
        return {
            "pages": pages,
            "cpu_seconds": round(cpu, 2),
            "pages_per_cpu_second": round(pages / cpu, 1),
            "pages_per_second": round(pages / took, 1),
            "requests_per_cpu_second": round(len(web.log()) / cpu, 1),
        }


def table(figures: dict[str, Any]) -> str:
    return (
        f"whole crawl: {figures['pages_per_cpu_second']} pages per CPU second"
        f" ({figures['least']} to {figures['most']} in {len(figures['runs'])} runs)"
    )
