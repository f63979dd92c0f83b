"""Extension: log a status line every KROWL_STATUS_INTERVAL seconds, and a summary at the end.

On a terminal one live line, below the log, takes the place of the status lines.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.crawls import crawl_of
from krowlspider.job.limits import CrawlLimits
from krowlspider.job.start_log import log_terms
from krowlspider.job.status import Progress, figures_wanted
from krowlspider.views.live_line import StatusLog

if TYPE_CHECKING:
    from collections import Counter
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Status:
    """Writes the terms, the progress and the summary of the crawl to the log, and its figures to
    the stats and the job folder."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        crawler.signals.connect(self._open, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _open(self) -> None:
        crawler, settings = self._crawler, self._crawler.settings
        self._crawl = crawl_of(crawler)
        self._job = self._crawl.job
        self._now = self._job.monotonic
        self._limits = CrawlLimits(
            answers=settings.getint("CLOSESPIDER_PAGECOUNT"),
            seconds=settings.getfloat("CLOSESPIDER_TIMEOUT"),
        )
        self._progress = Progress(
            self._crawl, crawler.stats, self._measure, self._now(), self._limits
        )
        interval = settings.getfloat("KROWL_STATUS_INTERVAL")
        self._lines = StatusLog(
            logger,
            lambda: self._progress.due_line(self._now(), interval),
            lambda: self._progress.live_line(self._now()),
            interval=interval,
            is_live=settings.getbool("KROWL_PROGRESS"),
        )
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._progress.publish, figures_wanted)
        crawler.signals.connect(self._end, signals.spider_closed)
        # After all that Scrapy logs at the end, and after the last upload.
        crawler.signals.connect(self._sum_up, signals.engine_stopped)

    def _measure(self) -> tuple[Counter[str], int]:
        scheduler = Scheduler.of(self._crawler)
        # A person may have changed it.
        self._limits.pages = scheduler.budget.total
        self._limits.last = scheduler.last_requests.limit_text()
        self._limits.is_stopping = bool(self._crawl.stopping())
        return scheduler.counted(), scheduler.flights.on_the_wire

    def _start(self) -> None:
        self._progress.begin(self._now())
        log_terms(self._crawl, self._crawler.settings, self._job.spider)
        self._lines.start()

    def _end(self, reason: str) -> None:
        self._lines.stop()
        # Other extensions write their stats too.
        self._crawler.signals.send_catch_log(figures_wanted)
        self._progress.end(reason, self._now())

    def _sum_up(self) -> None:
        if summary := self._progress.summary():
            logger.info("%s", summary, extra={"event": "summary"})
