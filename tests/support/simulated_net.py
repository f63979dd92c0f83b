"""A network in memory: one end reads `HOP` seconds later what the other writes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Seconds from end to end, and those between two pieces of data. HOP must be far longer than the CPU
# time of pages: hosts rest for it, but it takes no simulated time.
HOP = 0.01
_NEXT = 0.0005
# Most bytes that arrive at once, and most on their way before the writer is paused.
_PIECE = 65_536
_ROOM = 4 * _PIECE


class End(asyncio.Transport):
    """One end of a connection. `join` makes both."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol, **extra: object
    ) -> None:
        super().__init__(extra)
        self._loop = loop
        self._protocol = protocol
        self._peer: End
        self._under_way: deque[bytes] = deque()
        self._size = 0
        self._delivery: asyncio.TimerHandle | None = None
        self._closing = False
        self._lost = False
        self._writer_waits = False
        self._reads = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        self._peer._plan()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._lost or not data:
            return
        content = bytes(data)
        self._size += len(content)
        self._under_way += [content[at : at + _PIECE] for at in range(0, len(content), _PIECE)]
        self._plan()
        if self._size > _ROOM and not self._writer_waits:
            self._writer_waits = True
            self._protocol.pause_writing()

    def writelines(self, data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(data))

    def get_write_buffer_size(self) -> int:
        return self._size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: this network has its own."""

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Close when all data has arrived."""
        if not self.is_closing():
            self._closing = True
            self._plan()

    def abort(self) -> None:
        if not self._lost:
            self._under_way.clear()
            self._loop.call_soon(self._lose, None)
            self._loop.call_later(HOP, self._peer._lose, ConnectionResetError())

    def _plan(self, seconds: float = HOP) -> None:
        if self._delivery is None and not self._lost:
            self._delivery = self._loop.call_later(seconds, self._deliver)

    def _deliver(self) -> None:
        self._delivery = None
        peer = self._peer
        if peer._lost:
            self._lose(ConnectionResetError() if self._under_way else None)
        elif not peer._reads:
            # The peer plans the next delivery when it reads again.
            return
        elif self._under_way:
            data = self._under_way.popleft()
            self._size -= len(data)
            peer._receive(data)
            if self._writer_waits and self._size <= _PIECE and not self._lost:
                self._writer_waits = False
                self._protocol.resume_writing()
            if self._under_way or self._closing:
                self._plan(_NEXT)
        elif self._closing:
            self._lose(None)
            peer._end()

    def _receive(self, data: bytes) -> None:
        protocol: Any = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        while data and not self._lost:
            room = protocol.get_buffer(len(data))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]

    def _end(self) -> None:
        protocol: Any = self._protocol
        if not self._lost and not protocol.eof_received():
            self.close()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)


def join(
    loop: asyncio.AbstractEventLoop,
    client: Callable[[], asyncio.BaseProtocol],
    server: Callable[[], asyncio.BaseProtocol],
    addresses: tuple[tuple[str, int], tuple[str, int]],
) -> tuple[End, asyncio.BaseProtocol]:
    """Connect a client to a server. Return the client's end. ``addresses``: client, server."""
    of_client, of_server = addresses
    here = End(loop, client(), sockname=of_client, peername=of_server)
    there = End(loop, server(), sockname=of_server, peername=of_client)
    here._peer, there._peer = there, here
    there._protocol.connection_made(there)
    here._protocol.connection_made(here)
    return here, here._protocol
