"""Send each request immediately, without slots, in one task through downloader and scraper.

`RequestRunner` carries each request in one task. Scrapy's engine takes two tasks and ten Deferreds
for each request, which is slower.

`Downloader` has no slots, because the frontier decides at the pop which host may be fetched.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http import Response
from scrapy.utils.log import logformatter_adapter
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from krowlspider.engine.handler import DownloadHandler
from krowlspider.engine.logformatter import is_heard
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import SettingsError
from krowlspider.fetch.errors import AddressBusy
from krowlspider.internals.engine import DownloaderMiddlewares, scrape, slot_of, start_requests_with
from krowlspider.job.crawls import job_of
from krowlspider.job.recrawl import OFF
from krowlspider.urls.canonical import is_data

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from scrapy.core.downloader.handlers.base import BaseDownloadHandler
    from scrapy.core.engine import ExecutionEngine
    from scrapy.crawler import Crawler

    from krowlspider.engine.awaited import AwaitedRequests

# The logger of Scrapy's engine, so that log lines keep their name.
logger = logging.getLogger("scrapy.core.engine")


class RequestRunner:
    """Takes the steps of Scrapy's engine for each request, in the same order.

    ``active`` holds the requests that are with the downloader; ``download`` removes them from it.
    After each request that ends, those that ``needless`` returns are cancelled. ``render`` opens a
    page in the browser, while its host may be asked again; None without a browser.
    """

    def __init__(
        self,
        engine: ExecutionEngine,
        active: set[Request],
        download: Callable[[Request], Awaitable[Response | Request]],
        awaited: AwaitedRequests,
        needless: Callable[[], Sequence[Request]],
        *,
        render: Callable[[Request, Response], Awaitable[Response]] | None,
    ):
        self._engine = engine
        self._slot = slot_of(engine)
        self._active = active
        self._download = download
        self._awaited = awaited
        self._needless = needless
        self._render = render
        self._loop = asyncio.get_running_loop()
        # The event loop itself holds only weak references to tasks.
        self._tasks: dict[Request, asyncio.Task[None]] = {}

    def start_request(self) -> bool:
        """Send the scheduler's next request; return False if it has none."""
        request = self._slot.scheduler.next_request()
        if request is None:
            self._engine.signals.send_catch_log(signals.scheduler_empty)
            return False
        self.start(request)
        return True

    def start(self, request: Request) -> None:
        """Send a request that the scheduler has popped."""
        self._slot.add_request(request)
        self._active.add(request)
        self._tasks[request] = self._loop.create_task(self._carry(request))

    async def _carry(self, request: Request) -> None:
        try:
            result = await self._downloaded(request)
            # The downloader has room for another request.
            self._slot.nextcall.schedule()
            if self._awaited.sent and self._awaited.settle(request, result):
                return
            if result is request:
                self._put_back(request)
            elif isinstance(result, Request):
                self._engine.crawl(result)
            else:
                if self._render is not None and isinstance(result, Response):
                    result = await self._rendered(self._render, request, result)
                await scrape(self._engine.scraper, result, request)
        except Exception:
            logger.exception(
                "Error while handling downloader output", extra={"spider": self._engine.spider}
            )
        finally:
            del self._tasks[request]
            self._slot.remove_request(request)
            for other in self._needless():
                self._tasks[other].cancel()
            self._slot.nextcall.schedule()

    @staticmethod
    async def _rendered(
        render: Callable[[Request, Response], Awaitable[Response]],
        request: Request,
        response: Response,
    ) -> Response | Failure:
        try:
            return await render(request, response)
        except Exception:  # noqa: BLE001 - whatever it is, the errback receives it
            return Failure()

    def _put_back(self, request: Request) -> None:
        """Report a request that is back in its queue, as Scrapy does."""
        self._engine.signals.send_catch_log(
            signals.request_scheduled,
            request=request,
            spider=self._engine.spider,
            dont_log=IgnoreRequest,
        )

    async def _downloaded(self, request: Request) -> Response | Request | Failure:
        try:
            result = await self._download(request)
        except Exception:  # noqa: BLE001 - whatever it is, the errback receives it
            return Failure()
        # Scrapy's engine reports the responses of awaited requests itself.
        if isinstance(result, Response) and request not in self._awaited.sent:
            self._report(result, request)
        return result

    def _report(self, response: Response, request: Request) -> None:
        engine = self._engine
        assert engine.spider is not None
        if response.request is None:
            response.request = request
        if line := engine.logformatter.crawled(response.request, response, engine.spider):
            logger.log(*logformatter_adapter(line), extra={"spider": engine.spider})
        engine.signals.send_catch_log(
            signals.response_received,
            response=response,
            request=response.request,
            spider=engine.spider,
        )


