"""The schedule of recrawls beside those of others, on a small simulated web."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from math import expm1
from typing import TYPE_CHECKING

import pytest

from bench.recrawl import measure, ours, plot, simulate, table
from bench.recrawlfrontier import FrontierCrawl
from bench.recrawlhistory import histories
from bench.recrawlpeers import Fixed, Halving, Nutch, Oracle, StormCrawler
from bench.recrawlweb import DAY, SHARES, web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAYS = 30
PAGES = web(pages=1000, days=DAYS, seed=7)


def test_ours_is_near_the_oracle_and_above_a_fixed_interval() -> None:
    """All with equal requests; the oracle knows the rates from the beginning."""
    fixed = simulate(PAGES, Fixed(5 * DAY), DAYS)
    mine = ours(PAGES, fixed.requests, DAYS)
    oracle = simulate(PAGES, Oracle.affording(PAGES, mine.requests * DAYS, DAYS * DAY), DAYS)
    assert mine.requests == pytest.approx(fixed.requests, rel=0.03)
    assert oracle.requests == pytest.approx(mine.requests, rel=0.03)
    assert mine.freshness > 0.95 * oracle.freshness
    assert mine.freshness > fixed.freshness


def test_the_oracle_beats_each_fixed_interval() -> None:
    """One that does not is no oracle."""
    for interval in (DAY, 5 * DAY):
        fixed = simulate(PAGES, Fixed(interval), DAYS)
        oracle = Oracle.affording(PAGES, fixed.requests * DAYS, DAYS * DAY)
        assert simulate(PAGES, oracle, DAYS).freshness > fixed.freshness


def test_freshness_of_a_fixed_interval_is_the_formula() -> None:
    """(1 − e^(−λτ))/(λτ), for steady pages (Cho and Garcia-Molina)."""
    steady = [page for page in PAGES if page.kind == "poisson" and 0.2 < page.rate * DAY < 2]
    expected = [-expm1(-page.rate * DAY) / (page.rate * DAY) for page in steady]
    reached = simulate(steady, Fixed(DAY), DAYS).freshness
    assert reached == pytest.approx(sum(expected) / len(expected), abs=0.02)


def test_a_dead_page_is_always_fresh() -> None:
    figures = simulate(PAGES, Fixed(7 * DAY), DAYS)
    assert set(figures.by_kind) == set(SHARES)
    assert figures.by_kind["dead"] == pytest.approx(1)


def test_nutch_adapts_as_its_own_test_expects() -> None:
    """TestAdaptiveFetchSchedule: a fifth less after a change, a fifth more without one."""
    assert Nutch.adapted(100.0, 0.0, 0.0, changed=True)[0] == pytest.approx(80.0)
    assert Nutch.adapted(100.0, 0.0, 0.0, changed=False)[0] == pytest.approx(120.0)


def test_nutch_synchronises_with_the_last_change() -> None:
    interval, due = Nutch.adapted(DAY, 10 * DAY, 0.0, changed=False)
    assert interval == 10 * DAY
    assert due == 18 * DAY
    assert Nutch.adapted(60.0, DAY, DAY, changed=True)[0] == Nutch.LEAST
    assert Nutch.adapted(Nutch.MOST, DAY, DAY, changed=False)[0] == Nutch.MOST


def test_stormcrawler_adapts_as_its_own_test_expects() -> None:
    """AdaptiveSchedulerTest: first 5 minutes, least 2, most 10; then twice unchanged, changed."""
    schedule = StormCrawler(first=5, least=2, most=10)
    page = PAGES[0]
    first = schedule.first(0, page) - page.found
    later = [schedule.next(0, 0.0, 0.0, changed=changed) for changed in (False, False, True)]
    assert [first, *later] == [5 * 60, 7 * 60, 10 * 60, 6 * 60]
    assert schedule.adapted(9, changed=False) == 10


def test_halving_and_doubling_is_what_it_says() -> None:
    schedule = Halving()
    schedule.first(0, PAGES[0])
    waits = [schedule.next(0, 0.0, 0.0, changed=changed) for changed in (True, False, False)]
    assert waits == [DAY / 2, DAY, 2 * DAY]


def test_a_burst_changes_more_often_than_the_mean() -> None:
    bursts = [page for page in PAGES if page.kind == "burst" and len(page.changes) > 10]
    assert bursts
    for page in bursts:
        gaps = sorted(later - earlier for earlier, later in pairwise(page.changes))
        assert gaps[len(gaps) // 2] < 1 / page.rate / 2


def test_the_table_and_the_plot_have_all_schedules(tmp_path: Path) -> None:
    figures = measure(web(pages=50, days=40, seed=1), 40)
    assert table(figures).count("\n| ") == (2 + 6) + (2 + len(SHARES))
    plot(figures, tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert text.count("<circle") == len(figures["rows"]) == 6
    assert text.endswith("</svg>\n")


# --- on the real frontier ---

FEW = web(pages=100, days=20, seed=3)


@contextmanager
def crawled(folder: Path, days: float, each: float = 1.0) -> Iterator[FrontierCrawl]:
    """A crawl of FEW by the real frontier after some days, at ``each`` requests a day for a
    page."""
    few = FrontierCrawl(FEW, folder, each * len(FEW) / DAY)
    try:
        few.run_until(days * DAY)
        yield few
    finally:
        few.close()


def requests_by_day(few: FrontierCrawl) -> Counter[int]:
    return Counter(int(at / DAY) for at, _ in few.asked)


def test_the_real_frontier_keeps_delays_and_budget(tmp_path: Path) -> None:
    with crawled(tmp_path, 4) as few:
        assert few.hurried == []
        assert few.unplanned() == []
        assert len(few.asked) - few.again == sum(page.found <= few.now for page in FEW)
        # It learns in the first days, and then spends what it is given.
        assert 0.75 * len(FEW) < requests_by_day(few)[3] < 1.25 * len(FEW)


def test_kills_of_the_real_frontier_lose_no_page(tmp_path: Path) -> None:
    with crawled(tmp_path, 1) as few:
        for kill in range(20):
            few.kill()
            few.run_until(few.now + 1800 + 7 * kill)
        assert few.unplanned() == []
        assert few.hurried == []
        asked = few.again
        few.run_until(few.now + DAY)
        assert 0.6 * len(FEW) < few.again - asked < 1.25 * len(FEW)


@pytest.mark.slow
@pytest.mark.parametrize("jump", [365 * DAY, -DAY], ids=["a year ahead", "a day back"])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_a_clock_that_jumps_makes_no_storm(
    tmp_path: Path, jump: float, *, is_restarted: bool
) -> None:
    """A machine that starts a year later finds all pages due: each is asked once for that.

    Counts of a day vary by a third.
    """
    with crawled(tmp_path, 11, each=0.25) as few:
        few.lead = jump
        if is_restarted:
            few.restart_machine()
        few.run_until(16 * DAY)
        by_day = requests_by_day(few)
        usual = sum(by_day[day] for day in range(8, 11)) / 3
        is_all_due = is_restarted and jump > 0
        assert by_day[11] <= (len(FEW) if is_all_due else 1.6 * usual)
        assert max(by_day[day] for day in range(12, 16)) < 1.6 * usual
        assert by_day[15] > 0.5 * usual
        assert few.hurried == []
        assert few.unplanned() == []


def test_a_history_of_files_is_one_of_pages(tmp_path: Path) -> None:
    """Two files: one changed before the window and within it, one found within it."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.check_call([*git, "init", "-q"])
    for day, name in ((100, "old.md"), (110, "old.md"), (120, "new.md"), (130, "code.py")):
        (tmp_path / name).write_text(str(day))
        date = f"@{day * int(DAY)} +0000"
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        subprocess.check_call([*git, "add", "."])
        subprocess.check_call([*git, "commit", "-qm", name], env=os.environ | dates)
    new, old = sorted(histories([tmp_path], 15), key=lambda page: page.changes)
    assert (new.found, new.changes) == (15 * DAY, [])
    assert (old.found, old.changes) == (0.0, [5 * DAY])
    assert old.rate == pytest.approx(1 / (15 * DAY))
