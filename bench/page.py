"""The cost of a page in a whole crawl, by how much is queued: fetched, archived, parsed, its links queued.

A frontier is filled, then crawled in two runs; what the second costs for its pages beyond the first's is the cost of
a page, without the start. The second is so long that LevelDB merges what it writes. Every URL is answered
(``bench.anyweb``). robots.txt is not asked and connections are not kept, because how often they come depends on the
number of hosts, not on what is queued; with few URLs queued each is a host's only one, so that a page is one of a host
that was not met before, as it is with many.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.frontier import LIMITS, RULE, Web, settle
from krowlspider.frontier.filterfile import FilterFile
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seen import SeenSet
from krowlspider.frontier.store import LevelStore
from krowlspider.jobfolder import JobFolder
from krowlspider.urls.canonical import IdentityHasher
from tests.crawling import ROOT, Crawl

FIRST, SECOND = 500, 30_000
FEW_HOSTS = 10_000
SETTINGS = {
    "ROBOTSTXT_OBEY": False,
    "KROWL_DELAY_MIN": 0.25,
    "KROWL_DELAY_FACTOR": 0,
    "KROWL_DOMAIN_CONCURRENCY": 256,
    "KROWL_KEEPALIVE": 0.001,
    "KROWL_COMMIT_INTERVAL": 1,
    "KROWL_STATUS_INTERVAL": 10,
    "KROWL_RESOLVE": json.dumps({"*.com": "127.0.0.1"}),
}


def measure(queued: int, hosts: int, scratch: Path | None = None) -> dict[str, Any]:
    """CPU microseconds of a page, all threads, with so many URLs queued."""
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.anyweb", str(hosts)], cwd=ROOT, stdout=subprocess.PIPE
    )
    os.sched_setaffinity(server.pid, {1})
    folder = Path(tempfile.mkdtemp(prefix="krowl-bench-", dir=scratch))
    try:
        assert server.stdout is not None
        _fill(folder / "job", queued, hosts, int(server.stdout.readline()))
        first, second = (_crawl(folder / "job", pages) for pages in (FIRST, SECOND))
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)
    return {
        "queued": queued,
        "hosts": hosts,
        "cpu_us_per_page": round((second - first) / (SECOND - FIRST) * 1e6),
    }


def _fill(path: Path, queued: int, hosts: int, port: int) -> None:
    folder = JobFolder.of(str(path))
    seed = folder.take().seed
    store = LevelStore(folder.frontier, create=True)
    seen = SeenSet(store, 1_000_000, file=FilterFile(folder.seen))
    frontier = Frontier(store, seen, LIMITS, RULE, monotonic=time.monotonic, wall=time.time)
    web = Web(hosts, IdentityHasher(seed))
    numbers = list(range(hosts))
    web.chance.shuffle(numbers)
    for number in numbers:
        host = f"{web.host(number)}:{port}"
        web.add(frontier, [web.page(host) for _ in range(queued // hosts)])
    frontier.close()
    # What the filling left to merge is not the crawl's cost.
    store = LevelStore(folder.frontier)
    settle()
    store.close()
    folder.leave()


def _crawl(jobdir: Path, pages: int) -> float:
    """CPU seconds of a run over so many pages."""
    crawl = Crawl(jobdir, arguments={"max_pages": pages}, settings=SETTINGS)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        ["taskset", "-c", "0", *crawl.command()], cwd=ROOT, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def table(rows: list[dict[str, Any]]) -> str:
    base = rows[0]["cpu_us_per_page"]
    return "\n".join(
        f"a page with {row['queued']:>11,} queued on {row['hosts']:,} hosts:"
        f" {row['cpu_us_per_page']:,} µs of CPU ({row['cpu_us_per_page'] / base:.2f} times)"
        for row in rows
    )
