from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from krowlspider.fetch.connection import Connection
from krowlspider.fetch.pool import Pool
from krowlspider.fetch.request import Origin

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """A loop of timers only, whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, as_loop(self))
        self.timers.append(handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.timers.remove(handle)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.when() <= self.now]:
            self.timers.remove(timer)
            timer._run()


def as_loop(loop: Loop) -> asyncio.AbstractEventLoop:
    return cast("asyncio.AbstractEventLoop", loop)


def connection(loop: Loop, host: str) -> Connection:
    return Connection(as_loop(loop), Origin("http", host, 80), "192.0.2.1")


def test_a_connection_is_taken_once_and_by_its_origin_only() -> None:
    loop = Loop()
    pool = Pool(as_loop(loop), max_idle=10, idle_timeout=10)
    kept = connection(loop, "a")
    pool.put(kept)
    assert pool.take(Origin("https", "a", 80)) is None
    assert pool.take(Origin("http", "a", 81)) is None
    assert pool.take(Origin("http", "a", 80)) is kept
    assert pool.take(Origin("http", "a", 80)) is None


def test_the_longest_idle_is_closed_when_there_are_too_many() -> None:
    loop = Loop()
    pool = Pool(as_loop(loop), max_idle=2, idle_timeout=10)
    a, b, c = (connection(loop, name) for name in "abc")
    pool.put(a)
    pool.put(b)
    pool.put(c)
    assert (a.closed, b.closed, c.closed, len(pool)) == (True, False, False, 2)


def test_none_are_kept_when_none_may_be() -> None:
    loop = Loop()
    pool = Pool(as_loop(loop), max_idle=0, idle_timeout=10)
    a = connection(loop, "a")
    pool.put(a)
    assert a.closed
    assert not loop.timers


def test_a_second_connection_to_one_origin_displaces_the_first() -> None:
    loop = Loop()
    pool = Pool(as_loop(loop), max_idle=5, idle_timeout=10)
    first, second = connection(loop, "a"), connection(loop, "a")
    pool.put(first)
    pool.put(second)
    assert first.closed
    assert pool.take(second.origin) is second


def test_each_expires_in_its_own_time_with_one_timer_for_all() -> None:
    loop = Loop()
    pool = Pool(as_loop(loop), max_idle=5, idle_timeout=10)
    a, b = connection(loop, "a"), connection(loop, "b")
    pool.put(a)
    loop.advance(4)
    pool.put(b)
    assert len(loop.timers) == 1
    loop.advance(6)
    assert (a.closed, b.closed) == (True, False)
    assert len(loop.timers) == 1
    loop.advance(4)
    assert b.closed
    assert not loop.timers


def test_one_put_back_lives_anew() -> None:
    loop = Loop()
    pool = Pool(as_loop(loop), max_idle=5, idle_timeout=10)
    a = connection(loop, "a")
    pool.put(a)
    loop.advance(9)
    assert pool.take(a.origin) is a
    pool.put(a)
    loop.advance(9)
    assert not a.closed
    loop.advance(1)
    assert a.closed


def test_a_closed_connection_is_neither_kept_nor_given() -> None:
    loop = Loop()
    pool = Pool(as_loop(loop), max_idle=5, idle_timeout=10)
    a, b = connection(loop, "a"), connection(loop, "b")
    a.close()
    pool.put(a)
    assert len(pool) == 0
    pool.put(b)
    b.close()
    assert pool.take(b.origin) is None


def test_closing_the_pool_closes_all_and_leaves_no_timer() -> None:
    loop = Loop()
    pool = Pool(as_loop(loop), max_idle=5, idle_timeout=10)
    kept = [connection(loop, name) for name in "abc"]
    for one in kept:
        pool.put(one)
    pool.close()
    assert all(one.closed for one in kept)
    assert not loop.timers
