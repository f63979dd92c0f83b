"""The controller of the threshold: it settles, starves nobody for ever, and survives a budget of 0.

The web and the simulation are those of `bench/recrawl.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recrawl import simulate
from bench.recrawlpeers import Ours
from bench.recrawlweb import DAY, web
from krowlspider.recrawl.estimate import Estimate
from krowlspider.recrawl.threshold import (
    EVERY,
    PLANNED,
    THRESHOLD_MAX,
    THRESHOLD_MIN,
    counted,
    demand,
    step,
)
from krowlspider.recrawl.value import expected_value

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES = web(pages=300, days=40, seed=5)
MINUTES = int(3600 / EVERY)


def a_day(fetched: list[float], begin: float, end: float) -> float:
    """Return the requests a day between two days."""
    return sum(begin <= at / DAY < end for at in fetched) / (end - begin)


def crawl(afforded: Callable[[float], float]) -> tuple[list[float], float]:
    """Return the times of all fetches, and how late they were on average."""
    fetched: list[float] = []
    figures = simulate(PAGES, Ours(PAGES, afforded), 40, afforded, fetched)
    return fetched, figures.late


def test_the_requests_follow_the_budget() -> None:
    fetched, late = crawl(lambda _: 200 / DAY)
    assert a_day(fetched, 10, 40) == pytest.approx(200 * PLANNED, rel=0.06)
    assert late < 0.1 * DAY


@pytest.mark.parametrize(("before", "after"), [(100, 400), (400, 100)])
def test_a_step_of_the_budget_is_followed(before: int, after: int) -> None:
    """Up and down by four: within ten days, without swinging."""
    fetched, _ = crawl(lambda now: (before if now < 15 * DAY else after) / DAY)
    days = [a_day(fetched, day, day + 3) for day in range(25, 37, 3)]
    assert sum(days) / len(days) == pytest.approx(after * PLANNED, rel=0.1)
    assert max(days) < 1.25 * min(days)


def test_a_budget_of_zero_stops_and_comes_back() -> None:
    """Ten days without any request: no storm after them, and no page is left behind."""
    fetched, _ = crawl(lambda now: 0.0 if 10 * DAY < now < 20 * DAY else 200 / DAY)
    assert not any(10.01 < at / DAY < 20 for at in fetched)
    assert all(a_day(fetched, day, day + 1) <= 201 for day in range(20, 40))
    assert a_day(fetched, 30, 40) == pytest.approx(200 * PLANNED, rel=0.1)


def test_nothing_is_learnt_from_a_budget_of_zero() -> None:
    """Else pages of the minutes after it would be planned a year ahead."""
    assert step(4000.0, 1.0, 0.0) == 4000.0


def test_a_starving_budget_asks_only_what_it_affords() -> None:
    """One request a day for 300 pages."""
    fetched, _ = crawl(lambda _: 1 / DAY)
    assert a_day(fetched, 0, 40) <= 1.05


@pytest.mark.parametrize("requests", [1e-9, 1e-3, 10.0])
def test_the_threshold_settles_for_a_constant_demand(requests: float) -> None:
    threshold = 4000.0
    for _ in range(24 * MINUTES):
        threshold = step(threshold, 1.0, requests)
    wanted = min(max((1 / (requests * PLANNED)) ** 2, THRESHOLD_MIN), THRESHOLD_MAX)
    assert threshold == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("budget", [0.2, 1.0, 5.0])
def test_slow_hosts_leave_their_part_of_the_budget_to_others(budget: float) -> None:
    """Ten hosts with much demand that afford little, and ninety with less that afford more."""
    hosts = [(20.0, 0.002)] * 10 + [(10.0, 0.5)] * 90
    crawl, own = 4000.0, [4000.0] * len(hosts)
    for _ in range(24 * MINUTES):
        own = [step(each, *host) for each, host in zip(own, hosts, strict=True)]
        crawl = step(crawl, sum(counted(*host, crawl) for host in hosts), budget)
    pairs = list(zip(own, hosts, strict=True))
    made = [wanted / max(each, crawl) ** 0.5 for each, (wanted, _) in pairs]
    assert sum(made) == pytest.approx(budget * PLANNED, rel=0.05)
    assert all(rate <= afforded for rate, (_, afforded) in zip(made, hosts, strict=True))


bounded = st.floats(THRESHOLD_MIN, THRESHOLD_MAX)


@given(bounded, st.floats(0, 1e9), st.floats(0, 1e6))
def test_a_step_is_bounded(threshold: float, demanded: float, requests: float) -> None:
    stepped = step(threshold, demanded, requests)
    assert THRESHOLD_MIN <= stepped <= THRESHOLD_MAX
    assert threshold / 2.001 <= stepped <= threshold * 2.001


@given(st.floats(0.05, 12.0), st.floats(3600.0, 3e7), st.floats(0.01, 100.0))
def test_demand_over_the_root_of_the_threshold_is_the_request_rate(
    shape: float, seconds: float, weight: float
) -> None:
    estimate, planned = Estimate(shape, seconds), DAY
    threshold = expected_value(estimate, weight, planned)
    assert demand(estimate, weight, planned) / threshold**0.5 == pytest.approx(1 / planned)
