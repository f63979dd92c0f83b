"""How late the event loop is: the histogram against sorted lists, the timer against stalls."""

from __future__ import annotations

import asyncio
import sys
import time
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from scrapy import signals
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler

from krowlspider.extensions.loop_lag import INTERVAL, LagHistogram, Lateness, LoopLag
from krowlspider.job.meters import Histogram as Metric
from krowlspider.job.status import figures_wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

SECONDS = st.floats(0, 100)
LOOPS = [uvloop.new_event_loop, asyncio.new_event_loop]


def histogram(durations: list[float]) -> LagHistogram:
    made = LagHistogram()
    for duration in durations:
        made.record(duration)
    return made


# --- the histogram ---


@given(st.lists(SECONDS, min_size=1), st.integers(1, 1000))
def test_quantile_is_at_most_a_sixteenth_above_the_true_one(
    durations: list[float], per_mille: int
) -> None:
    rank = -(-len(durations) * per_mille // 1000)
    exact = 1000 * sorted(durations)[rank - 1]
    said = histogram(durations).quantile_ms(per_mille)
    # One step of 0.1 ms is lost by counting whole steps.
    assert exact - 0.1 - 1e-6 <= said <= exact * (1 + 1 / 16) + 1e-6


@given(st.lists(SECONDS, min_size=1))
def test_maximum_is_exact_and_above_every_quantile(
    durations: list[float],
) -> None:
    made = histogram(durations)
    longest = 1000 * max(durations)
    assert longest - 0.1 - 1e-6 <= made.max_ms <= longest + 1e-6
    assert made.quantile_ms(1000) == made.max_ms
    assert made.count == len(durations)


def test_tenths_below_three_milliseconds_are_distinct() -> None:
    for tenths in range(32):
        assert histogram([(tenths + 0.5) / 10_000, 1]).quantile_ms(500) == tenths / 10


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, 0), (0, 0), (100, 100_000), (1e9, 100_000), (float(2**70), 100_000)]
)
def test_value_out_of_range_counts_as_the_nearest(seconds: float, said: float) -> None:
    made = histogram([seconds])
    assert (made.max_ms, made.quantile_ms(500)) == (said, said)


def test_of_nothing_all_is_zero() -> None:
    assert (LagHistogram().quantile_ms(500), LagHistogram().max_ms) == (0, 0)


def test_quantiles_grow_with_their_rank() -> None:
    made = histogram([number**3 / 1e6 for number in range(400)])
    quantiles = [made.quantile_ms(per_mille) for per_mille in range(1, 1001)]
    assert quantiles == sorted(quantiles)


# --- the planned times ---


def test_early_timer_is_not_late_and_keeps_to_its_plan() -> None:
    """So is one on time."""
    late = Lateness(100.0, inf)
    for number in range(1, 51):
        assert late.planned == pytest.approx(100 + number * INTERVAL)
        late.met(late.planned - 0.0004 * (number % 2))
    assert (late.whole.count, late.whole.max_ms) == (50, 0)


def test_a_stall_counts_for_each_time_that_was_planned_in_it() -> None:
    """A second in which nothing ran, after nine in which all did, is a tenth of the whole."""
    late = Lateness(0.0, inf)
    while late.planned < 9:
        late.met(late.planned)
    late.met(10.0)
    assert late.whole.count == pytest.approx(500, abs=1)
    assert late.whole.max_ms == pytest.approx(1000, abs=25)
    assert late.whole.quantile_ms(850) == 0
    assert late.whole.quantile_ms(950) == pytest.approx(500, rel=0.1)
    metric = Metric((0.001, 0.5, 1.0))
    late.whole.fill(metric)
    assert metric.counts == pytest.approx([450, 25, 25, 0], abs=1)
    assert metric.sum == pytest.approx(25, rel=0.03)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=20))
def test_plan_goes_on_at_its_next_time_after_a_stall(
    stalls: list[float],
) -> None:
    late = Lateness(0.0, inf)
    now = 0.0
    for stall in stalls:
        now = max(now, late.planned) + stall
        late.met(now)
        assert now - 1e-9 <= late.planned <= now + INTERVAL + 1e-9
        assert late.planned / INTERVAL == pytest.approx(round(late.planned / INTERVAL), abs=1e-4)


