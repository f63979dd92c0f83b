"""Extension: log which step holds the event loop, and let SIGINT end the crawl even then."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.utils.asyncio import create_looping_call

from krowlspider.crawl.job import Job
from krowlspider.crawl.monitoring.loop_watch import LoopWatch
from krowlspider.crawl.monitoring.watchdog import LOOK

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Watchdog:
    """Makes the event loop beat once a second, and starts a process that watches these beats."""

    def __init__(self, crawler: Crawler):
        self._job = Job.of(crawler)
        self._stats = crawler.stats
        self._call = create_looping_call(self._beat)
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        aside = sum(hold.aside for hold in self._job.holds)
        self._stats.set_value("krowl/watchdog/set_aside_count", aside)
        self._watch = LoopWatch(self._job.folder.path)
        try:
            self._watch.start()
        except OSError as error:
            logger.warning("The event loop is not watched: %s", error)
        else:
            self._call.start(LOOK)

    def _beat(self) -> None:
        self._job.mark.beat(time.monotonic())
        for name, count in self._watch.count().items():
            self._stats.inc_value(name, count)

    def _stop(self) -> None:
        if self._call.running:
            self._beat()
            self._call.stop()
            self._watch.stop()
