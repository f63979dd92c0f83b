"""Connections, and the exchange in progress on each: read, timed, and ended once."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import OrderedDict, deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from krowlspider.fetch import errors
from krowlspider.fetch.errors import (
    ConnectionLost,
    ConnectionReset,
    Dialled,
    Exchange,
    FetchError,
    LoopClock,
    Peer,
    StopFetch,
    Timer,
    Times,
)
from krowlspider.fetch.memory import READ, SPILLED, FetchMemory, Spill, Spills

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable
    from ssl import SSLObject

    from krowlspider.fetch.http.head import Head, Origin
    from krowlspider.fetch.memory import Dechunk

# Seconds between two checks of an answer's rate. A slow answer lasts one to two of them.
RATE_PERIOD = 10.0
# Seconds of latency up to which the kernel is not asked: with the default settings they give the
# least delay anyway.
_SHORT = 0.05
# Bytes from which a response is joined in a turn of the event loop of its own.
LARGE = 256 * 1024
# Between two such turns the loop serves sockets: at least _PAUSE seconds, and RESTS times as long
# as the last turn took. So joining gets at most a quarter of the loop.
_PAUSE = 0.001
RESTS = 3


class OneByOne:
    """Runs queued work of some milliseconds, one piece in a turn of the event loop, in order.

    The work is to join large responses, many of which may end at the same moment.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def __call__(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        begun = time.perf_counter()
        try:
            self._waiting[0]()
        finally:
            self._waiting.popleft()
            if self._waiting:
                pause = max(_PAUSE, RESTS * (time.perf_counter() - begun))
                self._loop.call_later(pause, self._next)


class ExchangeOrder(Struct, eq=False):
    """One exchange to make.

    ``begun`` and ``deadline`` are times of a `LoopClock`. ``rate_min`` is the least rate in bytes a
    second of an answer that has begun; 0 means any. A response over LARGE waits in ``large`` to be
    joined. One over SPILLED goes to a file of ``spills``, if given.
    """

    url: str
    request_bytes: bytes
    begun: float
    deadline: float
    first_byte_timeout: float
    memory: FetchMemory
    rate_min: int
    large: OneByOne
    spills: Spills | None


class ExchangeReader(Protocol):
    """Reads the one answer of an exchange: `ResponseReader`, or one of another protocol."""

    head: Head | None
    head_length: int
    done: bool

    @property
    def reusable(self) -> bool: ...
    @property
    def ends_at_close(self) -> bool: ...
    @property
    def received(self) -> int: ...
    @property
    def body_size(self) -> int: ...
    @property
    def response_bytes(self) -> bytes: ...
    @property
    def dechunk(self) -> Dechunk | None: ...
    def feed(self, data: bytes) -> None: ...
    def eof(self) -> None: ...
    def take(self) -> list[bytes]: ...
    def body_of(self, response: bytes) -> bytes: ...


class PendingExchange:
    """The exchange that a connection serves, from the request sent to the end of ``outcome``.

    ``release`` is called once, with whether another request may follow on the connection.
    ``kernel_latency`` returns the seconds from the last data sent to the last data received.
    """

    def __init__(
        self,
        clock: LoopClock,
        order: ExchangeOrder,
        reader: ExchangeReader,
        *,
        peer: Peer,
        dialled: Dialled | None,
        release: Callable[[bool], None],
        kernel_latency: Callable[[], float],
    ) -> None:
        self.outcome: Future[Exchange] = clock.loop.create_future()
        self._clock = clock
        self._order = order
        self._reader = reader
        self._peer = peer
        self._dialled = dialled
        self._release = release
        self._kernel_latency = kernel_latency
        self._started = time.time()
        self._sent = clock.time()
        # Seconds from sending the request to the first byte; None before that.
        self._latency: float | None = None
        # The bytes received at the last check of the rate; -1 before the first byte.
        self._checked = -1
        self._timer: Timer | None = None
        # The file of a large response.
        self._spill: Spill | None = None

    def receive(self, data: bytes) -> bool:
        """Take bytes of the answer; return whether more must wait for room in memory."""
        reader, memory = self._reader, self._order.memory
        if self._latency is None:
            self._latency = self._measured_latency()
        memory.receive(len(data))
        try:
            reader.feed(data)
        except StopFetch:
            self.end(None, "length")
        except errors.TooLarge as e:
            self.end(e, "length")
        except errors.ProtocolBroken as e:
            self.end(e, "disconnect")
        except Exception as e:  # noqa: BLE001 - the observer's own mistake, raised by fetch()
            self.end(e)
        else:
            if reader.done:
                self.end(None)
            elif memory.size > 2 * SPILLED or self._spill is not None:
                return self._write_down() or memory.must_wait()
            else:
                return memory.must_wait()
        return False

    def _write_down(self) -> bool:
        """Have a large response written to a file; return whether more must wait for the disk."""
        order = self._order
        if order.spills is None:
            return False
        if self._spill is None:
            self._spill = order.spills.begin(self._written, self._not_written)
        self._spill.write(self._reader.take())
        return self._spill.is_behind

    def _written(self, size: int) -> None:
        memory = self._order.memory
        # The fetch may have been cancelled, and its memory released.
        memory.resize(max(0, memory.size - 2 * size))

    def _not_written(self, error: BaseException) -> None:
        failure = errors.LocalExhausted(f"no file for a large response: {error}")
        if self._timer is None:
            # It has ended, and waits for the file.
            self._set_outcome(failure, "", 0.0, is_kept=False)
        else:
            self.end(failure)

    def _measured_latency(self) -> float:
        """Return the seconds from the request to this first byte, without the time in which
        the event loop was too busy to read it."""
        waited = self._clock.time() - self._sent
        return waited if waited <= _SHORT else min(waited, self._kernel_latency())

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` when there is room for more of the answer; perhaps immediately."""
        if self._spill is not None and self._spill.is_behind:
            self._order.memory.waited = True
            self._spill.when_written(resume)
        else:
            self._order.memory.wait(READ, resume)

    def _waits_for_disk(self) -> bool:
        return self._spill is not None and self._spill.is_awaited

    def receive_eof(self) -> None:
        """Handle the orderly close of the server's side."""
        try:
            self._reader.eof()
        except errors.ConnectionLost as e:
            self.end(e, "disconnect")
        else:
            self.end(None)

    def receive_cut(self) -> None:
        """Handle the end of TCP without close_notify."""
        if self._reader.ends_at_close:
            self.end(errors.NoCloseNotify("no length and no close_notify"), "disconnect")
        else:
            self.receive_eof()

    def plan(self) -> None:
        """Set the timer to the next event that is due."""
        now, order = self._clock.time(), self._order
        first_byte_by = self._sent + order.first_byte_timeout
        at, due = order.deadline, self._total_due
        if self._latency is None and first_byte_by < at:
            at, due = first_byte_by, self._first_byte_due
        if order.rate_min and now + RATE_PERIOD < at:
            at, due = now + RATE_PERIOD, self._rate_due
        self._timer = self._clock.call_at(at, due)

    def _first_byte_due(self) -> None:
        if self._latency is None:
            self.end(errors.FirstByteTimeout("no answer in time"))
        else:
            self._checked = self._reader.received
            self.plan()

    def _rate_due(self) -> None:
        """Fail an answer that had begun at the last check and has come too slowly since."""
        received = self._reader.received
        slow = received - self._checked < self._order.rate_min * RATE_PERIOD
        # A wait for room in our memory, or for our disk, is not the host's fault.
        memory = self._order.memory
        has_waited = memory.has_waited()
        # A wait that goes on now is one of the next period too.
        memory.waited |= self._waits_for_disk()
        if not has_waited and slow and self._checked >= 0:
            self.end(errors.TooSlow("the answer came too slowly"), "time")
            return
        self._checked = -1 if self._latency is None else received
        self.plan()

    def _total_due(self) -> None:
        if self._order.memory.waited or self._waits_for_disk():
            # The wait for room in memory, or for the disk, may be the cause, not the host.
            self.end(errors.LocalExhausted("no room in memory for the rest of it in time"), "time")
        else:
            self.end(errors.TotalTimeout("the fetch took too long"), "time")

    def end(self, error: Exception | None, truncated: str = "") -> None:
        """Release the connection, then end ``outcome``: immediately, or queued to join many bytes.

        With ``truncated``, what was received is kept as a partial exchange.
        """
        self._order.memory.stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
            # It holds this object, so the two would be a reference cycle.
            self._timer = None
        self._release(error is None and not truncated and self._reader.reusable)
        duration = self._clock.time() - self._order.begun
        is_kept = self._reader.head is not None and (error is None or bool(truncated))
        if is_kept and self._spill is not None:
            self._spill.write(self._reader.take())
            self._spill.when_written(
                partial(self._set_outcome, error, truncated, duration, is_kept)
            )
        elif is_kept and self._reader.received >= LARGE:
            self._order.large(partial(self._set_outcome, error, truncated, duration, is_kept))
        else:
            self._set_outcome(error, truncated, duration, is_kept)

    def _set_outcome(
        self, error: Exception | None, truncated: str, duration: float, is_kept: bool
    ) -> None:
        exchange = self._record(truncated, duration) if is_kept else None
        # It has methods of this object, so the two would be a reference cycle.
        self._spill = None
        if self.outcome.done():
            return
        if isinstance(error, errors.FetchError):
            error.exchange = exchange
        if error is not None:
            self.outcome.set_exception(error)
        elif exchange is not None:
            self.outcome.set_result(exchange)

    def _record(self, truncated: str, duration: float) -> Exchange:
        order, reader, head = self._order, self._reader, self._reader.head
        assert head is not None
        assert self._latency is not None
        stored = None
        if self._spill is not None:
            stored = self._spill.stored(reader.head_length, reader.body_size, reader.dechunk)
        response = reader.response_bytes if stored is None else b""
        return Exchange(
            url=order.url,
            request_bytes=order.request_bytes,
            response_bytes=response,
            head_length=reader.head_length,
            status=head.status,
            version=head.version,
            headers=head.headers,
            body=reader.body_of(response) if stored is None else b"",
            truncated=truncated,
            peer=self._peer,
            times=Times(self._started, self._latency, duration, self._dialled),
            stored=stored,
        )


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

    def exchange(self, order: ExchangeOrder, reader: ExchangeReader) -> asyncio.Future[Exchange]:
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


class ConnectionPool:
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
