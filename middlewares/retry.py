"""Downloader middleware: requeue a failed page, for a limited number of retries."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.answers.retries import Retries

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.job.flights import Flights


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
        in_flight = self._flights.get(request)
        again = self._retries.after_answer(response.status, in_flight, request.meta)
        return request if again else response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        in_flight = self._flights.get(request)
        again = self._retries.after_failure(exception, in_flight, request.meta)
        return request if again else None