# In the order in which they see a request. Given by name, because middlewares import this package
# and not the reverse.
_NEAREST_THE_HANDLER = (
    "krowlspider.middlewares.robots.RobotsMiddleware",
    "krowlspider.middlewares.politeness.PolitenessMiddleware",
)

# Only where pages are fetched again.
_NOT_MODIFIED = "krowlspider.middlewares.not_modified.NotModifiedMiddleware"
# Only with KROWL_BROWSER. Its room imports this one.
_RENDERER = "krowlspider.browser.rendering.Renderer"
# Only where URLs may be asked by HEAD before GET.
_HEAD = "krowlspider.middlewares.head.HeadMiddleware"
# Only with KROWL_GEMINI. It is the last to see an answer: that one is tried no more.
_GEMINI = "krowlspider.middlewares.gemini.GeminiMiddleware"
# Only with KROWL_HOOKS.
_HOOKS = "krowlspider.middlewares.hooks.HooksMiddleware"

# The signals for each request. Listeners of a request are those at its start.
_SENT = (
    signals.request_reached_downloader,
    signals.response_downloaded,
    signals.request_left_downloader,
)


def middlewares_of(crawler: Crawler) -> DownloaderMiddlewares:
    """Return Scrapy's downloader middlewares, with robots.txt and politeness nearest the handler.

    No setting can move these two: no other middleware keeps an answer from them.
    """
    chosen = build_from_crawler(DownloaderMiddlewares, crawler).middlewares
    if crawler.settings.getbool("KROWL_GEMINI"):
        chosen = (build_from_crawler(load_object(_GEMINI), crawler), *chosen)
    paths: tuple[str, ...] = _NEAREST_THE_HANDLER
    if crawler.settings["KROWL_RECRAWL"] != OFF:
        paths = (_NOT_MODIFIED, *paths)
    if crawler.settings.getbool("KROWL_HEAD") or crawler.settings["KROWL_POLICIES"] is not None:
        paths = (_HEAD, *paths)
    if crawler.settings["KROWL_HOOKS"]:
        paths = (*paths, _HOOKS)
    nearest = [build_from_crawler(load_object(path), crawler) for path in paths]
    return DownloaderMiddlewares(*chosen, *nearest, crawler=crawler)


