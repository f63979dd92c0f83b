"""Extension: log which step holds the event loop, and let SIGINT end the crawl even then."""

from __future__ import annotations

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
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.log import get_scrapy_root_handler

from krowlspider.config.log import JsonFormatter
from krowlspider.frontier.hosts.host_record import NOTES
from krowlspider.frontier.work_mark import BEAT_AT, MARK, MARK_AT
from krowlspider.job.crawls import job_of
from krowlspider.job.monitoring.watchdog import BLAMED, LOOK

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# This signal writes the stack of the main thread. It is unused elsewhere: the C library uses the
# first real-time signals.
_STACK_SIGNAL = signal.SIGRTMIN + 7


class Watchdog:
    """Makes the event loop beat once a second, and starts a process that watches these beats."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._stats = crawler.stats
        self._call = create_looping_call(self._beat)
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        job = self._job = job_of(self._crawler)
        aside = sum(hold.aside for hold in job.last_process.holds)
        self._stats.set_value("krowl/watchdog/set_aside_count", aside)
        self._watch = LoopWatch(job.folder.path)
        try:
            self._watch.start()
        except OSError as error:
            logger.warning("The event loop is not watched: %s", error)
        else:
            self._call.start(LOOK)

    def _beat(self) -> None:
        self._job.mark.beat(time.monotonic())
        for name, count in self._watch.count().items():
            self._stats.inc_value(name, count)

    def _stop(self) -> None:
        if self._call.running:
            self._beat()
            self._call.stop()
            self._watch.stop()


class LoopWatch:
    """Runs `krowlspider.job.monitoring.watchdog` as a process from `start` to `stop`.

    ``folder`` is the job folder. The process writes to the log of this one. Only the first crawl of
    a process has a watchdog, because signals can be handed to one watchdog only.
    """

    _is_watched = False

    def __init__(self, folder: Path):
        self._folder = folder
        handler = get_scrapy_root_handler()
        log = getattr(handler, "stream", None) or sys.stderr
        self._log: int = log.fileno()
        formatter = None if handler is None else handler.formatter
        self._fields = formatter.fields if isinstance(formatter, JsonFormatter) else None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """:raises OSError: the process cannot be started, or another crawl here has one"""
        if LoopWatch._is_watched:
            raise OSError("another crawl of this process has the watchdog")
        self._signals, wake = socketpair()
        self._signals.setblocking(False)
        stack, self._stack = os.pipe()
        os.set_blocking(self._stack, False)
        faulthandler.register(_STACK_SIGNAL, self._stack, all_threads=False)
        # Signals go to the watchdog first, which passes them on to the loop. Nothing else receives
        # them together during a long call in C.
        self._before = signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)
        try:
            self._process = self._spawn(wake, stack)
        except OSError:
            signal.set_wakeup_fd(self._before)
            raise
        finally:
            wake.close()
            os.close(stack)
        LoopWatch._is_watched = True

    def _spawn(self, wake: socket, stack: int) -> subprocess.Popen[bytes]:
        task = {
            "pid": os.getpid(),
            "mark": str(self._folder / MARK),
            "mark_at": MARK_AT,
            "beat_at": BEAT_AT,
            "notes": str(self._folder / NOTES),
            "wake": wake.fileno(),
            "loop": self._before,
            "stack": stack,
            "stack_signal": _STACK_SIGNAL,
            "log": self._log,
            "fields": self._fields,
        }
        passed = (wake.fileno(), self._before, stack, self._log)
        # A terminal sends Ctrl-C to both processes: the signals stay blocked until the watchdog
        # ignores them.
        stops = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, stops)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own source
                [sys.executable, "-I", "-S", "-", json.dumps(task)],
                stdin=subprocess.PIPE,
                pass_fds=[number for number in passed if number >= 0],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert process.stdin is not None
        # The source is written to standard input, as the package may be inside an egg.
        with process.stdin as program:
            program.write((files("krowlspider.job.monitoring") / "watchdog.py").read_bytes())
        return process

    def count(self) -> dict[str, int]:
        """Return the holds reported since the last call, as stats."""
        notes = b""
        with suppress(OSError):
            notes = self._signals.recv(4096)
        return {
            "krowl/watchdog/holds_count": len(notes),
            "krowl/watchdog/blamed_count": notes.count(BLAMED),
        }

    def stop(self) -> None:
        """End the watchdog. Do nothing if it was not started."""
        if self._process is None:
            return
        signal.set_wakeup_fd(self._before)
        # The watchdog ends when its socket is closed at this end.
        self._signals.close()
        self._process.wait()
        faulthandler.unregister(_STACK_SIGNAL)
        os.close(self._stack)
        LoopWatch._is_watched = False
