"""Downloader middleware: what an answer of Gemini means, once it is not tried again."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import uses_netloc, uses_relative

from krowlspider.engine.requests import Redirects
from krowlspider.engine.scheduler import Scheduler
from krowlspider.politeness.gemini import FIRST_HTTP, REDIRECTS, SUCCESS, reason_to_drop

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.job.flights import Flights


class GeminiMiddleware:
    """Has a page dropped with a reason whose last answer is 1x, 4x, 5x or 6x. A redirect is queued
    again for spiders that do not do so themselves.

    The response goes on to the spider: Scrapy's HttpErrorMiddleware makes an error of it, as of a
    404, unless the spider takes all. A success passes there, although it is not 200.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        for known in (uses_relative, uses_netloc):
            # For `Response.follow`: Python joins no references to URLs of other schemes.
            if "gemini" not in known:
                known.append("gemini")
        self._redirects = Redirects(crawler.settings)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @cached_property
    def _flights(self) -> Flights:
        return Scheduler.of(self._crawler).flights

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        if response.status >= FIRST_HTTP:
            return response
        if response.status in SUCCESS:
            request.meta.setdefault("handle_httpstatus_list", list(SUCCESS))
            return response
        if response.status in REDIRECTS:
            return self._redirected(request, response)
        if reason := reason_to_drop(response.status):
            self._drop(request, reason)
        return response

    def _drop(self, request: Request, reason: str) -> None:
        in_flight = self._flights.get(request)
        if in_flight is not None and in_flight.failure is None:
            in_flight.fail(reason)

    def _redirected(self, request: Request, response: Response) -> Request | Response:
        location = response.headers.get(b"Location")
        meta = request.meta
        takes_all = meta.get("handle_httpstatus_all") or meta.get("dont_redirect")
        if location is None or takes_all:
            return response
        response.request = request
        found = self._redirects.target(response, location, lambda why: self._drop(request, why))
        if found is None:
            return response
        url, chain = found
        times = meta.get("redirect_times", 0) + 1
        new = request.replace(url=url)
        new.meta.update(redirect_times=times, redirect_urls=list(chain))
        return new
