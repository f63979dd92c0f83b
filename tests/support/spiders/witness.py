"""What becomes of each request, as Scrapy's signals tell it; and the downloader without what stands
in for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy import signals
from twisted.internet.defer import Deferred

from krowlspider.engine.downloader import Downloader
from krowlspider.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

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

    def fetch(self, request: Request) -> Deferred[Response | Request]:
        if self._scheduler.flights.get(request) is None:
            return super().fetch(request)
        self.active.add(request)
        return Deferred.fromFuture(self._loop.create_task(self.download(request)))


class EngineScheduler(Scheduler):
    """For `EngineDownloader`: Scrapy's engine hands over what was put back, too."""

    def open(self, spider: Spider) -> None:
        super().open(spider)
        del self._crawler.engine._start_scheduled_request

    def enqueue_request(self, request: Request) -> bool:
        return self.flights.get(request) is not None or super().enqueue_request(request)


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
