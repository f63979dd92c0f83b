"""The status lines of a crawl: in the log, or on a terminal as one live line below the log."""

from __future__ import annotations

import logging
import os
import sys
from io import TextIOBase
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO

from scrapy.utils.asyncio import create_looping_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

# Back to the first column, and erase the line (ECMA-48: EL).
_ERASE = "\r\x1b[2K"
_COLUMNS = 80
# Seconds between two drawings of the live line.
_INTERVAL = 1.0


class LiveLine:
    """A line on ``stream``, which must be a terminal.

    From `start` to `stop`, handlers of the root logger that write to the stream write above it.
    A terminal that is gone ends the line, and nothing else.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._lock = Lock()
        self._shown = ""
        self._is_gone = False
        self._redirected: list[logging.StreamHandler[Any]] = []

    @classmethod
    def on_terminal(cls) -> Self | None:
        """Return a line on standard error; None if that is no terminal that can show it."""
        stream = sys.stderr
        if stream is None or not stream.isatty() or os.environ.get("TERM") in {None, "", "dumb"}:
            return None
        return cls(stream)

    @property
    def has_log(self) -> bool:
        """Return whether the log is on the same terminal."""
        return bool(self._redirected)

    def start(self) -> None:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is self._stream:
                handler.setStream(_Above(self))
                self._redirected.append(handler)

    def show(self, text: str) -> None:
        """Draw a text in place of the last one, cut to the width of the terminal."""
        with self._lock:
            self._shown = text[: self._columns() - 1]
            self._write(_ERASE + self._shown)

    def write_above(self, text: str) -> None:
        """Write whole lines above the line."""
        with self._lock:
            self._write(f"{_ERASE}{text}{self._shown}" if self._shown else text)

    def stop(self) -> None:
        """Erase the line, and give the handlers their stream back."""
        for handler in self._redirected:
            handler.setStream(self._stream)
        self._redirected.clear()
        with self._lock:
            self._write(_ERASE if self._shown else "")
            self._shown = ""

    def fileno(self) -> int:
        return self._stream.fileno()

    def _write(self, text: str) -> None:
        if self._is_gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_gone = True

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            return _COLUMNS


class _Above(TextIOBase):
    """The stream of a log handler: it writes a record at a time, with its line break."""

    def __init__(self, line: LiveLine):
        self._line = line

    def write(self, text: str) -> int:
        self._line.write_above(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: each write is flushed."""

    def fileno(self) -> int:
        return self._line.fileno()


class StatusLog:
    """Tells a person how far a crawl is, from `start` to `stop`.

    It logs what ``line`` returns every ``interval`` seconds, unless that is empty. With ``is_live``
    and a terminal it draws what ``live`` returns, each second; a log on the same terminal then has
    no status lines.
    """

    def __init__(
        self,
        logger: logging.Logger,
        line: Callable[[], str],
        live: Callable[[], str],
        *,
        interval: float,
        is_live: bool,
    ):
        self._logger = logger
        self._status = line
        self._live = live
        self._interval = interval
        self._line = LiveLine.on_terminal() if is_live else None
        self._logging = create_looping_call(self._log)
        self._drawing = create_looping_call(self._draw)

    @property
    def write_above(self) -> Callable[[str], None] | None:
        """Return what writes whole lines above the live line; None without one."""
        return None if self._line is None else self._line.write_above

    def start(self) -> None:
        self._logging.start(self._interval, now=False)
        if self._line is not None:
            self._line.start()
            self._drawing.start(_INTERVAL, now=False)

    def stop(self) -> None:
        for call in (self._logging, self._drawing):
            if call.running:
                call.stop()
        if self._line is not None:
            self._line.stop()

    def _log(self) -> None:
        # Made in any case: it is left in the job folder too.
        line = self._status()
        if line and not (self._line is not None and self._line.has_log):
            self._logger.info("%s", line, extra={"event": "status"})

    def _draw(self) -> None:
        assert self._line is not None
        self._line.show(self._live())
