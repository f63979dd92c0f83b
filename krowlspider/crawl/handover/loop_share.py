"""Work on the event loop beside a crawl: in short steps, for a share of the loop's time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# Share of the loop's time while the crawl has work too.
SHARE = 0.25
# Seconds of work after which other tasks run. One step may take 10 ms.
_TURN_AFTER = 0.01
# Seconds whose share may be made up for: on a busy loop, a rest lasts longer than asked for.
_LATE_MAX = 0.1
# Most seconds of a turn of the loop in which no other task had work.
_IDLE_TURN = 0.0002


@dataclass(frozen=True)
class Time:
    """A clock and its sleep, in seconds; a test hands in faster ones."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


REAL_TIME = Time(time.monotonic, asyncio.sleep)


class LoopShare:
    """Limits the steps of several tasks together to ``share`` of the event loop's time, while other
    tasks have work.

    Wrap each step in ``async with``: some milliseconds in which nothing is awaited. ``share`` is
    called after each step and returns more than 0, at most 1.
    """

    def __init__(self, share: Callable[[], float], time: Time = REAL_TIME) -> None:
        self._share = share
        self._time = time
        self._lock = asyncio.Lock()
        self._begun = 0.0
        # Seconds of work since other tasks could run.
        self._spent = 0.0
        # The time at which the work done is no more than its share.
        self._even = -inf

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        self._begun = self._time.clock()

    async def __aexit__(self, *_: object) -> None:
        try:
            now = self._time.clock()
            took = now - self._begun
            self._spent += took
            self._even = max(self._even, now - took - _LATE_MAX) + took / self._share()
            if self._spent >= _TURN_AFTER:
                self._spent = 0.0
                await self._rest()
        finally:
            self._lock.release()

    async def _rest(self) -> None:
        """Let other tasks run until they have had their share, or have no work."""
        is_even = False
        while not is_even:
            before = self._time.clock()
            await self._time.sleep(0)
            now = self._time.clock()
            if now - before <= _IDLE_TURN:
                self._even = min(self._even, now)
            is_even = now >= self._even
