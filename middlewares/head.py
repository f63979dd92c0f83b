"""Downloader middleware: end requests by HEAD, which come before the GET of a page."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.engine.scheduler import Scheduler
from krowlspider.frontier.entry_queues import HOOK
from krowlspider.job.crawls import job_of
from krowlspider.job.flights import HEAD_TYPE

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.job.flights import Flights
    from krowlspider.job.head_requests import HeadFirst
    from krowlspider.job.hooking.page_hooks import PageHooks


class HeadMiddleware:
    """Returns each request by HEAD as one that goes back to its queue, to be asked by GET then.

    If the answer shows a type that is not wanted, or a hook does not want the page, it is dropped
    instead. A server that refuses HEAD, or fails, is asked by GET too.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @cached_property
    def _flights(self) -> Flights:
        return Scheduler.of(self._crawler).flights

    @cached_property
    def _hooks(self) -> PageHooks | None:
        hooked = job_of(self._crawler).hooks
        return None if hooked is None else hooked.pages

    @cached_property
    def _head_first(self) -> HeadFirst:
        head_first = Scheduler.of(self._crawler).head_first
        assert head_first is not None
        return head_first

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        in_flight = self._flights.get(request)
        if in_flight is None or not in_flight.is_head:
            return response
        self._crawler.stats.inc_value("krowl/head/request_count")
        host, media_type = in_flight.host.name, response.headers.get(b"Content-Type")
        is_refused = self._head_first.refuses(host, response.status, media_type)
        gets = None if self._hooks is None else await self._hooks.gets(in_flight, response)
        if gets is False:
            in_flight.fail(HOOK)
        elif gets is None and is_refused:
            in_flight.fail(HEAD_TYPE)
        return request

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        in_flight = self._flights.get(request)
        if in_flight is None or not in_flight.is_head:
            return None
        self._crawler.stats.inc_value("krowl/head/request_count")
        return request
