"""Downloader middleware: learn a host's pace from each answer, and how long it is to be left alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

from krowlspider.handler import failure_kind, is_answer
from krowlspider.job import Job
from krowlspider.politeness.pace import DISTRESS, parse_retry_after
from krowlspider.scheduler import Scheduler, Transit

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class PolitenessMiddleware:
    """Adaptive delay by a moving average of the latency, Retry-After and backoff.

    It only finds the wait; the frontier enforces it at the pop.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._rule = Job.of(crawler).rule

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        if (transit := self._transit(request)) is not None:
            pace = transit.host.pace
            latency = request.meta.get("download_latency")
            if latency is None:
                # Another middleware made it up: the host was not asked.
                return response
            # A robots.txt that fails says as much: all pages wait for it.
            failing = transit.errand is not None and response.status >= 500
            if response.status in DISTRESS or failing:
                transit.wait = self._rule.after_distress(pace, latency, _retry_after(response))
                self._crawler.stats.inc_value("krowl/politeness/distress_count")
            else:
                transit.wait = self._rule.after_answer(pace, latency)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        transit = self._transit(request)
        if transit is None:
            return
        kind = failure_kind(exception)
        self._crawler.stats.inc_value("downloader/exception_count")
        if isinstance(exception, IgnoreRequest) and exception.__cause__ is None:
            return
        transit.failure = kind
        self._crawler.stats.inc_value(f"krowl/fetch/failed_count/{kind}")
        pace = transit.host.pace
        if is_answer(exception):
            transit.wait = self._rule.after_answer(pace, request.meta.get("download_latency", 0.0))
        else:
            transit.wait = self._rule.after_error(pace)

    def _transit(self, request: Request) -> Transit | None:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler.transit(request)


def _retry_after(response: Response) -> float | None:
    value = response.headers.get(b"Retry-After")
    return None if value is None else parse_retry_after(value.decode("latin-1"), time.time())
