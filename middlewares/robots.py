"""Downloader middleware: pass the results of robots fetches to the gate.

The gate has decided about each page before its request reaches this middleware.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.crawl.answers.robots_answers import RobotsAnswers
from krowlspider.crawl.job import Job
from krowlspider.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.crawl.flights import Flights
    from krowlspider.crawl.in_flight import InFlight


class RobotsMiddleware:
    """Passes the response or failure of each robots fetch to the gate, and ends the request.

    It returns the request to the scheduler, which knows that it is over. This is far cheaper than
    an exception on its way through Scrapy's scraper.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        job = Job.of(crawler)
        self._answers = RobotsAnswers(job.robots_fetches, job.frontier, job.mark, self._charge)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @cached_property
    def _flights(self) -> Flights:
        return Scheduler.of(self._crawler).flights

    def _charge(self, in_flight: InFlight, seconds: float) -> None:
        self._flights.charge(in_flight, seconds)

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        in_flight = self._flights.get(request)
        if in_flight is None or (fetch := in_flight.robots_fetch) is None:
            return response
        count, location = self._crawler.stats.inc_value, response.headers.get(b"Location")
        count("robotstxt/response_count")
        count(f"robotstxt/response_status_count/{response.status}")
        self._answers.answered(in_flight, fetch, response.status, response.body, location)
        return request

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        in_flight = self._flights.get(request)
        if in_flight is None or (fetch := in_flight.robots_fetch) is None:
            return None
        if self._answers.failed(in_flight, fetch, exception):
            self._crawler.stats.inc_value("robotstxt/exception_count")
        return request
