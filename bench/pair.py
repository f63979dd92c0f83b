"""One process, and two by a static ring, on the same two cores: what the way between them costs,
and what it gives.

Crawlers, web and Redis share both cores, as on one machine they would; so the web's own CPU is
printed: it is why two processes on two cores cannot be twice as fast.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crawlers import Task, cpu_seconds_of, krowlspider_command, redis_server
from bench.process import measured
from bench.web import BenchWeb
from tests.support.crawling import write_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.pages import Shape
    from bench.process import Usage

_BOTH = {0, 1}
NODES = ("a", "b")


def measure(shape: Shape, *, pages: int, rounds: int) -> list[dict[str, Any]]:
    """A row for one process and one for two, in turn; medians."""
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
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="krowl-bench-")))
        seeds = write_seeds(folder / "seeds.txt", web.shape.seeds(web.shape.hosts))
        nodes = NODES[:processes] if processes > 1 else ("",)
        servers = {
            node: stack.enter_context(redis_server(folder / f"redis-{node}", "0,1"))
            for node in nodes
            if node
        }
        ring = ",".join(f"{node}={url}" for node, (url, _) in servers.items())
        tasks = []
        for node in nodes:
            scratch = folder / f"crawl-{node}"
            scratch.mkdir()
            place = {
                "KROWL_STATIC_NODES": ring,
                "KROWL_STATIC_NODES_SECRET": "of-the-benchmark",
                "KROWL_NODE_ID": node,
            }
            settings = place if node else {}
            tasks.append(Task(web, seeds, pages // processes, scratch, settings=settings))
        web.take()
        before = cpu_seconds_of(web.pid)
        usages = _all(tasks)
        asked = web.take()
        used = sum(usage.cpu_seconds for usage in usages)
        seconds = max(usage.seconds for usage in usages)
        return {
            "pages_per_cpu_second": asked["pages"] / used,
            "pages_per_second": asked["pages"] / seconds,
            "links_per_second": asked["links"] / seconds,
            "crawlers_cpu_seconds": used,
            "server_cpu_seconds": cpu_seconds_of(web.pid) - before,
            "redis_cpu_seconds": sum(cpu() for _, cpu in servers.values()),
            "seconds": seconds,
        }


def _all(tasks: Sequence[Task]) -> list[Usage]:
    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(
            pool.map(
                lambda task: measured(krowlspider_command(task), task.scratch / "log", cores="0,1"),
                tasks,
            )
        )
