"""Which attempts a race begins and when, in simulated time, and which of them wins."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.fetch.errors import LoopClock
from krowlspider.fetch.tcp import ADDRESSES_TRIED, DELAY, AddressOrder, Overtaken, Race
from tests.support.simulated_loop import SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SILENT = 1e9
V4 = [f"192.0.2.{number}" for number in range(1, 9)]
V6 = [f"2001:db8::{number}" for number in range(1, 9)]
LIMIT = 10.0


class UnreachedError(Exception):
    """An address refuses."""


class BrokenError(Exception):
    """What ends a race."""


class Track:
    """Runs a race. ``answers`` has for each address the seconds until it is reached, or those until
    it fails and with what."""

    def __init__(self) -> None:
        self.answers: dict[str, float | tuple[float, Exception]] = {}
        self.begun: list[tuple[float, str]] = []
        self.ended: list[str] = []
        self.over: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.discarded: list[str] = []
        self.more: tuple[float, list[str]] | None = None
        self.asked: list[float] = []
        self.race: Race[str]
        # Seconds for which an address works on after it was reached.
        self.works = 0.0

    @property
    def now(self) -> float:
        return round(asyncio.get_running_loop().time() - self._start, 3)

    async def attempt(self, address: str, reached: Callable[[], None]) -> str:
        self.begun.append((self.now, address))
        answer = self.answers.get(address, SILENT)
        try:
            if isinstance(answer, tuple):
                await asyncio.sleep(answer[0])
                raise answer[1]
            await asyncio.sleep(answer)
            reached()
            await asyncio.sleep(self.works)
        finally:
            self.ended.append(address)
            self.over[address].set()
        return address

    async def ask(self) -> list[str]:
        assert self.more is not None
        self.asked.append(self.now)
        await asyncio.sleep(self.more[0])
        return self.more[1]

    async def run(self, addresses: list[str], patience: float = DELAY) -> str:
        loop = asyncio.get_running_loop()
        self._start = loop.time()
        self.race = Race(
            LoopClock(loop, loop.time),
            AddressOrder(addresses),
            self.attempt,
            limit=self._start + LIMIT,
            next_after=(UnreachedError,),
            more=None if self.more is None else self.ask,
            discard=self.discarded.append,
        )
        return await self.race.run(patience)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    def simulated(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(main)

    return simulated


def refused(after: float = 0.01) -> tuple[float, Exception]:
    return after, UnreachedError()


async def test_an_address_in_time_is_the_only_one_tried() -> None:
    track = Track()
    track.more = 0.0, V6
    track.answers = {V4[0]: DELAY - 0.01}
    assert await track.run(V4) == V4[0]
    assert (track.begun, track.asked) == ([(0, V4[0])], [])
    assert (track.race.winner, track.race.failed, track.race.unreached) == (V4[0], [], [])


async def test_an_attempt_in_time_has_no_task_and_one_timer() -> None:
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_later = loop.call_later

    def counted(delay: float, *rest: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *rest, **options)

    async def attempt(address: str, reached: Callable[[], None]) -> str:
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
        reached()
        return address

    loop.call_later = counted  # type: ignore[method-assign]
    race = Race(
        LoopClock(loop, loop.time), AddressOrder(V4), attempt, limit=loop.time() + 9, next_after=()
    )
    await race.run()
    assert timers == [DELAY]


async def test_attempts_begin_a_delay_apart_and_families_alternate() -> None:
    track = Track()
    track.answers = {V6[1]: 0.1}
    assert await track.run([*V4[:3], *V6[:3]]) == V6[1]
    assert track.begun == [(0, V4[0]), (0.25, V6[0]), (0.5, V4[1]), (0.75, V6[1])]
    assert track.now == 0.85
    assert sorted(track.ended) == sorted([*V4[:2], *V6[:2]])
    assert track.race.unreached == [V4[0], V6[0], V4[1]]


async def test_the_next_attempt_begins_at_once_when_one_fails() -> None:
    track = Track()
    track.answers = {V4[0]: refused(), V6[0]: refused(), V4[1]: 0.02}
    assert await track.run([*V4[:3], *V6[:3]]) == V4[1]
    assert track.begun == [(0, V4[0]), (0.01, V6[0]), (0.02, V4[1])]
    assert track.race.failed == track.race.unreached == [V4[0], V6[0]]


async def test_a_late_address_that_fails_hurries_the_next_one() -> None:
    track = Track()
    track.answers = {V4[0]: refused(0.3), V4[2]: 0.01}
    assert await track.run(V4[:3]) == V4[2]
    assert track.begun == [(0, V4[0]), (0.25, V4[1]), (0.3, V4[2])]


async def test_a_late_address_wins_if_it_is_reached_first() -> None:
    track = Track()
    track.answers = {V4[0]: 0.3, V6[0]: 0.2}
    assert await track.run([V4[0], V6[0]]) == V4[0]
    assert track.now == 0.3
    assert sorted(track.ended) == [V4[0], V6[0]]
    assert track.race.failed == track.race.unreached == []


async def test_the_second_address_overtakes_the_first() -> None:
    track = Track()
    track.works = 1.0
    track.answers = {V4[0]: 0.5, V6[0]: 0.2}
    assert await track.run([V4[0], V6[0]]) == V6[0]
    # The first one has ended when it was overtaken, not when it was reached.
    assert track.ended == [V4[0], V6[0]]
    assert track.now == 1.45


async def test_two_that_are_reached_in_one_turn_have_one_winner() -> None:
    track = Track()
    track.answers = {V4[0]: 0.5, V6[0]: 0.25}
    winner = await track.run([V4[0], V6[0]])
    assert winner == track.race.winner
    assert sorted(track.ended) == [V4[0], V6[0]]
    assert track.discarded == []


async def test_an_attempt_that_was_overtaken_is_told_so() -> None:
    told: list[str] = []

    async def attempt(address: str, reached: Callable[[], None]) -> str:
        try:
            await asyncio.sleep(10 if address == V4[0] else 0.1)
        except asyncio.CancelledError:
            # As a connection that was made in the same turn.
            try:
                reached()
            except Overtaken:
                told.append(address)
                raise
        reached()
        return address

    loop = asyncio.get_running_loop()
    race = Race(
        LoopClock(loop, loop.time),
        AddressOrder([V4[0], V6[0]]),
        attempt,
        limit=loop.time() + 9,
        next_after=(),
    )
    assert await race.run() == V6[0]
    assert told == [V4[0]]


async def test_more_addresses_are_asked_for_once_the_first_is_late() -> None:
    track = Track()
    track.more = 0.1, V6[:1]
    track.answers = {V6[0]: 0.01}
    assert await track.run(V4[:1]) == V6[0]
    assert track.begun == [(0, V4[0]), (0.35, V6[0])]
    assert track.asked == [0.25]


async def test_more_addresses_are_asked_for_once_the_first_has_failed() -> None:
    track = Track()
    track.more = 0.1, [*V4[:1], *V6[:1]]
    track.answers = {V4[0]: refused(), V4[1]: refused(), V6[0]: 0.01}
    assert await track.run(V4[:2]) == V6[0]
    assert track.begun == [(0, V4[0]), (0.01, V4[1]), (0.11, V6[0])]
    assert track.asked == [0.01]


async def test_three_addresses_of_a_family_are_tried() -> None:
    track = Track()
    track.more = 0.5, V6
    track.answers = dict.fromkeys(V4 + V6, refused())
    with pytest.raises(UnreachedError):
        await track.run(V4)
    tried = [address for _, address in track.begun]
    assert tried == [*V4[:ADDRESSES_TRIED], *V6[:ADDRESSES_TRIED]]


async def test_when_all_fail_the_failure_of_the_first_is_raised_at_once() -> None:
    track, first = Track(), refused(0.3)
    track.answers = {V4[0]: first, V4[1]: refused(), V4[2]: refused()}
    with pytest.raises(UnreachedError) as caught:
        await track.run(V4[:3])
    assert caught.value is first[1]
    assert track.now == 0.3


async def test_silent_addresses_end_at_the_limit() -> None:
    track = Track()
    with pytest.raises(TimeoutError):
        await track.run(V4[:2])
    assert track.now == LIMIT
    assert track.ended == V4[:2]
    assert track.race.unreached == V4[:2]


async def test_at_the_limit_the_failure_of_the_first_is_raised() -> None:
    track, first = Track(), refused()
    track.answers = {V4[0]: first}
    with pytest.raises(UnreachedError) as caught:
        await track.run(V4[:2])
    assert caught.value is first[1]
    assert track.now == LIMIT


@pytest.mark.parametrize("order", [V4[:2], V4[1::-1]])
async def test_another_failure_ends_the_race(order: list[str]) -> None:
    track = Track()
    track.answers = {V4[0]: (0.01, BrokenError()), V4[1]: refused(0.3)}
    with pytest.raises(BrokenError):
        await track.run(order)


async def test_an_address_that_was_reached_and_then_fails_ends_the_race() -> None:
    async def attempt(address: str, reached: Callable[[], None]) -> str:
        reached()
        raise UnreachedError(address)

    loop = asyncio.get_running_loop()
    clock = LoopClock(loop, loop.time)
    race = Race(
        clock, AddressOrder(V4), attempt, limit=loop.time() + 9, next_after=(UnreachedError,)
    )
    with pytest.raises(UnreachedError, match=V4[0]):
        await race.run()


@pytest.mark.parametrize("first", [SILENT, refused()])
async def test_cancelling_ends_every_attempt(first: float | tuple[float, Exception]) -> None:
    track = Track()
    track.more = SILENT, []
    track.answers = {V4[0]: first}
    running = asyncio.ensure_future(track.run(V4[:3]))
    await asyncio.sleep(0.4)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(track.ended) == sorted(address for _, address in track.begun)
    assert len(asyncio.all_tasks()) == 1


async def test_a_result_for_a_cancelled_caller_is_discarded() -> None:
    track = Track()
    track.answers = {V4[0]: refused(), V4[1]: 0.1}
    running = asyncio.ensure_future(track.run(V4[:2]))
    await track.over[V4[1]].wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert track.discarded == [V4[1]]


async def test_an_address_that_was_reached_before_has_more_patience() -> None:
    track = Track()
    track.answers = {V4[0]: 0.9}
    assert await track.run(V4, 1.0) == V4[0]
    assert len(track.begun) == 1
