"""The steps in which a node joins or leaves: their size follows the time that the last one took."""

from __future__ import annotations

from itertools import pairwise

import pytest

from krowlspider.cluster.ring.live_members import FIRST_URLS, STEP_SECONDS, Steps

URLS = 100 * FIRST_URLS


def shares(steps: Steps, seconds: float, per_share: float) -> list[float]:
    """Return a joining node's shares of all domains beside one other node, after each step. A step
    takes ``seconds``, and ``per_share`` for all domains."""
    weight, now, found = steps.after(0, 1), 0.0, [0.0]
    while True:
        found.append(weight / (1 + weight))
        if weight == steps.target or len(found) > 1000:
            return found
        now += seconds + per_share * (found[-1] - found[-2])
        weight = steps.next(weight, 1, now)


@pytest.mark.parametrize("seconds", [0.1, 4.0])
def test_steps_come_to_take_twenty_seconds(seconds: float) -> None:
    """From the fifth one on, half of that at least; each one 50 s at most."""
    found = shares(Steps.among(1, URLS), seconds, 1000.0)
    took = [seconds + 1000 * (b - a) for a, b in pairwise(found)]
    assert all(each < 2.5 * STEP_SECONDS for each in took)
    assert all(each > STEP_SECONDS / 2 for each in took[4:-1])
    assert found[-1] == 0.5


@pytest.mark.parametrize("target", [1, 0])
def test_slow_steps_never_get_smaller_than_the_first(target: int) -> None:
    """Else a cluster whose steps take longer than wanted would never come to the end."""
    steps, weight, now, count = Steps.among(target, URLS), 1 - target, 0.0, 0
    weight = steps.after(weight, 1)
    while weight != target:
        now += 2 * STEP_SECONDS
        weight, count = steps.next(weight, 1, now), count + 1
    assert 45 <= count <= 55


def test_a_small_crawl_moves_in_one_step() -> None:
    assert Steps.among(1, FIRST_URLS).after(0, 1) == 1
    assert Steps.among(0, FIRST_URLS).after(1, 1) == 0
