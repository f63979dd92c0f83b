"""Compare ``scrapy crawl`` with ``scrapy node --processes 2``, on the same two cores.

Crawlers, web and Redis share both cores, as on one machine. So the CPU of the web is given too:
because of it, two processes on two cores cannot be twice as fast. The CPU of the crawlers is of
all processes that the command starts, Redis included. The time includes the start.

Two crawls that know nothing of each other, of half the pages each, show what the machine allows.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crawlers import Task, cpu_seconds_of, krowlspider_command
from bench.process import measured
from bench.web import BenchWeb
from tests.support.crawling import write_seeds

if TYPE_CHECKING:
    from bench.pages import Shape

_BOTH = {0, 1}
_WAYS = ("one process", "two processes", "two crawls apart")


def measure(shape: Shape, *, pages: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row of medians for one process, for two, and for two crawls apart."""
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in _WAYS}
    with BenchWeb(shape) as web:
        os.sched_setaffinity(web.pid, _BOTH)
        for _ in range(rounds):
            for way, found in runs.items():
                found.append(_once(web, way, pages))
    return [
        {"crawled by": way, "pages": pages}
        | {key: round(statistics.median(run[key] for run in found), 1) for key in found[0]}
        for way, found in runs.items()
    ]


def _once(web: BenchWeb, way: str, pages: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="krowl-bench-") as name:
        seeds = web.shape.seeds(web.shape.hosts)
        parts = [seeds[::2], seeds[1::2]] if way == "two crawls apart" else [seeds]
        commands = []
        for number, part in enumerate(parts):
            scratch = Path(name) / str(number)
            scratch.mkdir()
            file = write_seeds(scratch / "seeds.txt", part)
            commands.append(krowlspider_command(Task(web, file, pages // len(parts), scratch)))
        if way == "two processes":
            at = commands[0].index("crawl")
            commands[0][at : at + 1] = ["node", "--processes", "2"]
        web.take()
        before = cpu_seconds_of(web.pid)
        begun = time.monotonic()
        with ThreadPoolExecutor(len(commands)) as threads:
            logs = [Path(name) / f"log{number}" for number in range(len(commands))]
            used = list(threads.map(partial(measured, cores="0,1"), commands, logs))
        seconds = time.monotonic() - begun
        asked = web.take()
        cpu = sum(usage.cpu_seconds for usage in used)
        return {
            "pages_per_cpu_second": asked["pages"] / cpu,
            "pages_per_second": asked["pages"] / seconds,
            "links_per_second": asked["links"] / seconds,
            "crawlers_cpu_seconds": cpu,
            "server_cpu_seconds": cpu_seconds_of(web.pid) - before,
            "seconds": seconds,
        }
