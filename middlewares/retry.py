"""Downloader middleware: requeue a failed page, for a limited number of retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.misc import load_object

from krowlspider.engine.handler import answer_to, failure_kind, is_answer, is_final
from krowlspider.engine.scheduler import Scheduler
from krowlspider.fetch.errors import NameNotFound
from krowlspider.politeness.delay import THROTTLING

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class RetryMiddleware:
    """Returns a failed request to the scheduler and counts one more retry.

    429 and 503 have their own limit, KROWL_THROTTLING_TIMES, because the page is not their cause.
    ``dont_retry`` in a request's meta is honoured as in Scrapy. So is ``max_retry_times``, except
    for 429 and 503.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        settings = crawler.settings
        self._times = settings.getint("RETRY_TIMES")
        self._throttling_times = settings.getint("KROWL_THROTTLING_TIMES")
        self._codes = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self._errors = tuple(
            load_object(name) if isinstance(name, str) else name
            for name in settings.getlist("RETRY_EXCEPTIONS")
        )

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Request | Response:
        if response.status in THROTTLING:
            if self._again(request, "distress_times", self._throttling_times, str(response.status)):
                return request
            self._set_failure(request, "throttled")
        elif response.status in self._codes:
            limit = request.meta.get("max_retry_times", self._times)
            if self._again(request, "retry_times", limit, str(response.status)):
                return request
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        scheduler = self._scheduler()
        in_flight = scheduler.in_flight(request)
        if in_flight is not None and in_flight.lease is not None and in_flight.blameless:
            scheduler.unpop(in_flight)
            return request
        answer = answer_to(exception)
        if answer is not None and answer.status in THROTTLING:
            if self._again(request, "distress_times", self._throttling_times, str(answer.status)):
                return request
            return None
        if not isinstance(exception, self._errors):
            return None
        limit = request.meta.get("max_retry_times", self._times)
        # A name that does not exist parks its host, so the page is retried later.
        final = is_final(exception) and not isinstance(exception.__cause__, NameNotFound)
        if not final and self._again(request, "retry_times", limit, failure_kind(exception)):
            return request
        if is_answer(exception):
            return None
        if in_flight is not None and in_flight.lease is not None and in_flight.lease.entry.bare:
            scheduler.intake.fall_back(in_flight.lease.entry)
        return None

    def _again(self, request: Request, counter: str, limit: int, reason: str) -> bool:
        times = request.meta.get(counter, 0) + 1
        if times > limit or request.meta.get("dont_retry", False):
            self._crawler.stats.inc_value("retry/max_reached")
            return False
        request.meta[counter] = times
        self._crawler.stats.inc_value("retry/count")
        self._crawler.stats.inc_value(f"retry/reason_count/{reason}")
        return True

    def _set_failure(self, request: Request, reason: str) -> None:
        in_flight = self._scheduler().in_flight(request)
        if in_flight is not None:
            in_flight.failure = reason

    def _scheduler(self) -> Scheduler:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler
