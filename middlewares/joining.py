"""Spider middleware: an ordinary spider's start requests wait until their owners are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.exceptions import NotConfigured

from krowlspider.crawl.job import Job
from krowlspider.engine.scheduler import Scheduler
from krowlspider.spiders.broad import BroadSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler


class Joining:
    """Joins the cluster before the first start request; the broad spider joins it itself."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """:raises NotConfigured: there is no cluster, or the spider is a broad spider"""
        if Job.of(crawler).node is None or issubclass(crawler.spidercls, BroadSpider):
            raise NotConfigured
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        await scheduler.join()
        async for each in start:
            yield each
