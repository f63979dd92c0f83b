"""The rate of a host: how each event changes the wait."""

from __future__ import annotations

import time
from dataclasses import replace
from email.utils import formatdate
from typing import TYPE_CHECKING

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
    longest_retry_after,
    parse_retry_after,
)
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@table(("errors", "saved"), [(0, 0), (3, 3), (32_767, 32_767), (99_999, 32_767)])
@table("has_no_name", [False, True])
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


# --- retry-After: as the RFC has it, and as servers send it ---


NOON = 784_123_200.0  # Sun, 06 Nov 1994 12:00:00 GMT


@table(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("-5", 0.0),
        ("Sun, 06 Nov 1994 12:02:00 GMT", 120.0),
        ("Sunday, 06-Nov-94 12:02:00 GMT", 120.0),
        ("Sun Nov  6 12:02:00 1994", 120.0),
        ("Sun, 06 Nov 1994 11:59:59 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 252_618_177_599.0),
        ("9" * 400, float("inf")),
    ],
)
def test_retry_after_is_seconds_or_a_date_of_three_forms(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOON) == seconds


@table(
    ("value", "seconds"),
    [
        ("120.5", 120.5),
        ("292.052427053", 292.052427053),
        ("120.", 120.0),
        (".5", 0.5),
        ("+120", 120.0),
        ("-1.5", 0.0),
        ("1e3", 1000.0),
        ("1.2E+02", 120.0),
        ("1e999", float("inf")),
        ("120s", 120.0),
        ("120 S", 120.0),
        ("120 sec", 120.0),
        ("1.5 seconds", 1.5),
        # Whoever reads only the number comes back too early.
        ("2m", 120.0),
        ("2 minutes", 120.0),
        ("1h", 3600.0),
        ("0.5 hours", 1800.0),
        ("1500ms", 1.5),
        ("1500 milliseconds", 1.5),
        ('"120"', 120.0),
        ("'120'", 120.0),
        ("1 day", 86_400.0),
        ("2 weeks", 1_209_600.0),
        # Parts of one duration.
        ("1 hour, 30 minutes", 5400.0),
        ("1 hour and 30 min.", 5400.0),
        ("1h30m", 5400.0),
        ("1 day 1 s", 86_401.0),
        ("1,000", 1000.0),
        ("1,000,000 ms", 1000.0),
        ("1,000, 30", 1000.0),
        # Headers that a proxy has joined: the longest.
        ("60, 120", 120.0),
        ("120,60 s", 120.0),
        ("2024", 2024.0),
        # A time in place of a duration is longer than any cap.
        ("784123320", 784_123_320.0),
        ("1994-11-06T12:02:00Z", 120.0),
        ("1994-11-06T14:02:00+02:00", 120.0),
        ("1994-11-06 12:02:00", 120.0),
        ("1994-11-06T11:00:00Z", 0.0),
        ("06 Nov 1994 12:02:00 +0000", 120.0),
        ("Sun, 06 Nov 1994 13:02:00 +0100", 120.0),
    ],
)
def test_a_sloppy_retry_after_is_never_shorter_than_meant(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOON) == seconds


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ([], None),
        ([b"soon"], None),
        ([b"60", b"120", b"90"], 120.0),
        ([b"soon", b"60"], 60.0),
        ([b"60", b"Sun, 06 Nov 1994 12:02:00 GMT"], 120.0),
        ([b"Sun, 06 Nov 1994 11:00:00 GMT"], 0.0),
        ([b"\xff", b"1.5"], 1.5),
    ],
)
def test_longest_of_several_headers_counts(values: list[bytes], seconds: float | None) -> None:
    assert longest_retry_after(values, NOON) == seconds


@pytest.fixture
def far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_greenwich")
@pytest.mark.parametrize("value", ["Sun Nov  6 12:02:00 1994", "1994-11-06T12:02:00"])
def test_retry_after_without_a_zone_is_in_gmt(value: str) -> None:
    assert parse_retry_after(value, NOON) == 120.0


@table(
    "value",
    [
        *("", "-", "+", ".", "soon", "inf", "nan", "infinity", "٣", "²", "1 2", "12:00", "1_000"),
        *("32 Nov 1994", "0x10", "120 x", "s", "e5", "1e", "120,", ",120", "120, soon", "120;"),
    ],
)
def test_a_retry_after_that_names_no_time_is_none(value: str) -> None:
    assert parse_retry_after(value, NOON) is None


@given(st.integers(0, 4_000_000_000), st.integers(0, 4_000_000_000))
def test_a_retry_after_date_is_the_seconds_until_then(now: int, then: int) -> None:
    assert parse_retry_after(formatdate(then, usegmt=True), now) == max(0, then - now)


@given(st.text() | st.text("0123456789-:,+. esmhTZ GMTSunNov"), st.floats(0, 4e9))
def test_no_retry_after_raises(value: str, now: float) -> None:
    seconds = parse_retry_after(value, now)
    assert seconds is None or seconds >= 0
