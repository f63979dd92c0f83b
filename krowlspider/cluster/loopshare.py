"""Work on the event loop beside a crawl: in short steps, for a share of the loop's time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Of the loop's time, while the crawl has work too: it keeps 70 % of its rate.
SHARE = 0.25
# Seconds of work after which the loop has its turn. One step may take 10 ms.
_REST_AFTER = 0.005


class LoopShare:
    """Steps of work of several tasks, one after the other, which have ``share`` of the loop's time together at most.

    ``async with`` it round each step: some ms in which nothing is awaited. ``share`` is asked at each rest, above 0 to 1.
    """

    def __init__(self, share: Callable[[], float], clock: Callable[[], float]) -> None:
        self._share = share
        self._clock = clock
        self._lock = asyncio.Lock()
        self._begun = 0.0
        self._spent = 0.0

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        self._begun = self._clock()

    async def __aexit__(self, *_: object) -> None:
        self._spent += self._clock() - self._begun
        try:
            if self._spent >= _REST_AFTER:
                rest = self._spent * (1 / self._share() - 1)
                self._spent = 0.0
                await asyncio.sleep(rest)
        finally:
            self._lock.release()
