"""Run a process on the core of the crawlers, and measure its usage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CORE = 0
# Seconds; a crawl that takes longer hangs.
_TIMEOUT = 3600


@dataclass(frozen=True, slots=True)
class Usage:
    """``cpu_seconds`` are of all threads and children, user and system; ``rss_mb`` is the peak."""

    seconds: float
    cpu_seconds: float
    rss_mb: int


def measured(
    command: Sequence[str | Path], log: Path, cwd: Path = ROOT, cores: str = str(CORE)
) -> Usage:
    """Run a command to its end, on the crawlers' core or on ``cores``.

    :raises RuntimeError: its exit code is not 0, or it hangs; the message has the end of its log
    """
    # Flush what others have written, so that it does not disturb the run.
    os.sync()
    # Allow the cache of bytecode: without it, each start compiles the project.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["taskset", "-c", cores, *command],
            cwd=cwd,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    watch = threading.Timer(_TIMEOUT, process.kill)
    watch.start()
    try:
        _, status, used = os.wait4(process.pid, 0)
    except BaseException:
        process.send_signal(signal.SIGKILL)
        raise
    finally:
        watch.cancel()
    took = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        tail = log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{command[0]} ended with {process.returncode}:\n{tail}")
    return Usage(took, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)


def exit_on_sigterm() -> None:
    """End this process at SIGTERM by SystemExit, so that the processes it has started end too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
