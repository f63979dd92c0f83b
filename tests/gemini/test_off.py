"""Without KROWL_GEMINI, nothing of Gemini is loaded or fetched."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Self

from scrapy import signals

from tests.support.crawls import ROBOTS, anchors, crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from scrapy.crawler import Crawler

ROOMS = ("krowlspider.gemini", "krowlspider.middlewares.gemini", "middlewares.gemini")


def loaded() -> list[str]:
    return [name for name in sys.modules if name.startswith(ROOMS)]


class Loaded:
    """An extension that counts the modules of Gemini at the end of a crawl."""

    def __init__(self, crawler: Crawler):
        self._stats = crawler.stats
        crawler.signals.connect(self._look, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _look(self) -> None:
        self._stats.set_value("loaded", loaded())


def test_off_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A gemini link is left out, as one of any other scheme."""
    for name in loaded():
        monkeypatch.delitem(sys.modules, name)
    extension = json.dumps({f"{__name__}.Loaded": 1})
    spec = [ROBOTS, page("/", anchors("gemini://a.test/", "mailto:a@b.test", "/b")), page("/b", "")]
    with SimulatedWeb(spec=spec) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings={"EXTENSIONS": extension})
        crawl.run()
    assert crawl.stats["krowl/frontier/done_count"] == 2
    assert crawl.stats["krowl/links/left_count/scheme"] == 2
    assert crawl.stats["loaded"] == []
    assert not (crawl.jobdir / "gemini").exists()
