"""Clocks of real processes that a test moves ahead: those of all jobs that read one file.

Only the job's own clocks move: timers, leases and archives keep real time. Move them while no host
rests, or its rest is over too soon.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from krowlspider.crawl.crawls import open_crawl
from krowlspider.crawl.job import Job

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

# The variable that names the file.
FILE = "MOVED_CLOCKS"
_LEAD = struct.Struct("=d")


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
        return cls()
