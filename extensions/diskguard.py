"""Extension: pauses the crawl while a disk that it writes to has less than KROWL_DISK_FLOOR bytes free."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import run_in_thread

from krowlspider.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# Seconds between two looks. Others may fill the disk faster than the crawl does: at 1 GB/s the ordinary floor is there
# after two. A look takes 2 µs, in a thread because a disk on the network may not answer.
_INTERVAL = 1.0
# What must be free beyond the floor before the crawl goes on: a tenth of it, and not less than what the frontier's
# logs and merges take and give back while nothing is fetched.
_MORE = 0.1
_MORE_MIN = 100_000_000
_MB = 1_000_000


def free_bytes(folder: Path) -> int:
    """The bytes that may still be written to a folder's disk by one who is not root.

    :raises OSError: there is no such folder, or its disk has failed
    """
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


class DiskFloor:
    """Which disk is short of room: one with less than ``floor`` bytes free, and then until it has ``enough`` again."""

    def __init__(self, floor: int):
        self.floor = floor
        self.enough = floor + max(int(_MORE * floor), _MORE_MIN)
        self._short: set[Path] = set()

    def short(self, free: Mapping[Path, int]) -> Path | None:
        """The first folder whose disk is short of room, by the bytes that are free for each."""
        for folder, size in free.items():
            if size < (self.enough if folder in self._short else self.floor):
                self._short.add(folder)
            else:
                self._short.discard(folder)
        return next((folder for folder in free if folder in self._short), None)


class DiskGuard:
    """Looks at the disks of the WARC files and of the job's folder, and has the job say that they are full before they
    are. What is in transit ends and is written. ``free`` tells the bytes free for a folder."""

    def __init__(self, crawler: Crawler, free: Callable[[Path], int] = free_bytes):
        floor = crawler.settings.getint("KROWL_DISK_FLOOR")
        if not floor:
            raise NotConfigured
        self._job = Job.of(crawler)
        self._floor = DiskFloor(floor)
        self._free = free
        self._task: asyncio.Task[None] | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def _start(self) -> None:
        # The engine waits for this before it asks for a request.
        await self.look()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._job.failure is None:
            await asyncio.sleep(_INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Read what is free, and tell the job. A disk that cannot be asked has failed."""
        try:
            free = await run_in_thread(self._read)
        except OSError as error:
            self._job.fail(error)
            return
        before, self._job.low = self._job.low, self._floor.short(free)
        if before is None and (low := self._job.low) is not None:
            logger.warning(
                "%d MB are free for %s, less than KROWL_DISK_FLOOR: nothing more is fetched until it is %d MB. Make"
                " room, or start again with a lower floor",
                free[low] // _MB,
                low,
                -(-self._floor.enough // _MB),
            )

    def _read(self) -> dict[Path, int]:
        return {
            folder: self._free(folder)
            for folder in (self._job.archive.directory, self._job.folder.path)
        }

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
