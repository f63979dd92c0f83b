"""A race of attempts (RFC 8305): the next one starts when those before it are late or have failed.

The first attempt runs in the task of its caller, with one timer. Only a late or failed one costs
more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from krowlspider.fetch.loop_clock import LoopClock, Timer
    from krowlspider.fetch.tcp.routes import Order

T = TypeVar("T")

# Seconds after which an attempt is late: the Connection Attempt Delay of RFC 8305, section 8.
DELAY = 0.25


class Overtaken(Exception):
    """Another attempt has won."""


class Race(Generic[T]):
    """Runs attempts until one succeeds. Use it once.

    ``attempt`` is called with an address, and with a function to call once the address is reached.
    That function raises `Overtaken` if another was reached before, and otherwise ends all other
    attempts. ``limit`` is the time of ``clock`` by which an attempt must have succeeded. After an
    exception of ``next_after`` the next address is tried; any other ends the race. ``more`` returns
    further addresses; it is called once, when the first attempt is late or has failed. ``discard``
    takes a result that nobody waits for any more.
    """

    __slots__ = (
        *("_attempt", "_failure", "_interrupt", "_limit", "_others", "_timer"),
        *("clock", "discard", "failed", "more", "next_after", "order", "winner"),
    )

    def __init__(
        self,
        clock: LoopClock,
        order: Order,
        attempt: Callable[[str, Callable[[], None]], Coroutine[Any, Any, T]],
        *,
        limit: float,
        next_after: tuple[type[Exception], ...],
        more: Callable[[], Coroutine[Any, Any, Iterable[str]]] | None = None,
        discard: Callable[[T], object] = id,
    ) -> None:
        self.clock = clock
        self.order = order
        self.next_after = next_after
        self.more = more
        self.discard = discard
        self.winner = ""
        """The address that was reached."""
        self.failed: list[str] = []
        """The addresses that could not be reached."""
        self._attempt = attempt
        self._limit = limit
        self._failure: Exception | None = None
        # Ends the first attempt; None once that is over.
        self._interrupt: asyncio.Timeout | None = None
        self._timer: Timer | None = None
        self._others: _Others[T] | None = None

    async def run(self, patience: float = DELAY) -> T:
        """Return the result of the attempt that won. The first one is late after ``patience``.

        :raises TimeoutError: the limit passed, and the first attempt had not failed
        :raises Exception: the failure of the first attempt if all failed, or what ended the race
        """
        first = self.order.take()
        assert first is not None
        try:
            try:
                # In no local name: the task of a timeout holds the exception that cancelled it.
                self._interrupt = asyncio.timeout(None)
                async with self._interrupt:
                    self._begin_timer(patience)
                    try:
                        return await self.attempt(first)
                    finally:
                        self._interrupt = None
                        self._end_timer()
            except Overtaken:
                pass
            except self.next_after as error:
                if self.winner == first:
                    raise
                self.failed.append(first)
                self._failure = error
            except TimeoutError:
                if self.winner in ("", first):
                    raise
            return await self._await_others()
        finally:
            self._failure = None
            if self._others is not None:
                await self._others.stop()
                self._others = None

    @property
    def unreached(self) -> list[str]:
        """The addresses that failed, or were tried before the one that was reached."""
        tried = self.order.taken
        before = tried[: tried.index(self.winner)] if self.winner else tried
        return [address for address in tried if address in before or address in self.failed]

    @property
    def first_is_running(self) -> bool:
        return self._interrupt is not None

    def attempt(self, address: str) -> Coroutine[Any, Any, T]:
        """Return an attempt to reach an address."""
        return self._attempt(address, partial(self._claim, address))

    async def _await_others(self) -> T:
        if self._others is None:
            self._others = _Others(self)
        self._others.hurry()
        try:
            async with self.clock.timeout_at(self._limit):
                ended = await self._others.outcome
            if ended is not None:
                return self._others.hand_over(ended)
        except TimeoutError:
            if self._failure is None or self.winner:
                raise
        failure, self._failure = self._failure, None
        assert failure is not None
        try:
            raise failure
        finally:
            # The exception holds this frame, so the local name would make a reference cycle.
            del failure

    def _begin_timer(self, patience: float) -> None:
        late = self.clock.time() + patience
        if late < self._limit:
            self._timer = self.clock.call_at(late, self._is_late)
        else:
            self._timer = self.clock.call_at(self._limit, self._end_first)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # It holds this object: no cycle for the garbage collector.
        self._timer = None

    def _is_late(self) -> None:
        self._timer = self.clock.call_at(self._limit, self._end_first)
        if not self.winner and (self.order.has_more or self.more is not None):
            self._others = _Others(self)
            self._others.go_on()

    def _end_first(self) -> None:
        if self._interrupt is not None and not self._interrupt.expired():
            self._interrupt.reschedule(0.0)

    def _claim(self, address: str) -> None:
        if self.winner:
            raise Overtaken
        self.winner = address
        if self._others is not None:
            self._others.end_all_but(address)
            if address != self.order.taken[0]:
                self._end_first()


class _Others(Generic[T]):
    """The attempts after the first one. Each is a task.

    ``outcome`` is a future of the task that ended the race; of None if every attempt has failed.
    """

    def __init__(self, race: Race[T]) -> None:
        self._race = race
        self._loop = race.clock.loop
        self.outcome: asyncio.Future[asyncio.Task[T] | None] = self._loop.create_future()
        self._tasks: dict[asyncio.Task[T], str] = {}
        self._timer: Timer | None = None
        self._asking: asyncio.Task[Iterable[str]] | None = None
        if race.more is not None:
            self._asking = self._loop.create_task(race.more())
            self._asking.add_done_callback(self._asked)

    def go_on(self) -> None:
        """Begin the next attempt, unless the last one may still come in time.

        End the race if all attempts have failed.
        """
        race = self._race
        if race.winner or self.outcome.done() or self._timer is not None:
            return
        address = race.order.take()
        if address is not None:
            task = self._loop.create_task(race.attempt(address))
            self._tasks[task] = address
            task.add_done_callback(self._ended)
            self._timer = race.clock.call_at(race.clock.time() + DELAY, self._is_late)
        elif not (race.first_is_running or self._asking or any(not t.done() for t in self._tasks)):
            self.outcome.set_result(None)

    def hurry(self) -> None:
        """Begin the next attempt at once, as one has failed."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_late()

    def end_all_but(self, address: str) -> None:
        for task, other in self._tasks.items():
            if other != address:
                task.cancel()

    def hand_over(self, ended: asyncio.Task[T]) -> T:
        """Return the result of the task that ended the race, or raise its exception."""
        del self._tasks[ended]
        return ended.result()

    async def stop(self) -> None:
        """End what is still running, and discard what came too late."""
        if self._timer is not None:
            self._timer.cancel()
        self.outcome.cancel()
        left = [task for task in (*self._tasks, self._asking) if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for ended in self._tasks:
            if not ended.cancelled() and ended.exception() is None:
                self._race.discard(ended.result())
        self._tasks.clear()

    def _is_late(self) -> None:
        self._timer = None
        self.go_on()

    def _asked(self, asking: asyncio.Task[Iterable[str]]) -> None:
        self._asking = None
        if not asking.cancelled() and asking.exception() is None:
            self._race.order.add(asking.result())
        self.go_on()

    def _ended(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if self.outcome.done():
            return
        address = self._tasks[task]
        if error is None or address == self._race.winner:
            self.outcome.set_result(task)
        elif isinstance(error, self._race.next_after):
            self._race.failed.append(address)
            self.hurry()
        elif not isinstance(error, Overtaken):
            self.outcome.set_result(task)
