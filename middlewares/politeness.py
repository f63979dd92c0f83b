"""Downloader middleware: update a host's rate from each answer, and set its wait."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.answers.host_feedback import HostFeedback
from krowlspider.job.answers.outages import Way
from krowlspider.job.crawls import job_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.job.flights import Flights


class PolitenessMiddleware:
    """Sets the wait of a host by the moving average of its latency, Retry-After and backoff.

    The frontier enforces this wait when it pops a URL.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        job, count = job_of(crawler), crawler.stats.inc_value
        self._feedback = HostFeedback(
            job.frontier,
            job.outages,
            job.rule,
            job.wall,
            count,
            silent=job.silent_servers,
            chance=job.chance,
        )

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @cached_property
    def _flights(self) -> Flights:
        return Scheduler.of(self._crawler).flights

    async def process_response(self, request: Request, response: Response) -> Response:
        in_flight = self._flights.get(request)
        latency = request.meta.get("download_latency")
        # Without a latency, another middleware made this response: the host was not asked.
        if in_flight is not None and latency is not None:
            proxy = request.meta.get("proxy") or ""
            self._feedback.answered(in_flight, response.status, latency, response.headers, proxy)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        in_flight = self._flights.get(request)
        if in_flight is not None:
            latency = request.meta.get("download_latency", 0.0)
            self._feedback.failed(in_flight, exception, latency, Way.of(request.meta))
