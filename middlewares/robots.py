"""Downloader middleware: pass the results of robots fetches to the gate.

The gate has decided about each page before its request reaches this middleware.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.crawl.job import Job
from krowlspider.engine.crash_marking import page_mark
from krowlspider.engine.handler import is_final
from krowlspider.engine.scheduler import Scheduler
from krowlspider.fetch.errors import AddressForbidden, TooLarge

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.frontier.robots.fetch import RobotsFetch


logger = logging.getLogger(__name__)

# Robots fetches to a forbidden address that are logged; further ones are only counted.
_WARNINGS = 5


class RobotsMiddleware:
    """Passes the response or failure of each robots fetch to the gate, and ends the request.

    It returns the request to the scheduler, which knows that it is over. This is far cheaper than
    an exception on its way through Scrapy's scraper.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)
        self._warned = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Request | Response:
        in_flight, robots_fetch = self._robots_fetch(request)
        if in_flight is None or robots_fetch is None:
            return response
        self._crawler.stats.inc_value("robotstxt/response_count")
        self._crawler.stats.inc_value(f"robotstxt/response_status_count/{response.status}")
        location = _text(response.headers.get(b"Location"))
        self._answered(in_flight, robots_fetch, response.status, response.body, location)
        return request

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        in_flight, robots_fetch = self._robots_fetch(request)
        if in_flight is None or robots_fetch is None:
            return None
        cause = exception.__cause__
        if isinstance(cause, TooLarge) and cause.exchange is not None:
            cut = cause.exchange
            named = {name.lower(): value for name, value in cut.headers}
            if b"content-encoding" not in named:
                # RFC 9309, section 2.5: the part of a too large robots.txt that came first counts.
                location = _text(named.get(b"location"))
                self._answered(in_flight, robots_fetch, cut.status, cut.body, location)
                return request
        if isinstance(cause, AddressForbidden):
            self._warn(robots_fetch, cause)
        self._crawler.stats.inc_value("robotstxt/exception_count")
        if in_flight.blameless:
            self._job.robots_fetches.queue(robots_fetch)
            return request
        self._job.robots_fetches.failed(
            robots_fetch, final=in_flight.resting or is_final(exception)
        )
        return request

    def _answered(
        self,
        in_flight: InFlight,
        robots_fetch: RobotsFetch,
        status: int,
        body: bytes,
        location: str | None,
    ) -> None:
        clock, job = self._job.frontier.now, self._job
        begun = clock()
        mark = page_mark(job.frontier, in_flight)
        job.mark.during(mark, job.robots_fetches.answered, robots_fetch, status, body, location)
        self._scheduler().charge(in_flight, clock() - begun)

    def _warn(self, robots_fetch: RobotsFetch, cause: AddressForbidden) -> None:
        self._warned += 1
        if self._warned <= _WARNINGS:
            logger.warning(
                "%s stays queued and is not fetched: %s. %s",
                robots_fetch.host.name,
                cause,
                cause.remedy,
            )

    def _robots_fetch(self, request: Request) -> tuple[InFlight | None, RobotsFetch | None]:
        in_flight = self._scheduler().in_flight(request)
        return in_flight, in_flight.robots_fetch if in_flight else None

    def _scheduler(self) -> Scheduler:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", errors="replace")
