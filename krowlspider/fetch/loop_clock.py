"""A clock for times that hosts are charged with: it stands still while the event loop is held."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Seconds between two beats. A late beat shows that the loop is held.
INTERVAL = 0.05
# Seconds by which a beat may be late in ordinary work. Only time beyond it is not counted.
LATE = 0.1
# Seconds of a hold after which servers may have closed idle connections unnoticed.
LONG = 1.0
# An event loop may fire a timer early by its clock's resolution; uvloop's is 1 ms.
_EARLY = 0.002


class LoopClock:
    """Counts the seconds in which ``loop`` serves its sockets.

    While one callback holds the loop, answers stay unread, so that time is not counted. Without
    `start` all time is counted. ``clock`` returns monotonic seconds. It must not be the loop's own
    clock: that of uvloop stands still during each callback.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.loop = loop
        self._clock = clock
        # The seconds not counted so far.
        self._held = 0.0
        self._due = inf
        self._beat: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = self._clock() + INTERVAL
        self._beat = self.loop.call_later(INTERVAL, self._met)

    def stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        self._due = inf

    def time(self) -> float:
        """Return seconds that never go back; only differences have a meaning."""
        now = self._clock()
        late = now - self._due - LATE
        return now - self._held - late if late > 0.0 else now - self._held

    @property
    def held_long(self) -> bool:
        """Return whether the loop is held for longer than idle connections surely last."""
        return self._clock() - self._due > LONG

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` at ``when`` of this clock, after data that came during a hold."""
        return Timer(self, when, callback)

    @asynccontextmanager
    async def timeout_at(self, when: float) -> AsyncIterator[None]:
        """Limit a block like `asyncio.timeout_at`, by this clock.

        :raises TimeoutError: the block ran past ``when``
        """
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
    """A pending callback, made by `LoopClock.call_at`."""

    __slots__ = ("_callback", "_clock", "_handle", "_when")

    def __init__(self, clock: LoopClock, when: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._when = when
        self._callback = callback
        self._handle = clock.loop.call_later(when - clock.time(), self._met)

    def cancel(self) -> None:
        self._handle.cancel()

    def _met(self) -> None:
        left = self._when - self._clock.time()
        if left > _EARLY:
            self._handle = self._clock.loop.call_later(left, self._met)
        else:
            self._callback()
