"""Extension: opens the crawl's folder at the start, commits at every KROWL_COMMIT_INTERVAL, tells of a full disk."""

from __future__ import annotations

import asyncio
import logging
import os
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.archive.disk import make_directory
from krowlspider.cluster.membership import ClusterError
from krowlspider.errors import SettingsError
from krowlspider.job import Job

if TYPE_CHECKING:
    from os import PathLike
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_MB = 1e6


class Checkpoint:
    """Group commit by the clock, and a word when the crawl pauses because its disk is full, and when it goes on.

    The job is opened here, before the engine exists, so that a folder that cannot be used stops the start.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._interval = crawler.settings.getfloat("KROWL_COMMIT_INTERVAL")
        self._job = Job.of(crawler)
        _prepare_archive(crawler.settings["KROWL_WARC_DIR"])
        self._job.open()
        self._job.on_failure = self._stop_crawl
        self._tasks: list[asyncio.Task[None]] = []
        # The folder that was last seen to have no room.
        self._full: Path | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._commit())]

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._job.commit()
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing is acknowledged any more
                self._job.fail(error)
                return

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._look()

    def _look(self) -> None:
        before, self._full = self._full, self._job.full
        if self._full is not None and before is None:
            self._crawler.stats.inc_value("krowl/disk/pauses_count")
            logger.warning(
                "Paused: no room in %s%s. Make some, and the crawl goes on by itself; nothing is lost",
                self._full,
                room_needed(self._job),
            )
        elif self._full is None and before is not None:
            logger.info("There is room in %s again: the crawl goes on", before)
            if self._job.on_room is not None:
                self._job.on_room()
        slot = self._crawler.engine._slot
        if self._full is not None and slot is not None and slot.closing is not None:
            # The engine waits for requests that wait for room.
            self._job.give_up()

    def _stop_crawl(self, error: Exception) -> None:
        logger.critical("The crawl stops; what was not committed stays queued: %s", error)
        reason = "cluster_error" if isinstance(error, ClusterError) else "storage_error"
        self._closing = asyncio.get_running_loop().create_task(
            self._crawler.engine.close_spider_async(reason=reason)
        )

    def _stop(self) -> None:
        self._look()
        for task in self._tasks:
            task.cancel()


def _prepare_archive(chosen: str | PathLike[str] | None) -> None:
    """Make the folder that is set for the WARC files: what is wrong with it is not JOBDIR's fault.

    :raises SettingsError: it cannot be made, or not be written to
    """
    if chosen is None:
        return
    folder = Path(chosen)
    try:
        make_directory(folder)
    except OSError as error:
        raise SettingsError(f"KROWL_WARC_DIR {folder} cannot be used: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"KROWL_WARC_DIR {folder} cannot be used: it is not writable")


def room_needed(job: Job) -> str:
    """How much room a full disk must have before the frontier goes on, to be read after its folder. The archive
    needs no more than its next record."""
    if not job.store.stalled:
        return ""
    return f": at least {ceil(job.store.needed / _MB)} MB must be free there"
