"""With the browser off nothing of it is there; with it on, what it cannot use stops the start."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Self

import pytest
from scrapy import signals

from tests.support.crawls import ROBOTS, crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy.crawler import Crawler


class Loaded:
    """An extension that counts the modules of the browser at the end of a crawl."""

    def __init__(self, crawler: Crawler):
        self._stats = crawler.stats
        crawler.signals.connect(self._look, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _look(self) -> None:
        loaded = [name for name in sys.modules if name.startswith("krowlspider.browser")]
        self._stats.set_value("loaded", len(loaded))


def test_off_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("krowlspider.browser")]:
        monkeypatch.delitem(sys.modules, name)
    extension = json.dumps({f"{__name__}.Loaded": 1})
    with SimulatedWeb(spec=[ROBOTS, page("/", "a page")]) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings={"EXTENSIONS": extension})
        crawl.run()
    assert crawl.stats["krowl/frontier/done_count"] == 1
    assert crawl.stats["loaded"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "scrapy_playwright is not installed: "),
        ({"KROWL_CONSUL": "http://127.0.0.1:1", "REDIS_URL": "redis://x"}, "KROWL_CONSUL is set"),
        ({"KROWL_BROWSER_URLS": "("}, "KROWL_BROWSER_URLS='(' is no list of regular expressions"),
        (
            {"PLAYWRIGHT_CDP_URL": "ws://127.0.0.1:1"},
            "PLAYWRIGHT_CDP_URL is set, and KROWL_",
        ),
        ({"PLAYWRIGHT_BROWSER_TYPE": "firefox"}, "PLAYWRIGHT_BROWSER_TYPE is 'firefox': "),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": '{"proxy": {}}'}, "PLAYWRIGHT_LAUNCH_OPTIONS has a proxy"),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": "[1]"}, "PLAYWRIGHT_LAUNCH_OPTIONS='[1]' is no dict"),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": "x"}, "PLAYWRIGHT_LAUNCH_OPTIONS='x' is no dict"),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": '{"args": "--x"}'}, "is '--x': give a list of strings"),
        (
            {"PLAYWRIGHT_LAUNCH_OPTIONS": '{"args": ["--no-proxy-server"]}'},
            "PLAYWRIGHT_LAUNCH_OPTIONS has '--no-proxy-server': ",
        ),
    ],
)
def test_a_start_without_what_it_needs_is_refused(
    tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    with SimulatedWeb(spec=[ROBOTS]) as web:
        chosen = {"KROWL_BROWSER": 1, **settings}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=chosen)
        crawl.run(code=2)
        assert web.log() == []
    (line,) = [line for line in crawl.log.splitlines() if message in line]
    assert "Traceback" not in crawl.log
    if not settings:
        assert line.endswith("install -e '.[browser]'")
