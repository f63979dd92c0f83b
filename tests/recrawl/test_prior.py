"""The estimate of a page that was fetched once."""

from __future__ import annotations

import random
from math import expm1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.recrawl.estimate import INTERVAL_MAX
from krowlspider.recrawl.prior import PageKind, SiteChanges, prior

DAY = 86_400.0


def fetched(site: SiteChanges, rate: float, times: int) -> SiteChanges:
    """Return the record after daily fetches of deep pages with one rate."""
    chance = random.Random(3)
    for _ in range(times):
        changed = chance.random() < -expm1(-rate * DAY)
        site = site.observed(PageKind.PAGE, 3, rate, DAY, changed=changed)
    return site


def test_lists_change_more_than_pages() -> None:
    assert prior(PageKind.LIST, 1, SiteChanges()).mean > prior(PageKind.PAGE, 1, SiteChanges()).mean


def test_pages_near_the_seeds_change_more() -> None:
    means = [prior(PageKind.PAGE, depth, SiteChanges()).mean for depth in range(5)]
    assert means == sorted(means, reverse=True)
    assert means[2] == means[4]


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_a_new_page_changes_as_its_site_does(factor: float) -> None:
    rate = prior(PageKind.PAGE, 3, SiteChanges()).mean * factor
    site = fetched(SiteChanges(), rate, 8000)
    assert prior(PageKind.PAGE, 3, site).mean == pytest.approx(rate, rel=0.15)
    # Its other kinds too, by the same factor.
    assert prior(PageKind.LIST, 0, site).mean > prior(PageKind.PAGE, 0, site).mean


def test_few_fetches_hardly_move_a_site() -> None:
    """Three, of pages that change thirty times as often as the web's."""
    assert 1 < fetched(SiteChanges(), 1 / DAY, 3).factor < 3


intervals = st.floats(-DAY, 2 * INTERVAL_MAX)


@given(
    st.lists(st.tuples(st.sampled_from(PageKind), st.integers(0, 9), intervals, st.booleans())),
    st.floats(1e-9, 1e-3),
)
def test_the_factor_of_a_site_is_bounded(
    fetches: list[tuple[PageKind, int, float, bool]], rate: float
) -> None:
    site = SiteChanges()
    for kind, depth, interval, changed in fetches:
        site = site.observed(kind, depth, rate, interval, changed=changed)
    assert 0 <= site.expected < 1e8
    assert 1 / 30 <= site.factor <= 30
