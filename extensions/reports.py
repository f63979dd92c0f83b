"""Extension: write the report of the crawl to JOBDIR/reports/ at its end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call, run_in_thread

from krowlspider.crawl.job import Job
from krowlspider.crawl.report.course import INTERVAL, Course
from krowlspider.crawl.report.tables import Tables, read_tables
from krowlspider.crawl.status import by_last_part
from krowlspider.errors import error_text
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.views.report import write_report

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# The folder in JOBDIR, and samples after which the figures are saved.
_FOLDER = "reports"
_SAVE_EACH = 6


class Reports:
    """Reads the frontier in a thread when it is about to close, and writes the report once the
    reason of the end is known.

    :raises NotConfigured: KROWL_REPORTS is off
    """

    def __init__(self, crawler: Crawler):
        if not crawler.settings.getbool("KROWL_REPORTS"):
            raise NotConfigured
        self._job = Job.of(crawler)
        self._call = create_looping_call(self._sample)
        self._samples = 0
        self._found: Tables | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        # After the scheduler's close, in which the job is closed.
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        self._course = Course(self._job.folder.path / _FOLDER / "course.json")
        self._job.at_close.append(self._read)
        self._call.start(INTERVAL, now=True)

    def _sample(self, *, always: bool = False) -> None:
        frontier = self._job.frontier
        figures = {
            "done": frontier.counters["done"],
            "dropped": sum(by_last_part(frontier.counters, "dropped/").values()),
            "queued": frontier.pending,
        }
        self._course.add(self._job.wall(), figures, always=always)
        self._samples += 1
        if self._samples % _SAVE_EACH == 0:
            self._course.write()

    def _read(self) -> None:
        try:
            self._found = read_tables(self._job.store)
        except (*STORE_ERRORS, ValueError) as error:
            logger.warning("No report: the frontier cannot be read: %s", error_text(error))

    async def _finish(self, spider: Spider, reason: str) -> None:
        if self._call.running:
            self._sample(always=True)
            self._call.stop()
        if self._found is not None:
            await run_in_thread(self._write, self._found, spider.name, reason)

    def _write(self, found: Tables, spider: str, reason: str) -> None:
        job = self._job
        about = {
            "spider": spider,
            "folder": str(job.folder.path),
            "reason": reason,
            "ended": round(job.wall(), 1),
        }
        folder = job.folder.path / _FOLDER
        try:
            self._course.write()
            write_report(folder, about, found, self._course.samples)
        except OSError as error:
            logger.warning("The report cannot be written to %s: %s", folder, error.strerror)
