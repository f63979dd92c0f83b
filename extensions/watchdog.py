"""Extension: start the watchdog process.

The watchdog logs which step holds the event loop, and lets SIGINT end the crawl even then.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.resources import files
from socket import socketpair
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.utils.log import get_scrapy_root_handler

from krowlspider.crawl.job import Job
from krowlspider.crawl.monitoring.watchdog import BLAMED, LOOK
from krowlspider.frontier.hosts.holds import NOTES
from krowlspider.frontier.work_mark import BEAT_AT, MARK, MARK_AT

if TYPE_CHECKING:
    from socket import socket
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# This signal writes the stack of the main thread. It is unused elsewhere: the C library uses the
# first real-time signals.
_STACK_SIGNAL = signal.SIGRTMIN + 7
_HOLDS, _BLAMED = "krowl/watchdog/holds_count", "krowl/watchdog/blamed_count"


class Watchdog:
    """Makes the event loop beat once a second, and starts a process that watches these beats.

    `krowlspider.crawl.monitoring.watchdog` is the code of this process.
    """

    def __init__(self, crawler: Crawler):
        self._job = Job.of(crawler)
        self._stats = crawler.stats
        self._process: subprocess.Popen[bytes] | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        self._stats.set_value(_HOLDS, 0)
        self._stats.set_value(_BLAMED, 0)
        aside = sum(hold.aside for hold in self._job.holds)
        self._stats.set_value("krowl/watchdog/set_aside_count", aside)
        log = _log()
        self._signals, wake = socketpair()
        self._signals.setblocking(False)
        stack, self._stack = os.pipe()
        os.set_blocking(self._stack, False)
        faulthandler.register(_STACK_SIGNAL, self._stack, all_threads=False)
        # Signals go to the watchdog first, which passes them on to the loop. Nothing else receives
        # them at once during a long call in C.
        number = self._signals.fileno()
        self._before = signal.set_wakeup_fd(number, warn_on_full_buffer=False)
        try:
            self._process = self._spawn(wake, stack, log)
        except OSError as error:
            signal.set_wakeup_fd(self._before)
            logger.warning("The event loop is not watched: %s", error)
            return
        finally:
            wake.close()
            os.close(stack)
        self._beat()

    def _spawn(self, wake: socket, stack: int, log: int) -> subprocess.Popen[bytes]:
        folder = self._job.folder.path
        task = {
            "pid": os.getpid(),
            "mark": str(folder / MARK),
            "mark_at": MARK_AT,
            "beat_at": BEAT_AT,
            "notes": str(folder / NOTES),
            "wake": wake.fileno(),
            "loop": self._before,
            "stack": stack,
            "stack_signal": _STACK_SIGNAL,
            "log": log,
        }
        passed = [number for number in (wake.fileno(), self._before, stack, log) if number >= 0]
        # A terminal sends Ctrl-C to both processes: the signals stay blocked until the watchdog
        # ignores them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            process = subprocess.Popen(  # noqa: S603 - our own source
                [sys.executable, "-I", "-S", "-", json.dumps(task)],
                stdin=subprocess.PIPE,
                pass_fds=passed,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert process.stdin is not None
        # The source is written to standard input, as the package may be inside an egg.
        with process.stdin as program:
            program.write((files("krowlspider.crawl.monitoring") / "watchdog.py").read_bytes())
        return process

    def _beat(self) -> None:
        self._job.mark.beat(time.monotonic())
        self._count()
        self._timer = asyncio.get_running_loop().call_later(LOOK, self._beat)

    def _count(self) -> None:
        """Count the holds that the watchdog has reported since the last call."""
        with suppress(OSError):
            told = self._signals.recv(4096)
            self._stats.inc_value(_HOLDS, len(told))
            self._stats.inc_value(_BLAMED, told.count(BLAMED))

    def _stop(self) -> None:
        if self._process is None:
            return
        self._timer.cancel()
        self._count()
        signal.set_wakeup_fd(self._before)
        # The watchdog ends when its socket is closed at this end.
        self._signals.close()
        self._process.wait()
        self._process = None
        faulthandler.unregister(_STACK_SIGNAL)
        os.close(self._stack)


def _log() -> int:
    """Return the file descriptor that the log is written to."""
    stream = getattr(get_scrapy_root_handler(), "stream", None) or sys.stderr
    number: int = stream.fileno()
    return number
