"""Compare this checkout with another one, by pages for each CPU second of whole crawls.

Both crawl the same web at once, on one core, so that what else the machine does meets both alike:
in turn, the ratio of two runs varies ten times as much. The web has the other core.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crawlers import Task, krowlspider_command
from bench.web import BenchWeb
from tests.support.crawling import write_seeds

if TYPE_CHECKING:
    from bench.pages import Shape

HERE = Path(__file__).parents[1]
WEB, _CRAWLS = {0}, {1}
# Pages of the first crawl of each, which compiles its modules.
_WARM_UP = 300


def measure(shape: Shape, other: Path, *, pages: int, rounds: int) -> dict[str, Any]:
    """Return the ratio of this checkout to ``other`` for each round, and their median.

    The web must have as many pages.
    """
    ratios = []
    with BenchWeb(shape) as web:
        os.sched_setaffinity(web.pid, WEB)
        for tree in (HERE, other):
            cpu_seconds(web, tree, _WARM_UP)
        for _ in range(rounds):
            with ThreadPoolExecutor(2) as pool:
                found = pool.map(lambda tree: cpu_seconds(web, tree, pages), (HERE, other))
            ours, theirs = found
            ratios.append(round(theirs / ours, 4))
    return {"pages": pages, "ratio": statistics.median(ratios), "rounds": ratios}


def cpu_seconds(web: BenchWeb, tree: Path, pages: int, *options: str) -> float:
    """Crawl with the code in ``tree`` and more options; return the CPU seconds of all threads.

    :raises RuntimeError: the crawl has failed, or has fetched another number of pages
    """
    with tempfile.TemporaryDirectory(prefix="krowl-bench-") as name:
        scratch = Path(name)
        file = write_seeds(scratch / "seeds.txt", web.shape.seeds(web.shape.hosts))
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        # A tree that compiles its modules at each run would seem slower.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen(
            [*krowlspider_command(Task(web, file, pages, scratch)), *options],
            cwd=tree,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.sched_setaffinity(process.pid, _CRAWLS)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        reports = list(scratch.rglob("report.json"))
        done = json.loads(reports[0].read_bytes())["done"] if reports else 0
    if process.returncode or done != pages:
        raise RuntimeError(f"{tree}: exit code {process.returncode}, {done} of {pages} pages")
    return usage.ru_utime + usage.ru_stime
