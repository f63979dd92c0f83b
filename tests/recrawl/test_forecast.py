"""What a crawl reaches, and what a target would need."""

from __future__ import annotations

import random
from math import inf

import pytest

from bench.recrawl import simulate
from bench.recrawlpeers import Oracle, Ours
from bench.recrawlweb import DAY, Page, Spell, web
from krowlspider.recrawl.estimate import Estimate
from krowlspider.recrawl.forecast import (
    BUDGET,
    POLITENESS,
    TARGET,
    FreshnessTarget,
    HostClass,
    forecast,
    read_target,
    within,
)
from krowlspider.recrawl.threshold import PLANNED
from tests.support.tables import table

A_DAY = FreshnessTarget(0.9, DAY)
RATES = [1 / DAY, 1 / (5 * DAY), 1 / (50 * DAY), 0.0]


def known(rate: float) -> Estimate:
    """Return the estimate of a page whose rate is known."""
    return Estimate(1e4, 1e4 / rate) if rate else Estimate(1e-9, DAY)


MIXED = [known(rate) for rate in RATES]
NEWS = HostClass("news", 10, 1000, [known(4 / DAY), known(1 / DAY)], 1.0, 0.5)
SLOW = HostClass("slow", 100, 50_000, MIXED, 30.0, 0.5)


def steady(rates: list[float], days: int, seed: int = 9) -> list[Page]:
    """Return pages with these rates."""
    chance, pages = random.Random(seed), []
    for rate in rates:
        changes, at = [], 0.0
        while rate and (at := at + chance.expovariate(rate)) < days * DAY:
            changes.append(at)
        spell = Spell(0.0, days * DAY, rate)
        pages.append(Page(0, 0, "poisson", 0.0, rate, changes, [spell]))
    return pages


@pytest.mark.parametrize("shape", [1e4, 0.3, 1.0])
def test_within_is_the_portion_of_a_simulated_page(shape: float) -> None:
    estimate = Estimate(shape, shape / (0.7 / DAY))
    wait, age = 3 * DAY, DAY
    chance, inside = random.Random(4), 0.0
    for _ in range(20_000):
        rate = chance.gammavariate(shape, 1 / estimate.seconds)
        inside += min(chance.expovariate(rate) + age, wait) if rate else wait
    assert within(estimate, wait, age) == pytest.approx(inside / 20_000 / wait, rel=0.01)
    assert within(estimate, wait, 4 * DAY) == 1
    assert within(known(0.0), wait, 0.0) == pytest.approx(1)


@pytest.mark.parametrize("a_day", [40, 400])
def test_a_forecast_is_what_a_simulated_crawl_reaches(a_day: int) -> None:
    """Four hundred pages at one budget, asked by the schedule that knows their rates."""
    pages = steady(RATES * 100, 100)
    found = forecast([HostClass("all", 1, 400, MIXED, 1.0, 1.0)], a_day / DAY, A_DAY)
    oracle = Oracle.affording(pages, a_day * 100, 100 * DAY)
    assert found.whole.fresh == pytest.approx(simulate(pages, oracle, 100).freshness, abs=0.03)
    assert 0.75 * a_day / DAY < found.whole.requests <= a_day / DAY


@pytest.mark.parametrize("a_day", [150, 500])
def test_a_forecast_is_what_our_schedule_reaches(a_day: int) -> None:
    """By what it knows after forty days, of the twenty days that follow. A third of these pages
    change in bursts or by a rhythm, which no estimate knows."""
    pages = [page for page in web(300, 60, seed=3) if page.found == 0]
    rate = a_day / DAY
    after = Ours(pages, lambda _: rate)
    begun = simulate(pages, after, 40, lambda _: rate)
    ended = simulate(pages, Ours(pages, lambda _: rate), 60, lambda _: rate)
    estimates = [after.estimate(number) for number in range(len(pages))]
    hosts = HostClass("all", 1, len(pages), estimates, 1.0, 1.0)
    found = forecast([hosts], rate, A_DAY).whole
    assert found.fresh == pytest.approx(3 * ended.freshness - 2 * begun.freshness, abs=0.04)
    assert found.requests == pytest.approx(rate, rel=0.1)


