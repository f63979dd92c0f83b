"""A clock for what hosts are charged: it stands still while the event loop is held."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Seconds between two beats, by which the clock notices that the loop is held.
INTERVAL = 0.05
# Seconds by which a beat may be late in ordinary work; only what is beyond is not counted.
LATE = 0.1
# Seconds of a hold after which servers may have closed idle connections: nothing was read of it.
LONG = 1.0
# A loop may fire a timer within its clock's resolution before the time; uvloop's is 1 ms.
_EARLY = 0.002


class LoopClock:
    """Counts the seconds in which ``loop`` attends to its sockets.

    While one callback holds the loop, answers lie unread. Without `start` nothing is taken off.
    ``clock`` is in monotonic seconds: not the loop's own, as that of uvloop stands still in each
    callback.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.loop = loop
        self._clock = clock
        # What has been taken off so far.
        self._held = 0.0
        self._due = inf
        self._beat: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to notice holds."""
        self._due = self._clock() + INTERVAL
        self._beat = self.loop.call_later(INTERVAL, self._met)

    def stop(self) -> None:
        """Notice no more."""
        if self._beat is not None:
            self._beat.cancel()
        self._due = inf

    def time(self) -> float:
        """Seconds; only differences have a meaning. Never goes back."""
        now = self._clock()
        late = now - self._due - LATE
        return now - self._held - late if late > 0.0 else now - self._held

    @property
    def held_long(self) -> bool:
        """Whether the loop has been held for longer than idle connections are sure to last."""
        return self._clock() - self._due > LONG

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call back at ``when`` of this clock, not before what came during a hold could be read."""
        return Timer(self, when, callback)

    @asynccontextmanager
    async def timeout_at(self, when: float) -> AsyncIterator[None]:
        """`asyncio.timeout_at` by this clock. Raises TimeoutError."""
        async with asyncio.timeout(None) as limit:
            timer = self.call_at(when, partial(limit.reschedule, 0.0))
            try:
                yield
            finally:
                timer.cancel()

    def _met(self) -> None:
        now = self._clock()
        self._held += max(0.0, now - self._due - LATE)
        self._due = now + INTERVAL
        self._beat = self.loop.call_later(INTERVAL, self._met)


class Timer:
    """A callback to come, as `LoopClock.call_at` makes it."""

    __slots__ = ("_callback", "_clock", "_handle", "_when")

    def __init__(self, clock: LoopClock, when: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._when = when
        self._callback = callback
        self._wait(when - clock.time())

    def cancel(self) -> None:
        """Do not call back."""
        self._handle.cancel()

    def _wait(self, seconds: float) -> None:
        self._handle = self._clock.loop.call_later(seconds, self._met)

    def _met(self) -> None:
        left = self._when - self._clock.time()
        if left > _EARLY:
            self._wait(left)
        else:
            self._callback()
