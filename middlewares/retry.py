"""Downloader middleware: failed pages go back to their host, to be tried again later, a limited number of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.misc import load_object

from krowlspider.fetch.errors import NameNotFound
from krowlspider.handler import answer_to, failure_kind, is_answer, is_final
from krowlspider.politeness.pace import DISTRESS
from krowlspider.scheduler import Scheduler

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class RetryMiddleware:
    """Gives a request back to the scheduler with one more try counted.

    429 and 503 have a limit of their own (KROWL_DISTRESS_TIMES): they say nothing against the page. ``dont_retry``
    and ``max_retry_times`` in a request's meta are honoured as in Scrapy.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        settings = crawler.settings
        self._times = settings.getint("RETRY_TIMES")
        self._distress_times = settings.getint("KROWL_DISTRESS_TIMES")
        self._codes = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self._errors = tuple(
            load_object(name) if isinstance(name, str) else name
            for name in settings.getlist("RETRY_EXCEPTIONS")
        )

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Request | Response:
        if response.status in DISTRESS:
            if self._again(request, "distress_times", self._distress_times, str(response.status)):
                return request
            self._set_failure(request, "distress")
        elif response.status in self._codes:
            limit = request.meta.get("max_retry_times", self._times)
            if self._again(request, "retry_times", limit, str(response.status)):
                return request
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        scheduler = self._scheduler()
        transit = scheduler.transit(request)
        if transit is not None and transit.lease is not None and transit.blameless:
            scheduler.unpop(transit)
            return request
        answer = answer_to(exception)
        if answer is not None and answer.status in DISTRESS:
            if self._again(request, "distress_times", self._distress_times, str(answer.status)):
                return request
            return None
        if not isinstance(exception, self._errors):
            return None
        limit = request.meta.get("max_retry_times", self._times)
        # A name that does not exist has parked its host, which is tried again.
        final = is_final(exception) and not isinstance(exception.__cause__, NameNotFound)
        if not final and self._again(request, "retry_times", limit, failure_kind(exception)):
            return request
        if is_answer(exception):
            return None
        if transit is not None and transit.lease is not None and transit.lease.entry.bare:
            scheduler.fall_back(transit.lease.entry)
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
        transit = self._scheduler().transit(request)
        if transit is not None:
            transit.failure = reason

    def _scheduler(self) -> Scheduler:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler
