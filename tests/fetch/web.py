"""A real server on 127.0.0.1 that plays a script of raw bytes, and a client that may connect to
it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from krowlspider.fetch.client import Client
from krowlspider.fetch.errors import Exchange, LoopClock, Observer
from krowlspider.fetch.guard import AddressGuard
from krowlspider.fetch.memory import FetchMemory, Memory
from krowlspider.fetch.resolver import Resolver
from tests.fetch.machine import routed

if TYPE_CHECKING:
    from krowlspider.fetch.http.head import Target

Run = Callable[[Any], Any]


class Peer:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes:
        """Return the next request with its body. Raises IncompleteReadError at the client's end."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return head + await self._reader.readexactly(int(line[15:]))
        return head

    async def some(self) -> bytes:
        """Return the received data. Raises IncompleteReadError at the client's end."""
        if data := await self._reader.read(65_536):
            return data
        raise asyncio.IncompleteReadError(b"", None)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def gone(self) -> None:
        """Wait until the client has closed."""
        with suppress(ConnectionError):
            await self._reader.read()

    def close(self) -> None:
        self._writer.close()

    def end(self) -> None:
        """Close this direction only."""
        self._writer.write_eof()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self._writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Web:
    """The requests and connections that the server has received."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[bytes] = []
        self.connections = 0
        self.accepted = asyncio.Event()
        self.gone = asyncio.Event()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.accepted.set()
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        read = peer.request

        async def noted() -> bytes:
            self.requests.append(await read())
            return self.requests[-1]

        peer.request = noted  # type: ignore[method-assign]
        try:
            await self._script(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            self.gone.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serve(
    script: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Web]:
    web = Web(script)
    server = await asyncio.start_server(web.accept, host, port, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        await web.stop()
        await server.wait_closed()


def answering(*responses: bytes) -> Script:
    """Return a script that answers each request with the next response, then waits for the
    client."""

    async def script(peer: Peer) -> None:
        for response in responses:
            await peer.request()
            await peer.send(response)
        await peer.gone()

    return script


def closing(response: bytes) -> Script:
    """Return a script that answers one request, and closes."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response)
        peer.close()

    return script


@asynccontextmanager
async def client(**changes: Any) -> AsyncIterator[Client]:
    clock = LoopClock(asyncio.get_running_loop())
    clock.start()
    resolver = Resolver(
        overrides={"*.test": "127.0.0.1"},
        servers=["127.0.0.1:9"],
        cache_size=10,
        timeout=2,
        loop_clock=clock,
        routes=routed(4),
    )
    options: dict[str, Any] = {
        "clock": clock,
        "resolver": resolver,
        "guard": AddressGuard(["127.0.0.0/8", "::1/128"]),
        "connect_timeout": 5,
        "first_byte_timeout": 5,
        "idle_timeout": 5,
        "max_idle": 10,
    }
    made = Client(**(options | changes))
    try:
        yield made
    finally:
        await made.close()
        await resolver.close()
        clock.stop()


def is_reused(exchange: Exchange) -> bool:
    """Return whether the connection had served an earlier exchange."""
    return exchange.times.dialled is None


async def fetch(
    made: Client,
    url: str,
    method: str = "GET",
    headers: Sequence[tuple[bytes, bytes]] = (),
    body: bytes = b"",
    *,
    timeout: float = 5,
    max_size: int = 10_000_000,
    observer: Observer | None = None,
    sign: Callable[[Target, str], bytes] | None = None,
) -> Exchange:
    return await made.fetch(
        url,
        method,
        headers,
        body,
        timeout=timeout,
        max_size=max_size,
        observer=observer,
        memory=FetchMemory(Memory()),
        sign=sign,
    )
