"""The part of a core that answers take."""

from __future__ import annotations

import pytest

from krowlspider.cdx.pace import ClientGone, Pace, Turn


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


def turns(clock: Clock, count: int, share: float = 0.1) -> list[Turn]:
    pace = Pace(share, lambda: clock.now)
    return [Turn(pace, clock.sleep, lambda: clock.worked) for _ in range(count)]


@pytest.mark.parametrize("unit", [0.001, 0.02, 1.0])
def test_long_answers_take_their_share_of_a_core(clock: Clock, unit: float):
    """However long the work between two looks takes."""
    (turn,) = turns(clock, 1)
    with turn.working():
        for _ in range(int(10 / unit)):
            turn.go_on()
            clock.work(unit)
        turn.go_on()
    assert clock.worked / clock.now == pytest.approx(0.1, rel=0.05)


def test_short_answers_take_their_share_together(clock: Clock):
    """Each ends before it would rest: the next one rests for it."""
    for turn in turns(clock, 10_000):
        with turn.working():
            clock.work(0.001)
    assert clock.worked / clock.now == pytest.approx(0.1, rel=0.05)


def test_a_few_answers_after_a_quiet_time_do_not_rest(clock: Clock):
    clock.sleep(60)
    for turn in turns(clock, 10):
        with turn.working():
            clock.work(0.004)
    assert clock.now == pytest.approx(60.04)


def test_client_that_goes_ends_a_rest(clock: Clock):
    first, second = turns(clock, 2)
    with first.working():
        clock.work(100.0)
    second.end()
    with pytest.raises(ClientGone), second.working():
        pytest.fail("worked")
    assert clock.now == 100.0


def test_without_a_limit_nobody_rests(clock: Clock):
    (turn,) = turns(clock, 1, share=1.0)
    with turn.working():
        for _ in range(100):
            turn.go_on()
            clock.work(1.0)
    assert clock.now == clock.worked
