"""Pages that are gone for 30 days are dropped, as the ancestor removes them from its index."""

from __future__ import annotations

import pytest

from krowlspider.recrawl.gone import AGAIN, DROPPED_AFTER, Absence

DAY = 86_400.0


@pytest.mark.parametrize("status", [51, 52])
def test_a_missing_page_is_dropped_after_30_days(status: int):
    absence, now, last = Absence(), 0.0, 0.0
    while not absence.is_dropped(now):
        assert now < DROPPED_AFTER + 31 * DAY
        last = now
        absence = absence.answered(status, now)
        now += absence.wait or AGAIN
    assert last >= 14 * DAY
    assert now >= DROPPED_AFTER


@pytest.mark.parametrize("status", [20, 29])
def test_a_page_that_came_back_is_kept(status: int):
    absence = Absence()
    for day in range(20):
        absence = absence.answered(51, day * DAY)
    assert absence.is_tombstone
    assert absence.answered(status, 20 * DAY) == Absence()


@pytest.mark.parametrize("status", [10, 30, 40, 44, 50, 53, 59, 60])
def test_other_answers_say_nothing_of_a_page(status: int):
    """TLGS drops pages after 30 days of any failure. A server that is down for a month, or that
    asks for a certificate, is not gone: its pages are asked less and less often."""
    before = Absence().answered(51, 0.0)
    assert before.answered(status, 40 * DAY) == before
