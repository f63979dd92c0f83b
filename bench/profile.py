"""Record a sampling profile of a whole crawl by this crawler, with native frames.

``python -m bench profile`` writes a flame graph to ``bench-results/profile.svg``, and a line for
each stack to ``profile.txt``. `bench.stages` splits the CPU of a page by these stacks.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from bench import web as webserver
from bench.crawlers import Task, krowlspider_command
from bench.process import CORE
from bench.web import BenchWeb
from tests.support.crawling import ROOT, write_seeds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.pages import Shape

# Samples a second. Each stops the process for about a millisecond.
RATE = 200
# Seconds between two measurements of the threads' CPU.
_LOOK = 0.02
# A thread in one of these functions waits for work, the interpreter's lock or the network. With
# native frames, py-spy takes it for running.
_WAITING = re.compile(
    r";(?:PyThread_acquire_lock|_queue_SimpleQueue_get|take_gil|pthread_cond_timedwait|epoll_)[^;]*"
)
_POLLING = re.compile(r";uv__io_poll [^;]*(?:;(?:epoll\w*|0x[0-9a-f]+) \(libc[^;]*\))?$")
_LINE = re.compile(r":\d+\)")


def record(shape: Shape, pages: int, output: Path, *, flame: bool) -> Counter[int]:
    """Profile a crawl of ``pages`` pages. Return CPU ticks by thread id.

    :raises RuntimeError: py-spy or the crawl fails; the message is the end of the log
    """
    form = ("flamegraph", "--function") if flame else ("raw", "--function", "--threads")
    with BenchWeb(shape) as web, tempfile.TemporaryDirectory(prefix="krowl-bench-") as scratch:
        folder = Path(scratch)
        seeds = write_seeds(folder / "seeds.txt", web.shape.seeds(shape.hosts))
        task = Task(web, seeds, pages, folder)
        spy = [
            Path(sys.executable).with_name("py-spy"),
            "record",
            "--native",
            "--rate",
            str(RATE),
            "--output",
            output,
        ]
        command = ["taskset", "-c", str(webserver.CORE), *spy, "--format", *form, "--"]
        command += ["taskset", "-c", str(CORE), *krowlspider_command(task)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        ticks = _watched(process)
        if process.returncode:
            raise RuntimeError((folder / "log").read_text(errors="replace")[-3000:])
    return ticks


def _watched(process: subprocess.Popen[bytes]) -> Counter[int]:
    ticks: Counter[int] = Counter()
    while process.poll() is None:
        for thread, used in _threads_of_child(process.pid):
            ticks[thread] = used
        time.sleep(_LOOK)
    return ticks


def _threads_of_child(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the threads of a process's child, with the ticks that each has used."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children[:1]:
            for thread in Path(f"/proc/{child}/task").iterdir():
                fields = (thread / "stat").read_text().rpartition(")")[2].split()
                user, system = int(fields[11]), int(fields[12])
                # A thread without user time ran nothing: being sampled takes system time.
                yield int(thread.name), user + system if user else 0
    except (FileNotFoundError, ProcessLookupError):
        # The process has ended meanwhile.
        return


class Stack:
    """One line of a raw profile: its ``frames`` from the outside in, as ``function (file)``,
    without line numbers."""

    __slots__ = ("count", "frames", "name", "thread")

    def __init__(self, line: str):
        text, _, count = line.rpartition(" ")
        thread, *frames = _LINE.sub(")", text).split(";")
        number, _, self.name = thread.removeprefix("thread (").partition(")")
        self.thread = int(number)
        self.frames = frames
        self.count = int(count)


def stacks(raw: Path) -> list[Stack]:
    """Return the stacks of a raw profile in which the thread does not wait."""
    lines = raw.read_text().splitlines()
    return [Stack(line) for line in lines if not _waits(line.rpartition(" ")[0])]


def _waits(stack: str) -> bool:
    return bool(_WAITING.search(stack) or _POLLING.search(stack))


def top(found: list[Stack], ticks: Counter[int], count: int = 25) -> str:
    """List the functions with most CPU: alone, with C code they call, and with all they call."""
    weights = weights_of(found, ticks)
    counted: dict[str, defaultdict[str, float]] = {
        "alone": defaultdict(float),
        "Python only, with the C code that they call": defaultdict(float),
        "Python only, with all that they call": defaultdict(float),
    }
    own, python, whole = counted.values()
    for stack in found:
        weight = stack.count * weights[stack.thread]
        named = [frame for frame in stack.frames if frame.endswith(".py)")]
        own[stack.frames[-1] if stack.frames else "?"] += weight
        python[named[-1] if named else "?"] += weight
        for frame in set(named):
            whole[frame] += weight
    lines = []
    for what, shares in counted.items():
        lines += ["", f"Functions with most CPU, {what}:"]
        most = sorted(shares.items(), key=itemgetter(1), reverse=True)[:count]
        lines += [f"{share:7.1%}  {frame}" for frame, share in most]
    return "\n".join(lines)


def weights_of(found: list[Stack], ticks: Counter[int]) -> dict[int, float]:
    """Return the share of all CPU that one sample of each thread stands for.

    Unweighted samples would favour threads that are ready but have no core.
    """
    samples: Counter[int] = Counter()
    for stack in found:
        samples[stack.thread] += stack.count
    total = ticks.total()
    return {thread: ticks[thread] / total / number for thread, number in samples.items()}
