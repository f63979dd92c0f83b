"""Downloader middleware: pass the results of robots fetches to the gate."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.answers.retries import RobotsAnswers
from krowlspider.job.crawls import job_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.job.flights import Flights


class RobotsMiddleware:
    """Passes the response or failure of each robots fetch to the gate, and ends the request.

    The gate has decided about each page before its request comes here. A finished robots fetch is
    returned as a request that goes back to its queue, where nothing waits for it: this is far
    cheaper than an exception on its way through Scrapy's scraper.
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
    def _answers(self) -> RobotsAnswers:
        job, count = job_of(self._crawler), self._crawler.stats.inc_value
        fetches, frontier, charge = job.robots_fetches, job.frontier, self._flights.charge
        return RobotsAnswers(fetches, frontier, job.mark, charge, count)

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        in_flight = self._flights.get(request)
        if in_flight is None or (fetch := in_flight.robots_fetch) is None:
            return response
        self._answers.answered(in_flight, fetch, response)
        return request

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        in_flight = self._flights.get(request)
        if in_flight is None or (fetch := in_flight.robots_fetch) is None:
            return None
        self._answers.failed(in_flight, fetch, exception)
        return request
