"""`crawl` for programs with an event loop, `run` for those without."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from krowlspider import errors
from krowlspider.errors import CrawlError
from krowlspider.library.arguments import in_temporary_folder, order_of
from krowlspider.library.messages import CrawlEnd, CrawlOrder, Frames, LogLine, Stats, frame
from krowlspider.library.page import Page
from krowlspider.library.process import CrawlProcess, former

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self, Unpack

    from krowlspider.library.arguments import Limits

# Bytes that are read at once.
_CHUNK = 256 * 1024


def crawl(
    seeds: str | Path | Iterable[str],
    *,
    contact: str,
    jobdir: str | os.PathLike[str] | None = None,
    archive: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    **limits: Unpack[Limits],
) -> AsyncCrawl:
    """Return a crawl from seeds: an asynchronous iterator of its pages, and a context manager.

    It starts as the first page is asked for, or with ``async with``.

    :param seeds: URLs or domains, one of them, or the path of a file with one a line
    :param contact: your e-mail address or URL, sent to the sites
    :param jobdir: folder of the crawl, in which the same call goes on; without it, a temporary one
    :param archive: whether pages are archived as WARC; None: only with ``jobdir``
    :param settings: settings of krowlspider and Scrapy, by name
    :param limits: as of `Limits`
    :raises ValueError: an argument is wrong
    :raises TypeError: it is of another type
    """
    return AsyncCrawl(
        order_of(seeds, limits, contact=contact, jobdir=jobdir, archive=archive, settings=settings)
    )


def run(
    seeds: str | Path | Iterable[str],
    *,
    contact: str,
    jobdir: str | os.PathLike[str] | None = None,
    archive: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    **limits: Unpack[Limits],
) -> BlockingCrawl:
    """Return a crawl from seeds: an iterator of its pages, and a context manager.

    It is `crawl` for programs without an event loop, with the same arguments and errors.
    """
    return BlockingCrawl(
        order_of(seeds, limits, contact=contact, jobdir=jobdir, archive=archive, settings=settings)
    )


class _Crawl:
    """A crawl that was ordered, and what its process has sent. It does no I/O but to start it.

    A page is acknowledged when the next one is asked for, or when the crawl is stopped without an
    error. One that is not comes again when a crawl goes on in the same folder.
    """

    def __init__(self, order: CrawlOrder):
        self._order = order
        self._child: CrawlProcess | None = None
        self._frames = Frames()
        self._pages: deque[Page] = deque()
        # Whether the program has a page that is not acknowledged.
        self._in_hand = False
        self._end: CrawlEnd | None = None
        self._is_over = False
        self._stats: dict[str, Any] = {}

    @property
    def stats(self) -> Mapping[str, Any]:
        """The stats of the crawl: about a second before the last page, and after the end the final
        ones."""
        return MappingProxyType(self._stats)

    def _start(self) -> CrawlProcess:
        self._order = in_temporary_folder(self._order)
        self._child = CrawlProcess(self._order)
        return self._child

    def _acknowledge(self) -> None:
        if self._child is not None and not self._child.is_ours:
            raise RuntimeError("this crawl is of another process: start one after the fork")
        if self._in_hand and self._child is not None:
            self._in_hand = False
            self._child.acknowledge()

    def _take(self) -> Page:
        self._in_hand = True
        return self._pages.popleft()

    def _received(self, data: bytes) -> None:
        """Take what the process has sent. Pages that come after a stop are left to the next run."""
        for message in self._frames.feed(data):
            match message:
                case Page():
                    assert self._child is not None
                    if not self._child.is_leaving:
                        self._pages.append(message)
                case LogLine():
                    _log(message)
                case Stats():
                    self._stats = message.stats
                case CrawlEnd():
                    self._end, self._stats = message, message.stats

    def _leave(self) -> None:
        """Have the crawl stop; do not wait for its end."""
        self._is_over = True
        self._pages.clear()
        if self._child is not None:
            self._child.leave()

    def _ended(self, code: int) -> None:
        """End with the process, which has this exit code.

        :raises KrowlError: the crawl has failed
        """
        self._is_over = True
        end = self._end
        if end is None:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            way = "" if self._order.temporary else "; the same jobdir goes on with it"
            raise CrawlError(f"the process of the crawl {how}{way}")
        if end.fault is not None:
            raise getattr(errors, end.fault.error, CrawlError)(end.fault.why)

    def __del__(self) -> None:
        # After ``break`` in a loop nothing else tells that the program wants no more pages.
        child = self._child
        if child is not None and not child.is_leaving and child.is_ours:
            child.leave()


class AsyncCrawl(_Crawl):
    """A crawl for one task of an event loop. See `crawl`."""

    def __init__(self, order: CrawlOrder):
        super().__init__(order)
        self._reading = asyncio.Lock()

    def __aiter__(self) -> AsyncIterator[Page]:
        return self

    async def __anext__(self) -> Page:
        if self._reading.locked():
            raise RuntimeError("another task waits for the next page of this crawl")
        async with self._reading:
            self._acknowledge()
            try:
                await self._read_until_page()
            except BaseException:
                # A task that was cancelled here wants no more pages.
                self._leave()
                raise
        if not self._pages:
            raise StopAsyncIteration
        return self._take()

    async def _read_until_page(self) -> None:
        """Return once there is a page, or the crawl is over."""
        if self._is_over:
            return
        child = self._child or await self._begin()
        loop = asyncio.get_running_loop()
        while not self._pages:
            try:
                data = await loop.sock_recv(child.socket, _CHUNK)
            except ConnectionResetError:
                # It has died with acknowledgements unread.
                data = b""
            if not data:
                # Threads of its pipelines may let it run on.
                self._ended(await asyncio.to_thread(child.wait))
                return
            self._received(data)

    async def _begin(self) -> CrawlProcess:
        for child in former(self._order.jobdir):
            await asyncio.to_thread(child.wait)
        child = self._start()
        child.socket.setblocking(False)
        # If it has died, reading tells.
        with suppress(ConnectionError):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(child.socket, frame(self._order))
        return child

    async def stop(self) -> None:
        """Stop the crawl, and return when it has committed and closed its files. The page that came
        last is acknowledged.

        It takes as long as the requests under way, DOWNLOAD_TIMEOUT at most. A task that waits for
        the next page gets none.
        """
        if self._child is None:
            self._is_over = True
        if self._is_over:
            return
        assert self._child is not None
        if not self._reading.locked():
            self._acknowledge()
        self._child.finish()
        async with self._reading:
            self._pages.clear()
            try:
                await self._read_until_page()
            except BaseException:
                self._leave()
                raise

    async def __aenter__(self) -> Self:
        if self._child is None and not self._is_over:
            await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.stop()
        elif self._child is not None:
            self._leave()
        if self._child is not None:
            await asyncio.to_thread(self._child.wait)


class BlockingCrawl(_Crawl):
    """A crawl for a program without an event loop. See `run`."""

    def __iter__(self) -> Iterator[Page]:
        return self

    def __next__(self) -> Page:
        self._acknowledge()
        try:
            self._read_until_page()
        except BaseException:
            self._leave()
            raise
        if not self._pages:
            raise StopIteration
        return self._take()

    def _read_until_page(self) -> None:
        if self._is_over:
            return
        child = self._child or self._begin()
        while not self._pages:
            try:
                data = child.socket.recv(_CHUNK)
            except ConnectionResetError:
                data = b""
            if not data:
                self._ended(child.wait())
                return
            self._received(data)

    def _begin(self) -> CrawlProcess:
        for child in former(self._order.jobdir):
            child.wait()
        child = self._start()
        with suppress(ConnectionError):
            child.socket.sendall(frame(self._order))
        return child

    def stop(self) -> None:
        """Stop the crawl, as `AsyncCrawl.stop`."""
        if self._child is None:
            self._is_over = True
        if self._is_over:
            return
        assert self._child is not None
        self._acknowledge()
        self._child.finish()
        self._pages.clear()
        try:
            self._read_until_page()
        except BaseException:
            self._leave()
            raise

    def __enter__(self) -> Self:
        if self._child is None and not self._is_over:
            self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        elif self._child is not None:
            self._leave()
        if self._child is not None:
            self._child.wait()


def _log(line: LogLine) -> None:
    """Pass a line to the program's logger of the same name, which decides what becomes of it."""
    logger = logging.getLogger(line.logger)
    if logger.isEnabledFor(line.level):
        logger.handle(
            logging.makeLogRecord(
                {
                    "name": line.logger,
                    "levelno": line.level,
                    "levelname": logging.getLevelName(line.level),
                    "msg": line.text,
                    "created": line.created,
                }
            )
        )
