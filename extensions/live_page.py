"""Extension: a live page of the crawl, for browsers on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider.views.served_page import ServedPage

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class LivePage:
    """Has the page and what it asks served, beside the metrics or at an address of its own.

    :raises NotConfigured: PROMETHEUS_ENABLED is off
    """

    def __init__(self, crawler: Crawler):
        if not crawler.settings.getbool("PROMETHEUS_ENABLED"):
            raise NotConfigured
        self._page = page = ServedPage(crawler)
        crawler.signals.connect(page.offer, signals.spider_opened)
        crawler.signals.connect(page.start, signals.engine_started)
        crawler.signals.connect(page.stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)
