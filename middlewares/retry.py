"""Downloader middleware: requeue a failed page, for a limited number of retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.crawl.answers.retries import Retries
from krowlspider.engine.scheduler import Scheduler
from krowlspider.frontier.entry_queues import FELL_BACK
from krowlspider.politeness.delay import THROTTLING

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class RetryMiddleware:
    """Returns a failed request to the scheduler."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._retries = Retries(crawler.settings, crawler.stats.inc_value)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        if self._retries.after_status(response.status, request.meta):
            return request
        if response.status in THROTTLING:
            in_flight = Scheduler.of(self._crawler).flights.get(request)
            if in_flight is not None:
                in_flight.fail("throttled")
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        scheduler = Scheduler.of(self._crawler)
        in_flight = scheduler.flights.get(request)
        lease = None if in_flight is None else in_flight.lease
        if in_flight is None or lease is None:
            return request if self._retries.after_error(exception, request.meta) else None
        if in_flight.is_blameless:
            if not in_flight.goes_last:
                scheduler.flights.unpop(in_flight)
            return request
        if not in_flight.falls_back:
            if self._retries.after_error(exception, request.meta):
                return request
            if not (lease.entry.may_fall_back and self._retries.may_lack_https(exception)):
                return None
            in_flight.fail(FELL_BACK)
        scheduler.intake.fall_back(lease.entry)
        return None
