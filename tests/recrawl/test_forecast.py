"""What a crawl reaches, and what a target would need."""

from __future__ import annotations

import random
from math import inf

import pytest

from bench.recrawl import simulate
from bench.recrawlpeers import Oracle
from bench.recrawlweb import DAY, Page, Spell
from krowlspider.recrawl.forecast import HostClass, Target, forecast, within

TARGET = Target(0.9, DAY)
MIXED = [1 / DAY, 1 / (5 * DAY), 1 / (50 * DAY), 0.0]
NEWS = HostClass("news", 10, 1000, [4 / DAY, 1 / DAY], 1.0, 0.5)
SLOW = HostClass("slow", 100, 50_000, MIXED, 30.0, 0.5)


def steady(rates: list[float], days: int) -> list[Page]:
    """Return pages with these rates."""
    chance, pages = random.Random(9), []
    for rate in rates:
        changes, at = [], 0.0
        while rate and (at := at + chance.expovariate(rate)) < days * DAY:
            changes.append(at)
        spell = Spell(0.0, days * DAY, rate)
        pages.append(Page(0, 0, "poisson", 0.0, rate, changes, [spell]))
    return pages


def test_within_is_the_portion_of_a_simulated_page() -> None:
    rate, wait, age = 0.7 / DAY, 3 * DAY, DAY
    chance, inside = random.Random(4), 0.0
    for _ in range(20_000):
        inside += min(chance.expovariate(rate) + age, wait)
    assert within(rate, wait, age) == pytest.approx(inside / 20_000 / wait, rel=0.01)
    assert within(rate, wait, 4 * DAY) == within(0.0, wait, 0.0) == 1


@pytest.mark.parametrize("a_day", [40, 400])
def test_a_forecast_is_what_a_simulated_crawl_reaches(a_day: int) -> None:
    """Four hundred pages at one budget, asked by the schedule that knows their rates."""
    pages = steady(MIXED * 100, 100)
    found = forecast([HostClass("all", 1, 400, MIXED, 1.0, 1.0)], a_day / DAY, TARGET)
    oracle = Oracle.affording(pages, a_day * 100, 100 * DAY)
    assert found.whole.fresh == pytest.approx(simulate(pages, oracle, 100).freshness, abs=0.03)
    assert 0.75 * a_day / DAY < found.whole.requests <= a_day / DAY


def test_the_budget_that_is_needed_reaches_the_target() -> None:
    needed = forecast([NEWS], 0.0, TARGET).budget
    assert forecast([NEWS], needed * 1.001, TARGET).whole.within >= TARGET.portion
    assert forecast([NEWS], needed * 0.85, TARGET).whole.within < TARGET.portion


def test_slow_hosts_limit_what_a_budget_reaches() -> None:
    found = forecast([NEWS, SLOW], 2.0, TARGET)
    assert [each.is_limited for each in found.classes] == [False, True]
    assert found.classes[1].requests <= SLOW.hosts * SLOW.share / SLOW.delay
    assert found.whole.within < TARGET.portion
    assert found.budget == inf
    assert 1 < found.faster < inf
    faster = SLOW._replace(delay=SLOW.delay / found.faster)
    fast_news = NEWS._replace(delay=NEWS.delay / found.faster)
    assert forecast([fast_news, faster], inf, TARGET).whole.within >= TARGET.portion * 0.999


def test_no_budget_keeps_only_dead_pages_fresh() -> None:
    found = forecast([SLOW], 0.0, TARGET)
    assert found.whole.within == 0.25
    assert found.whole.requests == 0


def test_more_budget_never_reaches_less() -> None:
    parts = [forecast([NEWS, SLOW], 10.0**power, TARGET).whole for power in range(-4, 3)]
    assert [each.within for each in parts] == sorted(each.within for each in parts)
    assert all(each.requests <= 10.0**power for power, each in enumerate(parts, -4))


def test_a_target_that_nothing_reaches_says_so() -> None:
    """Pages that change each minute are not fresh at any interval that is allowed."""
    found = forecast([NEWS._replace(rates=[1 / 60])], inf, Target(0.99, 0.0))
    assert (found.budget, found.faster) == (inf, inf)
