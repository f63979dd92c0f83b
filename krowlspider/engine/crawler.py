"""A crawler that closes its job after a failed start, and hands over before its engine stops."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from scrapy.crawler import Crawler

from krowlspider.engine.scheduler import Scheduler
from krowlspider.internals.engine import is_closing
from krowlspider.job.crawls import opened_crawl

logger = logging.getLogger(__name__)


class HandoverCrawler(Crawler):
    """Scrapy's crawler, but a node of a cluster hands most hosts over before its engine stops.

    A stop while the spider is being closed waits for the close; Scrapy's would cut it short. If the
    start fails, no scheduler closes the job: it is closed here.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._closed = asyncio.Event()

    async def crawl_async(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().crawl_async(*args, **kwargs)
        except Exception:
            if (crawl := opened_crawl(self)) is not None:
                try:
                    await crawl.close()
                except Exception:
                    # The error of the start is the one to tell.
                    logger.exception("A part of the crawl could not be closed")
            raise

    async def stop_async(self) -> None:
        if not self.crawling:
            # The engine calls this when the spider is closed.
            self._closed.set()
            return
        self.crawling = False
        engine = self.engine
        if engine.running and engine.spider is not None:
            if not is_closing(engine):
                await Scheduler.of(self).shrink()
            if is_closing(engine):
                await self._closed.wait()
        if engine.running:
            await engine.stop_async()
