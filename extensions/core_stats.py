"""Extension: Scrapy's own stats of a crawl, without the count of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.extensions.corestats import CoreStats as ScrapyCoreStats

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class CoreStats(ScrapyCoreStats):
    """Scrapy's CoreStats, which does not listen for responses, as that costs time per page.

    The downloader counts the responses.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        made = super().from_crawler(crawler)
        crawler.signals.disconnect(made.response_received, signals.response_received)
        return made
