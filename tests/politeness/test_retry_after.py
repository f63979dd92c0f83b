"""Retry-After: as the RFC has it, and as servers send it."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.politeness.delay import longest_retry_after, parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = 784_123_200.0  # Sun, 06 Nov 1994 12:00:00 GMT


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
