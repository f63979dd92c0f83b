"""Extension: write the report of the crawl to JOBDIR/reports/ at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.utils.asyncio import create_looping_call, run_in_thread

from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.crawls import job_of
from krowlspider.job.report import INTERVAL, ReportRecorder
from krowlspider.views.report import report_on

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class Reports:
    """Records the crawl, and writes the report in a thread once the reason of the end is known."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._record: ReportRecorder | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        # After the scheduler's close, in which the job is closed.
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        budget = Scheduler.of(self._crawler).budget
        self._record = ReportRecorder(job_of(self._crawler), lambda: budget.is_spent)
        self._call = create_looping_call(self._record.sample)
        self._call.start(INTERVAL, now=True)

    async def _finish(self, reason: str) -> None:
        if self._record is None:
            return
        self._call.stop()
        self._record.sample(always=True)
        await run_in_thread(report_on, self._record, reason)
