"""Measure what ``scrapy corpus --follow``, or ``scrapy catalogue --follow``, costs the crawl that
it follows.

The crawl has a core of its own. The web has the other one, where the follower, at the lowest
priority, takes what the web leaves. It is stopped and continued in turns of a few seconds while the
crawl runs. Neighbouring turns are compared, because the machine's load changes slowly.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crawlers import Task, cpu_seconds_of, krowlspider_command
from bench.process import CORE as CRAWLERS_CORE
from bench.web import CORE, BenchWeb
from tests.support.crawling import ROOT, write_seeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.pages import Shape

# Bytes of a WARC file: one is finished every few seconds.
_FILE = 5_000_000
# Seconds of the crawl before the follower starts, of the follower before the first turn, of a turn.
_BEFORE = 10.0
_START = 5.0
_TURN = 3.0
# What follows: the options of each program.
PROGRAMS = {"corpus": ("--processes", "1"), "catalogue": ()}


@dataclass(frozen=True, slots=True)
class _Turn:
    followed: bool
    per_cpu_second: float
    per_second: float
    # Cores that the follower used.
    follower: float


def measure(shape: Shape, *, pages: int, rounds: int, program: str = "corpus") -> dict[str, Any]:
    """Return medians of the turns with and without the follower in ``rounds`` crawls: pages per CPU
    second, pages a second, cores of the follower. ``program`` is one of PROGRAMS.

    ``kept`` is the mean ratio of pages per CPU second, followed to alone, of neighbouring turns.

    :raises RuntimeError: the crawls have ended before two turns
    """
    crawls = [_once(shape, pages, program) for _ in range(rounds)]
    # Each turn is compared with the one before and the one after it.
    kept = [share for crawl in crawls for share in map(_kept, pairwise(crawl))]
    if len(kept) < 2:
        raise RuntimeError(
            f"crawls of {pages} pages end too soon to be compared: give more --pages"
        )
    found: dict[str, Any] = {"pages": pages, "crawls": rounds, "turns": sum(map(len, crawls))}
    for name in ("per_cpu_second", "per_second", "follower"):
        for followed in (False, True):
            values = [
                getattr(turn, name)
                for crawl in crawls
                for turn in crawl
                if turn.followed == followed
            ]
            key = f"{name}_{'followed' if followed else 'alone'}"
            found[key] = round(statistics.median(values), 2)
    # Neighbouring shares have a turn in common: half as many are independent.
    error = statistics.stdev(kept) / (len(kept) / 2) ** 0.5
    return found | {"kept": round(statistics.mean(kept), 3), "standard_error": round(error, 3)}


def _kept(turns: tuple[_Turn, _Turn]) -> float:
    followed, alone = sorted(turns, key=lambda turn: not turn.followed)
    return followed.per_cpu_second / alone.per_cpu_second


def _once(shape: Shape, pages: int, program: str) -> list[_Turn]:
    with BenchWeb(shape) as web, tempfile.TemporaryDirectory(prefix="krowl-bench-") as name:
        scratch = Path(name)
        seeds = write_seeds(scratch / "seeds.txt", web.shape.seeds(web.shape.hosts))
        task = Task(web, seeds, pages, scratch, settings={"KROWL_WARC_MAX_SIZE": _FILE})
        with running(krowlspider_command(task), scratch / "log", CRAWLERS_CORE) as crawl:
            time.sleep(_BEFORE)
            words = [sys.executable, "-m", "scrapy", program, str(scratch / "job")]
            words += ["-o", str(scratch / program), "--follow", *PROGRAMS[program]]
            log = scratch / "follower.log"
            with running(["nice", "-n", "19", *words], log, CORE) as follower:
                time.sleep(_START)
                return list(_turns(web, crawl, follower))


def _turns(
    web: BenchWeb, crawl: subprocess.Popen[bytes], follower: subprocess.Popen[bytes]
) -> Iterator[_Turn]:
    """Yield the turns of a crawl until it ends; the last one, in which it ends, is left out."""
    followed = True
    while True:
        os.killpg(follower.pid, signal.SIGCONT if followed else signal.SIGSTOP)
        web.take()
        begun, used, before = time.monotonic(), cpu_seconds_of(crawl.pid), _group_cpu(follower)
        time.sleep(_TURN)
        if crawl.poll() is not None:
            return
        # A page at least, so that ratios can be made.
        asked, took = max(web.take()["pages"], 1), time.monotonic() - begun
        cpu = cpu_seconds_of(crawl.pid) - used
        cores = (_group_cpu(follower) - before) / took
        yield _Turn(followed, asked / cpu, asked / took, cores)
        followed = not followed


def _group_cpu(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU seconds of a process and its direct children."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return sum(map(cpu_seconds_of, [process.pid, *map(int, children)]))


@contextmanager
def running(words: Sequence[str], log: Path, core: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command on a core, in a process group of its own. The group is killed at the end if the
    command still runs."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *words],
            cwd=ROOT, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
