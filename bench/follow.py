"""Measure what ``scrapy corpus --follow`` costs the crawl that it follows.

The crawl has a core of its own. The web has the other one, where the corpus, at the lowest
priority, takes what the web leaves. Crawls with and without it alternate.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crawlers import Task, krowlspider_command
from bench.process import measured
from bench.web import CORE, BenchWeb
from krowlspider.corpus.figures import figures
from krowlspider.errors import KrowlError
from tests.support.crawling import ROOT, write_seeds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.pages import Shape

# Bytes of a WARC file: one is finished every few seconds.
_FILE = 5_000_000


def measure(shape: Shape, *, pages: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row of medians for crawls alone, and one for crawls that are followed."""
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    with BenchWeb(shape) as web:
        for number in range(rounds):
            for follow in (False, True) if number % 2 else (True, False):
                runs[follow].append(_once(web, pages, follow=follow))
    rows = []
    for follow, found in runs.items():
        rates = [run["pages_per_cpu_second"] for run in found]
        row: dict[str, Any] = {"followed": follow, "pages": pages}
        row |= {key: round(statistics.median(run[key] for run in found), 1) for key in found[0]}
        rows.append(row | {"least": round(min(rates), 1), "most": round(max(rates), 1)})
    return rows


def _once(web: BenchWeb, pages: int, *, follow: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="krowl-bench-") as name:
        scratch = Path(name)
        seeds = write_seeds(scratch / "seeds.txt", web.shape.seeds(web.shape.hosts))
        task = Task(web, seeds, pages, scratch, settings={"KROWL_WARC_MAX_SIZE": _FILE})
        web.take()
        with _following(scratch) if follow else nullcontext():
            usage = measured(krowlspider_command(task), scratch / "log")
            read = _pages_read(scratch / "corpus")
        fetched = web.take()["pages"]
    return {
        "pages_per_cpu_second": fetched / usage.cpu_seconds,
        "pages_per_second": fetched / usage.seconds,
        "pages_of_corpus": read,
    }


@contextmanager
def _following(scratch: Path) -> Iterator[None]:
    """Follow the crawl, from its first WARC file on."""
    ended = threading.Event()
    words = [sys.executable, "-m", "scrapy", "corpus", str(scratch / "job")]
    words += ["-o", str(scratch / "corpus"), "--follow", "--processes", "1"]

    def run() -> None:
        while not any((scratch / "job").rglob("*.warc.gz.open")):
            if ended.wait(0.1):
                return
        with (scratch / "corpus.log").open("wb") as log:
            process = subprocess.Popen(
                ["taskset", "-c", str(CORE), "nice", "-n", "19", *words],
                cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        ended.wait()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pages_read(corpus: Path) -> int:
    try:
        return int(figures(corpus)["responses"])
    except KrowlError:
        return 0
