"""Extension: starts the watchdog, which names what holds the event loop and has SIGINT end the
crawl even then."""

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
from importlib.resources import files
from socket import socketpair
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.utils.log import get_scrapy_root_handler

from krowlspider.frontier.holds import NOTES
from krowlspider.frontier.poison import BEAT_AT, MARK, MARK_AT
from krowlspider.job import Job
from krowlspider.watchdog import LOOK

if TYPE_CHECKING:
    from socket import socket
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# Has the stack of the main thread written. Nobody else uses it: the first real-time signals are the
# C library's.
_STACK_SIGNAL = signal.SIGRTMIN + 7


class Watchdog:
    """Has the loop beat once a second, and a process watch that it does: see
    `krowlspider.watchdog`."""

    def __init__(self, crawler: Crawler):
        self._job = Job.of(crawler)
        self._process: subprocess.Popen[bytes] | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        log = _log()
        self._signals, wake = socketpair()
        self._signals.setblocking(False)
        stack, self._stack = os.pipe()
        os.set_blocking(self._stack, False)
        faulthandler.register(_STACK_SIGNAL, self._stack, all_threads=False)
        # Signals go to the watchdog first, which passes them on to the loop: nothing else hears
        # them at once while a call in C goes on.
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
        # Blocked until it ignores them: a terminal sends Ctrl-C to both.
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
        # By its source: it may lie in an egg.
        with process.stdin as program:
            program.write((files("krowlspider") / "watchdog.py").read_bytes())
        return process

    def _beat(self) -> None:
        self._job.mark.beat(time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(LOOK, self._beat)

    def _stop(self) -> None:
        if self._process is None:
            return
        self._timer.cancel()
        signal.set_wakeup_fd(self._before)
        # It ends when nobody can write to it.
        self._signals.close()
        self._process.wait()
        self._process = None
        faulthandler.unregister(_STACK_SIGNAL)
        os.close(self._stack)


def _log() -> int:
    """The file descriptor that the log is written to."""
    stream = getattr(get_scrapy_root_handler(), "stream", None) or sys.stderr
    number: int = stream.fileno()
    return number
