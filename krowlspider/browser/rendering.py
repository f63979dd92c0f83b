"""Open pages in the browser after they were fetched, and hand on what they have become there."""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property
from time import perf_counter, time
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response

from krowlspider.browser.launching import context_of, handler_of, send_through
from krowlspider.browser.proxy import BrowserProxy
from krowlspider.browser.subrequests import Subrequests, Visit
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import data_size, error_text
from krowlspider.internals.engine import call_when_over, is_closing
from krowlspider.job.answers.retries import RENDERED
from krowlspider.job.crawls import job_of
from krowlspider.policies.keys import expression
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.job.in_flight import InFlight

logger = logging.getLogger(__name__)

# Seconds beyond KROWL_BROWSER_TIMEOUT for the page methods of a request, and to read the page.
_MORE = 60.0
# Seconds between two looks whether a page that loads has time left.
_LOOK = 0.5
# Seconds for a page to give up what it waits for: one whose scripts never end does not.
_STOP = 10.0
# The status and the type of the document that is shown, which a script may have put in the place of
# the page.
_SHOWN = """() => [
    performance.getEntriesByType("navigation")[0]?.responseStatus || 200, document.contentType
]"""
_HTML = frozenset({"text/html", "application/xhtml+xml"})
# Meta keys in which scrapy-playwright leaves something for the callback.
_FOR_CALLBACK = ("playwright_page", "playwright_security_details")
# Failed pages that are named in the log.
_NAMED = 20


