"""Extension: send notices to KROWL_NOTIFY: the end of the crawl, and what holds it up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call, run_in_thread

from krowlspider.crawl.job import Job
from krowlspider.crawl.notices.notifier import INTERVAL, Notifier
from krowlspider.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class Notify:
    """Looks at the crawl every two seconds, and sends a notice of each event.

    :raises NotConfigured: KROWL_NOTIFY is not set
    """

    def __init__(self, crawler: Crawler):
        if not crawler.settings["KROWL_NOTIFY"]:
            raise NotConfigured
        self._crawler = crawler
        self._notifier: Notifier | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        # After the scheduler's close: nothing more is fetched or lost.
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        settings, stats = self._crawler.settings, self._crawler.stats
        self._notifier = Notifier(
            Job.of(self._crawler),
            settings["KROWL_NOTIFY"],
            counted=Scheduler.of(self._crawler).counted,
            ended=lambda: stats.get_value("downloader/request_count", 0),
        )
        self._call = create_looping_call(self._notifier.look)
        self._call.start(INTERVAL, now=False)

    async def _finish(self, reason: str) -> None:
        if self._notifier is None:
            return
        self._call.stop()
        self._notifier.end(reason)
        await run_in_thread(self._notifier.close)
