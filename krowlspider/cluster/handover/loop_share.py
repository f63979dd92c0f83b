"""Work on the event loop beside a crawl: in short steps, for a share of the loop's time."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Of the loop's time, while the crawl has work too: it keeps 70 % of its rate.
SHARE = 0.25
# Seconds of work after which the loop has its turn. One step may take 10 ms.
_TURN_AFTER = 0.01
# Seconds whose share may be made up for: a busy loop lets a rest last longer than was asked for.
_LATE_MAX = 0.1


class LoopShare:
    """Steps of work of several tasks, one after the other, which have ``share`` of the loop's time together at most.

    ``async with`` it round each step: some ms in which nothing is awaited. ``share`` is asked after each, above 0 to 1.
    """

    def __init__(self, share: Callable[[], float], clock: Callable[[], float]) -> None:
        self._share = share
        self._clock = clock
        self._lock = asyncio.Lock()
        self._begun = 0.0
        # Since the loop had its turn.
        self._spent = 0.0
        # When what was done is no more than the share of the time since.
        self._even = -inf

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        self._begun = self._clock()

    async def __aexit__(self, *_: object) -> None:
        try:
            now = self._clock()
            took = now - self._begun
            self._spent += took
            self._even = max(self._even, now - took - _LATE_MAX) + took / self._share()
            if self._spent >= _TURN_AFTER:
                self._spent = 0.0
                await asyncio.sleep(max(0.0, self._even - now))
        finally:
            self._lock.release()
