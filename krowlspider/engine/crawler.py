"""A crawler whose node hands its hosts over before the engine stops."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy.crawler import Crawler

from krowlspider.engine.scheduler import Scheduler
from krowlspider.internals.engine import is_closing


class HandoverCrawler(Crawler):
    """Scrapy's crawler, but a node of a cluster hands most hosts over before its engine stops.

    A stop while the spider is being closed waits for the close; Scrapy's would cut it short.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._closed = asyncio.Event()

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
