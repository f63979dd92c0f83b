"""Count the Python calls of a page, which no other load of the machine changes.

``python -m bench.calls`` crawls the bench web twice, with 1,000 and with 3,000 pages. The
difference leaves out what a start takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FEW, MANY = 1000, 3000


class Counter:
    """Counts the calls of Python functions, apart for the event loop and for other threads."""

    def __init__(self) -> None:
        self.loop = 0
        self._threads: list[list[int]] = []

    def of_loop(self, frame: object, event: str, argument: object) -> None:
        self.loop += event == "call"

    def of_thread(self, frame: object, event: str, argument: object) -> None:
        """Count in a thread that has just begun."""
        calls = [1]
        self._threads.append(calls)

        def count(frame: object, event: str, argument: object) -> None:
            calls[0] += event == "call"

        sys.setprofile(count)

    @property
    def threads(self) -> int:
        return sum(calls for (calls,) in self._threads)


def measure() -> dict[str, float]:
    """Return the calls of a page in the event loop, and in other threads.

    :raises RuntimeError: a crawl has failed, or has fetched another number of pages
    """
    from bench.pages import Shape  # noqa: PLC0415 - not for the process that is counted
    from bench.web import BenchWeb  # noqa: PLC0415

    with BenchWeb(Shape(hosts=80)) as web:
        few, many = _counted(web, FEW), _counted(web, MANY)
    return {name: (many[name] - few[name]) / (MANY - FEW) for name in few}


def _counted(web: Any, pages: int) -> dict[str, int]:
    from bench.crawlers import Task, krowlspider_command  # noqa: PLC0415
    from tests.support.crawling import ROOT, write_seeds  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="krowl-bench-") as name:
        scratch = Path(name)
        seeds = write_seeds(scratch / "seeds.txt", web.shape.seeds(web.shape.hosts))
        python, _, _, *arguments = krowlspider_command(Task(web, seeds, pages, scratch))
        output = scratch / "calls.json"
        command = [python, "-m", "bench.calls", str(output), "scrapy", *arguments]
        log = scratch / "log"
        with log.open("wb") as stream:
            done = subprocess.run(
                command, cwd=ROOT, stdout=stream, stderr=stream, env=os.environ, check=False
            )
        reports = list(scratch.rglob("report.json"))
        fetched = json.loads(reports[0].read_bytes())["done"] if reports else 0
        if done.returncode or fetched != pages:
            raise RuntimeError(f"{fetched} of {pages} pages\n{log.read_text()[-2000:]}")
        counts: dict[str, int] = json.loads(output.read_bytes())
    return counts


def _count(output: Path, command: list[str], execute: Callable[[list[str]], None]) -> None:
    counter = Counter()
    threading.setprofile(counter.of_thread)
    sys.setprofile(counter.of_loop)
    try:
        execute(command)
    except SystemExit as error:
        if error.code:
            raise
    finally:
        sys.setprofile(None)
        output.write_text(json.dumps({"loop": counter.loop, "threads": counter.threads}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        from scrapy.cmdline import execute

        _count(Path(sys.argv[1]), sys.argv[2:], execute)
    else:
        print(json.dumps(measure()))
