"""The protocol driven by hand: no socket, no real time."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.fetch.connection import Connection, Order
from krowlspider.fetch.errors import ConnectionLost, ConnectionReset, FirstByteTimeout, TotalTimeout
from krowlspider.fetch.reader import ResponseReader
from krowlspider.fetch.request import Origin

from .clockwork import Clockwork

if TYPE_CHECKING:
    from krowlspider.fetch.exchange import Exchange

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Wire(asyncio.Transport):
    """Notes what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Any] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True


def connected() -> tuple[Clockwork, Connection, Wire]:
    clockwork, wire = Clockwork(), Wire()
    connection = Connection(clockwork.clock, Origin("http", "a.test", 80), "192.0.2.1")
    connection.connection_made(wire)
    return clockwork, connection, wire


def send(
    connection: Connection, first_byte: float = 10, deadline: float = 30
) -> asyncio.Future[Exchange]:
    order = Order("http://a.test/", "GET", b"GET", 0.0, deadline, first_byte)
    return connection.exchange(order, ResponseReader("GET", 1000))


def test_an_exchange_leaves_no_timer_and_an_open_idle_connection() -> None:
    clockwork, connection, wire = connected()
    outcome = send(connection)
    assert len(clockwork.timers) == 1
    connection.data_received(OK)
    assert outcome.result().body == b"hello"
    assert not clockwork.timers
    assert not connection.closed
    assert wire.written == [b"GET"]


def test_the_first_byte_is_waited_for_no_longer_than_its_timeout() -> None:
    clockwork, connection, wire = connected()
    outcome = send(connection)
    clockwork.advance(9.9)
    assert not outcome.done()
    clockwork.advance(0.1)
    assert isinstance(outcome.exception(), FirstByteTimeout)
    assert wire.aborted


def test_an_answer_begun_in_time_may_take_until_the_deadline_and_no_longer() -> None:
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


def test_a_second_exchange_has_the_whole_of_its_own_time() -> None:
    clockwork, connection, _ = connected()
    send(connection)
    clockwork.advance(9)
    connection.data_received(OK)
    outcome = send(connection, deadline=40)
    assert not connection.answered
    clockwork.advance(9)
    assert not outcome.done()
    connection.data_received(OK)
    assert outcome.result().reused


@pytest.mark.parametrize("end", ["data", "eof", "lost"])
def test_an_idle_connection_that_is_heard_from_is_closed(end: str) -> None:
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


def test_what_comes_after_a_failure_is_not_taken_for_anything() -> None:
    clockwork, connection, _ = connected()
    outcome = send(connection)
    clockwork.advance(10)
    connection.data_received(OK)
    connection.connection_lost(None)
    assert isinstance(outcome.exception(), FirstByteTimeout)
    assert connection.closed


def test_a_caller_that_has_gone_is_not_told() -> None:
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
def test_a_reset_is_told_from_a_close_and_from_a_network_gone(
    error: OSError | None, expected: type[ConnectionLost]
) -> None:
    _, connection, _ = connected()
    outcome = send(connection)
    connection.connection_lost(error)
    assert type(outcome.exception()) is expected
