"""Downloader middleware: end a request for a page that has not changed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.engine.scheduler import Scheduler
from krowlspider.recrawl.validators import ASK_IN_FULL, Meaning

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class NotModifiedMiddleware:
    """Keeps the answer 304 to a conditional request from the spider: its page is done.

    If the answer to the conditions cannot be used, the page goes back to its queue, to be asked in
    full. Each is returned as the request, as `RobotsMiddleware` does.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @cached_property
    def _scheduler(self) -> Scheduler:
        return Scheduler.of(self._crawler)

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        in_flight = self._scheduler.flights.get(request)
        if in_flight is None or (refetch := in_flight.refetch) is None or in_flight.lease is None:
            return response
        fetched = in_flight.lease.fetched
        recrawl = self._scheduler.recrawl
        if fetched is None or recrawl is None or not any(refetch.sent):
            return response
        if fetched.meaning is Meaning.NOT_MODIFIED:
            self._scheduler.flights.not_modified(request, in_flight)
        elif fetched.meaning in ASK_IN_FULL:
            recrawl.learn_nothing(refetch)
        else:
            return response
        return request
