"""Extension: log a status line every KROWL_STATUS_INTERVAL seconds, and a summary at the end.

On a terminal one live line, below the log, takes the place of the status lines.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.utils.asyncio import create_looping_call

from krowlspider.crawl.job import Job
from krowlspider.crawl.start_log import log_terms
from krowlspider.crawl.status import Progress, figures_wanted
from krowlspider.crawl.time_left import Limits
from krowlspider.engine.scheduler import Scheduler
from krowlspider.views.live_line import LiveText

if TYPE_CHECKING:
    from collections import Counter
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Status:
    """Writes the progress of the crawl to the log, the stats and the job folder."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._interval = crawler.settings.getfloat("KROWL_STATUS_INTERVAL")
        job = Job.of(crawler)
        self._now = job.monotonic
        self._limits = Limits(
            answers=crawler.settings.getint("CLOSESPIDER_PAGECOUNT"),
            seconds=crawler.settings.getfloat("CLOSESPIDER_TIMEOUT"),
        )
        self._progress = Progress(job, crawler.stats, self._measure, self._now(), self._limits)
        self._call = create_looping_call(self._tick)
        self._live = LiveText(
            lambda: self._progress.live_line(self._now()),
            is_wanted=crawler.settings.getbool("KROWL_PROGRESS"),
        )
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._progress.publish, figures_wanted)
        crawler.signals.connect(self._finish, signals.spider_closed)
        # After all that Scrapy logs at the end, and after the last upload.
        crawler.signals.connect(self._sum_up, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _measure(self) -> tuple[Counter[str], int]:
        scheduler = Scheduler.of(self._crawler)
        return scheduler.counted(), scheduler.flights.on_the_wire

    def _start(self) -> None:
        self._progress.begin(self._now())
        log_terms(Job.of(self._crawler), self._crawler.settings, self._crawler.spidercls.name)
        self._limits.pages = Scheduler.of(self._crawler).budget.total
        self._call.start(self._interval, now=False)
        self._live.start()

    def _tick(self) -> None:
        self._limits.pages = Scheduler.of(self._crawler).budget.total
        line = self._progress.due_line(self._now(), self._interval)
        if line and not self._live.has_log:
            logger.info("%s", line, extra={"event": "status"})

    def _finish(self, reason: str) -> None:
        if self._call.running:
            self._call.stop()
        self._live.stop()
        # Other extensions write their stats too.
        self._crawler.signals.send_catch_log(figures_wanted)
        self._progress.end(reason, self._now())

    def _sum_up(self) -> None:
        if summary := self._progress.summary():
            logger.info("%s", summary, extra={"event": "summary"})
