"""Extension: a live page of the crawl, beside the metrics, for browsers on this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from krowlspider.crawl.job import Job
from krowlspider.crawl.monitoring.control_token import ControlToken
from krowlspider.crawl.monitoring.history import INTERVAL, History
from krowlspider.crawl.monitoring.page_server import is_loopback
from krowlspider.crawl.status import figures_wanted
from krowlspider.engine.control import Control
from krowlspider.views.ordering import Ordering

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.crawl.monitoring.endpoint import Route


class LivePage:
    """Adds the page and what it asks to the server of the metrics.

    :raises NotConfigured: KROWL_LIVE_PAGE or PROMETHEUS_ENABLED is off, or others than this machine
        could read the page: PROMETHEUS_HOST is not a loopback address
    """

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        if not (settings.getbool("KROWL_LIVE_PAGE") and settings.getbool("PROMETHEUS_ENABLED")):
            raise NotConfigured
        if not is_loopback(settings["PROMETHEUS_HOST"]):
            raise NotConfigured("KROWL_LIVE_PAGE needs a loopback address in PROMETHEUS_HOST")
        self._crawler = crawler
        self._control = Control(crawler)
        self._call = create_looping_call(self._sample)
        crawler.signals.connect(self._start, signals.spider_opened)
        crawler.signals.connect(self._begin, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        job = Job.of(self._crawler)
        self._history = History(job.folder.path / "history.json")
        self._token = ControlToken(self._crawler.settings["KROWL_CONTROL_TOKEN"], job.folder.path)
        job.served["page"] = ("/", self._routes)
        job.watched_at += self._token.where

    def _routes(self) -> dict[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.views.live import routes  # noqa: PLC0415

        orders = partial(Ordering, self._crawler)
        return routes(self._control, self._history.samples, orders, self._token.text)

    def _begin(self) -> None:
        self._call.start(INTERVAL, now=True)

    def _sample(self) -> None:
        self._crawler.signals.send_catch_log(figures_wanted)
        self._history.add(Job.of(self._crawler).wall(), self._control.sample())

    def _stop(self) -> None:
        if self._call.running:
            self._call.stop()
        self._history.write()
        self._token.forget()
