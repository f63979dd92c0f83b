"""How fresh the pages of a crawl stay, asked of a stopped crawl, and of one that runs."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.errors import KrowlError
from krowlspider.frontier.pages.sample import Sampled
from krowlspider.job.forecasting import CrawlForecast, forecast_of, one_line, summed
from krowlspider.job.recrawl import Afforded
from krowlspider.recrawl.estimate import Estimate
from krowlspider.recrawl.forecast import FreshnessTarget
from krowlspider.views.forecast import forecast_text
from tests.extensions.test_live_page import crawling
from tests.support.crawling import scrapy
from tests.support.crawls import anchors, crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = 86_400.0
SPEC = [page("/", anchors("/one", "/two", "/three")), page("^/.*$", "x")]
FAST, SLOW = Estimate(1e4, 1e4 * DAY / 4), Estimate(1e4, 1e4 * 50 * DAY)
# Small hosts that are asked as often as they like, and large ones whose delays are long.
HOSTS = [
    Sampled(40.0, 50.0, [FAST, SLOW], 1.0),
    Sampled(60.0, 80.0, [SLOW], 0.5),
    Sampled(2.0, 20_000.0, [FAST, SLOW, SLOW], 20.0),
]


def made(portion: float = 0.9, budget: float = 100.0, age: float = DAY) -> CrawlForecast:
    return forecast_of(HOSTS, Afforded(0.5, budget), FreshnessTarget(portion, age))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("stopped")
    with SimulatedWeb(spec=SPEC) as web:
        yield crawl_of(web, folder, [web.url("a.test"), web.url("b.test")]).run().jobdir


def ask(jobdir: Path, *target: str) -> Any:
    done = scrapy("frontier", jobdir, "--json", "--forecast", *target)
    return json.loads(done.stdout)


def test_a_stopped_crawl_has_a_forecast(stopped: Path) -> None:
    found = ask(stopped)
    assert (found["portion"], found["age"]) == (0.9, DAY)
    assert (found["whole"]["hosts"], found["whole"]["pages"]) == (2, 8)
    assert found["sampled"] == 8
    (one,) = found["classes"]
    assert (one["hosts"], one["pages"], one["pages_each"]) == (2, 8, "up to 100")
    assert 0 < one["fresh"] <= one["within"] <= 1
    text = scrapy("frontier", stopped, "--forecast").stdout.decode()
    assert "target   90 % of the pages outdated for at most 1 d" in text
    assert "sample   all pages" in text


def test_a_target_may_be_given(stopped: Path) -> None:
    assert ask(stopped, "50% 2h")["age"] == 7200
    assert ask(stopped, "50% 2h")["whole"]["within"] < ask(stopped)["whole"]["within"]


@pytest.mark.parametrize("target", ["90", "90% 1w", "0% 1d", "90% 400d"])
def test_a_bad_target_is_refused(stopped: Path, target: str) -> None:
    said = scrapy("frontier", stopped, "--forecast", target, code=2).stderr.decode()
    assert repr(target) in said
    assert "Traceback" not in said


def test_an_empty_target_is_refused(stopped: Path) -> None:
    said = scrapy("frontier", stopped, "--forecast", "", code=2).stderr.decode()
    assert "give a target such as '90% 1d'" in said


def test_the_settings_of_the_command_are_the_budget(stopped: Path) -> None:
    options = ("-s", "CONCURRENT_REQUESTS=6", "-s", "KROWL_RECRAWL_SHARE=0.25")
    found = ask(stopped, "90% 1d", *options)
    assert (found["budget"], found["share"]) == (1.5, 0.25)


def test_a_crawl_without_rows_says_so(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings={"KROWL_PAGES": False})
        jobdir = crawl.run().jobdir
    said = scrapy("frontier", jobdir, "--forecast", code=2).stderr.decode()
    assert "no forecast: no row of a page" in said
    assert "KROWL_PAGES" in said


@pytest.mark.slow
def test_a_running_crawl_is_asked(tmp_path: Path) -> None:
    with crawling(tmp_path) as crawl:
        found = ask(crawl.jobdir, "50% 3h")
        assert found["age"] == 3 * 3600
        assert 1 <= found["whole"]["pages"] == found["sampled"]
        said = scrapy("frontier", crawl.jobdir, "--forecast", "x", code=2).stderr.decode()
        assert "'x' is no target" in said


# --- of several processes ---


def test_a_sum_is_the_forecast_of_all_hosts() -> None:
    """Where the budget limits nobody, processes reach together what one would reach."""
    afforded, target = Afforded(0.5, 1e6), FreshnessTarget(0.9, DAY)
    parts = [forecast_of(some, afforded, target) for some in (HOSTS[:1], HOSTS[1:2], HOSTS[2:])]
    found, one = summed(parts), forecast_of(HOSTS, afforded, target)
    assert (found.whole.hosts, found.whole.pages) == (one.whole.hosts, one.whole.pages)
    assert found.whole.within == pytest.approx(one.whole.within, abs=1e-3)
    assert found.whole.fresh == pytest.approx(one.whole.fresh, abs=1e-3)
    assert found.whole.requests == pytest.approx(one.whole.requests, rel=1e-3)
    assert (found.budget, found.sampled, found.is_reached) == (3e6, one.sampled, one.is_reached)
    named = [(each.delay, each.pages_each, each.pages) for each in one.classes]
    assert sorted((each.delay, each.pages_each, each.pages) for each in found.classes) == sorted(
        named
    )
    assert found.needed_factor == max(each.needed_factor or 0 for each in parts)
    assert "hosts would have to be asked" in found.words


def test_a_sum_reaches_no_more_than_its_worst_process_can() -> None:
    parts = [made(), made(age=0.0, portion=1.0)]
    assert parts[1].needed_factor is None
    found = summed(parts)
    assert (found.needed_budget, found.needed_factor) == (None, None)


# --- in words ---


def test_classes_are_hosts_of_like_delay_and_size() -> None:
    found = made()
    assert [(each.delay, each.pages_each, each.hosts, each.pages) for each in found.classes] == [
        ("up to 1 s", "up to 100", 100, 6800),
        ("up to 30 s", "over 10,000", 2, 40_000),
    ]
    assert [each.limit for each in found.classes] == ["", "politeness"]
    assert (found.whole.hosts, found.whole.pages) == (102, 46_800)
    assert found.whole.requests == pytest.approx(
        sum(each.requests for each in found.classes), rel=1e-3
    )


def test_a_target_that_is_reached_says_what_would_be_enough() -> None:
    found = made(0.3)
    assert found.is_reached
    assert found.words.startswith("reached; ")
    assert "requests/s would be enough" in found.words


def test_a_budget_that_is_too_small_names_the_setting() -> None:
    found = made(0.6, budget=0.01)
    assert found.needed_factor == 1
    assert found.needed_budget is not None
    slots = ceil(found.needed_budget / 0.5)
    assert f"as by CONCURRENT_REQUESTS={slots}" in found.words
    assert "in place of 0.01" in found.words
    assert made(0.6, budget=found.needed_budget * 1.01).is_reached


def test_politeness_that_is_too_slow_says_how_much_faster() -> None:
    found = made(0.9)
    assert found.needed_factor is not None
    assert found.needed_factor > 2
    words = f"hosts would have to be asked {found.needed_factor:,g} times as often"
    assert words in found.words
    assert "KROWL_RECRAWL_SHARE=" not in found.words
    slower = [each._replace(delay=each.delay * 0.6 / found.needed_factor * 2) for each in HOSTS]
    near = forecast_of(slower, Afforded(0.5, 1e6), FreshnessTarget(0.9, DAY))
    assert "as by KROWL_RECRAWL_SHARE=0." in near.words


def test_a_target_that_nothing_reaches_says_so() -> None:
    found = forecast_of([HOSTS[0]], Afforded(0.5, 100.0), FreshnessTarget(1.0, 0.0))
    assert (found.needed_budget, found.needed_factor) == (None, None)
    assert "however often hosts are asked" in found.words


def test_the_text_has_a_row_for_each_class() -> None:
    found = made()
    lines = forecast_text(found).splitlines()
    assert [line.split()[:4] for line in lines[5:7]] == [
        ["up", "to", "1", "s"],
        ["up", "to", "30", "s"],
    ]
    assert lines[7].split()[:3] == ["all", "102", "46,800"]
    assert lines[-3] == "Not reached;"
    assert lines[-2].startswith("hosts would")
    assert max(map(len, lines)) <= 130
    assert f"of 46,800 pages at most 1 d outdated, {100 * found.whole.fresh:.1f}" in one_line(found)


def test_a_sample_without_pages_has_no_forecast() -> None:
    with pytest.raises(KrowlError, match="no forecast"):
        forecast_of([], Afforded(0.5, 1.0), FreshnessTarget(0.9, DAY))
