"""Parts of a running crawl's frontier, for ``scrapy sql``: a stream of pairs as the store has them.

A stream has blocks: the length in 4 bytes, then as msgpack the name of the part, and pairs of key
and value. A block of length 0 is its end: without it, it is not whole.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from krowlspider.frontier.admin.ranges import RANGES
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.job.monitoring.endpoint import MORE_TIME
from krowlspider.views.live_page import body_of, failed, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.frontier.store.store import Store
    from krowlspider.job.monitoring.endpoint import Route

# Seconds, pairs and bytes of a block. After each, the event loop rests for _RESTS times the seconds
# that it took: a reader takes a tenth of the loop's time.
_SLICE = 0.003
_PAIRS = 2000
_BYTES = 500_000
_RESTS = 9.0
# Seconds of a stream. LevelDB keeps what is replaced meanwhile on disk.
STREAM_MAX = 600.0

_encode = msgspec.msgpack.Encoder().encode


def rows_routes(store: Callable[[], Store], token: str) -> dict[str, Route]:
    """Return what answers a POST with the names of parts: ``{"parts": ["hosts"]}``."""
    return {"POST /api/v1/rows": Rows(store, token.encode()).answer}


class Rows:
    """Sends the parts to one reader at a time."""

    def __init__(self, store: Callable[[], Store], token: bytes):
        self._store = store
        self._token = token
        self._is_busy = False

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await body_of(request, self._token)
        if isinstance(body, web.Response):
            return body
        try:
            names = msgspec.convert(read_json(body), dict[str, list[str]])["parts"]
        except (ValueError, KeyError):
            return failed(400, 'give {"parts": [...]}')
        if unknown := [name for name in names if name not in RANGES]:
            return failed(400, f"{unknown[0][:40]!r} is none of {', '.join(RANGES)}")
        if self._is_busy:
            return failed(503, "the frontier is being read by another scrapy sql: try again")
        self._is_busy = True
        try:
            return await self._send(list(dict.fromkeys(names)), request)
        finally:
            self._is_busy = False

    async def _send(self, names: list[str], request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        answer.force_close()
        await answer.prepare(request)
        try:
            async with asyncio.timeout(STREAM_MAX):
                await self._stream(names, answer, request[MORE_TIME])
        except (TimeoutError, *STORE_ERRORS):
            # Without its end, the reader knows that it is not whole.
            if request.transport is not None:
                request.transport.abort()
        return answer

    async def _stream(
        self, names: list[str], answer: web.StreamResponse, give_time: Callable[[], None]
    ) -> None:
        # All at once, so that they are of one moment.
        parts = [(name, RANGES[name](self._store())) for name in names]
        first = [(name, list(_next(pairs, 1)), pairs) for name, pairs in parts]
        for name, pairs, others in first:
            await answer.write(_block(name, pairs))
            while True:
                begun = perf_counter()
                some = list(_next(others, _PAIRS))
                if not some:
                    break
                block = _block(name, some)
                spent = perf_counter() - begun
                await answer.write(block)
                give_time()
                await asyncio.sleep(_RESTS * spent)
        await answer.write(bytes(4))


def _next(pairs: Iterator[tuple[bytes, bytes]], most: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the next pairs, as many as are read within a slice."""
    end, size = perf_counter() + _SLICE, 0
    for count, pair in enumerate(pairs, 1):
        yield pair
        size += len(pair[0]) + len(pair[1])
        if count >= most or size >= _BYTES or (count % 50 == 0 and perf_counter() >= end):
            return


def _block(name: str, pairs: list[tuple[bytes, bytes]]) -> bytes:
    block = _encode((name, pairs))
    return len(block).to_bytes(4) + block
