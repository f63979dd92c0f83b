"""Extension: upload finished WARC files and their indexes to KROWL_WARC_UPLOAD during the crawl."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider.archive.uploads import STALLED_AFTER, Destination
from krowlspider.job.crawls import crawl_of, job_of
from krowlspider.job.status import publish

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.job.uploading import CrawlUpload


class Upload:
    """Uploads while the crawl runs. At its end the spider's close waits for the last files.

    :raises NotConfigured: KROWL_WARC_UPLOAD is not set
    """

    # Seconds that the close waits for a store that accepts nothing, in addition to the time that
    # the uploads under way need.
    stalled_after = STALLED_AFTER

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        if (url := settings["KROWL_WARC_UPLOAD"]) is None:
            raise NotConfigured
        self._crawler = crawler
        self._destination = Destination.parse(url, settings["KROWL_WARC_UPLOAD_ENDPOINT"])
        self._delete = settings.getbool("KROWL_WARC_UPLOAD_DELETE")
        self._upload: CrawlUpload | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        # spider_closed comes after the scheduler's close, in which the last file gets its name.
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        folder = job_of(self._crawler).archive.directory
        put = partial(publish, self._crawler.stats)
        from krowlspider.job.uploading import CrawlUpload  # noqa: PLC0415 - for few crawls

        self._upload = CrawlUpload(folder, self._destination, put, delete=self._delete)
        self._upload.start()

    async def _finish(self) -> None:
        if self._upload is not None:
            crawl_of(self._crawler).not_uploaded = await self._upload.finish(self.stalled_after)
