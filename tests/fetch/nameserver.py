"""A small real DNS server over UDP on 127.0.0.1."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

NXDOMAIN, SERVFAIL = 3, 2
A, AAAA = 1, 28


@dataclass
class Zone:
    """name to (TTL, addresses), or to a response code, or to None: no answer at all."""

    names: dict[str, tuple[int, list[str]] | int | None]
    asked: list[tuple[str, int]] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    """Names whose answers wait for their event."""
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
        if entry is None:
            return
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


@asynccontextmanager
async def nameserver(
    names: dict[str, tuple[int, list[str]] | int | None], *, hold: Iterable[str] = ()
) -> AsyncIterator[Zone]:
    zone = Zone(names, held={name: asyncio.Event() for name in hold})
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Server(zone), local_addr=("127.0.0.1", 0)
    )
    zone.port = transport.get_extra_info("sockname")[1]
    try:
        yield zone
    finally:
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        transport.close()