def test_a_day_asleep_is_counted_as_a_hundred_seconds() -> None:
    late = Lateness(0.0, inf)
    late.met(86_400.0)
    assert late.whole.count == 5001
    assert late.whole.max_ms == 100_000
    assert 86_400 <= late.planned <= 86_400 + INTERVAL


def test_what_is_recent_is_since_it_was_last_asked_for() -> None:
    recent = "krowl/loop/recent_lag_max_ms"
    late = Lateness(0.0, 0.03)
    assert late.met(1.0)[recent] == pytest.approx(980, abs=1)
    assert late.met(late.planned) == {}
    assert late.met(late.planned)[recent] == 0
    assert late.whole.max_ms == pytest.approx(980, abs=1)


def test_a_timer_on_time_costs_few_calls() -> None:
    """It runs fifty times a second."""
    late = Lateness(0.0, inf)
    late.met(late.planned)
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        for _ in range(100):
            late.met(late.planned)
    finally:
        sys.setprofile(None)
    assert calls < 100 * 5


# --- the extension ---


def run(
    new_loop: Callable[[], asyncio.AbstractEventLoop], interval: float, main: Callable[..., Any]
) -> Crawler:
    """Run ``main`` while the extension measures its loop; the crawler, with its last stats."""

    async def measured() -> Crawler:
        crawler = get_crawler(settings_dict={"KROWL_STATUS_INTERVAL": interval})
        # Its receivers are held weakly.
        _extension = build_from_crawler(LoopLag, crawler)
        crawler.signals.send_catch_log(signals.engine_started)
        await main(crawler)
        crawler.signals.send_catch_log(signals.spider_closed)
        return crawler

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(measured())


def asked(crawler: Crawler, name: str) -> float:
    crawler.signals.send_catch_log(figures_wanted)
    found: float = crawler.stats.get_value(f"krowl/loop/{name}", 0)
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the stats tell nobody
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_held_loop_shows_immediately_and_at_the_end(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main(crawler: Crawler) -> None:
        time.sleep(0.3)
        # The timer was planned for 20 ms after the start.
        await until(lambda: asked(crawler, "lag_max_ms") >= 260)

    stats = run(new_loop, 1000, main).stats.get_stats()
    assert 260 <= stats["krowl/loop/lag_max_ms"] < 10_000
    assert (
        stats["krowl/loop/lag_p50_ms"]
        <= stats["krowl/loop/lag_p99_ms"]
        <= stats["krowl/loop/lag_p999_ms"]
        <= stats["krowl/loop/lag_max_ms"]
    )
    # It is not yet time for what is since the last status line.
    assert "krowl/loop/recent_lag_max_ms" not in stats


@pytest.mark.parametrize("new_loop", LOOPS)
def test_recent_lag_forgets_a_stall_and_the_whole_does_not(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main(crawler: Crawler) -> None:
        recent = "krowl/loop/recent_lag_max_ms"
        time.sleep(0.5)
        await until(lambda: crawler.stats.get_value(recent, 0) >= 450)
        await until(lambda: crawler.stats.get_value(recent) < 450)

    stats = run(new_loop, 0.1, main).stats.get_stats()
    assert stats["krowl/loop/lag_max_ms"] >= 450
    assert stats["krowl/loop/recent_lag_p99_ms"] <= stats["krowl/loop/recent_lag_max_ms"]


async def test_nothing_is_measured_after_the_spider_is_closed() -> None:
    crawler = get_crawler(settings_dict={"KROWL_STATUS_INTERVAL": 10})
    _extension = build_from_crawler(LoopLag, crawler)
    crawler.signals.send_catch_log(signals.engine_started)
    crawler.signals.send_catch_log(signals.spider_closed)
    time.sleep(0.1)
    # Two turns of the loop: a timer that is due runs in the first.
    await asyncio.sleep(0.001)
    await asyncio.sleep(0.001)
    assert asked(crawler, "lag_max_ms") == 0


def test_a_crawl_that_never_started_has_no_lag() -> None:
    crawler = get_crawler(settings_dict={"KROWL_STATUS_INTERVAL": 10})
    _extension = build_from_crawler(LoopLag, crawler)
    crawler.signals.send_catch_log(figures_wanted)
    crawler.signals.send_catch_log(signals.spider_closed)
    assert crawler.stats.get_stats() == {}
