"""The downloader: sends each request at once, without slots.

The frontier decides at the pop which host may be fetched.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.exceptions import IgnoreRequest, _InvalidOutput
from scrapy.http import Response
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.python import global_object_name
from twisted.internet.defer import Deferred

from krowlspider.crawl.job import Job
from krowlspider.engine.listeners import is_heard
from krowlspider.engine.runner import RequestRunner
from krowlspider.engine.scheduler import Scheduler
from krowlspider.fetch.errors import AddressBusy

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from krowlspider.crawl.in_flight import InFlight


# In the order in which they see a request. Given by name, because middlewares import this package
# and not the reverse.
_NEAREST_THE_HANDLER = (
    "middlewares.robots.RobotsMiddleware",
    "middlewares.politeness.PolitenessMiddleware",
)


class _Middlewares(DownloaderMiddlewareManager):
    """Scrapy's downloader middlewares, with robots.txt and politeness nearest the download handler.

    These two cannot be moved by settings: no other middleware keeps an answer from them. The result
    of a middleware is awaited only if it is awaitable.
    """

    @classmethod
    def _get_mwlist_from_settings(cls, settings: BaseSettings) -> list[Any]:
        named = super()._get_mwlist_from_settings(settings)
        return [*named, *map(load_object, _NEAREST_THE_HANDLER)]

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
    """Send each request that the scheduler popped through the middlewares to the download handler.

    A request that was not popped (``crawler.engine.download_async()``) is refused, because no
    delay, robots.txt or limit would hold for it.
    """

    def __init__(self, crawler: Crawler):
        """:raises KrowlError: the job cannot be opened, as of `Job.open`"""
        self._crawler = crawler
        self._job = Job.of(crawler)
        # Open the job before there is an engine, so that an unusable folder stops the start.
        self._job.open()
        self._loop = asyncio.get_running_loop()
        self.active: set[Request] = set()
        self.total_concurrency = crawler.settings.getint("CONCURRENT_REQUESTS")
        self.handlers = DownloadHandlers(crawler)
        self.middleware = build_from_crawler(_Middlewares, crawler)
        crawler.signals.connect(self._make_runner, signals.spider_opened)

    def _make_runner(self) -> None:
        engine = self._crawler.engine
        runner = RequestRunner(engine, self.active, self.download)
        engine._start_scheduled_request = runner.start_request  # type: ignore[method-assign]

    def needs_backout(self) -> bool:
        return len(self.active) >= self.total_concurrency or self._job.archive.full

    def fetch(self, request: Request) -> Deferred[Response | Request]:
        self.active.add(request)
        return Deferred.fromFuture(self._loop.create_task(self.download(request)))

    async def download(self, request: Request) -> Response | Request:
        """Download a request that is in ``active``, then remove it from there."""
        scheduler = self._scheduler()
        in_flight = scheduler.in_flight(request)
        try:
            if in_flight is None:
                scheduler.intake.count_dropped("unscheduled")
                raise IgnoreRequest(
                    f"{request} did not come from the scheduler, so no politeness would hold for it:"
                    " yield it instead of downloading it directly"
                )
            result = await self._through_middlewares(request, in_flight)
            if isinstance(result, Response):
                self._crawler.stats.inc_value("response_received_count")
            return result
        finally:
            self.active.discard(request)
            if in_flight is not None:
                scheduler.ended(in_flight)

    async def _through_middlewares(
        self, request: Request, in_flight: InFlight
    ) -> Response | Request:
        try:
            # The middleware manager passes a returned Request on unchanged.
            download = partial(self._download, in_flight=in_flight)
            return await self.middleware.download_async(download, request)  # type: ignore[arg-type]
        except Exception as error:
            if in_flight.failure is None:
                in_flight.failure = "ignored" if isinstance(error, IgnoreRequest) else "error"
            raise

    async def _download(self, request: Request, in_flight: InFlight) -> Response | Request:
        """Return the response, or the request itself if it was turned back.

        Scrapy takes a returned request to the scheduler again.
        """
        stats = self._crawler.stats
        self._send(signals.request_reached_downloader, request=request)
        try:
            response = await self._handle(request)
            self._send(signals.response_downloaded, response=response, request=request)
        except AddressBusy as error:
            self._scheduler().turn_back(in_flight, error.address)
            stats.inc_value("krowl/politeness/turned_back_count")
            stats.inc_value("downloader/request_count", -1)
            return request
        finally:
            stats.inc_value("downloader/request_count")
            self._send(signals.request_left_downloader, request=request)
        return response

    def _handle(self, request: Request) -> Awaitable[Response]:
        """Fetch with the handler of the URL's scheme.

        Scrapy makes the handler at first use. Later requests skip Scrapy, which parses each URL
        again.
        """
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
        """Do nothing: the handler closes its connections when the engine stops."""
