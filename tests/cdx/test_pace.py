"""The part of a core that answers take."""

from __future__ import annotations

import asyncio

import pytest

from krowlspider.cdx.pace import CONNECTION, ClientGone, ClientWork, Pace, charged


class Clock:
    """The time, and that which the one thread has worked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.worked = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def works(clock: Clock, count: int, share: float = 0.1) -> list[ClientWork]:
    pace = Pace(share, lambda: clock.now)
    return [ClientWork(pace, clock.sleep, lambda: clock.worked) for _ in range(count)]


@pytest.mark.parametrize("unit", [0.001, 0.02, 1.0])
def test_long_answers_take_their_share_of_a_core(clock: Clock, unit: float):
    """However long the work between two looks takes."""
    (work,) = works(clock, 1)
    with work.working():
        for _ in range(int(10 / unit)):
            work.go_on()
            clock.work(unit)
        work.go_on()
    assert clock.worked / clock.now == pytest.approx(0.1, rel=0.05)


def test_short_answers_take_their_share_together(clock: Clock):
    """Each ends before it would rest: the next one rests for it."""
    for work in works(clock, 10_000):
        with work.working():
            clock.work(0.001)
    assert clock.worked / clock.now == pytest.approx(0.1, rel=0.05)


def test_a_few_answers_after_a_quiet_time_do_not_rest(clock: Clock):
    clock.sleep(60)
    for work in works(clock, 10):
        with work.working():
            clock.work(0.004)
    assert clock.now == pytest.approx(60.04)


def test_client_that_goes_ends_a_rest(clock: Clock):
    first, second = works(clock, 2)
    with first.working():
        clock.work(100.0)
    second.end()
    with pytest.raises(ClientGone), second.working():
        pytest.fail("worked")
    assert clock.now == 100.0


async def test_each_step_of_the_event_loop_is_charged(clock: Clock):
    """Not what it does for others between two steps; and the last step counts too."""
    pace = Pace(0.1, lambda: 0.0)
    pace.charge(0.05)

    async def answer() -> str:
        for _ in range(3):
            clock.work(0.5)
            await asyncio.sleep(0)
        clock.work(0.5)
        return "answer"

    async def others() -> None:
        for _ in range(10):
            clock.work(100.0)
            await asyncio.sleep(0)

    steps = charged(pace, answer(), lambda: clock.worked)
    found, _ = await asyncio.gather(steps, others())
    assert found == "answer"
    assert pace.charge(0.0) == pytest.approx(2.0 / 0.1)


async def test_charged_work_is_cancelled_and_fails_as_any(clock: Clock):
    pace, seen = Pace(0.1, lambda: 0.0), []

    async def answer() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            clock.work(1.0)
            raise ClientGone from None

    task = asyncio.ensure_future(charged(pace, answer(), lambda: clock.worked))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ClientGone):
        await task
    assert seen == ["cancelled"]
    assert pace.charge(0.0) > 0.0


@pytest.mark.parametrize("waiting", [1, 8, 64])
def test_refusals_take_a_part_of_the_share_however_many_wait(waiting: int):
    seconds = Pace(0.02).refusal_wait(waiting)
    assert waiting / seconds * CONNECTION == pytest.approx(0.02 / 4)
    assert Pace().refusal_wait(waiting) == 0.0


def test_without_a_limit_nobody_rests(clock: Clock):
    (work,) = works(clock, 1, share=1.0)
    with work.working():
        for _ in range(100):
            work.go_on()
            clock.work(1.0)
    assert clock.now == clock.worked
