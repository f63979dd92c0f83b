"""A connection of the mock web: httptools parses requests, and they are answered in turn."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import httptools

from tests.mockweb.log import Entry
from tests.mockweb.reply import DRIPS_PER_S, PIECE, Reply, Site, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROL_HOST = "mockweb.invalid"
"""A request for this host is not logged. It flushes the log and is answered by 204."""

_CONTROL = Reply(204, latency=0.02)
"""The latency lets connections that were lost before the request be logged before the answer."""


class Clocks:
    """The clocks of this machine, in seconds."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class RequestLog(Protocol):
    """Takes the entries of requests."""

    def add(self, entry: Entry) -> None:
        """Add an entry."""

    def flush(self) -> None:
        """Write the entries added."""


class Web:
    """Shared by all connections: the site, the number of requests for each URL, the log."""

    def __init__(self, site: Site, log: RequestLog | None, clocks: Clocks | None = None) -> None:
        self.site = site
        self.log = log
        self.clocks = clocks or Clocks()
        self.connections = 0
        self.open: set[asyncio.Transport] = set()
        self.idle = asyncio.Event()
        self.idle.set()
        self.asked: dict[tuple[str, str], int] = {}

    def opened(self, transport: asyncio.Transport) -> None:
        """Add an open connection. `idle` is set while there is none."""
        self.open.add(transport)
        self.idle.clear()

    def lost(self, transport: asyncio.Transport) -> None:
        """Remove a connection, after its requests were logged."""
        self.open.discard(transport)
        if not self.open:
            self.idle.set()

    def answer(self, host: str, target: str) -> Reply:
        """Answer the next request for the target on the host (`host:port`)."""
        if host == CONTROL_HOST:
            return _CONTROL
        key = (host, target)
        nth = self.asked.get(key, 0)
        self.asked[key] = nth + 1
        return self.site.answer(host.rpartition(":")[0] or host, target, nth)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request, and the part of its answer that was sent."""

    start: float
    host: str = ""
    target: str = ""
    method: str = ""
    ua: str = ""
    keep_alive: bool = True
    reply: Reply | None = None
    sent: int = 0
    sha1: str = ""


class Connection(asyncio.Protocol):
    """Answers requests in order. It closes at once if the peer is not on loopback."""

    def __init__(self, web: Web, *, tls: bool) -> None:
        self._web = web
        self._tls = tls
        self._id = web.connections
        web.connections += 1
        self._parser = httptools.HttpRequestParser(self)
        self._read_at = 0.0
        self._wrote_at = 0.0
        self._reading: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._serving: Exchange | None = None
        self._rest: Iterator[bytes] = iter(())
        self._digest = hashlib.sha1(usedforsecurity=False)
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are like asyncio.Transport, but not of that class.
        self._transport = cast("asyncio.Transport", transport)
        self._local = transport.get_extra_info("sockname")
        self._peer = transport.get_extra_info("peername")
        if not self._peer[0].startswith("127."):
            self._transport.abort()
        self._web.opened(self._transport)

    def data_received(self, data: bytes) -> None:
        self._read_at = self._web.clocks.monotonic()
        if self._transport.is_closing():
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.close()
        self._serve()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        unfinished = [self._serving] if self._serving is not None else []
        for exchange in (*unfinished, *self._waiting):
            self._log(exchange, complete=False)
        self._serving = None
        self._waiting.clear()
        self._web.lost(self._transport)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._serving is not None and self._timer is None:
            self._send()

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        self._reading = Exchange(self._read_at)

    def on_url(self, url: bytes) -> None:
        assert self._reading is not None
        self._reading.target += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._reading is not None
        if name.lower() == b"host":
            self._reading.host = value.decode("latin-1").lower()
        elif name.lower() == b"user-agent":
            self._reading.ua = value.decode("latin-1")

    def on_message_complete(self) -> None:
        exchange = self._reading
        assert exchange is not None
        exchange.method = self._parser.get_method().decode("latin-1")
        exchange.keep_alive = self._parser.should_keep_alive()
        exchange.host = exchange.host or f"{self._local[0]}:{self._local[1]}"
        self._waiting.append(exchange)

    # --- answers ---

    def _serve(self) -> None:
        if self._serving is not None or not self._waiting or self._transport.is_closing():
            return
        exchange = self._serving = self._waiting.popleft()
        reply = exchange.reply = self._web.answer(exchange.host, exchange.target)
        if reply.latency:
            self._timer = asyncio.get_running_loop().call_later(reply.latency, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        self._timer = None
        exchange = self._serving
        assert exchange is not None
        assert exchange.reply is not None
        if exchange.host == CONTROL_HOST and self._web.log is not None:
            self._web.log.flush()
        head_only = exchange.method == "HEAD"
        wire = exchange.reply.wire() if exchange.keep_alive and not head_only else None
        if wire is not None:
            self._wrote_at = self._web.clocks.monotonic()
            self._transport.write(wire.data)
            exchange.sent, exchange.sha1 = len(wire.data), wire.sha1
            self._finish(exchange)
            return
        self._digest = hashlib.sha1(usedforsecurity=False)
        self._rest = pieces(exchange.reply, head_only=head_only, close=not exchange.keep_alive)
        self._send()

    def _send(self) -> None:
        """Write until the end, the next drip, or the transport's buffer is full."""
        self._timer = None
        exchange = self._serving
        assert exchange is not None
        assert exchange.reply is not None
        drip = exchange.reply.drip
        while not self._paused:
            piece = next(self._rest, None)
            if piece is None:
                self._finish(exchange)
                return
            # Before the write: a client may read the last byte before this process continues.
            self._wrote_at = self._web.clocks.monotonic()
            self._transport.write(piece)
            self._digest.update(piece)
            exchange.sent += len(piece)
            # Return to the loop after each full piece: uvloop pauses a writer only there.
            if drip or len(piece) == PIECE:
                pause = max(1 / DRIPS_PER_S, 1 / drip) if drip else 0.0
                self._timer = asyncio.get_running_loop().call_later(pause, self._send)
                return

    def _finish(self, exchange: Exchange) -> None:
        assert exchange.reply is not None
        self._log(exchange, complete=True)
        self._serving = None
        if exchange.reply.closes or not exchange.keep_alive:
            self._waiting.clear()
            self._transport.close()
        elif self._waiting:
            asyncio.get_running_loop().call_soon(self._serve)

    def _log(self, exchange: Exchange, *, complete: bool) -> None:
        log, reply = self._web.log, exchange.reply
        if log is None or exchange.host == CONTROL_HOST:
            return
        log.add(
            Entry(
                start=exchange.start,
                end=max(self._wrote_at, exchange.start)
                if complete
                else self._web.clocks.monotonic(),
                host=exchange.host,
                path=exchange.target,
                method=exchange.method,
                status=reply.status if reply is not None and exchange.sent else 0,
                bytes=exchange.sent,
                sha1=exchange.sha1 or (self._digest.hexdigest() if exchange.sent else ""),
                ua=exchange.ua,
                conn=self._id,
                peer=f"{self._peer[0]}:{self._peer[1]}",
                tls=self._tls,
                complete=complete,
                retry_after=reply.retry_after(self._web.clocks.wall())
                if reply is not None
                else 0.0,
                address=self._local[0],
            )
        )
