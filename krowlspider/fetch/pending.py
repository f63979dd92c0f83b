"""One exchange in progress: it feeds a reader, times the answer, and ends once."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from krowlspider.fetch import errors
from krowlspider.fetch.exchange import Exchange, StopFetch, Times
from krowlspider.fetch.memory import READ
from krowlspider.fetch.spills import SPILLED

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable

    from krowlspider.fetch.exchange import Dialled, Peer
    from krowlspider.fetch.http.reader import ResponseReader
    from krowlspider.fetch.loop_clock import LoopClock, Timer
    from krowlspider.fetch.memory import FetchMemory
    from krowlspider.fetch.spills import Spill, Spills

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


class Order(Struct, eq=False):
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


class PendingExchange:
    """The exchange that a connection serves, from the request sent to the end of ``outcome``.

    ``release`` is called once, with whether another request may follow on the connection.
    ``kernel_latency`` returns the seconds from the last data sent to the last data received.
    """

    def __init__(
        self,
        clock: LoopClock,
        order: Order,
        reader: ResponseReader,
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
