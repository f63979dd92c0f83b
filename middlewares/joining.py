"""Spider middleware: what an ordinary spider starts with waits until it is known which node of the cluster it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.exceptions import NotConfigured

from krowlspider.job import Job
from krowlspider.scheduler import Scheduler
from krowlspider.spiders.broad import BroadSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler


class Joining:
    """Begins to deal with the other nodes before the first request; the broad spider does that by itself."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """:raises NotConfigured: there is no cluster, or it is the broad spider's"""
        if Job.of(crawler).node is None or issubclass(crawler.spidercls, BroadSpider):
            raise NotConfigured
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        await scheduler.join()
        async for each in start:
            yield each
