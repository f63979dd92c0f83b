"""Archive what Scrapy's own scheduler and downloader fetch, with the project's fetcher.

Scrapy's download handlers hand over neither the head of an answer nor its body as it came, so the
archive needs a handler of its own. Queue, delays and robots.txt stay Scrapy's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.utils.misc import load_object

from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.write.records import RecordIds
from krowlspider.archive.write.writer import WarcWriter
from krowlspider.engine.handler import capture_of, headers_of, proxy_of, response_of
from krowlspider.errors import SettingsError
from krowlspider.fetch.errors import FetchError, LoopClock
from krowlspider.fetch.memory import FetchMemory, Memory
from krowlspider.job.answers.retries import as_scrapy
from krowlspider.job.parts import fetch_client, resolver, warc_writer
from krowlspider.job.provenance import warcinfo
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.fetch.errors import Exchange

logger = logging.getLogger(__name__)

_archives: WeakKeyDictionary[Crawler, _Archive] = WeakKeyDictionary()


class _Archive:
    """The fetcher and the writer of a crawl: http and https have the same."""

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        # Scrapy makes handlers before the loop runs.
        loop = asyncio.get_event_loop()
        self._crawler = crawler
        self._clock = LoopClock(loop, time.monotonic)
        self._resolver = resolver(settings, self._clock, None, None)
        self.client = fetch_client(settings, self._clock, self._resolver)
        self.memory = Memory()
        agent = settings["USER_AGENT"].replace("{contact}", settings["KROWL_CONTACT"])
        self.writer = warc_writer(
            WarcWriter,
            settings,
            _folder_of(crawler),
            seed=secrets.randbits(64),
            about=warcinfo(settings, settings["KROWL_CONTACT"], agent),
            payloads=None,
            on_pair=None,
        )
        mended = self.writer.open(loop)
        if mended.files or mended.damaged:
            logger.info("Mended the archive of a start that did not end: %s", mended)
        self._clock.start()
        self._syncing: asyncio.Future[None] | None = None
        self._interval = settings.getfloat("KROWL_COMMIT_INTERVAL")
        self._is_closed = False
        crawler.signals.connect(self._start, signals.engine_started)

    @classmethod
    def of(cls, crawler: Crawler) -> _Archive:
        if crawler not in _archives:
            _archives[crawler] = cls(crawler)
        return _archives[crawler]

    def _start(self) -> None:
        self._syncing = asyncio.ensure_future(self._sync())

    async def _sync(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._interval)
                await self.writer.sync()
        except ArchiveError:
            logger.exception("The archive cannot be written: closing the spider")
        # The close cancels this task.
        close = self._crawler.engine.close_spider_async(reason="archive_failed")
        self._closing = asyncio.ensure_future(close)

    async def close(self) -> None:
        """Finish the open file. Only the first call does."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._syncing is not None:
            self._syncing.cancel()
        self._clock.stop()
        try:
            await self.writer.close()
        except ArchiveError:
            logger.exception("The archive could not be finished: the next start mends it")
        await self.client.close()
        await self._resolver.close()


def _folder_of(crawler: Crawler) -> Path:
    """:raises SettingsError: none is named"""
    settings = crawler.settings
    if settings["KROWL_WARC_DIR"]:
        return Path(settings["KROWL_WARC_DIR"])
    if settings["JOBDIR"]:
        return Path(settings["JOBDIR"]) / "warc"
    raise SettingsError("KROWL_WARC_DIR is not set: give the folder of the WARC files, or JOBDIR")


class Opening:
    """Extension: open the archive before Scrapy opens its queue.

    Of a handler that cannot be made Scrapy only logs the error: each request would fail.
    """

    def __init__(self, crawler: Crawler):
        # An add-on after KrowlArchive may have set them.
        handlers = crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
        for scheme in ("http", "https"):
            if load_object(handlers[scheme]) is not ArchivingHandler:
                raise SettingsError(
                    f"DOWNLOAD_HANDLERS has {handlers[scheme]!r} for {scheme}, which archives"
                    " nothing: remove it, also from the other add-ons, or the add-on KrowlArchive"
                )
        try:
            _Archive.of(crawler)
        except (ArchiveError, OSError) as error:
            raise SettingsError(f"{_folder_of(crawler)} cannot be written: {error}") from error

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Opening:
        """:raises SettingsError: pages would not be archived"""
        return cls(crawler)


class ArchivingHandler(BaseDownloadHandler):
    """Fetch http and https for Scrapy's own downloader, and archive each answer byte for byte.

    ``request.meta["krowl_warc"]`` is a future of the ``Location`` of the response record, and
    ``krowl_warc_id`` its WARC-Record-ID. A record is durable within KROWL_COMMIT_INTERVAL.
    """

    lazy = False

    def __init__(self, crawler: Crawler):
        super().__init__(crawler)
        settings = crawler.settings
        self._archive = _Archive.of(crawler)
        self._ids = RecordIds()
        self._timeout = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._max_size = settings.getint("DOWNLOAD_MAXSIZE")

    async def download_request(self, request: Request) -> Response:
        """:raises Exception: Scrapy's own for a failed fetch; what came before is archived"""
        meta, memory = request.meta, FetchMemory(self._archive.memory)
        if self._archive.writer.full:
            await self._archive.writer.sync()
        try:
            exchange = await self._archive.client.fetch(
                normalise(request.url) or request.url,
                request.method,
                [(name, value) for name, values in request.headers.items() for value in values],
                request.body,
                timeout=meta.get("download_timeout", self._timeout),
                max_size=int(meta.get("download_maxsize", self._max_size)) or sys.maxsize,
                memory=memory,
                proxy=proxy_of(request) if meta.get("proxy") else None,
            )
        except FetchError as error:
            if error.exchange is not None:
                self._keep(request, error.exchange)
            raise as_scrapy(error) from error
        finally:
            memory.release()
        self._keep(request, exchange)
        meta["download_latency"] = exchange.times.latency
        return response_of(request, exchange, headers_of(exchange.headers), exchange.body)

    def _keep(self, request: Request, exchange: Exchange) -> None:
        identity = self._ids.new()
        written = self._archive.writer.write(capture_of(exchange, identity))
        written.add_done_callback(lambda future: future.cancelled() or future.exception())
        request.meta["krowl_warc"], request.meta["krowl_warc_id"] = written, identity

    async def close(self) -> None:
        await self._archive.close()