class Renderer:
    """Opens pages in Chromium for which ``meta["playwright"]`` is true, or that KROWL_BROWSER_URLS
    names.

    :raises KrowlError: scrapy-playwright is not installed
    :raises SettingsError: its settings cannot be used
    """

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        self._crawler = crawler
        self._job = job_of(crawler)
        self._count = crawler.stats.inc_value
        self._timeout = settings.getfloat("KROWL_BROWSER_TIMEOUT")
        self._max_size = settings.getint("DOWNLOAD_MAXSIZE")
        self._room = asyncio.Semaphore(settings.getint("KROWL_BROWSER_PAGES"))
        self._subrequests = Subrequests(self._fetch, self._count, perf_counter)
        self._proxy = BrowserProxy(self._subrequests.answer, self._subrequests.knows)
        self._browser: Any = handler_of(
            crawler,
            pin=self._proxy.certificates.pin,
            timeout=self._timeout,
        )
        self._named_urls = list(map(expression, settings.getlist("KROWL_BROWSER_URLS")))
        self._named = 0
        # The pages whose callbacks have the page of the browser.
        self._open: dict[Request, Visit] = {}
        self._ending: set[asyncio.Task[None]] = set()
        crawler.signals.connect(self._opened, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _opened(self) -> None:
        call_when_over(self._crawler.engine, self._over)

    @cached_property
    def _scheduler(self) -> Scheduler:
        return Scheduler.of(self._crawler)

    async def _fetch(self, request: Request, page: str) -> Response:
        """Return the answer to a request that the page at a URL makes.

        :raises Exception: as of `AwaitedRequests.fetch`
        """
        downloader: Any = self._crawler.engine.downloader
        while True:
            found = await self._scheduler.awaited.fetch(request, downloader.send_awaited, page=page)
            if isinstance(found, Response):
                return found
            request = found

    async def render(self, request: Request, response: Response) -> Response:
        """Return a page as it is in the browser; the response itself if it is not to be opened
        there, or could not be.

        :raises IgnoreRequest: the crawl ends; the page stays queued
        """
        in_flight = self._scheduler.flights.get(request)
        if in_flight is None or not self._is_wanted(request, response, in_flight):
            return response
        with self._scheduler.awaited.page():
            await self._room.acquire()
            try:
                self._end_early(request, in_flight)
                return await self._render(request, response, in_flight)
            finally:
                if request not in self._open:
                    self._room.release()

    def _end_early(self, request: Request, in_flight: InFlight) -> None:
        """:raises IgnoreRequest: the crawl ends, so that the page does not get all it asks for"""
        if in_flight.stays or is_closing(self._crawler.engine):
            in_flight.stays = True
            raise IgnoreRequest(f"{request} is not read: the crawl ends")

    def _is_wanted(self, request: Request, response: Response, in_flight: InFlight) -> bool:
        lease = in_flight.lease
        return (
            (bool(request.meta.get("playwright")) or self._is_named(in_flight.url))
            and isinstance(response, HtmlResponse)
            and 200 <= response.status < 300
            and lease is not None
            and not (lease.entry.request and lease.entry.file)
        )

    def _is_named(self, url: str) -> bool:
        return any(pattern.search(url) for pattern in self._named_urls)

    async def _render(self, request: Request, response: Response, in_flight: InFlight) -> Response:
        port = await self._proxy.start()
        send_through(self._browser, port)
        visit = self._subrequests.open(request, in_flight.url, response)
        asked = self._request(request, visit, port)
        stays_open = False
        try:
            async with asyncio.timeout(self._timeout + _MORE):
                rendered = await self._browser.download_request(asked)
            self._end_early(request, in_flight)
            stays_open = bool(request.meta.get("playwright_include_page"))
        except IgnoreRequest:
            raise
        except Exception as error:  # noqa: BLE001 - the driver's own, and those of page methods
            self._failed(request, error, in_flight)
            return response
        finally:
            if not stays_open:
                await self._close(visit)
        request.meta.update({key: asked.meta[key] for key in _FOR_CALLBACK if key in asked.meta})
        if stays_open:
            self._open[request] = visit
        return self._handed_on(request, response, rendered, in_flight)

    def _request(self, request: Request, visit: Visit, port: int) -> Request:
        """Return the request by which scrapy-playwright opens a page."""
        meta = request.meta
        methods = meta.get("playwright_page_methods") or ()
        goto = {"wait_until": "commit", **(meta.get("playwright_page_goto_kwargs") or {})}
        given = meta.get("playwright_context_kwargs") or {}
        page_method = _page_method()
        own = {
            "playwright": True,
            "playwright_context": visit.name,
            "playwright_context_kwargs": context_of(
                given,
                port=port,
                name=visit.name,
                password=self._proxy.password,
                agent=self._job.user_agent,
            ),
            "playwright_page_goto_kwargs": goto,
            "playwright_page_methods": [
                page_method(self._settled),
                *(methods.values() if isinstance(methods, dict) else methods),
                page_method(_check_shown),
            ],
        }
        return Request(request.url, meta={**meta, **own})

    async def _settled(self, page: Any) -> None:
        """Return when a page is loaded and asks for nothing more, KROWL_BROWSER_TIMEOUT is over, or
        the crawl ends. Then what it still waits for is given up."""
        loop = asyncio.get_running_loop()
        end, engine = loop.time() + self._timeout, self._crawler.engine
        idle = asyncio.ensure_future(_idle(page))
        try:
            while not idle.done() and loop.time() < end and not is_closing(engine):
                await asyncio.wait({idle}, timeout=_LOOK)
            if idle.done():
                idle.result()
                return
        finally:
            idle.cancel()
        self._count("krowl/browser/cut_count")
        await _evaluate(page, "window.stop()")
        # scrapy-playwright waits for the load of a page after each method. It never comes now.
        page.wait_for_load_state = _loaded

    def _failed(self, request: Request, error: Exception, in_flight: InFlight) -> None:
        if not self._crawler.stats.get_value("playwright/browser_count"):
            in_flight.stays = True
            self._job.stop_for(f"KROWL_BROWSER: Chromium cannot be started: {_line(error)}")
            raise IgnoreRequest(f"{request} is not read: the crawl ends") from error
        if isinstance(error, _NoPageError):
            self._stays(request, "answer", str(error))
        elif isinstance(error, TimeoutError):
            self._stays(request, "error", "the browser cannot read it in time")
        else:
            self._stays(request, "error", f"the browser failed: {_line(error)}")

    def _stays(self, request: Request, reason: str, why: str) -> None:
        """Count and name a page that stays as it was fetched."""
        self._count(f"krowl/browser/page_failed_count/{reason}")
        self._named += 1
        if self._named <= _NAMED:
            logger.warning("%s stays as it was fetched: %s", request, why)

    def _handed_on(
        self, request: Request, response: Response, rendered: Response, in_flight: InFlight
    ) -> Response:
        """Archive what the page has become, and return it."""
        html = rendered.text.encode() if isinstance(rendered, HtmlResponse) else b""
        url = normalise(rendered.url)
        if url is None or not html:
            self._stays(request, "url", f"the browser shows {rendered.url[:200]}")
            return response
        if len(html) > self._max_size:
            self._stays(request, "size", f"it has {data_size(len(html))} in the browser")
            return response
        self._count("krowl/browser/page_count")
        identity = request.meta.get("krowl_warc_id")
        if identity is not None:
            self._job.notes.rendered(in_flight.url, time(), html, identity)
        if in_flight.memory is not None:
            in_flight.memory.resize(len(response.body) + len(html))
        headers = response.headers.copy()
        headers["Content-Type"] = "text/html; charset=utf-8"
        return HtmlResponse(
            url,
            status=response.status,
            headers=headers,
            body=html,
            flags=[*response.flags, RENDERED],
            request=request,
            certificate=response.certificate,
            ip_address=response.ip_address,
            protocol=response.protocol,
            encoding="utf-8",
        )

    # --- the ends of pages ---

    def _over(self, request: Request) -> None:
        """End a page whose callback had the page of the browser."""
        if (visit := self._open.pop(request, None)) is not None:
            self._room.release()
            task = asyncio.ensure_future(self._close(visit))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _close(self, visit: Visit) -> None:
        self._subrequests.close(visit)
        wrapper = self._browser.context_wrappers.get(visit.name)
        if wrapper is not None:
            try:
                await wrapper.context.close()
            except Exception as error:  # noqa: BLE001 - the browser is gone, and the page with it
                logger.debug("A page of the browser was not closed: %s", _line(error))

    async def close(self) -> None:
        """End the browser and the proxy."""
        await asyncio.gather(*self._ending)
        await self._browser.close()
        await self._proxy.close()


class _NoPageError(Exception):
    """The browser shows something else than an HTML page with status 2xx."""


async def _evaluate(page: Any, script: str) -> Any:
    """Return what a script finds, in the next document if the page moves there meanwhile.

    :raises TimeoutError: the scripts of the page leave no time for it
    """
    async with asyncio.timeout(_STOP):
        while True:
            try:
                return await page.evaluate(script)
            except Exception as error:
                if "context was destroyed" not in str(error):
                    raise


async def _check_shown(page: Any) -> None:
    """:raises _NoPageError: it shows none"""
    status, kind = await _evaluate(page, _SHOWN)
    if not 200 <= status < 300 or kind not in _HTML:
        raise _NoPageError(f"the browser shows {page.url[:200]}, status {status}, {kind}")


async def _loaded(*_: Any, **__: Any) -> None:
    """Wait for no load."""


async def _idle(page: Any) -> None:
    await page.wait_for_load_state("load", timeout=0)
    await page.wait_for_load_state("networkidle", timeout=0)


def _page_method() -> Any:
    from scrapy_playwright.page import PageMethod  # noqa: PLC0415 - of an extra

    return PageMethod


def _line(error: BaseException) -> str:
    return error_text(error).partition("\n")[0]
