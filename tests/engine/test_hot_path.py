"""Work left out for speed is done again when a component needs it."""

from __future__ import annotations

import gc
import logging
import resource
import sys
from typing import TYPE_CHECKING

import pytest
from scrapy import Request, Spider, signals
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler

from krowlspider.engine.logformatter import LogFormatter
from krowlspider.extensions.gc_tuning import GcTuning
from krowlspider.frontier.entry import Entry
from krowlspider.job.parts import idle_connections
from krowlspider.urls.page.links import read_page
from krowlspider.urls.page.requisites.elements import requisites_of
from tests.support.crawls import crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SITE = [page("/robots.txt", ""), page("/", "<a href=/a>x</a>"), page("/a", "x")]


@pytest.fixture
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700)  # Python's default.
    yield
    # As conftest.py does.
    gc.freeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_thresholds")
def test_garbage_is_collected_less_while_the_engine_runs() -> None:
    """As before afterwards."""
    before = gc.get_threshold()
    crawler = get_crawler()
    # Its receivers are held weakly.
    _collector = build_from_crawler(GcTuning, crawler)
    crawler.signals.send_catch_log(signals.engine_started)
    assert gc.get_threshold() == (5_000, 2, 400)
    assert gc.get_freeze_count() > 1000
    crawler.signals.send_catch_log(signals.engine_stopped)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


@pytest.mark.parametrize(("level", "lines"), [("INFO", 0), ("DEBUG", 2)])
def test_each_page_has_its_line_in_the_log_at_debug_alone(
    tmp_path: Path, level: str, lines: int
) -> None:
    with SimulatedWeb(spec=SITE) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings={"LOG_LEVEL": level}).run()
    said = crawl.log
    assert said.count("DEBUG: Crawled (200)") == lines
    assert said.count("DEBUG: Scraped from") == lines


def test_requisites_cost_no_call_when_off(tmp_path: Path) -> None:
    called = set()
    with SimulatedWeb(spec=SITE) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")])
        sys.setprofile(lambda frame, *_: called.add(frame.f_code))
        try:
            crawl.run()
        finally:
            sys.setprofile(None)
    assert read_page.__code__ in called
    assert Entry.is_requisite.fget.__code__ not in called
    assert requisites_of.__code__ not in called


def test_without_scrapys_handler_every_page_is_told() -> None:
    formatter = LogFormatter()
    request, response = Request("http://a.test/"), Response("http://a.test/")
    line = formatter.crawled(request, response, Spider("any"))
    assert line is not None
    assert line["level"] == logging.DEBUG


@pytest.mark.parametrize(
    ("files", "kept"), [(20_000, 2048), (1024, 468), (300, 1), (resource.RLIM_INFINITY, 2048)]
)
def test_idle_connections_are_as_many_as_there_are_files_for(
    files: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert idle_connections(Settings({"CONCURRENT_REQUESTS": 256})) == kept
