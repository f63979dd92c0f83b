"""Extension: a live page of the crawl, beside the metrics, for browsers on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider.crawl.monitoring.page_server import is_loopback
from krowlspider.views.served_page import ServedPage

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


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
        self._page = page = ServedPage(crawler)
        crawler.signals.connect(page.offer, signals.spider_opened)
        crawler.signals.connect(page.start, signals.engine_started)
        crawler.signals.connect(page.stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)
