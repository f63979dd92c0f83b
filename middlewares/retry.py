"""Downloader middleware: requeue a failed page, for a limited number of retries."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.crawl.answers.retries import Retries
from krowlspider.engine.scheduler import Scheduler
from krowlspider.politeness.delay import THROTTLING

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.crawl.flights import Flights


class RetryMiddleware:
    """Returns a failed request that is to be tried again: then it goes back to its queue."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._retries = Retries(crawler.settings, crawler.stats.inc_value)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @cached_property
    def _flights(self) -> Flights:
        return Scheduler.of(self._crawler).flights

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        if self._retries.after_status(response.status, request.meta):
            return request
        if response.status in THROTTLING:
            in_flight = self._flights.get(request)
            if in_flight is not None:
                in_flight.fail("throttled")
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        in_flight = self._flights.get(request)
        if in_flight is None:
            again = self._retries.after_error(exception, request.meta)
        else:
            again = self._retries.after_failure(exception, in_flight, request.meta)
        return request if again else None
