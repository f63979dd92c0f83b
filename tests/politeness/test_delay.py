"""The rate of a host: how each event changes the wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.politeness.delay import (
    BACKOFF_MAX,
    GOOD_ANSWERS,
    JITTER,
    PARKED,
    THROTTLING_MAX,
    DelayPolicy,
    HostRate,
)

RULE = DelayPolicy(factor=5.0, minimum=0.25, maximum=30.0, crawl_delay_max=300.0)


def test_an_unknown_host_waits_the_minimum() -> None:
    assert RULE.delay(HostRate()) == 0.25


def test_average_of_latencies_moves_by_three_tenths() -> None:
    rate = HostRate()
    assert RULE.after_answer(rate, 1.0) == 5.0
    assert RULE.after_answer(rate, 2.0) == pytest.approx(1.3 * 5)
    assert RULE.after_answer(rate, 0.0) == pytest.approx(0.91 * 5)


def test_a_host_has_answered_even_if_the_whole_latency_was_this_sides() -> None:
    """Where the event loop was late, nothing is left of it."""
    rate = HostRate()
    RULE.after_answer(rate, 0.0)
    assert rate.ema > 0


@pytest.mark.parametrize(("latency", "wait"), [(0.01, 0.25), (0.2, 1.0), (60.0, 30.0)])
def test_delay_stays_between_minimum_and_maximum(latency: float, wait: float) -> None:
    assert RULE.after_answer(HostRate(), latency) == wait


def test_a_host_of_its_own_minimum_waits_longer_always() -> None:
    """At all ports of its name, after each end of a request."""
    own = replace(RULE, minimum=1000.0)
    rule = replace(RULE, of_hosts={"a.test": own, "b.test:81": own, "[::1]": own})
    for host in ("a.test", "a.test:8080", "b.test:81", "[::1]", "[::1]:8080"):
        found = rule.of(host)
        assert found.after_answer(HostRate(), 60.0) == 1000.0
        assert found.after_answer(HostRate(floor=7.0), 0.0) == 1000.0
        assert found.after_error(HostRate(errors=3), 0.0) == 1000.0
        assert found.after_throttling(HostRate(), 0.1, 5.0, 0.0) == 2000.0
    for host in ("b.test", "b.test:82", "www.a.test", "[::2]"):
        assert rule.of(host) is rule
    assert (RULE.longest, rule.longest) == (3600.0, 3600.0)
    assert replace(rule, of_hosts={"a.test": replace(RULE, minimum=9e3)}).longest == 9e3


@pytest.mark.parametrize(
    ("crawl_delay", "wait"), [(0.1, 1.0), (10.0, 10.0), (60.0, 60.0), (86_400.0, 300.0)]
)
def test_crawl_delay_is_a_floor_up_to_its_own_cap(crawl_delay: float, wait: float) -> None:
    assert RULE.after_answer(HostRate(floor=crawl_delay), 0.2) == wait


def test_throttling_doubles_and_a_quiet_period_halves() -> None:
    rate = HostRate()
    waits = [RULE.after_throttling(rate, 0.2, None, 0.0) for _ in range(3)]
    assert waits == [2.0, 4.0, 8.0]
    waits = [RULE.after_answer(rate, 0.2) for _ in range(4 * GOOD_ANSWERS)]
    assert waits[GOOD_ANSWERS - 2 :: GOOD_ANSWERS] == [8.0, 4.0, 2.0, 1.0]
    assert waits[GOOD_ANSWERS - 1 :: GOOD_ANSWERS] == [4.0, 2.0, 1.0, 1.0]


def test_a_quiet_period_begins_anew_with_each_throttling() -> None:
    rate = HostRate(throttling=2)
    for _ in range(GOOD_ANSWERS - 1):
        RULE.after_answer(rate, 0.2)
    RULE.after_throttling(rate, 0.2, None, 0.0)
    waits = [RULE.after_answer(rate, 0.2) for _ in range(GOOD_ANSWERS)]
    assert waits == [8.0] * (GOOD_ANSWERS - 1) + [4.0]


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_chance_stretches_a_wait_and_never_shortens_it(chance: float) -> None:
    stretch = 1 + JITTER * chance
    assert RULE.after_throttling(HostRate(), 0.2, 120.0, chance) == 120.0 * stretch
    assert RULE.after_throttling(HostRate(), 0.2, None, chance) == 2.0 * stretch
    assert RULE.after_error(HostRate(errors=4), chance) == 120.0 * stretch
    assert RULE.after_no_such_name(HostRate(), chance) == PARKED * stretch


def test_throttling_is_capped_in_doublings_and_in_seconds() -> None:
    rate = HostRate(floor=10.0)
    waits = [RULE.after_throttling(rate, 0.2, None, 0.0) for _ in range(50)]
    assert waits[-1] == BACKOFF_MAX
    assert rate.throttling == THROTTLING_MAX


def test_throttling_never_shortens_a_wait_longer_than_its_cap() -> None:
    rule = DelayPolicy(
        factor=5.0, minimum=0.25, maximum=30.0, crawl_delay_max=86_400.0, retry_after_max=1.0
    )
    assert rule.after_throttling(HostRate(floor=7200.0), 0.2, None, 0.0) == 7200.0


@pytest.mark.parametrize(
    ("retry_after", "wait"), [(None, 2.0), (0.0, 2.0), (120.0, 120.0), (1e9, 3600.0)]
)
def test_retry_after_lengthens_the_wait_up_to_its_cap(
    retry_after: float | None, wait: float
) -> None:
    assert RULE.after_throttling(HostRate(), 0.2, retry_after, 0.0) == wait


def test_transport_errors_cost_seconds_then_minutes_then_a_day() -> None:
    rate = HostRate()
    waits = [RULE.after_error(rate, 0.0) for _ in range(12)]
    assert waits == [0.25, 2, 4, 8, 120, 240, 480, 960, 1920, PARKED, PARKED, PARKED]


def test_host_is_parked_after_ten_errors_until_an_answer() -> None:
    rate = HostRate()
    parked = []
    for _ in range(10):
        RULE.after_error(rate, 0.0)
        parked.append(RULE.parked(rate))
    assert parked == [False] * 9 + [True]
    assert RULE.after_answer(rate, 0.01) == 0.25
    assert not RULE.parked(rate)
    assert RULE.after_error(rate, 0.0) == 0.25
    RULE.after_error(rate, 0.0)
    RULE.after_throttling(rate, 0.01, None, 0.0)
    assert rate.errors == 0


def test_a_name_that_does_not_exist_parks_its_host_at_once() -> None:
    rate = HostRate()
    assert RULE.after_no_such_name(rate, 0.0) == PARKED
    assert RULE.parked(rate)
    assert rate.errors == 1
    RULE.after_answer(rate, 0.1)
    assert not RULE.parked(rate)


@pytest.mark.parametrize(("errors", "saved"), [(0, 0), (3, 3), (32_767, 32_767), (99_999, 32_767)])
@pytest.mark.parametrize("has_no_name", [False, True])
def test_a_rate_is_restored_from_its_numbers(errors: int, saved: int, has_no_name: bool) -> None:
    rate = HostRate(0.5, 2.0, 3, 4, errors, has_no_name)
    assert 0 <= rate.saved_errors < 1 << 16
    again = HostRate.restored(0.5, 2.0, 3, 4, rate.saved_errors)
    found = [getattr(again, name) for name in HostRate.__slots__]
    assert found == [0.5, 2.0, 3, 4, saved, has_no_name]


def test_an_error_keeps_the_average_and_the_throttling() -> None:
    rate = HostRate()
    RULE.after_throttling(rate, 1.0, None, 0.0)
    assert RULE.after_error(rate, 0.0) == 10.0
    assert (rate.ema, rate.throttling) == (1.0, 1)


LATENCIES = st.floats(0, 1e6)
CHANCE = st.floats(0, 1)
EVENTS = st.one_of(
    st.tuples(st.just("answer"), LATENCIES),
    st.tuples(st.just("throttling"), LATENCIES, st.none() | st.floats(0, allow_nan=False), CHANCE),
    st.tuples(st.just("error"), CHANCE),
    st.tuples(st.just("no_such_name"), CHANCE),
)


@given(
    rule=st.builds(
        DelayPolicy,
        factor=st.floats(0, 100),
        minimum=st.floats(0.01, 86_400),
        maximum=st.floats(10, 3600),
        crawl_delay_max=st.floats(0, 86_400),
        retry_after_max=st.floats(0, 86_400),
    ),
    floor=st.floats(0, allow_nan=False),
    events=st.lists(EVENTS),
)
def test_every_wait_is_within_its_bounds(
    rule: DelayPolicy, floor: float, events: list[tuple[str, ...]]
) -> None:
    rate = HostRate(floor=floor)
    lowest = max(rule.minimum, min(floor, rule.crawl_delay_max))
    highest = max(
        PARKED, rule.minimum, rule.maximum, rule.crawl_delay_max, rule.retry_after_max
    ) * (1 + JITTER)
    for kind, *values in events:
        before = rule.delay(rate)
        wait: float = getattr(rule, f"after_{kind}")(rate, *values)
        assert lowest <= wait <= highest
        assert rule.delay(rate) <= wait
        if kind == "error":
            assert before <= wait
