"""The downloader seam: no slots. Which host may be fetched is decided at the pop, so a request goes straight out."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.exceptions import IgnoreRequest, _InvalidOutput
from scrapy.http import Response
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.python import global_object_name
from twisted.internet.defer import Deferred

from krowlspider.courier import Courier
from krowlspider.fetch.errors import AddressBusy
from krowlspider.job import Job
from krowlspider.listeners import is_heard
from krowlspider.scheduler import Scheduler, Transit

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from scrapy.crawler import Crawler


class _Middlewares(DownloaderMiddlewareManager):
    """Scrapy's own, but what a middleware makes of an answer is awaited only where it is to be: 2 µs less for each."""

    async def _process_response(
        self, response: Response | Request, request: Request
    ) -> Response | Request:
        for method in self.methods["process_response"]:
            if isinstance(response, Request):
                break
            assert method is not None
            result = self._handle_mw_method(method, request=request, response=response)
            if not isinstance(result, (Response, Request)):
                result = await ensure_awaitable(result, _warn=global_object_name(method))
            if not isinstance(result, (Response, Request)):
                raise _InvalidOutput(
                    f"Middleware {method.__qualname__} must return Response or Request, got {type(result)}"
                )
            response = result
        return response


class Downloader:
    """Sends what the scheduler popped through the middlewares to the download handler.

    It refuses a request that was not popped (``crawler.engine.download_async()``): no delay, no robots.txt and no
    limit would hold for it.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)
        self._loop = asyncio.get_running_loop()
        self.active: set[Request] = set()
        self.total_concurrency = crawler.settings.getint("CONCURRENT_REQUESTS")
        self.handlers = DownloadHandlers(crawler)
        self.middleware = build_from_crawler(_Middlewares, crawler)
        crawler.signals.connect(self._employ_courier, signals.spider_opened)

    def _employ_courier(self) -> None:
        engine = self._crawler.engine
        engine._start_scheduled_request = Courier(engine, self).start_request  # type: ignore[method-assign]

    def needs_backout(self) -> bool:
        return len(self.active) >= self.total_concurrency or self._job.archive.full

    def fetch(self, request: Request) -> Deferred[Response | Request]:
        self.active.add(request)
        return Deferred.fromFuture(self._loop.create_task(self.download(request)))

    async def download(self, request: Request) -> Response | Request:
        """Download a request that is among the ``active`` ones, and take it from them."""
        scheduler = self._scheduler()
        transit = scheduler.transit(request)
        try:
            if transit is None:
                scheduler.count_dropped("unscheduled")
                raise IgnoreRequest(
                    f"{request} did not come from the scheduler, so no politeness would hold for it:"
                    " yield it instead of downloading it directly"
                )
            result = await self._through_middlewares(request, transit)
            if isinstance(result, Response):
                self._crawler.stats.inc_value("response_received_count")
            return result
        finally:
            self.active.discard(request)
            if transit is not None:
                scheduler.ended(transit)

    async def _through_middlewares(self, request: Request, transit: Transit) -> Response | Request:
        try:
            # It passes a Request on as it is.
            download = partial(self._download, transit=transit)
            return await self.middleware.download_async(download, request)  # type: ignore[arg-type]
        except Exception as error:
            if transit.failure is None:
                transit.failure = "ignored" if isinstance(error, IgnoreRequest) else "error"
            raise

    async def _download(self, request: Request, transit: Transit) -> Response | Request:
        """The response; the request itself when it was turned back, which Scrapy takes to the scheduler again."""
        stats = self._crawler.stats
        self._send(signals.request_reached_downloader, request=request)
        try:
            response = await self._handle(request)
            self._send(signals.response_downloaded, response=response, request=request)
        except AddressBusy as error:
            self._scheduler().turn_back(transit, error.address)
            stats.inc_value("krowl/politeness/turned_back_count")
            stats.inc_value("downloader/request_count", -1)
            return request
        finally:
            stats.inc_value("downloader/request_count")
            self._send(signals.request_left_downloader, request=request)
        return response

    def _handle(self, request: Request) -> Awaitable[Response]:
        """By the handler of its scheme; Scrapy, which makes the handler the first time, parses each URL anew."""
        handler = self.handlers._handlers.get(request.url.partition(":")[0])
        if handler is None:
            return self.handlers.download_request_async(request)
        return handler.download_request(request)

    def _send(self, signal: object, **values: object) -> None:
        if is_heard(self._crawler, signal):
            self._crawler.signals.send_catch_log(signal, spider=self._crawler.spider, **values)

    def _scheduler(self) -> Scheduler:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler

    def close(self) -> None:
        """Nothing to stop: the handler closes its connections when the engine stops."""
