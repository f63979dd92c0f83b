"""Turns of the event loop: how much work is done in one, and answers passed on a few at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Most answers, or requests, in one turn of the event loop.
AT_MOST = 16
# Seconds of a turn, by the clock, and its least number of answers: fewer would cost more CPU.
UNWATCHED = (0.025, 8)
# The same while somebody watches the crawl.
WATCHED = (0.012, 4)
# Answers in a turn while a client of the live page waits. Its call takes four turns.
FOR_CLIENTS = 1
# Turns after the last answer for which a client counts as watching.
WATCHED_TURNS = 100
# Turns over which their length is averaged.
_RECENT = 8
# Seconds of wall time until `cpu_clock` reads the time of its thread again.
_READ_AGAIN = 0.002


def cpu_clock() -> Callable[[], float]:
    """Return a clock of the CPU seconds of one thread, off by `_READ_AGAIN` at most.

    Wall time is added to the thread's time until that is read again: to read it is a system call,
    which takes ten times as long, and a page needs six readings.
    """
    read_at = cpu = 0.0

    def clock() -> float:
        nonlocal read_at, cpu
        elapsed = perf_counter() - read_at
        if elapsed < _READ_AGAIN:
            return cpu + elapsed
        cpu = thread_time()
        read_at = perf_counter()
        return cpu

    return clock


class Turns:
    """The number of answers, or of requests, in one turn of the event loop: ``at_once``.

    A turn has fewer when the machine is busy or pages are costly, and fewer still while somebody
    watches.
    """

    def __init__(self) -> None:
        self.at_once = AT_MOST
        # Whether a client of the live page waits for an answer.
        self.is_awaited = False
        # How many more turns a client counts as watching.
        self._watched = 0
        # Sums of the last turns; older ones count ever less.
        self._seconds = WATCHED[0] * _RECENT
        self._answers = float(AT_MOST * _RECENT)

    def took(self, seconds: float, answers: int) -> None:
        """Learn from a turn with ``answers`` answers that took ``seconds``.

        While a client waits, pages are read in other turns than their answers pass in: such a turn
        says nothing.
        """
        if self.is_awaited:
            return
        self._seconds += seconds - self._seconds / _RECENT
        self._answers += answers - self._answers / _RECENT
        if self._watched:
            self._watched -= 1
        self.at_once = self._fitting()

    def serve(self, clients: int) -> None:
        """Let turns be short while so many clients wait for an answer, and a while after."""
        self.is_awaited = clients > 0
        self._watched = WATCHED_TURNS
        self.at_once = FOR_CLIENTS if clients else self._fitting()

    def _fitting(self) -> int:
        limit, at_least = WATCHED if self._watched else UNWATCHED
        fitting = limit * self._answers / max(self._seconds, 1e-9)
        return int(max(at_least, min(AT_MOST, fitting)))


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
