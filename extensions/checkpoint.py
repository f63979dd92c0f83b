"""Extension: opens the crawl's folder at the start, and commits at every KROWL_COMMIT_INTERVAL."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.job import Job

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Checkpoint:
    """Group commit by the clock.

    The job is opened here, before the engine exists, so that a folder that cannot be used stops the start.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._interval = crawler.settings.getfloat("KROWL_COMMIT_INTERVAL")
        self._job = Job.of(crawler)
        self._job.open()
        self._job.on_failure = self._stop_crawl
        self._task: asyncio.Task[None] | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._job.commit()
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing is acknowledged any more
                self._job.fail(error)
                return

    def _stop_crawl(self, error: Exception) -> None:
        logger.critical("The crawl stops; what was not committed stays queued: %s", error)
        self._closing = asyncio.get_running_loop().create_task(
            self._crawler.engine.close_spider_async(reason="storage_error")
        )

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
