"""Downloader middleware: read the answers to robots.txt errands; pages never come here undecided."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import AddressForbidden, TooLarge
from krowlspider.handler import is_final
from krowlspider.job import Job
from krowlspider.processing import page_mark
from krowlspider.scheduler import Scheduler

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.frontier.robots import Errand
    from krowlspider.scheduler import Transit


logger = logging.getLogger(__name__)

# Hosts at a forbidden address that are named; the rest is counted.
_WARNINGS = 5


class RobotsMiddleware:
    """Hands what came, or did not come, of a robots.txt to the gate, and ends the request there.

    It ends by going back to the scheduler, which knows that it is over: a tenth of what an exception costs on its way
    through Scrapy's scraper.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)
        self._warned = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Request | Response:
        transit, errand = self._errand(request)
        if transit is None or errand is None:
            return response
        self._crawler.stats.inc_value("robotstxt/response_count")
        self._crawler.stats.inc_value(f"robotstxt/response_status_count/{response.status}")
        location = _text(response.headers.get(b"Location"))
        self._answered(transit, errand, response.status, response.body, location)
        return request

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        transit, errand = self._errand(request)
        if transit is None or errand is None:
            return None
        cause = exception.__cause__
        if isinstance(cause, TooLarge) and cause.exchange is not None:
            cut = cause.exchange
            named = {name.lower(): value for name, value in cut.headers}
            if b"content-encoding" not in named:
                # RFC 9309, section 2.5: what came first counts.
                location = _text(named.get(b"location"))
                self._answered(transit, errand, cut.status, cut.body, location)
                return request
        if isinstance(cause, AddressForbidden):
            self._warn(errand, cause)
        self._crawler.stats.inc_value("robotstxt/exception_count")
        if transit.blameless:
            transit.hold = self._job.robots.postponed(errand)
            return request
        transit.hold = self._job.robots.failed(errand, final=transit.resting or is_final(exception))
        return request

    def _answered(
        self, transit: Transit, errand: Errand, status: int, body: bytes, location: str | None
    ) -> None:
        clock, job = self._job.frontier.now, self._job
        begun = clock()
        mark = page_mark(job.frontier, transit)
        transit.hold = job.mark.during(mark, job.robots.answered, errand, status, body, location)
        self._scheduler().charge(transit, clock() - begun)

    def _warn(self, errand: Errand, cause: AddressForbidden) -> None:
        self._warned += 1
        if self._warned <= _WARNINGS:
            logger.warning(
                "%s stays queued and is not fetched: %s. %s", errand.host.name, cause, cause.remedy
            )

    def _errand(self, request: Request) -> tuple[Transit | None, Errand | None]:
        transit = self._scheduler().transit(request)
        return transit, transit.errand if transit else None

    def _scheduler(self) -> Scheduler:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", errors="replace")
