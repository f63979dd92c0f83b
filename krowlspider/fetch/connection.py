"""Connections: each serves one exchange at a time, and is kept for the next to its origin."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING, cast

from krowlspider.fetch.errors import ConnectionLost, ConnectionReset, FetchError
from krowlspider.fetch.exchange import Dialled, Exchange, Peer
from krowlspider.fetch.pending import Order, PendingExchange

if TYPE_CHECKING:
    from ssl import SSLObject

    from krowlspider.fetch.http.reader import ResponseReader
    from krowlspider.fetch.http.request import Origin
    from krowlspider.fetch.loop_clock import LoopClock

# Offset of tcpi_last_data_sent in struct tcp_info of linux/tcp.h. tcpi_last_data_recv is two
# fields further. Both are milliseconds before now, in steps of 1 to 10 ms.
_OFFSET = 44
_AGES = struct.Struct("=I4xI")
_SIZE = _OFFSET + _AGES.size
# Linux alone has these fields.
_TCP_INFO = getattr(socket, "TCP_INFO", None)


class Connection(asyncio.Protocol):
    """Sends requests and passes the answers on to a `PendingExchange`.

    Between two exchanges it is idle, and anything received then closes it.
    """

    def __init__(self, clock: LoopClock, origin: Origin, address: str) -> None:
        self.origin = origin
        self.peer = Peer(address)
        self.closed = False
        self.fault: FetchError | None = None
        """The error that counts against the host, even if it happened while idle."""
        # Until the first exchange.
        self.dialled: Dialled | None = None
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._pending: PendingExchange | None = None

    def exchange(self, order: Order, reader: ResponseReader) -> asyncio.Future[Exchange]:
        """Send a request; return a future of its exchange, whose cancelling closes nothing.

        The future fails with FetchError, or with what the observer raised.
        """
        assert self._pending is None
        pending = self._pending = PendingExchange(
            self._clock,
            order,
            reader,
            peer=self.peer,
            dialled=self.dialled,
            release=self._release,
            kernel_latency=self._kernel_latency,
        )
        self.dialled = None
        if self._transport is None or self.closed:
            pending.end(ConnectionLost("closed before the request could be sent"))
        else:
            self._transport.write(order.request_bytes)
            pending.plan()
        return pending.outcome

    def close(self) -> None:
        """Close immediately, without waiting for the peer. A pending exchange fails."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        if self._pending is not None:
            self._pending.end(ConnectionLost("closed by this side"), "disconnect")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        tls: SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None:
            cipher = tls.cipher()
            names = (tls.version() or "", cipher[0] if cipher else "")
            self.peer = Peer(self.peer.address, names, tls.getpeercert(binary_form=True))

    def data_received(self, data: bytes) -> None:
        if self._pending is None:
            self.close()
        elif self._pending.receive(data):
            assert self._transport is not None
            self._transport.pause_reading()
            self._pending.wait_for_room(self._transport.resume_reading)

    def eof_received(self) -> None:
        if self._pending is None:
            self.closed = True
        else:
            self._pending.receive_eof()

    def cut_off(self) -> None:
        """Handle the end of TCP where TLS has not ended: the answer may be cut."""
        if self._pending is not None:
            self._pending.receive_cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        if self._pending is not None:
            self._pending.end(_lost(exc), "disconnect")

    def _kernel_latency(self) -> float:
        return kernel_latency(self._transport)

    def _release(self, reusable: bool) -> None:
        self._pending = None
        if not reusable:
            self.close()


def _lost(exc: Exception | None) -> FetchError:
    if isinstance(exc, FetchError):
        return exc
    broken = ConnectionReset if isinstance(exc, ConnectionError) else ConnectionLost
    lost = broken(str(exc or "closed before the end of the response"))
    lost.__cause__ = exc
    return lost


def kernel_latency(transport: asyncio.BaseTransport | None) -> float:
    """Return the seconds between the last data that a TCP connection sent and the last data that it
    received, as the kernel saw them; inf where it does not tell.

    Data may wait in a socket until the event loop comes to read it.
    """
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or _TCP_INFO is None:
        return inf
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE)
        sent, received = _AGES.unpack_from(info, _OFFSET)
    except (OSError, struct.error):
        return inf
    return float(max(0, sent - received)) / 1000


class Pool:
    """Keeps at most ``max_idle`` idle connections, each for at most ``idle_timeout`` seconds.

    Over ``max_idle``, the connection that was idle longest is closed. One connection is kept for
    each origin: a host has one request in flight, so a second would never be used.
    """

    def __init__(self, clock: LoopClock, *, max_idle: int, idle_timeout: float) -> None:
        self._clock = clock
        self._max_idle = max_idle
        self._idle_timeout = idle_timeout
        # In the order in which connections became idle, which is the order in which they expire.
        self._idle: OrderedDict[Origin, tuple[Connection, float]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def take(self, origin: Origin) -> Connection | None:
        """Return an open idle connection to ``origin``, or None; the caller owns it from now on.

        :raises FetchError: the ``fault`` of the connection: the server misbehaved while it was idle
        """
        connection, _ = self._idle.pop(origin, (None, 0.0))
        if connection is not None and connection.fault is not None:
            raise connection.fault
        if connection is not None and self._clock.held_long:
            # The server may have closed it, and the held event loop could not read that.
            connection.close()
        return None if connection is None or connection.closed else connection

    def put(self, connection: Connection) -> None:
        """Keep an idle connection; drop a closed one, unless its ``fault`` is to be raised."""
        if connection.closed and connection.fault is None:
            return
        displaced, _ = self._idle.pop(connection.origin, (None, 0.0))
        if displaced is not None:
            displaced.close()
        self._idle[connection.origin] = connection, self._clock.loop.time() + self._idle_timeout
        if len(self._idle) > self._max_idle:
            self._close_oldest()
        if self._timer is None and self._idle:
            self._arm()

    def close(self) -> None:
        while self._idle:
            self._close_oldest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_oldest(self) -> None:
        _, (connection, _) = self._idle.popitem(last=False)
        connection.close()

    def _arm(self) -> None:
        _, expires = next(iter(self._idle.values()))
        self._timer = self._clock.loop.call_at(expires, self._expire)

    def _expire(self) -> None:
        self._timer = None
        # An event loop may fire a timer early by its clock's resolution; uvloop's is 1 ms.
        now = self._clock.loop.time() + 0.001
        while self._idle and next(iter(self._idle.values()))[1] <= now:
            self._close_oldest()
        if self._idle:
            self._arm()
