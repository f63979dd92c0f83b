"""Downloader middleware: hooks about failed requests and fetched robots.txt."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.answers.retries import failure_kind
from krowlspider.job.crawls import job_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.job.flights import Flights
    from krowlspider.job.hooking.page_hooks import PageHooks
    from krowlspider.job.in_flight import InFlight


class HooksMiddleware:
    """Calls `Hooks.error` for each try that failed, and `Hooks.fetched_robots`."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        hooked = job_of(crawler).hooks
        assert hooked is not None
        self._hooks: PageHooks = hooked.pages

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @cached_property
    def _flights(self) -> Flights:
        return Scheduler.of(self._crawler).flights

    async def process_response(self, request: Request, response: Response) -> Response:
        in_flight = self._flights.get(request)
        # Without a latency, the host was not asked.
        is_fetched = in_flight is not None and "download_latency" in request.meta
        if is_fetched and in_flight is not None and in_flight.robots_fetch is not None:
            await self._hooks.robots_fetched(in_flight, response)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        in_flight = self._flights.get(request)
        if in_flight is not None:
            self._hooks.failed(_kind(in_flight), in_flight, failure_kind(exception), exception)


def _kind(in_flight: InFlight) -> str:
    if in_flight.robots_fetch is not None:
        return "robots"
    return "head" if in_flight.is_head else "fetch"
