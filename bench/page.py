"""Measure the cost of a page in a whole crawl, by the number of URLs queued.

A page is fetched, archived and parsed, and its links are queued. A frontier is filled, then crawled
in a short and a long run. Their difference is the cost of a page without the start. The long run is
long enough for LevelDB's compaction. Every URL is answered (``bench.anyweb``).

robots.txt is not fetched and connections are not kept: their number depends on the number of hosts,
not on the queue. With few URLs queued, each is the only one of its host, so that each page is of a
new host, as with many URLs.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.filled import HOSTS_A_BATCH, any_web, filling
from bench.frontier import Web
from krowlspider.urls.canonical import IdentityHasher
from tests.support.crawling import ROOT, Crawl

FIRST, SECOND = 500, 30_000
FEW_HOSTS = 10_000
SETTINGS = {
    "ROBOTSTXT_OBEY": False,
    "KROWL_DELAY_MIN": 0.25,
    "KROWL_DELAY_FACTOR": 0,
    "KROWL_DOMAIN_CONCURRENCY": 256,
    "KROWL_SESSION_REQUESTS": 1,
    "KROWL_COMMIT_INTERVAL": 1,
    "KROWL_STATUS_INTERVAL": 10,
    "KROWL_RESOLVE": json.dumps({"*.com": "127.0.0.1"}),
}


def measure(sizes: list[int], rounds: int, scratch: Path | None = None) -> list[dict[str, Any]]:
    """Return CPU microseconds of a page, all threads, for each number of URLs queued: medians of
    ``rounds`` rounds, each of which crawls every size once.
    """
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch))
        )
        found: dict[int, list[float]] = {}
        for queued in sizes:
            hosts = hosts_of(queued)
            fill(folder / str(queued), queued, hosts, stack.enter_context(any_web(hosts)))
            found[queued] = []
        for _ in range(rounds):
            for queued, costs in found.items():
                job = shutil.copytree(folder / str(queued), folder / "job")
                first, second = (_crawl(job, pages) for pages in (FIRST, SECOND))
                shutil.rmtree(job)
                costs.append((second - first) / (SECOND - FIRST) * 1e6)
    return [
        {
            "queued": queued,
            "hosts": hosts_of(queued),
            "cpu_us_per_page": round(statistics.median(costs)),
            "least": round(min(costs)),
            "most": round(max(costs)),
            # Ratios within a round: other load on the machine slows both runs.
            "times": round(
                statistics.median(
                    cost / base for cost, base in zip(costs, found[sizes[0]], strict=True)
                ),
                3,
            ),
        }
        for queued, costs in found.items()
    ]


def hosts_of(queued: int) -> int:
    return max(queued // 4, min(queued, FEW_HOSTS))


def fill(path: Path, queued: int, hosts: int, port: int) -> None:
    """Fill the frontier of a new job with URLs of the web at a port."""
    with filling(path) as (frontier, seed):
        web = Web(hosts, IdentityHasher(seed))
        numbers = list(range(hosts))
        web.chance.shuffle(numbers)
        for at in range(0, hosts, HOSTS_A_BATCH):
            names = [f"{web.host(number)}:{port}" for number in numbers[at : at + HOSTS_A_BATCH]]
            web.add(frontier, [web.page(host) for host in names for _ in range(queued // hosts)])


def _crawl(jobdir: Path, pages: int) -> float:
    """Return the CPU seconds of a run over ``pages`` pages."""
    crawl = Crawl(jobdir, arguments={"max_pages": pages}, settings=SETTINGS)
    # Flush what others have written, so that it does not disturb the run.
    os.sync()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        ["taskset", "-c", "0", *crawl.command()], cwd=ROOT, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def table(rows: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"a page with {row['queued']:>11,} queued on {row['hosts']:,} hosts:"
        f" {row['cpu_us_per_page']:,} µs of CPU ({row['least']:,} to {row['most']:,}),"
        f" {row['times']:.2f} times as much"
        for row in rows
    )
