"""Time in which the event loop was held is neither latency nor time-out of a host."""

from __future__ import annotations

import asyncio
import ssl
import time

import pytest
import trustme

from krowlspider.fetch.connection import Connection, ConnectionPool
from krowlspider.fetch.errors import (
    INTERVAL,
    LATE,
    LONG,
    Exchange,
    FirstByteTimeout,
    LoopClock,
    TotalTimeout,
)
from krowlspider.fetch.http.head import Origin
from krowlspider.fetch.http.reader import ResponseReader
from tests.fetch.clockwork import Clockwork, Wire, order
from tests.fetch.dns.resolving import resolver
from tests.fetch.nameserver import nameserver
from tests.fetch.web import Peer, answering, client, fetch, serve

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
# The part of a hold that is counted anyway.
MOST = INTERVAL + LATE
# Seconds; longer than the time-outs in the tests with sockets.
HOLD = 0.6


class Held:
    """A connection on a simulated loop that can be held."""

    def __init__(self) -> None:
        self.clockwork = Clockwork()
        self.clockwork.now = 1000
        self.clock = LoopClock(self.clockwork.loop, self.clockwork.time)
        self.clock.start()
        self.wire = Wire()
        self.connection = Connection(self.clock, Origin("http", "a.test", 80), "192.0.2.1")
        self.connection.connection_made(self.wire)

    def run(self, seconds: float) -> None:
        """Advance the time in small turns."""
        for _ in range(round(seconds / 0.01)):
            self.clockwork.advance(0.01)

    def hold(self, seconds: float) -> None:
        """Let one callback take so long that no timer fires."""
        self.clockwork.now += seconds

    def send(self, first_byte: float = 10, timeout: float = 30) -> asyncio.Future[Exchange]:
        made = order(self.clockwork.loop, self.clock.time(), timeout, first_byte)
        return self.connection.exchange(made, ResponseReader("GET", 1000))


def test_clock_counts_time_while_nothing_holds_the_loop() -> None:
    held = Held()
    begun = held.clock.time()
    held.run(5)
    assert held.clock.time() - begun == pytest.approx(5)


def test_the_clock_stands_still_while_the_loop_is_held() -> None:
    """Before the late beat, and after it."""
    held = Held()
    begun = held.clock.time()
    held.hold(10)
    during = held.clock.time() - begun
    held.clockwork.advance(0)
    after = held.clock.time() - begun
    assert during == pytest.approx(after)
    assert after <= MOST
    held.run(2)
    assert held.clock.time() - begun == pytest.approx(after + 2)


def test_a_hold_during_the_wait_is_no_latency_of_the_host() -> None:
    held = Held()
    outcome = held.send()
    held.run(0.2)
    held.hold(8)
    # Sockets are read before timers fire.
    held.connection.data_received(OK)
    exchange = outcome.result()
    assert 0.2 <= exchange.times.latency <= 0.2 + MOST
    assert exchange.times.duration <= 0.2 + MOST


def test_a_slow_host_is_charged_what_it_took() -> None:
    held = Held()
    outcome = held.send()
    held.run(8)
    held.connection.data_received(OK)
    assert outcome.result().times.latency == pytest.approx(8)


@pytest.mark.parametrize(
    ("begun", "error"), [(b"", FirstByteTimeout), (OK[:-1], TotalTimeout)], ids=["head", "body"]
)
def test_a_late_timer_leaves_the_host_the_time_it_had(begun: bytes, error: type[Exception]) -> None:
    held = Held()
    outcome = held.send(first_byte=10, timeout=10.5)
    if begun:
        held.connection.data_received(begun)
    held.run(4)
    held.hold(60)
    held.run(5)
    assert not outcome.done()
    held.run(2)
    assert type(outcome.exception()) is error


def test_data_unread_during_a_hold_counts_as_an_answer() -> None:
    held = Held()
    outcome = held.send()
    held.hold(60)
    # All timers fire before the socket is looked at.
    held.clockwork.advance(0)
    held.connection.data_received(OK)
    assert outcome.result().body == b"hello"


@pytest.mark.parametrize(("seconds", "kept"), [(LONG / 2, True), (2 * LONG, False)])
def test_an_idle_connection_is_not_trusted_after_a_long_hold(seconds: float, kept: bool) -> None:
    """Its server may have closed it during the hold."""
    held = Held()
    pool = ConnectionPool(held.clock, max_idle=10, idle_timeout=60)
    pool.put(held.connection)
    held.run(1)
    held.hold(seconds)
    assert (pool.take(held.connection.origin) is held.connection) is kept
    assert held.wire.aborted is not kept


def test_a_stopped_clock_leaves_no_timer() -> None:
    held = Held()
    held.clock.stop()
    assert not held.clockwork.timers


def hold() -> None:
    time.sleep(HOLD)  # the loop is held: nothing else is tested here


async def test_a_held_loop_on_sockets_costs_a_host_nothing() -> None:
    """The answer comes, and its time-out passes, during the hold."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        hold()
        await peer.gone()

    async with serve(script) as web, client(first_byte_timeout=HOLD / 2) as made:
        exchange = await fetch(made, web.url, timeout=HOLD / 2)
    assert exchange.body == b"hello"
    assert exchange.times.latency < MOST + 0.1


async def test_connecting_is_not_given_up_for_a_hold() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("a.test").configure_cert(context)
    context.sni_callback = lambda *_: hold()

    async with serve(answering(OK), context) as web, client(connect_timeout=HOLD / 2) as made:
        exchange = await fetch(made, f"https://a.test:{web.port}/", timeout=HOLD / 2)
    assert exchange.body == b"hello"


async def test_a_look_up_is_not_given_up_for_a_hold() -> None:
    """Also between its two queries."""
    names = {"a.test": (300, ["2001:db8::6"])}
    async with nameserver({**names}) as zone, resolver(zone, timeout=HOLD / 2) as made:
        task = asyncio.ensure_future(made.resolve("a.test"))
        # c-ares has a thread of its own: the answer is there when the loop comes round.
        for _ in range(10_000):
            if zone.asked:
                break
            await asyncio.sleep(0)
        hold()
        assert await task == ["2001:db8::6"]
