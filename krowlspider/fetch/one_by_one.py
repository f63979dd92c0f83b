"""Run pieces of work of some milliseconds one by one, each in a turn of the event loop."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# Between two pieces of work the loop serves sockets: at least _PAUSE seconds, and RESTS times as
# long as the last piece took. So the work gets at most a quarter of the loop.
_PAUSE = 0.001
RESTS = 3


class OneByOne:
    """Runs queued work with pauses, in order of arrival.

    The work is to join the bodies of large responses, many of which may end at the same moment.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def __call__(self, work: Callable[[], None]) -> None:
        """Queue ``work`` to run in a turn of the event loop of its own."""
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
