"""What a site says about changes, and what it is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.recrawl.estimate import Estimate
from krowlspider.recrawl.hints import (
    COUNT_MAX,
    Dates,
    HintSource,
    Precision,
    Precisions,
    brought_forward,
    period,
    read_date,
)
from krowlspider.recrawl.value import INTERVAL_MIN, is_due
from tests.support.tables import table

DAY = 86_400.0
NOW = 1_577_880_000.0  # Wed, 01 Jan 2020 12:00:00 GMT
MIDNIGHT = NOW - DAY / 2
PAGE = Estimate(0.5, 20 * DAY)


@table(
    ("text", "date"),
    [
        # Sitemaps: W3C-DTF.
        ("2020-01-01T12:00:00+00:00", NOW),
        ("2020-01-01T13:00:00.5+01:00", NOW + 0.5),
        ("2020-01-01T12:00Z", NOW),
        ("2020-01-01", MIDNIGHT),
        ("2020-01", MIDNIGHT),
        ("2020", MIDNIGHT),
        (" 2020-01-01\n", MIDNIGHT),
        # Atom and JSON Feed: RFC 3339.
        ("2020-01-01T12:00:00Z", NOW),
        # RSS: RFC 822.
        ("Wed, 01 Jan 2020 12:00:00 GMT", NOW),
        ("Wed, 01 Jan 2020 13:00:00 +0100", NOW),
        ("yesterday", None),
        ("2020-13", None),
        ("0000", None),
        ("", None),
        ("9" * 99, None),
    ],
)
def test_a_date_is_read_in_each_form(text: str, date: float | None) -> None:
    assert read_date(text) == date


@given(st.text(max_size=80))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert read_date(text) is None or isinstance(read_date(text), float)


def credible(dates: list[float | None], now: float) -> list[float | None]:
    """Return the dates of a document as they are judged once all are known."""
    document = Dates()
    for date in dates:
        document.add(date)
    return [document.credible(date, now) for date in dates]


def test_future_and_old_dates_are_worth_nothing() -> None:
    dates = [NOW - DAY, NOW + 1, 0.0, None, NOW]
    assert credible(dates, NOW) == [NOW - DAY, None, None, None, NOW]


def test_a_date_that_all_pages_share_is_worth_nothing() -> None:
    """A sitemap that says that all changed now, or at the last deployment."""
    assert credible([NOW] * 50, NOW) == [None] * 50
    mixed = [MIDNIGHT] * 30 + [NOW - DAY - number for number in range(20)]
    assert credible(mixed, NOW) == [None] * 30 + mixed[30:]
    assert credible(mixed[::-1], NOW) == mixed[:29:-1] + [None] * 30
    # Half of all entries, or of those with a date, is not more than half.
    assert credible([NOW] * 5 + [None] * 5, NOW) == [NOW] * 5 + [None] * 5


def test_a_short_sitemap_may_have_equal_dates() -> None:
    assert credible([NOW, NOW], NOW) == [NOW, NOW]


def test_always_and_never_say_nothing() -> None:
    assert period(" Daily ") == DAY
    assert [period(word) for word in ("always", "never", "often", "")] == [None] * 4


def forward(claimed: float, precision: float, due: float = NOW + 9 * DAY) -> float:
    last = NOW - DAY
    return brought_forward(
        PAGE, 1.0, 50_000.0, last_fetch=last, due=due, claimed=claimed, precision=precision
    )


def test_a_hint_of_a_precise_source_brings_a_page_forward() -> None:
    assert forward(NOW - 60, 0.9) == NOW - 60


def test_a_hint_of_a_source_that_lies_does_not() -> None:
    assert forward(NOW - 60, 0.01) == NOW + 9 * DAY


def test_a_change_before_the_last_fetch_says_nothing() -> None:
    assert forward(NOW - 2 * DAY, 0.9) == NOW + 9 * DAY


def test_a_hint_does_not_break_the_least_interval() -> None:
    assert forward(NOW - DAY + 1, 0.9) == NOW - DAY + INTERVAL_MIN


def test_a_hint_does_not_break_the_least_interval_of_a_site() -> None:
    due = brought_forward(
        PAGE,
        1.0,
        1.0,
        last_fetch=NOW - DAY,
        due=NOW + 9 * DAY,
        claimed=NOW - 60,
        precision=0.9,
        least=2 * DAY,
    )
    assert due == NOW + DAY


@given(st.floats(0, 4e9), st.floats(0, 1), st.floats(NOW, NOW + 400 * DAY))
def test_a_hint_never_puts_a_page_off(claimed: float, precision: float, due: float) -> None:
    assert forward(claimed, precision, due) <= due


def test_a_page_that_changes_too_fast_is_not_worth_a_hint() -> None:
    """Its copy would be outdated again within minutes."""
    fast = Estimate(12.0, 12 * 600.0)
    due = brought_forward(
        fast, 1.0, 50_000.0, last_fetch=NOW, due=NOW + DAY, claimed=NOW + 3600, precision=1.0
    )
    assert due == NOW + DAY


def test_a_hint_lapses_where_its_source_was_found_to_lie() -> None:
    """Pages that were brought forward before are postponed when they come up."""
    precision = Precision()
    assert is_due(PAGE, 1.0, 50_000.0, DAY, precision.probability)
    for _ in range(100):
        precision = precision.scored(changed=False)
    assert not is_due(PAGE, 1.0, 50_000.0, DAY, precision.probability)


def test_a_source_that_is_right_by_chance_is_worth_nothing() -> None:
    """The estimate says 22 % after 13 days, and so does the precision."""
    assert forward(NOW - 60, 0.22) < NOW
    last = NOW - 13 * DAY
    due = brought_forward(
        PAGE, 1.0, 500_000.0, last_fetch=last, due=NOW + DAY, claimed=NOW, precision=0.22
    )
    assert due == NOW + DAY


def test_each_source_of_a_site_is_judged_apart() -> None:
    site = (
        Precisions().scored(HintSource.FEED, changed=True).scored(HintSource.LASTMOD, changed=False)
    )
    assert (
        site[HintSource.FEED].probability
        > site[HintSource.CHANGEFREQ].probability
        > site[HintSource.LASTMOD].probability
    )


@given(st.lists(st.tuples(st.sampled_from(HintSource), st.booleans()), max_size=900))
def test_precisions_are_six_bytes(scores: list[tuple[HintSource, bool]]) -> None:
    site = Precisions()
    for source, changed in scores:
        site = site.scored(source, changed=changed)
    assert len(bytes(site)) == 6
    assert Precisions.read(bytes(site)) == site
    assert all(max(each) <= COUNT_MAX and 0 <= each.probability < 1 for each in site)


def test_a_precision_approaches_the_truth() -> None:
    precision = Precision()
    for number in range(2000):
        precision = precision.scored(changed=number % 10 < 7)
    assert precision.probability == pytest.approx(0.7, abs=0.02)