class Downloader:
    """Send each request that the scheduler popped through the middlewares to the download handler.

    A request that was not popped (``crawler.engine.download_async()``) is queued first, so that
    delays, robots.txt and limits hold for it. A data: URL is answered without being queued then.
    """

    def __init__(self, crawler: Crawler):
        """:raises KrowlError: as of `crawl_of`"""
        self._crawler = crawler
        # There is no engine yet: an unusable folder stops the start.
        self._job = job_of(crawler)
        self._count = crawler.stats.inc_value
        # With CrawlerProcess the loop does not run yet.
        self._loop = asyncio.get_event_loop()
        self.active: set[Request] = set()
        self.total_concurrency = crawler.settings.getint("CONCURRENT_REQUESTS")
        self._handlers: dict[str, BaseDownloadHandler] = {
            scheme: self._make_handler(scheme) for scheme in ("http", "https")
        }
        # None without a browser.
        self._renderer: Any = None
        if crawler.settings.getbool("KROWL_BROWSER"):
            self._renderer = build_from_crawler(load_object(_RENDERER), crawler)
        # None until the spider is opened.
        self._runner: RequestRunner | None = None
        self.middleware = middlewares_of(crawler)
        if "scrapy.downloadermiddlewares.cookies" in sys.modules:
            from krowlspider.internals.cookies import mend_cookies  # noqa: PLC0415 - for few crawls

            mend_cookies(self.middleware.middlewares)
        crawler.signals.connect(self._make_runner, signals.spider_opened)
        crawler.signals.connect(self._close_handlers, signals.engine_stopped)

    def _make_handler(self, scheme: str) -> BaseDownloadHandler:
        """Return the download handler of a scheme.

        :raises SettingsError: it cannot be used
        """
        path = self._crawler.settings.getwithbase("DOWNLOAD_HANDLERS")[scheme]
        try:
            handler: BaseDownloadHandler = build_from_crawler(load_object(path), self._crawler)
        except NotConfigured as error:
            raise SettingsError(
                f"DOWNLOAD_HANDLERS has {path!r} for {scheme}, which cannot be used: {error}"
            ) from error
        if not (isinstance(handler, DownloadHandler) or scheme == "data"):
            from krowlspider.engine.third_party import ThirdPartyHandler  # noqa: PLC0415 - seldom

            handler = ThirdPartyHandler(self._crawler, handler, scheme)
        if self._job.hooks is None or scheme == "data":
            return handler
        from krowlspider.engine.hooked_handler import HookedHandler  # noqa: PLC0415 - few have it

        assert isinstance(handler, DownloadHandler)
        return HookedHandler(self._crawler, handler)

    @cached_property
    def _scheduler(self) -> Scheduler:
        return Scheduler.of(self._crawler)

    def _make_runner(self) -> None:
        engine = self._crawler.engine
        scheduler = self._scheduler
        self._runner = RequestRunner(
            engine,
            self.active,
            self.download,
            scheduler.awaited,
            scheduler.needless,
            render=None if self._renderer is None else self._renderer.render,
        )
        start_requests_with(engine, self._runner.start_request)

    def send_awaited(self) -> None:
        """Send one awaited request, if its host is due. Before the spider is opened, send none."""
        runner = self._runner
        if runner is not None and (request := self._scheduler.next_awaited()) is not None:
            runner.start(request)

    def needs_backout(self) -> bool:
        return len(self.active) >= self.total_concurrency or self._job.archive.full

    def fetch(self, request: Request) -> Deferred[Response | Request]:
        if is_data(request.url):
            work = self._through_middlewares(request)
        else:
            work = self._scheduler.awaited.fetch(request, self.send_awaited)
        return Deferred.fromFuture(self._loop.create_task(work))

    def _through_middlewares(self, request: Request) -> Coroutine[Any, Any, Response | Request]:
        # The middleware manager passes a returned Request on unchanged.
        return self.middleware.download_async(
            self._download,  # type: ignore[arg-type]
            request,
        )

    async def download(self, request: Request) -> Response | Request:
        """Download a request that is in ``active``, then remove it from there.

        If the request itself is the result, it was put back into its queue.
        """
        flights, again = self._scheduler.flights, None
        in_flight = flights.get(request)
        try:
            result = await self._through_middlewares(request)
            if isinstance(result, Response):
                # extensions.core_stats does not listen for responses.
                self._count("response_received_count")
            elif result is request:
                again = request
            return result
        except asyncio.CancelledError:
            if in_flight is not None:
                flights.give_up(in_flight)
            raise
        except Exception as error:
            if in_flight is not None and in_flight.failure is None:
                in_flight.fail("ignored" if isinstance(error, IgnoreRequest) else "error")
            raise
        finally:
            self.active.discard(request)
            if in_flight is not None:
                flights.settle(in_flight, again)

    async def _download(self, request: Request) -> Response | Request:
        """Return the response, or the request itself if it was turned back."""
        count, send = self._count, None
        if is_heard(self._crawler, *_SENT):
            send = partial(self._crawler.signals.send_catch_log, spider=self._crawler.spider)
            send(signals.request_reached_downloader, request=request)
        try:
            # The scheduler gives no request of another scheme than http, https, gemini and data.
            scheme = request.url.partition(":")[0]
            if scheme not in self._handlers:
                self._handlers[scheme] = self._make_handler(scheme)
            response = await self._handlers[scheme].download_request(request)
            if send is not None:
                send(signals.response_downloaded, response=response, request=request)
        except AddressBusy as error:
            scheduler = self._scheduler
            in_flight = scheduler.flights.get(request)
            assert in_flight is not None
            scheduler.flights.turn_back(in_flight, error.address)
            count("krowl/politeness/turned_back_count")
            count("downloader/request_count", -1)
            return request
        finally:
            count("downloader/request_count")
            if send is not None:
                send(signals.request_left_downloader, request=request)
        return response

    async def _close_handlers(self) -> None:
        if self._renderer is not None:
            await self._renderer.close()
        for handler in self._handlers.values():
            await handler.close()

    def close(self) -> None:
        """Do nothing: the handlers are closed when the engine stops."""
