"""The protocol without socket and real time."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, cast

import pytest

from krowlspider.fetch.connection import LARGE, RATE_PERIOD, Connection, OneByOne
from krowlspider.fetch.errors import (
    ConnectionLost,
    ConnectionReset,
    Exchange,
    FirstByteTimeout,
    TooSlow,
    TotalTimeout,
)
from krowlspider.fetch.http.head import Origin
from krowlspider.fetch.http.reader import ResponseReader
from krowlspider.fetch.memory import SPILLED, Spills
from tests.fetch.clockwork import Clockwork, Wire, order

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def connected() -> tuple[Clockwork, Connection, Wire]:
    clockwork, wire = Clockwork(), Wire()
    connection = Connection(clockwork.clock, Origin("http", "a.test", 80), "192.0.2.1")
    connection.connection_made(wire)
    return clockwork, connection, wire


def send(
    connection: Connection, first_byte: float = 10, deadline: float = 30, rate_min: int = 0
) -> asyncio.Future[Exchange]:
    made = order(connection._clock.loop, 0.0, deadline, first_byte, rate_min=rate_min)
    return connection.exchange(made, ResponseReader("GET", 100_000))


def test_exchange_leaves_no_timer_and_an_open_connection() -> None:
    clockwork, connection, wire = connected()
    outcome = send(connection)
    assert len(clockwork.timers) == 1
    connection.data_received(OK)
    assert outcome.result().body == b"hello"
    assert not clockwork.timers
    assert not connection.closed
    assert wire.written == [b"GET"]


def test_first_byte_has_its_timeout() -> None:
    clockwork, connection, wire = connected()
    outcome = send(connection)
    clockwork.advance(9.9)
    assert not outcome.done()
    clockwork.advance(0.1)
    assert isinstance(outcome.exception(), FirstByteTimeout)
    assert wire.aborted


def test_answer_begun_in_time_has_until_the_deadline() -> None:
    clockwork, connection, wire = connected()
    outcome = send(connection)
    connection.data_received(OK[:-1])
    for _ in range(29):
        clockwork.advance(1)
        assert len(clockwork.timers) == 1
    assert not outcome.done()
    clockwork.advance(1)
    error = outcome.exception()
    assert isinstance(error, TotalTimeout)
    assert error.exchange is not None
    assert (error.exchange.truncated, error.exchange.body) == ("time", b"hell")
    assert wire.aborted
    assert not clockwork.timers


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def slowly(
    piece: bytes, start: bytes = HEAD, wait: int = 0, rate_min: int = 100
) -> tuple[asyncio.Future[Exchange], Clockwork]:
    """Receive a piece each second from a start on until the exchange ends, or for a minute."""
    clockwork, connection, _ = connected()
    outcome = send(connection, first_byte=30, deadline=60, rate_min=rate_min)
    clockwork.advance(0.5)
    for _ in range(wait):
        clockwork.advance(1)
    connection.data_received(start)
    while not outcome.done() and clockwork.now < 59:
        connection.data_received(piece)
        clockwork.advance(1)
        assert len(clockwork.timers) == (not outcome.done())
    return outcome, clockwork


@pytest.mark.parametrize(
    ("piece", "start"),
    [
        (b"x" * 99, HEAD),
        (b"x" * 99, b"HTTP/1.1 200 OK\r\n\r\n"),
        (b"1;" + b"e" * 200 + b"\r\nx\r\n", CHUNKED),
        # A head that drips.
        (b"a", b"HTTP/1.1 200 OK\r\n"),
        (b"", b"H"),
        (b"", HEAD),
    ],
    ids=["length", "to the close", "chunks", "head", "silence in the head", "silence"],
)
def test_slow_answer_ends_within_two_periods(piece: bytes, start: bytes) -> None:
    outcome, clockwork = slowly(piece, start)
    error = outcome.exception()
    assert isinstance(error, TooSlow)
    assert 10 < clockwork.now <= 2 * RATE_PERIOD + 0.5
    assert not clockwork.timers
    if b"\r\n\r\n" in start:
        assert error.exchange is not None
        assert error.exchange.truncated == "time"
        assert error.exchange.response_bytes.startswith(start + piece)


def test_answer_at_the_minimum_rate_has_all_its_time() -> None:
    outcome, _ = slowly(b"x" * 100)
    assert not outcome.done()


def test_without_a_minimum_rate_an_answer_has_all_its_time() -> None:
    outcome, _ = slowly(b"", rate_min=0)
    assert not outcome.done()


def test_late_answer_has_a_whole_period() -> None:
    """An answer that begins 29 s after the request, within the first byte's timeout, is not judged
    at 30 s."""
    outcome, clockwork = slowly(b"", wait=29)
    assert isinstance(outcome.exception(), TooSlow)
    assert clockwork.now == 40.5


def test_rate_does_not_shorten_the_first_byte_timeout() -> None:
    clockwork, connection, _ = connected()
    outcome = send(connection, first_byte=25, deadline=60, rate_min=100)
    for _ in range(24):
        clockwork.advance(1)
        assert len(clockwork.timers) == 1
    assert not outcome.done()
    clockwork.advance(1)
    assert isinstance(outcome.exception(), FirstByteTimeout)


def test_held_loop_does_not_make_an_answer_slow() -> None:
    """The timer fires before the data that came during the hold is read."""
    clockwork, wire = Clockwork(), Wire()
    clock = clockwork.clock
    clock.start()
    connection = Connection(clock, Origin("http", "a.test", 80), "192.0.2.1")
    connection.connection_made(wire)

    def pass_(seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            clockwork.advance(0.05)

    outcome = send(connection, first_byte=30, deadline=60, rate_min=100)
    connection.data_received(HEAD)
    pass_(RATE_PERIOD + 1)
    clockwork.advance(RATE_PERIOD)
    assert not outcome.done()
    connection.data_received(b"x" * 1000)
    pass_(RATE_PERIOD)
    assert not outcome.done()
    pass_(RATE_PERIOD)
    assert isinstance(outcome.exception(), TooSlow)
    clock.stop()


class Disk:
    """A disk, with its only file, that takes nothing while ``is_behind``."""

    is_behind = is_awaited = True

    def begin(self, *_: object) -> Disk:
        return self

    def write(self, pieces: list[bytes]) -> None: ...

    def when_written(self, then: Callable[[], None]) -> None: ...


def test_wait_for_the_disk_does_not_make_an_answer_slow() -> None:
    """Even one that is over when the rate is checked."""
    clockwork, connection, _ = connected()
    disk = Disk()
    made = order(clockwork.loop, rate_min=100, spills=cast("Spills", disk))
    connection.exchange(made, ResponseReader("GET", 10**7))
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2 * SPILLED)
    clockwork.advance(RATE_PERIOD)
    clockwork.advance(RATE_PERIOD - 1)
    disk.is_behind = disk.is_awaited = False
    clockwork.advance(1)
    assert not connection.closed
    clockwork.advance(RATE_PERIOD)
    assert connection.closed


def test_rate_is_measured_for_each_exchange() -> None:
    clockwork, connection, _ = connected()
    send(connection, first_byte=30, deadline=60, rate_min=100)
    connection.data_received(HEAD + b"x" * 10_000)
    clockwork.advance(RATE_PERIOD)
    connection.data_received(b"x" * 80_000)
    outcome = send(connection, first_byte=30, deadline=90, rate_min=100)
    connection.data_received(HEAD + b"x" * 1000)
    clockwork.advance(RATE_PERIOD)
    assert not outcome.done()


@pytest.mark.parametrize("end", ["data", "eof", "lost"])
def test_idle_connection_that_receives_anything_is_closed(end: str) -> None:
    _, connection, _ = connected()
    send(connection)
    connection.data_received(OK)
    if end == "data":
        connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    elif end == "eof":
        connection.eof_received()
    else:
        connection.connection_lost(None)
    assert connection.closed
    assert isinstance(send(connection).exception(), ConnectionLost)


def test_data_after_a_failure_is_ignored() -> None:
    clockwork, connection, _ = connected()
    outcome = send(connection)
    clockwork.advance(10)
    connection.data_received(OK)
    connection.connection_lost(None)
    assert isinstance(outcome.exception(), FirstByteTimeout)
    assert connection.closed


def test_cancelled_outcome_stays_cancelled() -> None:
    clockwork, connection, wire = connected()
    outcome = send(connection)
    outcome.cancel()
    connection.close()
    assert wire.aborted
    assert not clockwork.timers


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, ConnectionLost),
        (ConnectionResetError(), ConnectionReset),
        (BrokenPipeError(), ConnectionReset),
        # Our own network went: no reset by anybody.
        (OSError(errno.ENETDOWN, "Network is down"), ConnectionLost),
    ],
)
def test_reset_close_and_lost_network_are_distinct(
    error: OSError | None, expected: type[ConnectionLost]
) -> None:
    _, connection, _ = connected()
    outcome = send(connection)
    connection.connection_lost(error)
    assert type(outcome.exception()) is expected


@pytest.mark.parametrize("ends", ["length", "close"])
def test_large_bodies_are_joined_one_in_a_turn(ends: str) -> None:
    """Even if their connections end meanwhile."""
    clockwork = Clockwork()
    large = OneByOne(clockwork.loop)
    outcomes = []
    for _ in range(3):
        connection = Connection(clockwork.clock, Origin("http", "a.test", 80), "192.0.2.1")
        connection.connection_made(Wire())
        made = order(clockwork.loop, large=large)
        outcomes.append(connection.exchange(made, ResponseReader("GET", 10 * LARGE)))
        length = b"Content-Length: %d\r\n" % LARGE if ends == "length" else b""
        connection.data_received(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + bytes(LARGE))
        connection.eof_received()
        connection.connection_lost(None)
    assert not any(outcome.done() for outcome in outcomes)
    clockwork.turn()
    assert [outcome.done() for outcome in outcomes] == [True, False, False]
    clockwork.advance(1.0)
    assert [outcome.done() for outcome in outcomes] == [True, True, False]
    clockwork.advance(1.0)
    assert [len(outcome.result().body) for outcome in outcomes] == [LARGE] * 3


def test_large_partial_bodies_are_joined_in_their_turn() -> None:
    """Many may end at once, for example by the minimum rate."""
    clockwork = Clockwork()
    large = OneByOne(clockwork.loop)
    outcomes = []
    for _ in range(3):
        connection = Connection(clockwork.clock, Origin("http", "a.test", 80), "192.0.2.1")
        connection.connection_made(Wire())
        made = order(clockwork.loop, 0.0, 5.0, 3.0, large=large)
        outcomes.append(connection.exchange(made, ResponseReader("GET", 10 * LARGE)))
        connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(LARGE))
    clockwork.advance(3.0)
    clockwork.advance(2.0)
    assert not any(outcome.done() for outcome in outcomes)
    clockwork.turn()
    assert [outcome.done() for outcome in outcomes] == [True, False, False]
    clockwork.advance(1.0)
    clockwork.advance(1.0)
    for outcome in outcomes:
        error = outcome.exception()
        assert isinstance(error, TotalTimeout)
        assert error.exchange is not None
        assert len(error.exchange.body) == LARGE
