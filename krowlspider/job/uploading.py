"""Upload finished WARC files while a crawl runs."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.uploader import BucketError, Uploader
from krowlspider.errors import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from krowlspider.archive.uploads import Destination

logger = logging.getLogger(__name__)

# Seconds between tries to lock the folder: an earlier crawl may still upload its last files.
_TRY_AGAIN = 5.0


class CrawlUpload:
    """Runs an uploader on the folder of WARC files.

    The upload never blocks the crawl: files that the store does not accept stay on disk. The next
    start uploads the files that are left. ``publish`` is called with the stats.
    """

    def __init__(
        self,
        folder: Path,
        destination: Destination,
        publish: Callable[[Mapping[str, int]], None],
        *,
        delete: bool,
    ):
        self._uploader = Uploader(folder, destination, delete=delete)
        self._url = destination.url()
        self._publish_stats = publish
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Upload in a task until `finish`."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(_log_end)

    async def _run(self) -> None:
        await self._open()
        self._publish()
        try:
            await self._uploader.check()
        except BucketError as error:
            logger.error(
                "KROWL_WARC_UPLOAD %s cannot be used now; the crawl goes on, and the files wait:"
                " %s",
                self._url,
                error,
            )
        else:
            logger.info("Uploading finished WARC files to %s", self._url)
        while True:
            await self._uploader.step()
            self._publish()

    async def _open(self) -> None:
        is_logged = False
        while True:
            try:
                await self._uploader.open()
            except (ArchiveError, OSError) as error:
                if not is_logged:
                    logger.warning("WARC files are not uploaded yet: %s", error)
                is_logged = True
                await self._count_waiting()
                await asyncio.sleep(_TRY_AGAIN)
            else:
                return

    async def _count_waiting(self) -> None:
        # The folder is not locked by this process.
        await self._uploader.peek()
        self._publish()

    async def finish(self, stalled_after: float) -> int:
        """Upload the last files, while the store accepts data within ``stalled_after`` seconds.

        Return how many files are left.
        """
        if self._task is None:
            return 0
        self._task.cancel()
        # By then its done callback has logged a failure.
        await asyncio.wait({self._task})
        uploader = self._uploader
        try:
            # Another process may have released the folder since the last try.
            await uploader.open()
        except (ArchiveError, OSError) as error:
            await self._count_waiting()
            left = uploader.stats.waiting
            self._log_left(left, f" ({error})")
            return left
        logger.info(
            "Uploading the last files, as long as %s accepts data within %.0f s",
            self._url,
            stalled_after,
        )
        try:
            left = await uploader.finish(stalled_after, self._publish)
        finally:
            await uploader.close()
            self._publish()
        self._log_left(left)
        return left

    def _log_left(self, left: int, why: str = "") -> None:
        if left:
            logger.error(
                "Not uploaded to %s: %s%s; the next start with the same JOBDIR sends what is left,"
                " or scrapy warc upload",
                self._url,
                counted(left, "file"),
                why,
            )
        elif why:
            logger.info("No file is left to upload to %s%s", self._url, why)

    def _publish(self) -> None:
        stats = self._uploader.stats
        self._publish_stats(
            {
                "krowl/upload/files_count": stats.files,
                "krowl/upload/bytes_count": stats.bytes,
                "krowl/upload/failed_count": stats.failed,
                "krowl/upload/waiting": stats.waiting,
            }
        )


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        logger.critical("Upload of WARC files has stopped", exc_info=task.exception())
