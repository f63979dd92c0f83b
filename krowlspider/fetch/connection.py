"""One connection to one server: it sends requests, times them and feeds a reader."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from krowlspider.fetch.errors import (
    ConnectionLost,
    ConnectionReset,
    FetchError,
    FirstByteTimeout,
    LocalExhausted,
    ProtocolBroken,
    TooLarge,
    TooSlow,
    TotalTimeout,
)
from krowlspider.fetch.exchange import Dialled, Exchange, StopFetch
from krowlspider.fetch.memory import READ, Held, Memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLObject

    from krowlspider.fetch.http.reader import ResponseReader
    from krowlspider.fetch.http.request import Origin
    from krowlspider.fetch.loop_clock import LoopClock, Timer
    from krowlspider.fetch.one_by_one import OneByOne


# Seconds between two checks of an answer's rate. A slow answer lasts one to two of them.
RATE_PERIOD = 10.0
# Bytes from which a response is joined in a turn of the event loop of its own.
LARGE = 256 * 1024


@dataclass(slots=True, eq=False)
class Order:
    """One exchange to make.

    ``begun`` and ``deadline`` are times of a `LoopClock`. ``rate_min`` is the least rate in bytes a
    second of an answer that has begun; 0 means any.
    """

    url: str
    method: str
    request_bytes: bytes
    begun: float
    deadline: float
    first_byte_timeout: float
    held: Held = field(default_factory=lambda: Held(Memory()))
    rate_min: int = 0
    large: OneByOne | None = None
    """Queue in which a response over LARGE waits to be joined; None: join it at once."""


class Connection(asyncio.Protocol):
    """Serves one exchange at a time.

    Between two exchanges it is idle, and anything received then closes it.
    """

    def __init__(self, clock: LoopClock, origin: Origin, address: str) -> None:
        self.origin = origin
        self.address = address
        self.closed = False
        self.fault: FetchError | None = None
        """The error for which the host is blamed, even if it happened while idle."""
        self.dialled = Dialled()
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._tls: tuple[str, str] | None = None
        self._certificate: bytes | None = None
        self._served = 0
        self._order: Order | None = None
        self._reader: ResponseReader | None = None
        self._outcome: asyncio.Future[Exchange] | None = None
        self._timer: Timer | None = None
        self._started = 0.0
        self._sent = 0.0
        self._first_byte: float | None = None
        # The deadline of the first byte, and the bytes received at the last check (-1: none).
        self._first_byte_at = 0.0
        self._looked_at = -1
        # Whether the exchange has ended and only waits to be joined.
        self._is_over = False

    @property
    def answered(self) -> bool:
        """Return whether any byte has come back for the last request sent."""
        return self._first_byte is not None

    def exchange(self, order: Order, reader: ResponseReader) -> asyncio.Future[Exchange]:
        """Send a request; return a future of its exchange.

        The future fails with FetchError, or with what the observer raised. Cancelling it does not
        close the connection: call ``close`` for that.
        """
        assert self._outcome is None
        outcome = self._outcome = self._clock.loop.create_future()
        self._order = order
        self._reader = reader
        self._first_byte = None
        self._is_over = False
        self._started = time.time()
        self._sent = self._clock.time()
        if self._transport is None or self.closed:
            self._fail(ConnectionLost("closed before the request could be sent"))
            return outcome
        self._transport.write(order.request_bytes)
        self._first_byte_at = self._sent + order.first_byte_timeout
        self._looked_at = -1
        self._plan(self._sent)
        return outcome

    def close(self) -> None:
        """Close at once, without waiting for the peer. A pending exchange fails."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        if self._outcome is not None and not self._is_over:
            self._fail(ConnectionLost("closed by this side"), "disconnect")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        tls: SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None:
            cipher = tls.cipher()
            self._tls = (tls.version() or "", cipher[0] if cipher else "")
            self._certificate = tls.getpeercert(binary_form=True)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            self.close()
            return
        if self._is_over and not reader.done:
            return
        if self._first_byte is None:
            self._first_byte = self._clock.time()
        assert self._order is not None
        held = self._order.held
        held.receive(len(data))
        try:
            reader.feed(data)
        except StopFetch:
            self._succeed("length")
        except TooLarge as e:
            self._fail(e, "length")
        except ProtocolBroken as e:
            self._fail(e, "disconnect")
        except Exception as e:  # noqa: BLE001 - the observer's own mistake, raised by fetch()
            self._fail(e)
        else:
            if reader.done:
                self._finish()
            elif held.must_wait():
                assert self._transport is not None
                self._transport.pause_reading()
                held.wait(READ, self._transport.resume_reading)

    def eof_received(self) -> None:
        if self._reader is None:
            self.closed = True
            return
        try:
            self._reader.eof()
        except ConnectionLost as e:
            self._fail(e, "disconnect")
        else:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        if self._outcome is not None and not self._is_over:
            self._fail(_lost(exc), "disconnect")

    def _finish(self) -> None:
        """End the exchange: its response is complete."""
        self._at_its_turn(partial(self._succeed, ""))

    def _at_its_turn(self, work: Callable[[], None]) -> None:
        """Do the last work on an exchange: at once, or queued if it has many bytes to join.

        After it is queued, nothing else ends the exchange.
        """
        order, reader = self._order, self._reader
        assert order is not None
        if order.large is None or reader is None or reader.received < LARGE:
            work()
        elif not self._is_over:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            order.large(work)

    def _plan(self, now: float) -> None:
        """Set the timer to the next event that is due. ``now`` is the clock's time."""
        order = self._order
        assert order is not None
        at, due = order.deadline, self._all_due
        if not self.answered and self._first_byte_at < at:
            at, due = self._first_byte_at, self._first_byte_due
        if order.rate_min and now + RATE_PERIOD < at:
            at, due = now + RATE_PERIOD, self._rate_due
        self._timer = self._clock.call_at(at, due)

    def _first_byte_due(self) -> None:
        if self.answered:
            assert self._reader is not None
            self._looked_at = self._reader.received
            self._plan(self._clock.time())
        else:
            self._fail(FirstByteTimeout("no answer in time"))

    def _rate_due(self) -> None:
        """Fail an answer that had begun at the last check and has come too slowly since."""
        assert self._order is not None
        assert self._reader is not None
        received = self._reader.received
        slow = received - self._looked_at < self._order.rate_min * RATE_PERIOD
        # A wait for room in our memory is not the host's fault.
        if not self._order.held.has_waited() and slow and self._looked_at >= 0:
            self._fail(TooSlow("the answer came too slowly"), "time")
            return
        self._looked_at = received if self.answered else -1
        self._plan(self._clock.time())

    def _all_due(self) -> None:
        assert self._order is not None
        if self._order.held.waited:
            # The wait for room in memory may be the cause, not the host.
            self._fail(LocalExhausted("no room in memory for the rest of it in time"), "time")
        else:
            self._fail(TotalTimeout("the fetch took too long"), "time")

    def _succeed(self, truncated: str) -> None:
        assert self._reader is not None
        exchange = self._record(self._reader, truncated)
        reusable = not truncated and self._reader.reusable
        outcome = self._end()
        if not reusable:
            self.close()
        if not outcome.done():
            outcome.set_result(exchange)

    def _fail(self, error: Exception, truncated: str = "") -> None:
        if truncated and isinstance(error, FetchError):
            self._at_its_turn(partial(self._fail_now, error, truncated))
            if self._is_over and self._transport is not None:
                # No more data may come while the exchange waits to be joined.
                self.closed = True
                self._transport.abort()
        else:
            self._fail_now(error, "")

    def _fail_now(self, error: Exception, truncated: str) -> None:
        if isinstance(error, FetchError) and truncated and self._reader and self._reader.head:
            error.exchange = self._record(self._reader, truncated)
        outcome = self._end()
        self.close()
        if not outcome.done():
            outcome.set_exception(error)

    def _end(self) -> asyncio.Future[Exchange]:
        assert self._outcome is not None
        assert self._order is not None
        outcome = self._outcome
        self._order.held.leave()
        if self._timer is not None:
            self._timer.cancel()
        self._served += 1
        self._outcome = self._order = self._reader = self._timer = None
        return outcome

    def _record(self, reader: ResponseReader, truncated: str) -> Exchange:
        order, head = self._order, reader.head
        assert order is not None
        assert head is not None
        assert self._first_byte is not None
        response = reader.response_bytes
        return Exchange(
            url=order.url,
            method=order.method,
            request_bytes=order.request_bytes,
            response_bytes=response,
            head_length=reader.head_length,
            status=head.status,
            reason=head.reason,
            version=head.version,
            headers=head.headers,
            body=reader.body_of(response),
            address=self.address,
            started=self._started,
            latency=self._first_byte - self._sent,
            duration=self._clock.time() - order.begun,
            truncated=truncated,
            tls=self._tls,
            certificate=self._certificate,
            reused=self._served > 0,
            dialled=self.dialled,
        )


def _lost(exc: Exception | None) -> FetchError:
    if isinstance(exc, FetchError):
        return exc
    broken = ConnectionReset if isinstance(exc, ConnectionError) else ConnectionLost
    lost = broken(str(exc or "closed before the end of the response"))
    lost.__cause__ = exc
    return lost
