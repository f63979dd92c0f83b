"""Clocks of real processes that a test moves ahead: those of all jobs that read one file.

Only the job's own clocks move: leases, archives and timers keep real time, except for the wait for
the next pages that are due. Move them while no host rests, or its rest is over too soon.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self
from unittest.mock import patch

from krowlspider.frontier.due_pages import DuePages
from krowlspider.job.crawls import open_crawl
from krowlspider.job.job import Job

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

# The variable that names the file.
FILE = "MOVED_CLOCKS"
# EXTENSIONS of a crawl whose clocks move.
MOVED = json.dumps({"tests.support.moved_clocks.MovedJobs": -1000})
_LEAD = struct.Struct("=d")
# Seconds between two looks for pages that are due.
_LOOK = 0.5


class MovedClocks:
    """The clocks of those processes that have ``path`` as FILE."""

    def __init__(self, path: Path):
        if not path.exists():
            path.write_bytes(_LEAD.pack(0.0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _LEAD.size)

    @property
    def lead(self) -> float:
        """Seconds by which the clocks are ahead of those of the machine."""
        lead: float = _LEAD.unpack_from(self._shared)[0]
        return lead

    def move(self, seconds: float) -> None:
        _LEAD.pack_into(self._shared, 0, self.lead + seconds)

    def wall(self) -> float:
        return time.time() + self.lead

    def monotonic(self) -> float:
        return time.monotonic() + self.lead


class MovedJobs:
    """An extension that opens the job of a crawl with moved clocks, before others use it."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        clocks = MovedClocks(Path(os.environ[FILE]))

        class MovedJob(Job):
            wall = staticmethod(clocks.wall)
            monotonic = staticmethod(clocks.monotonic)

        open_crawl(crawler, MovedJob)
        # No timer ends as the clocks move, and the next tick may be a minute away.
        patch.object(DuePages, "rest", _LOOK).start()
        return cls()
