"""What is recorded of a crawl for its report: figures while it runs, tables at its end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.report.course import Course
from krowlspider.crawl.report.tables import Tables, read_tables
from krowlspider.crawl.status import by_last_part
from krowlspider.errors import error_text
from krowlspider.frontier.store.store import STORE_ERRORS

if TYPE_CHECKING:
    from krowlspider.crawl.job import Job

logger = logging.getLogger(__name__)

# The folder in JOBDIR, and samples after which the figures are saved.
_FOLDER = "reports"
_SAVE_EACH = 6


class Record:
    """Records an open job until its end.

    `sample` is to be called every `krowlspider.crawl.report.course.INTERVAL` seconds. The job reads
    ``tables`` in a thread when it closes; None before, and if the frontier cannot be read.
    """

    def __init__(self, job: Job):
        self._job = job
        self._samples = 0
        self.folder = job.folder.path / _FOLDER
        self.course = Course(self.folder / "course.json")
        self.tables: Tables | None = None
        job.at_close.append(self._read)

    def sample(self, *, always: bool = False) -> None:
        """Add the figures of now, as `Course.add`."""
        frontier = self._job.frontier
        figures = {
            "done": frontier.counters["done"],
            "dropped": sum(by_last_part(frontier.counters, "dropped/").values()),
            "queued": frontier.pending,
        }
        self.course.add(self._job.wall(), figures, always=always)
        self._samples += 1
        if self._samples % _SAVE_EACH == 0:
            self.course.write()

    def _read(self) -> None:
        try:
            self.tables = read_tables(self._job.store)
        except (*STORE_ERRORS, ValueError) as error:
            logger.warning("No report: the frontier cannot be read: %s", error_text(error))

    def about(self, reason: str) -> dict[str, Any]:
        """Return what the report says of the crawl itself, which has ended now for a reason."""
        job = self._job
        return {
            "spider": job.spider,
            "folder": str(job.folder.path),
            "reason": reason,
            "ended": round(job.wall(), 1),
        }
