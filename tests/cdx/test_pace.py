"""The part of a core that answers take."""

from __future__ import annotations

import pytest

from krowlspider.cdx.pace import Pace, Turn


@pytest.mark.parametrize("under_way", [1, 4])
def test_answers_together_take_their_share_of_a_core(under_way: int):
    """A thread that has worked for a while rests so long that all of them keep to the share."""
    worked = slept = 0.0

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds

    pace = Pace(0.2, sleep, lambda: worked)
    pace.under_way = under_way
    turn = Turn(pace)
    for _ in range(1000):
        turn.go_on()
        worked += 0.001
    assert worked / (worked + slept) == pytest.approx(0.2 / under_way, rel=0.02)


def test_without_a_limit_nobody_rests():
    turn = Turn(Pace(1.0, sleep=lambda _: pytest.fail("slept")))
    for _ in range(100):
        turn.go_on()
