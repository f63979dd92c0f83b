"""Downloader middleware: learn a host's pace from each answer, and how long it is to be left alone."""

from __future__ import annotations

import logging
import time
from random import random
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

from krowlspider.fetch.errors import NameNotFound
from krowlspider.handler import answer_to, failure_kind, is_answer
from krowlspider.job import Job
from krowlspider.politeness.pace import DISTRESS, parse_retry_after
from krowlspider.scheduler import Scheduler, Transit

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)

# Seconds until a host is tried again that was not to blame: name servers that did not answer are asked no sooner.
_AGAIN = 10.0
# Seconds of rest of an address that are told.
_TELL = 10.0


class PolitenessMiddleware:
    """Adaptive delay by a moving average of the latency, Retry-After and backoff.

    It only finds the wait; the frontier enforces it at the pop.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)
        self._rule = self._job.rule

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
            self._job.outages.answered(transit.host)
            # A robots.txt that fails says as much: all pages wait for it.
            failing = transit.errand is not None and response.status >= 500
            if response.status in DISTRESS or failing:
                asked, chance = _retry_after(response), random()
                transit.wait = self._rule.after_distress(pace, latency, asked, chance)
                if response.status in DISTRESS:
                    self._refused(transit, asked, chance)
                self._crawler.stats.inc_value("krowl/politeness/distress_count")
            else:
                transit.wait = self._rule.after_answer(pace, latency)
                self._job.frontier.answered_at_address(transit.host, latency)
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
        has_head = answer_to(exception) is not None
        if self._job.outages.failed(transit.host, kind, has_head=has_head):
            transit.blameless = True
            transit.wait = _AGAIN
            self._crawler.stats.inc_value("krowl/politeness/blameless_count")
        else:
            self._blame(transit, request, exception, kind)

    def _blame(self, transit: Transit, request: Request, exception: Exception, kind: str) -> None:
        pace = transit.host.pace
        answer = answer_to(exception)
        if answer is not None and answer.status in DISTRESS:
            # It says so whatever its body is.
            asked = next((v for k, v in answer.headers if k.lower() == b"retry-after"), None)
            wanted, chance = _seconds(asked), random()
            transit.wait = self._rule.after_distress(pace, answer.latency, wanted, chance)
            self._refused(transit, wanted, chance)
            self._crawler.stats.inc_value("krowl/politeness/distress_count")
        elif is_answer(exception):
            transit.wait = self._rule.after_answer(pace, request.meta.get("download_latency", 0.0))
        elif kind == NameNotFound.kind:
            transit.wait = self._rule.after_no_such_name(pace, random())
        else:
            transit.wait = self._rule.after_error(pace, random())
        transit.resting = self._rule.resting(pace)
        if self._rule.parked(pace):
            self._crawler.stats.inc_value("krowl/politeness/parked_count")

    def _refused(self, transit: Transit, asked: float | None, chance: float) -> None:
        """Its address may be told by it, and by others there, to rest."""
        host = transit.host
        rest = self._job.frontier.refused_at_address(host, asked, chance)
        if rest:
            self._crawler.stats.inc_value("krowl/politeness/address_rested_count")
        if rest >= _TELL:
            logger.info(
                "Address %s rests for %.0f s: three hosts there in a row answered 429 or 503, the"
                " last of them %s",
                host.address[1:],
                rest,
                host.name,
            )

    def _transit(self, request: Request) -> Transit | None:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler.transit(request)


def _retry_after(response: Response) -> float | None:
    return _seconds(response.headers.get(b"Retry-After"))


def _seconds(value: bytes | None) -> float | None:
    return None if value is None else parse_retry_after(value.decode("latin-1"), time.time())
