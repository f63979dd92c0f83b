"""A small real DNS server over UDP."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import threading
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = 1, 2, 3, 4, 5
A, NS, AAAA = 1, 2, 28
# The flag TC with no records: the answer is to be asked for over TCP.
TRUNCATED = 0x0200


@dataclass
class Zone:
    """The answers by name: (TTL, addresses), a response code, or None for no answer at all."""

    names: dict[str, tuple[int, list[str]] | int | None]
    asked: list[tuple[str, int]] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    """Names whose answers wait for their event."""
    no_aaaa: int = 0
    """The code by which every question for AAAA is answered, where it is not 0."""
    no_a: int = 0
    """The same for A."""
    mute: set[int] = field(default_factory=set)
    """The kinds of questions that have no answer."""
    port: int = 0


class _Server(asyncio.DatagramProtocol):
    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(self._answer(data, addr)))

    async def _answer(self, data: bytes, addr: tuple[str, int]) -> None:
        end = data.index(b"\0", 12) + 5
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
            at += 1 + data[at]
        name, (kind,) = ".".join(labels), struct.unpack(">H", data[end - 4 : end - 2])
        self.zone.asked.append((name, kind))
        self.zone.heard.set()
        if name in self.zone.held:
            await self.zone.held[name].wait()
        entry = self.zone.names.get(name, NXDOMAIN)
        if entry is None or kind in self.zone.mute:
            return
        if code := {A: self.zone.no_a, AAAA: self.zone.no_aaaa}.get(kind):
            entry = code
        code, records = (entry, []) if isinstance(entry, int) else (0, self._records(entry, kind))
        header = struct.pack(
            ">HHHHHH", *struct.unpack(">H", data[:2]), 0x8180 | code, 1, len(records), 0, 0
        )
        self.transport.sendto(header + data[12:end] + b"".join(records), addr)

    @staticmethod
    def _records(entry: tuple[int, list[str]], kind: int) -> list[bytes]:
        ttl, texts = entry
        addresses = [ip_address(text).packed for text in texts]
        size = 4 if kind == A else 16
        return [
            struct.pack(">HHHIH", 0xC00C, kind, 1, ttl, size) + address
            for address in addresses
            if len(address) == size
        ]


def closed_port() -> int:
    """Return a port of 127.0.0.1 without a name server: the kernel reports that at once."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def refusing_port() -> Iterator[int]:
    """Return a TCP port of 127.0.0.1 at which nobody listens or will listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


@contextmanager
def silent(port: int = 0) -> Iterator[int]:
    """Have a port of 127.0.0.1, which is returned, answer nothing: the kernel drops what finds no
    place in a queue that is full."""
    with socket.socket() as listener, ExitStack() as stack:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        stack.enter_context(socket.create_connection(listener.getsockname()))
        yield int(listener.getsockname()[1])


@contextmanager
def no_sockets_left() -> Iterator[None]:
    """Let this process open no more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def nameserver(
    names: dict[str, tuple[int, list[str]] | int | None],
    *,
    hold: Iterable[str] = (),
    host: str = "127.0.0.1",
) -> AsyncIterator[Zone]:
    zone = Zone(names, held={name: asyncio.Event() for name in hold})
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Server(zone), local_addr=(host, 0)
    )
    zone.port = transport.get_extra_info("sockname")[1]
    try:
        yield zone
    finally:
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        transport.close()


@contextmanager
def nameserver_in_thread(
    names: dict[str, tuple[int, list[str]] | int | None], host: str = "127.0.0.1"
) -> Iterator[Zone]:
    """Run a name server in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def opened() -> tuple[Any, Zone]:
        manager = nameserver(names, host=host)
        return manager, await manager.__aenter__()

    try:
        manager, zone = asyncio.run_coroutine_threadsafe(opened(), loop).result()
        try:
            yield zone
        finally:
            asyncio.run_coroutine_threadsafe(manager.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