def test_the_budget_that_is_needed_reaches_the_target() -> None:
    needed = forecast([NEWS], 0.0, A_DAY).budget
    assert forecast([NEWS], needed * 1.001, A_DAY).is_reached
    assert not forecast([NEWS], needed * 0.85, A_DAY).is_reached


def test_slow_hosts_limit_what_a_budget_reaches() -> None:
    found = forecast([NEWS, SLOW], 10.0, A_DAY)
    assert [each.limit for each in found.classes] == ["", POLITENESS]
    assert found.classes[1].requests <= SLOW.hosts * SLOW.share / SLOW.delay
    assert not found.is_reached
    assert 1 < found.faster < inf
    faster = SLOW._replace(delay=SLOW.delay / found.faster)
    fast_news = NEWS._replace(delay=NEWS.delay / found.faster)
    assert forecast([fast_news, faster], found.budget * 1.001, A_DAY).whole.within >= 0.9 * 0.999


def test_the_budget_limits_hosts_that_politeness_does_not() -> None:
    found = forecast([NEWS, SLOW], 0.2, A_DAY)
    assert found.whole.limit == BUDGET
    assert found.whole.requests <= 0.2 * PLANNED


def test_classes_of_a_name_are_one() -> None:
    """As hosts of a sample are, each with its pages."""
    parts = [NEWS, SLOW, NEWS._replace(hosts=5.0)]
    found = forecast(parts, 2.0, A_DAY)
    assert [(each.name, each.hosts, each.pages) for each in found.classes] == [
        ("news", 15, 15_000),
        ("slow", 100, 5_000_000),
    ]
    one = forecast([NEWS._replace(hosts=15), SLOW], 2.0, A_DAY)
    assert found.whole == pytest.approx(one.whole)


def test_no_budget_keeps_nothing_fresh() -> None:
    found = forecast([SLOW], 0.0, A_DAY)
    assert found.whole.within == 0
    assert found.whole.requests == 0


def test_more_budget_never_reaches_less() -> None:
    parts = [forecast([NEWS, SLOW], 10.0**power, A_DAY).whole for power in range(-4, 3)]
    assert [each.within for each in parts] == sorted(each.within for each in parts)
    assert all(each.requests <= 10.0**power for power, each in enumerate(parts, -4))


def test_a_target_that_nothing_reaches_says_so() -> None:
    """Pages that change each minute are not fresh at any interval that is allowed."""
    found = forecast([NEWS._replace(estimates=[known(1 / 60)])], inf, FreshnessTarget(0.99, 0.0))
    assert (found.budget, found.faster) == (inf, inf)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (TARGET, A_DAY),
        (" 90 %  24 h ", A_DAY),
        ("99.5% 90min", FreshnessTarget(0.995, 5400.0)),
        ("100% 0s", FreshnessTarget(1.0, 0.0)),
        ("1% 365d", FreshnessTarget(0.01, 365 * DAY)),
    ],
)
def test_targets_are_read(text: str, target: FreshnessTarget) -> None:
    assert read_target(text) == pytest.approx(target)


@table(
    "text",
    [
        *("", "90%", "1d", "90 1d", "90% 1", "90% 1w", "90% 1 day", "ninety% 1d", "90% -1d"),
        *("0% 1d", "101% 1d", "-5% 1d", "90% 366d", "1.2.3% 1d", "90% .d", "90% 1d 2d", "nan% 1d"),
        *("90% infd", "9" * 400 + "% 1d", "90% " + "9" * 400 + "s", "٩٠% 1d"),
    ],
)
def test_a_bad_target_is_named_with_the_way_out(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as '90% 1d'|at most|above 0 %") as caught:
        read_target(text)
    assert repr(text[:40]) in str(caught.value)
    assert len(str(caught.value)) < 200
