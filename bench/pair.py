"""Compare ``scrapy crawl`` with ``scrapy node --processes 2``, on the same two cores.

Crawlers, web and Redis share both cores, as on one machine. So the CPU of the web is given too:
because of it, two processes on two cores cannot be twice as fast. The CPU of the crawlers is of
all processes that the command starts, Redis included. The time includes the start.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crawlers import Task, cpu_seconds_of, krowlspider_command
from bench.process import measured
from bench.web import BenchWeb
from tests.support.crawling import write_seeds

if TYPE_CHECKING:
    from bench.pages import Shape

_BOTH = {0, 1}


def measure(shape: Shape, *, pages: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row of medians for one process, and one for two."""
    runs: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    with BenchWeb(shape) as web:
        os.sched_setaffinity(web.pid, _BOTH)
        for _ in range(rounds):
            for processes, found in runs.items():
                found.append(_once(web, processes, pages))
    return [
        {"processes": processes, "pages": pages}
        | {key: round(statistics.median(run[key] for run in found), 1) for key in found[0]}
        for processes, found in runs.items()
    ]


def _once(web: BenchWeb, processes: int, pages: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="krowl-bench-") as name:
        scratch = Path(name)
        seeds = write_seeds(scratch / "seeds.txt", web.shape.seeds(web.shape.hosts))
        command = krowlspider_command(Task(web, seeds, pages, scratch))
        if processes > 1:
            at = command.index("crawl")
            command[at : at + 1] = ["node", "--processes", str(processes)]
        web.take()
        before = cpu_seconds_of(web.pid)
        usage = measured(command, scratch / "log", cores="0,1")
        asked = web.take()
        return {
            "pages_per_cpu_second": asked["pages"] / usage.cpu_seconds,
            "pages_per_second": asked["pages"] / usage.seconds,
            "links_per_second": asked["links"] / usage.seconds,
            "crawlers_cpu_seconds": usage.cpu_seconds,
            "server_cpu_seconds": cpu_seconds_of(web.pid) - before,
            "seconds": usage.seconds,
        }
