"""Work that takes some milliseconds each, one piece in a turn of the event loop."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# Seconds between two pieces of work at least, in which sockets are looked at; and times as long as
# the last one took: so they have a quarter of the loop.
_PAUSE = 0.001
RESTS = 3


class OneByOne:
    """Large bodies that end at the same moment are put together in turns: 256 of 10 MB would hold
    the loop for 5 s."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def __call__(self, work: Callable[[], None]) -> None:
        """Have ``work`` done in a turn of its own, after what came before it."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        begun = perf_counter()
        try:
            self._waiting[0]()
        finally:
            self._waiting.popleft()
            if self._waiting:
                pause = max(_PAUSE, RESTS * (perf_counter() - begun))
                self._loop.call_later(pause, self._next)
