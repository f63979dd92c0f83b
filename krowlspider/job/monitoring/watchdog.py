"""The watchdog process: logs which step holds the event loop of a crawl.

A thread would not see it: a call in C that keeps the interpreter lock stops all Python threads and
all signal handlers. If a signal to stop waits while a step holds the loop, the process kills the
crawl. An interpreter without packages runs it from its source, so it imports only the standard
library.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from math import inf
from mmap import ACCESS_READ, mmap
from select import select
from struct import Struct
from typing import NoReturn
from zlib import crc32

# Seconds for which a step may hold the loop before it is logged; seconds between two looks and
# between two beats of the loop.
HELD = 5.0
LOOK = 1.0
# Seconds to wait for the stack of the main thread.
_STACK = 0.5
# Most frames of the stack that are logged, the innermost first.
_FRAMES = 4
# Sent to the crawl for each hold, one byte: whether a host is blamed.
BLAMED, NOBODY = b"b", b"n"
# Most holds that one process notes, about 2 MB.
_NOTES_MAX = 1000
_LOGGER = "krowlspider.job.monitoring.watchdog"
_STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_HEAD = Struct(">HI")
_BEAT = Struct("=d")
_FRAME = re.compile(rb'File "([^"]*)", line (\d+) in (\S+)')


class Hold:
    """A hold of the event loop.

    ``seconds`` is the time for which the loop has not turned, ``steady`` the part of it with the
    same mark.
    """

    def __init__(self) -> None:
        self.beat = inf
        self.mark = b""
        self.seconds = 0.0
        self.steady = 0.0

    def look(self, beat: float, mark: bytes, passed: float) -> float:
        """Take in the beat and the mark, ``passed`` seconds after the last look.

        Return for how many seconds the loop was held if it has turned since, else 0.
        """
        if beat != self.beat or beat == inf:
            # A crawl that closes beats no more: its last turn came since the last look.
            turned = self.seconds + self.beat if beat == inf else beat
            before, self.beat = self.beat, beat
            self.seconds = self.steady = 0.0
            self.mark = mark
            return 0.0 if before == inf else turned - before - LOOK
        # Time for which the machine or the job was suspended is no hold.
        passed = min(passed, 2 * LOOK)
        self.seconds += passed
        self.steady = self.steady + passed if mark == self.mark else 0.0
        self.mark = mark
        return 0.0

    @property
    def is_long(self) -> bool:
        """Return whether the loop should have turned HELD seconds ago."""
        return self.seconds >= HELD + LOOK

    @property
    def culprit(self) -> tuple[str, str] | None:
        """Return host and URL of the step that holds the loop.

        None without a mark, or if several pages share the blame. The URL is empty for work on a
        host that is for none of its pages.
        """
        return None if self.steady < HELD - LOOK else _read_mark(self.mark)

    def strands(self, signalled: float) -> bool:
        """Return whether a signal to stop, which came at ``signalled`` (0: none), waits in vain.

        A crawl that received the signal may take long to close, but no page may take so long.
        """
        if not (self.is_long and signalled):
            return False
        return signalled > self.beat or self.culprit is not None


def _read_mark(mark: bytes) -> tuple[str, str] | None:
    length, checksum = _HEAD.unpack_from(mark)
    key = mark[_HEAD.size :][:length]
    if not key or crc32(key) != checksum:
        return None
    url = mark[_HEAD.size + length :].partition(b"\0")[0]
    return key[1 : key.index(b"\0")].decode(), url.decode(errors="replace")


class Watchdog:
    """Watches process ``pid``.

    ``mark`` is the file of the mark; ``mark_at`` and ``beat_at`` are offsets in it. ``notes`` is
    the file of holds. ``stack_signal`` makes the crawl write a stack to ``stack``. ``wake``,
    ``stack``, ``log`` and ``loop`` are file descriptors. Signals come from ``wake`` and are passed
    on to ``loop``, unless it is -1; one byte for each hold goes back through ``wake``. ``fields``
    are those of each line of the log as JSON; None: the lines are text.
    """

    def __init__(
        self,
        *,
        pid: int,
        mark: str,
        mark_at: int,
        beat_at: int,
        notes: str,
        wake: int,
        loop: int,
        stack: int,
        stack_signal: int,
        log: int,
        fields: dict[str, object] | None = None,
    ):
        with open(mark, "rb") as file:  # noqa: PTH123 - pathlib would be a third of its memory
            self._map = mmap(file.fileno(), 0, access=ACCESS_READ)
        self._pid, self._mark_at, self._beat_at, self._notes = pid, mark_at, beat_at, notes
        self._wake, self._loop, self._stack, self._log = wake, loop, stack, log
        self._stack_signal = stack_signal
        self._fields = fields
        self._hold = Hold()
        # When a signal to stop last came, and its number.
        self._signalled = 0.0
        self._signal = 0
        self._is_logged = False
        self._noted = 0

    def run(self) -> None:
        """Watch until the process is gone or closes its end of ``wake``."""
        before = time.monotonic()
        try:
            while os.getppid() == self._pid:
                if select([self._wake], [], [], LOOK)[0] and not self._hear():
                    self._tell_if_free(0.0)
                    return
                now = time.monotonic()
                self._look(0.0 if self._is_stopped() else now - before)
                before = now
        except (FileNotFoundError, ProcessLookupError):
            # The process ended between two lines.
            return

    def _hear(self) -> bool:
        """Read the signals that have come; return False if the other end is closed."""
        numbers = os.read(self._wake, 4096)
        if self._loop >= 0:
            # A full pipe has woken the loop already.
            with suppress(OSError):
                os.write(self._loop, numbers)
        for number in _STOPS.intersection(numbers):
            self._signal, self._signalled = number, time.monotonic()
        return bool(numbers)

    def _is_stopped(self) -> bool:
        with open(f"/proc/{self._pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b") ")[2][:1] in {b"T", b"t"}

    def _tell_if_free(self, passed: float) -> None:
        (beat,) = _BEAT.unpack_from(self._map, self._beat_at)
        lasted = self._hold.look(beat, self._map[self._mark_at : self._beat_at], passed)
        if self._is_logged and lasted:
            self._log_line(
                "INFO", "loop_free", f"The event loop is free again after {lasted:.0f} s"
            )
        self._is_logged &= self._hold.is_long

    def _look(self, passed: float) -> None:
        self._tell_if_free(passed)
        hold = self._hold
        if not hold.is_long:
            return
        if not self._is_logged:
            self._is_logged = True
            self._report()
        if hold.strands(self._signalled):
            self._kill()

    def _report(self) -> None:
        host, url = self._hold.culprit or ("", "")
        if host:
            self._note(host, url)
        # The crawl may have ended meanwhile.
        with suppress(OSError):
            os.write(self._wake, BLAMED if host else NOBODY)
        what = (
            f"{url} (host {host})" if url else f"work on host {host}" if host else "no single page"
        )
        end = "; after a second time the next start sets the host aside for a day" if host else ""
        seconds = self._hold.seconds - LOOK
        self._log_line(
            "WARNING",
            "loop_held",
            f"The event loop is held for {seconds:.0f} s, by {what}, in {self._frames()}:"
            f" nothing is fetched meanwhile. SIGINT still ends the crawl{end}",
        )

    def _note(self, host: str, url: str) -> None:
        self._noted += 1
        if self._noted <= _NOTES_MAX:
            with open(self._notes, "ab", buffering=0) as file:  # noqa: PTH123
                file.write(json.dumps({"host": host, "url": url}).encode() + b"\n")

    def _frames(self) -> str:
        """Return the innermost frames of the crawl's main thread, which its handler in C writes."""
        os.kill(self._pid, self._stack_signal)
        dump = b""
        if select([self._stack], [], [], _STACK)[0]:
            # The stack usually comes in one read. If not, the innermost frames come first.
            time.sleep(_STACK / 10)
            dump = os.read(self._stack, 65_536)
        frames = [
            f"{'/'.join(_text(path).split('/')[-2:])}:{_text(line)} {_text(name)}"
            for path, line, name in _FRAME.findall(dump)[:_FRAMES]
        ]
        return " < ".join(frames) or "an unknown place"

    def _kill(self) -> NoReturn:
        self._log_line(
            "ERROR",
            "loop_held_at_stop",
            f"{signal.Signals(self._signal).name} received while the event loop is held: ended as"
            " by kill -9. Committed work is on disk, and the next start goes on",
        )
        os.kill(self._pid, signal.SIGKILL)
        # The first process of a container cannot be killed from inside. Do not try again and log
        # each second.
        sys.exit()

    def _log_line(self, level: str, event: str, text: str) -> None:
        """Write a line as the log's other ones (`krowlspider.config.log`)."""
        if self._fields is None:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{_LOGGER}] {level}: {text}"
        else:
            now = time.time()
            second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
            known = {"time": f"{second}.{int(now % 1 * 1000):03}Z", "level": level}
            line = json.dumps(
                {**known, "logger": _LOGGER, "event": event, "message": text, **self._fields}
            )
        os.write(self._log, f"{line}\n".encode())


def _text(part: bytes) -> str:
    return part.decode(errors="replace")


def main(task: str) -> None:
    """Run a watchdog. ``task`` is the JSON of the arguments of `Watchdog`."""
    # These signals are for the crawl: a terminal and a service manager send them to all processes.
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)
    Watchdog(**json.loads(task)).run()


if __name__ == "__main__":
    main(sys.argv[1])
