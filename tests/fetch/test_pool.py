from __future__ import annotations

from krowlspider.fetch.connection import Connection, ConnectionPool
from krowlspider.fetch.http.head import Origin
from tests.fetch.clockwork import Clockwork


def connection(clockwork: Clockwork, host: str) -> Connection:
    return Connection(clockwork.clock, Origin("http", host, 80), "192.0.2.1")


def test_a_connection_is_taken_once_and_by_its_origin_only() -> None:
    clockwork = Clockwork()
    pool = ConnectionPool(clockwork.clock, max_idle=10, idle_timeout=10)
    kept = connection(clockwork, "a")
    pool.put(kept)
    assert pool.take(Origin("https", "a", 80)) is None
    assert pool.take(Origin("http", "a", 81)) is None
    assert pool.take(Origin("http", "a", 80)) is kept
    assert pool.take(Origin("http", "a", 80)) is None


def test_the_longest_idle_is_closed_when_there_are_too_many() -> None:
    clockwork = Clockwork()
    pool = ConnectionPool(clockwork.clock, max_idle=2, idle_timeout=10)
    a, b, c = (connection(clockwork, name) for name in "abc")
    pool.put(a)
    pool.put(b)
    pool.put(c)
    assert (a.closed, b.closed, c.closed) == (True, False, False)


def test_none_are_kept_when_none_may_be() -> None:
    clockwork = Clockwork()
    pool = ConnectionPool(clockwork.clock, max_idle=0, idle_timeout=10)
    a = connection(clockwork, "a")
    pool.put(a)
    assert a.closed
    assert not clockwork.timers


def test_a_second_connection_to_one_origin_displaces_the_first() -> None:
    clockwork = Clockwork()
    pool = ConnectionPool(clockwork.clock, max_idle=5, idle_timeout=10)
    first, second = connection(clockwork, "a"), connection(clockwork, "a")
    pool.put(first)
    pool.put(second)
    assert first.closed
    assert pool.take(second.origin) is second


def test_one_timer_expires_each_connection_in_time() -> None:
    clockwork = Clockwork()
    pool = ConnectionPool(clockwork.clock, max_idle=5, idle_timeout=10)
    a, b = connection(clockwork, "a"), connection(clockwork, "b")
    pool.put(a)
    clockwork.advance(4)
    pool.put(b)
    assert len(clockwork.timers) == 1
    clockwork.advance(6)
    assert (a.closed, b.closed) == (True, False)
    assert len(clockwork.timers) == 1
    clockwork.advance(4)
    assert b.closed
    assert not clockwork.timers


def test_connection_put_back_has_all_its_idle_time() -> None:
    clockwork = Clockwork()
    pool = ConnectionPool(clockwork.clock, max_idle=5, idle_timeout=10)
    a = connection(clockwork, "a")
    pool.put(a)
    clockwork.advance(9)
    assert pool.take(a.origin) is a
    pool.put(a)
    clockwork.advance(9)
    assert not a.closed
    clockwork.advance(1)
    assert a.closed


def test_a_closed_connection_is_neither_kept_nor_given() -> None:
    clockwork = Clockwork()
    pool = ConnectionPool(clockwork.clock, max_idle=5, idle_timeout=10)
    a, b = connection(clockwork, "a"), connection(clockwork, "b")
    a.close()
    pool.put(a)
    assert pool.take(a.origin) is None
    pool.put(b)
    b.close()
    assert pool.take(b.origin) is None


def test_closing_the_pool_closes_all_and_leaves_no_timer() -> None:
    clockwork = Clockwork()
    pool = ConnectionPool(clockwork.clock, max_idle=5, idle_timeout=10)
    kept = [connection(clockwork, name) for name in "abc"]
    for one in kept:
        pool.put(one)
    pool.close()
    assert all(one.closed for one in kept)
    assert not clockwork.timers
