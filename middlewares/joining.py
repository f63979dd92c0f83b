"""Spider middleware: an ordinary spider's start requests wait until their owners are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.exceptions import NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.crawls import node_of
from krowlspider.spiders.broad import BroadSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.crawler import Crawler


class Joining(BaseSpiderMiddleware):
    """Joins the cluster before the first start request; the broad spider joins it itself.

    :raises NotConfigured: there is no cluster, or the spider is a broad spider
    """

    def __init__(self, crawler: Crawler):
        if node_of(crawler) is None or issubclass(crawler.spidercls, BroadSpider):
            raise NotConfigured
        super().__init__(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        await Scheduler.of(self.crawler).join()
        async for each in super().process_start(start):
            yield each
