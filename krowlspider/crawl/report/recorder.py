"""What is recorded of a crawl for its report: figures while it runs, tables at its end."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.report.tables import Tables, read_tables
from krowlspider.crawl.status import by_last_part
from krowlspider.errors import error_text
from krowlspider.frontier.store.store import STORE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from krowlspider.crawl.job import Job

logger = logging.getLogger(__name__)

# Seconds between two samples at first, and samples kept. Twice as many seconds, once there are as
# many.
INTERVAL = 10.0
KEPT = 400
# What a sample has: epoch seconds, then figures over all starts.
FIELDS = ("time", "done", "dropped", "queued")
# The folder in JOBDIR, and samples after which the figures are saved.
_FOLDER = "reports"
_SAVE_EACH = 6
# Intervals after which a crawl did not run between two samples.
_STOP = 3.0


class Course:
    """Samples of a crawl's figures over all its starts, in ever coarser steps.

    ``path`` is the file that keeps them. ``ran`` are the seconds in which the crawl ran.

    A file that cannot be read or written costs the charts their past, and nothing else.
    """

    def __init__(self, path: Path):
        self._path = path
        self.interval = INTERVAL
        self.ran = 0.0
        self.samples: list[list[float]] = []
        with suppress(OSError, ValueError, TypeError, KeyError):
            saved = json.loads(path.read_bytes())
            samples = [[float(value) for value in sample] for sample in saved["samples"]]
            if all(len(sample) == len(FIELDS) for sample in samples):
                self.samples = samples[:KEPT]
                self.interval = max(INTERVAL, float(saved["interval"]))
                # Missing in the file of an older release.
                self.ran = float(saved.get("ran", sum(self.steps())))

    def add(self, now: float, figures: Mapping[str, float], *, always: bool = False) -> None:
        """Add the figures at ``now``, in epoch seconds, unless the last sample is too recent."""
        # A timer may end a little early.
        is_recent = self.samples and now - self.samples[-1][0] < 0.9 * self.interval
        if is_recent and not always:
            return
        self.samples.append([round(now, 1), *(figures[name] for name in FIELDS[1:])])
        if len(self.samples) >= KEPT:
            self.samples = self.samples[::2]
            self.interval *= 2

    def steps(self) -> list[float]:
        """Return the seconds from each sample to the next. What is much longer than the interval is
        time between two starts, and counts as none."""
        times = [sample[0] for sample in self.samples]
        steps = [later - earlier for earlier, later in pairwise(times)]
        return [step if 0 <= step <= _STOP * self.interval else 0.0 for step in steps]

    def write(self) -> None:
        """Write the samples to the file; make its folder if need be."""
        draft = self._path.with_name(f"{self._path.name}.new")
        saved = {"interval": self.interval, "ran": round(self.ran, 1), "fields": FIELDS}
        saved |= {"samples": self.samples}
        with suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            draft.write_text(json.dumps(saved))
            draft.replace(self._path)


class Record:
    """Records an open job until its end.

    `sample` is to be called every `INTERVAL` seconds. The job reads
    ``tables`` in a thread when it closes; None before, and if the frontier cannot be read.
    """

    def __init__(self, job: Job):
        self._job = job
        self._samples = 0
        self.folder = job.folder.path / _FOLDER
        self.course = Course(self.folder / "course.json")
        # Seconds in which the crawl ran before, and the clock of this start.
        self._ran, self._begun = self.course.ran, job.monotonic()
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
        self.course.ran = self._ran + self._job.monotonic() - self._begun
        self.course.add(self._job.wall(), figures, always=always)
        self._samples += 1
        if self._samples % _SAVE_EACH == 0:
            self.course.write()

    def _read(self) -> None:
        try:
            self.folder.mkdir(exist_ok=True)
            self.tables = read_tables(self._job.store, self.folder)
        except (*STORE_ERRORS, OSError, ValueError) as error:
            logger.warning("No report: the frontier cannot be read: %s", error_text(error))

    def about(self, reason: str) -> dict[str, Any]:
        """Return what the report says of the crawl itself, which has ended now for a reason."""
        job = self._job
        return {
            "spider": job.spider,
            "folder": str(job.folder.path),
            "reason": reason,
            "ended": round(job.wall(), 1),
            "ran": round(self.course.ran, 1),
        }
