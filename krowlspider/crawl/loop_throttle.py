"""Pass on answers a few at a time, so that the event loop can serve timers and sockets between."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.crawl.turns import Turns


class LoopThrottle:
    """Lets some callers pass in each turn of the event loop, first come, first served.

    A loop runs all that is ready before it looks at its timers and sockets again. Hundreds of
    answers immediately would hold it for a fifth of a second, thousands for more than a second.
    ``clock`` returns monotonic seconds, by which ``turns`` learns how long a turn is.
    """

    def __init__(self, turns: Turns, clock: Callable[[], float]):
        self._turns = turns
        self._clock = clock
        self._began = 0.0
        self._most = self._left = turns.at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turning = False
        # The callers of `for_clients` that wait.
        self._held: deque[asyncio.Future[None]] = deque()

    async def __call__(self) -> None:
        """Return in a turn of the event loop that has room."""
        loop = asyncio.get_running_loop()
        if not self._turning:
            self._turning = True
            self._began = self._clock()
            loop.call_soon(self._turn)
        if self._left and not self._waiting:
            self._left -= 1
            return
        place = loop.create_future()
        self._waiting.append(place)
        await place

    async def for_clients(self) -> None:
        """Return at once, but one caller a turn while a client of the live page waits.

        For the work on an answer, which comes some turns after the answer has passed.
        """
        if not self._turns.is_awaited:
            return
        loop = asyncio.get_running_loop()
        if not self._held:
            loop.call_soon(self._release_one)
        place = loop.create_future()
        self._held.append(place)
        await place

    def _release_one(self) -> None:
        while self._held:
            place = self._held.popleft()
            if not place.done():
                place.set_result(None)
                break
        if self._held:
            asyncio.get_running_loop().call_soon(self._release_one)

    def _turn(self) -> None:
        before, self._began = self._began, self._clock()
        self._turns.took(self._began - before, self._most - self._left)
        self._most = self._left = self._turns.at_once
        while self._left and self._waiting:
            place = self._waiting.popleft()
            # A cancelled caller takes no room.
            if not place.done():
                self._left -= 1
                place.set_result(None)
        self._turning = bool(self._waiting) or self._left < self._most
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)
