"""The route of a CDX server: an answer is made in threads, and sent as its client reads it."""

from __future__ import annotations

import asyncio
import logging
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from krowlspider.archive.disk import ArchiveError
from krowlspider.cdx.errors import QueryError
from krowlspider.cdx.pace import CONNECTION, ClientWork, Pace, charged
from krowlspider.cdx.query import Dialect
from krowlspider.cdx.responses import CdxResponse, answer, read
from krowlspider.job.monitoring.endpoint import MORE_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from krowlspider.cdx.archives import Archives
    from krowlspider.job.monitoring.endpoint import Route

_T = TypeVar("_T")
logger = logging.getLogger(__name__)

# Answers that are under way at most: each has a thread, and holds some MB.
ANSWERS_MAX = 8
# Clients that wait for their refusal at most.
_REFUSED_MAX = 64
# Faults of the archive that are logged.
_NOTED_MAX = 100
# Seconds between two looks at a piece that takes long.
_LOOK = 1.0
_GZIP = 31  # zlib's ``wbits``
_GZIP_LEVEL = 1


class CdxRoute:
    """Answers queries about ``archives``. Each answer has ``headers``. All answers together take
    at most about ``share`` of a core, if that is below 1; a client that is refused waits first."""

    def __init__(self, archives: Archives, headers: Mapping[str, str], share: float = 1.0):
        self._archives = archives
        self._headers = headers
        self._pace = Pace(share)
        self._under_way = 0
        self._refused = 0
        # Faults that were logged.
        self._noted: set[str] = set()
        self._threads: ThreadPoolExecutor | None = None

    def routes(self) -> dict[str, Route]:
        """Return what answers at each path: in pywb's dialect, and in OutbackCDX's."""
        return {
            "/cdx": partial(self._answer, Dialect.PYWB),
            "/outbackcdx": partial(self._answer, Dialect.OUTBACK),
        }

    async def _answer(self, dialect: Dialect, request: web.BaseRequest) -> web.StreamResponse:
        made = await charged(self._pace, self._answered(dialect, request))
        if not made.prepared:
            made.headers.update(self._headers)
        return made

    async def _answered(self, dialect: Dialect, request: web.BaseRequest) -> web.StreamResponse:
        if self._under_way >= ANSWERS_MAX:
            await self._hold(request)
            return _failed(503, f"{ANSWERS_MAX} queries are being answered: ask again later")
        self._under_way += 1
        work = ClientWork(self._pace)
        # Its connection stays open though others come.
        request[MORE_TIME]()
        try:
            await self._rest(request)
            self._pace.charge(CONNECTION)
            query = read(request.query, request.query.getall("filter", []), dialect)
            found = await self._in_thread(
                lambda: answer(self._archives, query, work), work, request
            )
            first = await self._in_thread(lambda: next(found.pieces, b""), work, request)
            return await self._send(found, first, work, request)
        except QueryError as error:
            return _failed(400, str(error))
        except (ArchiveError, OSError) as error:
            self._note(error)
            return _failed(500, str(error))
        finally:
            # What a thread is doing for this client ends.
            work.end()
            self._under_way -= 1

    async def _send(
        self, found: CdxResponse, first: bytes, work: ClientWork, request: web.BaseRequest
    ) -> web.StreamResponse:
        sent = web.StreamResponse(headers={**self._headers, "Content-Type": found.media_type})
        if found.key.isascii() and found.key.isprintable():
            sent.headers["outbackcdx-urlkey"] = found.key
        pieces, accepted = found.pieces, request.headers.get("Accept-Encoding", "")
        if "gzip" in accepted.lower() and not found.is_plain:
            sent.headers["Content-Encoding"] = "gzip"
            pieces, first = _compressed(first, pieces), b""
        if request.method == "HEAD":
            return sent
        sent.force_close()
        await sent.prepare(request)
        try:
            piece: bytes | None = first
            while piece is not None:
                if piece:
                    await sent.write(piece)
                    request[MORE_TIME]()
                piece = await self._in_thread(lambda: next(pieces, None), work, request)
            await sent.write_eof()
        except (ArchiveError, OSError) as error:
            self._note(error)
            # The client sees that the answer is not whole.
            if request.transport is not None:
                request.transport.abort()
        return sent

    def _note(self, error: ArchiveError | OSError) -> None:
        """Log why an archive cannot be read, once. A connection that breaks off is no fault."""
        why = str(error)
        if not isinstance(error, ConnectionError) and len(self._noted) < _NOTED_MAX:
            if why not in self._noted:
                logger.error("CDX: an answer has failed: %s", why)
            self._noted.add(why)

    async def _hold(self, request: web.BaseRequest) -> None:
        """Let a client that is refused wait, the longer the more of them do: those that ask again
        at once take a part of the share."""
        if self._refused >= _REFUSED_MAX:
            return
        self._refused += 1
        try:
            left = self._pace.refusal_wait(self._refused)
            while left > 0.0:
                request[MORE_TIME]()
                await asyncio.sleep(min(left, _LOOK))
                left -= _LOOK
            self._pace.charge(CONNECTION)
        finally:
            self._refused -= 1

    async def _rest(self, request: web.BaseRequest) -> None:
        """Rest for what was done before. A request is charged later: its client may go first."""
        left = self._pace.charge(0.0)
        while left > 0.0:
            await asyncio.sleep(min(left, _LOOK))
            left -= _LOOK
            request[MORE_TIME]()

    async def _in_thread(
        self, act: Callable[[], _T], work: ClientWork, request: web.BaseRequest
    ) -> _T:
        """Return what a thread does for the client, which waits as long as it takes."""

        def paced() -> _T:
            with work.working():
                return act()

        if self._threads is None:
            self._threads = ThreadPoolExecutor(ANSWERS_MAX, thread_name_prefix="cdx")
        doing = asyncio.get_running_loop().run_in_executor(self._threads, paced)
        # If the client goes first, nobody asks how it ended.
        doing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while not (await asyncio.wait([doing], timeout=_LOOK))[0]:
                request[MORE_TIME]()
        finally:
            doing.cancel()
        return doing.result()


def _compressed(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces as one gzip member, each so that the client can read it at once."""
    member = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
    yield member.compress(first)
    for piece in pieces:
        yield member.compress(piece)
    yield member.flush()


def _failed(status: int, why: str) -> web.Response:
    # As pywb's.
    return web.json_response({"message": why}, status=status)
