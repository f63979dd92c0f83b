"""Extension: upload finished WARC files and their indexes to KROWL_WARC_UPLOAD during the crawl."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.upload.destination import Destination
from krowlspider.archive.upload.store import BucketError
from krowlspider.archive.upload.uploader import PATIENCE, Uploader
from krowlspider.crawl.job import Job

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# Seconds between tries to lock the folder: an earlier crawl may still upload its last files.
_TRY_AGAIN = 5.0


class Upload:
    """Runs an uploader on the folder of WARC files.

    The upload never blocks the crawl: files that the store does not accept stay on disk. At the
    end, once the last file is finished, the spider's close waits while the store accepts data.
    The next start uploads the files that are left.

    :raises NotConfigured: KROWL_WARC_UPLOAD is not set
    """

    # Seconds that the close waits for a store that accepts nothing, in addition to the time that
    # the uploads under way need.
    patience = PATIENCE

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        if settings["KROWL_WARC_UPLOAD"] is None:
            raise NotConfigured
        self._crawler = crawler
        self._destination = Destination.parse(
            settings["KROWL_WARC_UPLOAD"], settings["KROWL_WARC_UPLOAD_ENDPOINT"]
        )
        self._delete = settings.getbool("KROWL_WARC_UPLOAD_DELETE")
        self._uploader: Uploader | None = None
        self._task: asyncio.Task[None] | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        # spider_closed comes after the scheduler's close, in which the last file gets its name.
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        folder = Job.of(self._crawler).archive.directory
        self._uploader = Uploader(folder, self._destination, delete=self._delete)
        self._task = asyncio.get_running_loop().create_task(self._run(self._uploader))
        self._task.add_done_callback(_tell_end)

    async def _run(self, uploader: Uploader) -> None:
        await self._open(uploader)
        self._publish(uploader)
        try:
            await uploader.check()
        except BucketError as error:
            logger.error(
                "KROWL_WARC_UPLOAD %s cannot be used now; the crawl goes on, and the files wait: %s",
                self._destination.url(),
                error,
            )
        else:
            logger.info("Finished WARC files go to %s", self._destination.url())
        while True:
            await uploader.step()
            self._publish(uploader)

    async def _open(self, uploader: Uploader) -> None:
        said = False
        while True:
            try:
                await uploader.open()
            except (ArchiveError, OSError) as error:
                if not said:
                    logger.warning("WARC files are not uploaded yet: %s", error)
                said = True
                await self._see(uploader)
                await asyncio.sleep(_TRY_AGAIN)
            else:
                return

    async def _see(self, uploader: Uploader) -> None:
        """Count the waiting files and publish the stats, although the folder is not locked."""
        await uploader.peek()
        self._publish(uploader)

    async def _finish(self) -> None:
        if self._task is None or self._uploader is None:
            return
        self._task.cancel()
        # By then its done callback has logged a failure.
        await asyncio.wait({self._task})
        await self._upload_rest(self._uploader)

    async def _upload_rest(self, uploader: Uploader) -> None:
        try:
            # Another process may have released the folder since the last try.
            await uploader.open()
        except (ArchiveError, OSError) as error:
            await self._see(uploader)
            self._tell_left(uploader.stats.waiting, f" ({error})")
            return
        logger.info(
            "Uploading the last files, as long as %s takes any within %.0f s",
            self._destination.url(),
            self.patience,
        )
        try:
            left = await uploader.finish(self.patience, report=lambda: self._publish(uploader))
        finally:
            await uploader.close()
            self._publish(uploader)
        self._tell_left(left)

    def _tell_left(self, left: int, why: str = "") -> None:
        if left:
            logger.error(
                "%d files are not uploaded to %s%s: the next start with the same JOBDIR sends them, or scrapy warc upload",
                left,
                self._destination.url(),
                why,
            )
        elif why:
            logger.info("No file is left to upload to %s%s", self._destination.url(), why)

    def _publish(self, uploader: Uploader) -> None:
        put = self._crawler.stats.set_value
        put("krowl/upload/files_count", uploader.stats.files)
        put("krowl/upload/bytes_count", uploader.stats.bytes)
        put("krowl/upload/failed_count", uploader.stats.failed)
        put("krowl/upload/waiting", uploader.stats.waiting)


def _tell_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        logger.critical("WARC files are uploaded no more", exc_info=task.exception())
