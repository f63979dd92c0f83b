"""The downloader seam says when nothing more is to be popped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scrapy.utils.test import get_crawler

from krowlspider.archive.writer import WarcWriter
from krowlspider.downloader import Downloader
from krowlspider.job import Job
from tests.archive.captures import capture, options

if TYPE_CHECKING:
    from pathlib import Path


def test_while_more_waits_for_the_archive_than_its_queue_may_hold_nothing_is_popped(
    tmp_path: Path,
) -> None:
    """Bodies count; what is written does not."""
    crawler = get_crawler(
        settings_dict={
            "DOWNLOADER_MIDDLEWARES_BASE": {},
            "DOWNLOAD_HANDLERS": dict.fromkeys(("data", "file", "ftp", "http", "https", "s3")),
            "KROWL_CONTACT": "a@b.example",
        }
    )
    size = capture(1).size
    assert size == sum(
        map(len, (capture(1).payload, capture(1).response_bytes, capture(1).request_bytes))
    )

    async def main() -> None:
        archive = WarcWriter(tmp_path, options(), queue_bytes=2 * size)
        archive.open(asyncio.get_running_loop())
        Job.of(crawler).archive = archive
        downloader = Downloader(crawler)
        archive.write(capture(1))
        assert not downloader.needs_backout()
        archive.write(capture(2))
        # The loop has not had a turn in which to hear that they are written.
        assert downloader.needs_backout()
        await archive.sync()
        assert not downloader.needs_backout()
        await archive.close()

    asyncio.run(main())
