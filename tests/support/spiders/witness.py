"""What becomes of each request, as Scrapy's signals tell it; and the downloader without what stands
in for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy import signals

from krowlspider.engine.downloader import Downloader

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

SIGNALS = (
    "request_scheduled",
    "request_dropped",
    "request_reached_downloader",
    "request_left_downloader",
    "response_downloaded",
    "response_received",
    "item_scraped",
    "spider_error",
)


class EngineDownloader(Downloader):
    """With Scrapy's own way from the scheduler to the scraper."""

    def _make_runner(self) -> None: ...


class Witness:
    """Notes the signals of each path, in their order, as the stat ``witness/PATH``."""

    def __init__(self, crawler: Crawler):
        self._stats = crawler.stats
        self._names = {getattr(signals, name): name for name in SIGNALS}
        for signal in self._names:
            crawler.signals.connect(self._heard, signal)
        crawler.signals.connect(self._empty, signals.scheduler_empty)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Witness:
        return cls(crawler)

    def _heard(self, signal: object, **arguments: Any) -> None:
        what = arguments.get("request") or arguments["response"]
        key = f"witness/{urlsplit(what.url).path}"
        self._stats.set_value(key, [*self._stats.get_value(key, []), self._names[signal]])

    def _empty(self) -> None:
        self._stats.set_value("empty", True)
