"""The value of a fetch, and the time when a page is due."""

from __future__ import annotations

import random
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.recrawl.estimate import SECONDS_MAX, SHAPE_MAX, Estimate
from krowlspider.recrawl.value import (
    INTERVAL_MAX,
    INTERVAL_MIN,
    JITTER,
    due_time,
    expected_value,
    interval,
    is_due,
    value,
)
from tests.support.tables import table

DAY = 86_400.0
estimates = st.builds(Estimate, st.floats(0.05, SHAPE_MAX), st.floats(60.0, SECONDS_MAX))


waits = st.floats(INTERVAL_MIN, INTERVAL_MAX)
weights = st.floats(0.01, 100.0)
thresholds = st.floats(1.0, 1e9)
identities = st.binary(min_size=8, max_size=8)


def test_a_page_waits_ten_minutes_to_a_year() -> None:
    assert (INTERVAL_MIN, INTERVAL_MAX) == (10 * 60, 365 * 24 * 60 * 60)


def freshness(rate: float, requests: float) -> float:
    """Return the share of time in which a page is fresh, with so many requests a second."""
    return requests / rate * (1 - exp(-rate / requests))


@pytest.mark.parametrize("rate", [1 / DAY, 10 / DAY, 0.1 / DAY])
def test_value_is_the_freshness_that_a_request_gains(rate: float) -> None:
    """The derivative of freshness by the rate of requests: Azar et al., PNAS 2018."""
    for wait in (DAY / 3, DAY, 5 * DAY):
        more, less = 1.0001 / wait, 0.9999 / wait
        slope = (freshness(rate, more) - freshness(rate, less)) / (more - less)
        assert value(rate, 1.0, wait) == pytest.approx(slope, rel=1e-4)


@table("estimate", [Estimate(0.3, 3 * DAY), Estimate(1, DAY), Estimate(9, DAY)])
@table("elapsed", [600.0, DAY, 20 * DAY])
def test_expected_value_is_the_mean_over_the_rates(estimate: Estimate, elapsed: float) -> None:
    chance = random.Random(1)
    rates = [chance.gammavariate(estimate.shape, 1 / estimate.seconds) for _ in range(40_000)]
    mean = sum(value(max(rate, 1e-15), 2.0, elapsed) for rate in rates) / len(rates)
    assert expected_value(estimate, 2.0, elapsed) == pytest.approx(mean, rel=0.05)


@given(estimates, weights, waits, waits)
def test_value_grows_with_time(
    estimate: Estimate, weight: float, first: float, second: float
) -> None:
    early, late = sorted((first, second))
    before = expected_value(estimate, weight, early)
    after = expected_value(estimate, weight, late)
    assert 0 < before <= after * (1 + 1e-6)
    assert before <= weight * early


@given(estimates, weights, thresholds)
def test_a_page_is_due_where_its_value_crosses_the_threshold(
    estimate: Estimate, weight: float, threshold: float
) -> None:
    wait = interval(estimate, weight, threshold)
    assert INTERVAL_MIN <= wait <= INTERVAL_MAX
    found = expected_value(estimate, weight, wait)
    if wait == INTERVAL_MAX:
        assert found <= threshold * 1.01
    elif wait == INTERVAL_MIN:
        assert found >= threshold * 0.99
    else:
        assert found == pytest.approx(threshold, rel=0.01)


@given(estimates, weights, thresholds, thresholds)
def test_a_higher_threshold_is_never_sooner(
    estimate: Estimate, weight: float, first: float, second: float
) -> None:
    low, high = sorted((first, second))
    assert interval(estimate, weight, low) <= interval(estimate, weight, high) * 1.002


@given(estimates, weights, thresholds)
def test_a_heavier_page_is_never_later(estimate: Estimate, weight: float, threshold: float) -> None:
    heavier = interval(estimate, 2 * weight, threshold)
    assert heavier <= interval(estimate, weight, threshold) * 1.002


@given(estimates, weights, thresholds, st.floats(0, 4e9), identities)
def test_due_times_are_bounded_and_spread_by_identity(
    estimate: Estimate, weight: float, threshold: float, last: float, identity: bytes
) -> None:
    due = due_time(estimate, weight, threshold, last, identity)
    wait = interval(estimate, weight, threshold)
    assert INTERVAL_MIN * 0.999 <= due - last <= INTERVAL_MAX * 1.001
    assert abs(due - last - wait) <= wait * JITTER + 1e-3
    assert due == due_time(estimate, weight, threshold, last, identity)


@given(estimates, thresholds, identities, st.floats(60, 1e6), st.floats(1, 100))
def test_a_site_bounds_the_interval_of_its_pages(
    estimate: Estimate, threshold: float, identity: bytes, least: float, factor: float
) -> None:
    most = least * factor
    usual = due_time(estimate, 1.0, threshold, 0.0, identity)
    due = due_time(estimate, 1.0, threshold, 0.0, identity, least=least, most=most)
    assert due == min(max(usual, least), most) or usual in (INTERVAL_MIN, INTERVAL_MAX)
    assert least <= due <= most
    assert is_due(estimate, 1.0, threshold, most, most=most)


@given(estimates, weights, thresholds, st.floats(0.0, INTERVAL_MAX), identities)
def test_a_postponed_page_is_due_later(
    estimate: Estimate, weight: float, threshold: float, elapsed: float, identity: bytes
) -> None:
    """Else a page could be postponed for ever at one moment."""
    if not is_due(estimate, weight, threshold, elapsed):
        assert due_time(estimate, weight, threshold, 0.0, identity) > elapsed


@given(estimates, weights, thresholds, identities)
def test_a_page_is_asked_when_it_is_due(
    estimate: Estimate, weight: float, threshold: float, identity: bytes
) -> None:
    due = due_time(estimate, weight, threshold, 0.0, identity)
    assert is_due(estimate, weight, threshold, due)


def test_a_page_is_postponed_where_the_threshold_has_risen() -> None:
    estimate = Estimate(1.0, 10 * DAY)
    planned = interval(estimate, 1.0, 4000.0)
    assert not is_due(estimate, 1.0, 8000.0, planned)


def test_pages_of_one_fetch_are_not_due_together() -> None:
    waits = [
        due_time(Estimate(1.0, DAY), 1.0, 4000.0, 0.0, number.to_bytes(8)) for number in range(99)
    ]
    assert len(set(waits)) == len(waits)
    assert max(waits) / min(waits) > 1.05
