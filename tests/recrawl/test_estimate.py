"""The estimate of a change rate, judged on Poisson processes and by numerical integration."""

from __future__ import annotations

import random
import struct
from math import exp, expm1, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.recrawl.estimate import SECONDS_MAX, SHAPE_MAX, Estimate, observe

DAY = 86_400.0
PRIOR = Estimate(0.3, 3 * DAY)
shapes = st.floats(0.05, SHAPE_MAX)
seconds = st.floats(60.0, SECONDS_MAX)
intervals = st.floats(0.0, 3 * 365 * DAY)


def posterior_moments(estimate: Estimate, interval: float) -> tuple[float, float]:
    """Integrate λ and λ² over the posterior of "at least one change", numerically."""
    steps = [exp(-30 + 0.002 * n) / estimate.seconds for n in range(17_000)]
    weights = [
        rate**estimate.shape * exp(-rate * estimate.seconds) * -expm1(-rate * interval)
        for rate in steps
    ]
    whole = sum(weights)
    pairs = list(zip(steps, weights, strict=True))
    return sum(r * w for r, w in pairs) / whole, sum(r * r * w for r, w in pairs) / whole


@pytest.mark.parametrize("estimate", [PRIOR, Estimate(2.0, 10 * DAY), Estimate(7.0, DAY)])
@pytest.mark.parametrize("interval", [600.0, DAY, 30 * DAY])
def test_some_change_keeps_mean_and_variance(estimate: Estimate, interval: float) -> None:
    mean, square = posterior_moments(estimate, interval)
    found = observe(estimate, interval, changed=True)
    assert found.mean == pytest.approx(mean, rel=1e-3)
    assert found.shape / found.seconds**2 == pytest.approx(square - mean**2, rel=1e-2)


@pytest.mark.parametrize("per_interval", [0.1, 0.5, 1.0, 2.0])
def test_unseen_changes_are_no_bias(per_interval: float) -> None:
    """Counting seen changes alone gives 57 % of the rate at two changes an interval."""
    chance, rate = random.Random(1), per_interval / DAY
    means, seen = [], 0
    for _ in range(100):
        estimate = PRIOR
        for _ in range(200):
            interval = DAY * chance.choice([0.5, 1.0, 1.5])
            changed = chance.random() < -expm1(-rate * interval)
            seen += changed
            estimate = observe(estimate, interval, changed=changed)
        means.append(estimate.mean)
    mean = sum(means) / len(means)
    assert mean == pytest.approx(rate, rel=0.1)
    if per_interval == 2.0:
        assert seen / (100 * 200 * DAY) < 0.6 * rate


def test_changes_in_one_second_do_not_run_away() -> None:
    """As from a clock that stands still."""
    estimate = PRIOR
    for _ in range(20_000):
        estimate = observe(estimate, 0.0, changed=True)
    assert estimate.mean == pytest.approx(1 / 60)


def test_a_jump_of_the_clock_hardly_counts() -> None:
    busy = Estimate(5.0, DAY)
    assert observe(busy, 3650 * DAY, changed=False).mean == pytest.approx(busy.mean / 5)
    assert observe(busy, -3650 * DAY, changed=False) == busy
    assert observe(busy, -3650 * DAY, changed=True).mean == pytest.approx(6 / DAY)


def test_a_page_that_wakes_up_is_noticed() -> None:
    estimate = PRIOR
    for _ in range(365):
        estimate = observe(estimate, 10 * DAY, changed=False)
    asleep = estimate.mean
    for _ in range(12):
        estimate = observe(estimate, DAY / 2, changed=True)
    assert estimate.mean > 5 * asleep


@given(st.builds(Estimate, shapes, seconds), intervals, st.booleans())
def test_an_estimate_stays_in_its_bounds(
    estimate: Estimate, interval: float, changed: bool
) -> None:
    found = observe(estimate, interval, changed=changed)
    assert 0 < found.shape <= SHAPE_MAX
    assert 0 < found.seconds <= SECONDS_MAX
    stored = Estimate(*struct.unpack("<2f", struct.pack("<2f", *found)))
    assert stored.mean == pytest.approx(found.mean, rel=1e-6)
    if not changed and estimate.seconds < SECONDS_MAX:
        assert found.mean <= estimate.mean


@given(st.builds(Estimate, shapes, seconds), st.lists(st.tuples(intervals, st.booleans())))
def test_a_history_never_breaks_an_estimate(
    estimate: Estimate, history: list[tuple[float, bool]]
) -> None:
    for interval, changed in history * 20:
        estimate = observe(estimate, interval, changed=changed)
    assert 0 < estimate.mean < inf
