"""Tell how far a crawl is: in the log, the stats and the job folder, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.crawl.job import Job
from krowlspider.crawl.start_log import log_terms
from krowlspider.crawl.status import Progress, figures_wanted
from krowlspider.crawl.time_left import Limits
from krowlspider.engine.scheduler import Scheduler
from krowlspider.views.live_line import StatusLog

if TYPE_CHECKING:
    import logging
    from collections import Counter

    from scrapy.crawler import Crawler


class CrawlProgress:
    """Logs the terms of a crawl, its status lines and its summary."""

    def __init__(self, crawler: Crawler, logger: logging.Logger):
        self._crawler = crawler
        self._logger = logger
        settings, self._job = crawler.settings, Job.of(crawler)
        self._now = self._job.monotonic
        self._limits = Limits(
            answers=settings.getint("CLOSESPIDER_PAGECOUNT"),
            seconds=settings.getfloat("CLOSESPIDER_TIMEOUT"),
        )
        self._progress = Progress(
            self._job, crawler.stats, self._measure, self._now(), self._limits
        )
        interval = settings.getfloat("KROWL_STATUS_INTERVAL")
        self._lines = StatusLog(
            logger,
            lambda: self._progress.due_line(self._now(), interval),
            lambda: self._progress.live_line(self._now()),
            interval=interval,
            is_live=settings.getbool("KROWL_PROGRESS"),
        )

    def _measure(self) -> tuple[Counter[str], int]:
        scheduler = Scheduler.of(self._crawler)
        # A person may have changed it.
        self._limits.pages = scheduler.budget.total
        self._limits.last = scheduler.ending.limit_text()
        self._limits.is_stopping = bool(self._job.stopping())
        return scheduler.counted(), scheduler.flights.on_the_wire

    def start(self) -> None:
        self._progress.begin(self._now())
        log_terms(self._job, self._crawler.settings, self._job.spider)
        self._lines.start()

    def publish(self) -> None:
        """Write the figures to the stats."""
        self._progress.publish()

    def end(self, reason: str) -> None:
        """Write the last figures: the spider is closed for a reason."""
        self._lines.stop()
        # Other extensions write their stats too.
        self._crawler.signals.send_catch_log(figures_wanted)
        self._progress.end(reason, self._now())

    def sum_up(self) -> None:
        """Log the summary, once the spider is closed."""
        if summary := self._progress.summary():
            self._logger.info("%s", summary, extra={"event": "summary"})
