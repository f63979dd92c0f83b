"""Deliver pages to the program, as fast as it takes them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.library.messages import LogLine, Message, Stats, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import socket
    from typing import Any

    from krowlspider.library.page import Page

# Lines of the log that wait for the program. It may take no page for hours: the oldest are dropped.
LINES_MAX = 1000
# Seconds between two reports of the stats.
_REPORT = 1.0
# Bytes of acknowledgements that are read at once.
_ACKNOWLEDGED = 4096


class Lines(logging.Handler):
    """Keeps the lines of the log for the program."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: deque[LogLine] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - of whoever logs, as in the handlers of logging
            text = f"{record.msg!s} cannot be formatted with {record.args!r}"
        self.kept.append(LogLine(record.name, record.levelno, text, record.created))


class Delivery:
    """Sends pages and lines of the log, and waits until the program has taken each page.

    ``stop`` is called once, when the program wants no more pages; from then on none is taken.
    ``was_left``: the program wants no more.
    """

    def __init__(self, connection: socket, lines: Lines):
        self._connection = connection
        self._lines = lines
        self._stop: Callable[[], None] | None = None
        self._is_over = False
        self.was_left = False
        # Pages to send, and the futures of the pages that were sent, in this order.
        self._unsent: deque[tuple[Page, asyncio.Future[bool]]] = deque()
        self._sent: deque[asyncio.Future[bool]] = deque()
        # The stats that are not sent yet.
        self._stats: Stats | None = None
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, stats: Callable[[], Mapping[str, Any]], stop: Callable[[], None]) -> None:
        """Begin to send and to listen. ``stats`` returns the stats of the crawl."""
        self._stop = stop
        loop = asyncio.get_running_loop()
        self._connection.setblocking(False)
        loop.add_reader(self._connection, self._listen)
        self._tasks = [loop.create_task(self._send()), loop.create_task(self._report(stats))]

    async def give(self, page: Page) -> bool:
        """Return whether the program has taken a page, when it has, or wants no more."""
        if self._is_over:
            return False
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._unsent.append((page, taken))
        self._wake.set()
        return await taken

    def _listen(self) -> None:
        try:
            data = self._connection.recv(_ACKNOWLEDGED)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        for _ in data:
            taken = self._sent.popleft()
            if not taken.done():
                taken.set_result(True)
        if not data:
            self.was_left = True
            self._end()

    def _end(self) -> None:
        """Give back what was not taken, and have the crawl stop."""
        if self._is_over:
            return
        self._is_over = True
        asyncio.get_running_loop().remove_reader(self._connection)
        for taken in (*self._sent, *(taken for _, taken in self._unsent)):
            if not taken.done():
                taken.set_result(False)
        self._sent.clear()
        self._unsent.clear()
        if self._stop is not None:
            self._stop()

    async def _send(self) -> None:
        # If the program has gone, reading tells: it may have acknowledged pages before.
        with suppress(ConnectionError):
            while not self._is_over:
                await self._wake.wait()
                await self._send_news()
                if self._unsent:
                    page, taken = self._unsent.popleft()
                    self._sent.append(taken)
                    await self._put(page)
                if not self._unsent:
                    self._wake.clear()

    async def _send_news(self) -> None:
        lines = self._lines.kept
        while lines:
            await self._put(lines.popleft())
        if self._stats is not None:
            stats, self._stats = self._stats, None
            await self._put(stats)

    async def _put(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._connection, frame(message))

    async def _report(self, stats: Callable[[], Mapping[str, Any]]) -> None:
        while True:
            await asyncio.sleep(_REPORT)
            self._stats = Stats(dict(stats()))
            self._wake.set()

    async def close(self) -> None:
        """Send and take nothing more. What is being sent is sent to its end."""
        self._stop = None
        self._end()
        for task in self._tasks[1:]:
            task.cancel()
        self._wake.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
