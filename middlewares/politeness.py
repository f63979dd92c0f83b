"""Downloader middleware: update a host's rate from each answer, and set its wait."""

from __future__ import annotations

import logging
import time
from random import random
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

from krowlspider.crawl.job import Job
from krowlspider.crawl.refusals import REFUSALS, Refusals
from krowlspider.engine.handler import answer_to, failure_kind, is_answer
from krowlspider.engine.scheduler import Scheduler
from krowlspider.fetch.errors import AddressForbidden, NameNotFound
from krowlspider.politeness.delay import THROTTLING, parse_retry_after

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.crawl.in_flight import InFlight

logger = logging.getLogger(__name__)

# Wait in seconds of a host that did not cause its failure. Name servers that did not answer are
# not asked sooner.
_AGAIN = 10.0
# A backoff of an address is logged if it lasts this many seconds or more.
_TELL = 10.0


class PolitenessMiddleware:
    """Sets the wait of a host by the moving average of its latency, Retry-After and backoff.

    The frontier enforces this wait when it pops a URL.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)
        self._rule = self._job.rule
        self._refusals = Refusals(time.monotonic)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        if (in_flight := self._in_flight(request)) is not None:
            rate = in_flight.host.rate
            latency = request.meta.get("download_latency")
            if latency is None:
                # Another middleware made this response: the host was not asked.
                return response
            self._job.outages.answered(in_flight.host)
            # All pages of a host wait for its robots.txt, so a 5xx for it counts as throttling.
            failing = in_flight.robots_fetch is not None and response.status >= 500
            if response.status in THROTTLING or failing:
                asked, chance = self._retry_after(response), random()
                in_flight.wait = self._rule.after_throttling(rate, latency, asked, chance)
                if response.status in THROTTLING:
                    self._refused(in_flight, asked, chance)
                self._crawler.stats.inc_value("krowl/politeness/throttling_count")
            else:
                in_flight.wait = self._rule.after_answer(rate, latency)
                self._job.frontier.answered_at_address(in_flight.host, latency)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        in_flight = self._in_flight(request)
        if in_flight is None:
            return
        kind = failure_kind(exception)
        self._crawler.stats.inc_value("downloader/exception_count")
        if isinstance(exception, IgnoreRequest) and exception.__cause__ is None:
            return
        in_flight.failure = kind
        self._crawler.stats.inc_value(f"krowl/fetch/failed_count/{kind}")
        has_head = answer_to(exception) is not None
        if self._job.outages.failed(in_flight.host, kind, has_head=has_head):
            in_flight.blameless = True
            in_flight.wait = _AGAIN
            self._crawler.stats.inc_value("krowl/politeness/blameless_count")
        else:
            self._name(in_flight, exception.__cause__)
            self._blame(in_flight, request, exception, kind)

    def _name(self, in_flight: InFlight, cause: BaseException | None) -> None:
        # RobotsMiddleware logs a robots.txt at a forbidden address.
        told = in_flight.robots_fetch is not None and isinstance(cause, AddressForbidden)
        if isinstance(cause, REFUSALS) and not told:
            self._refusals.tell(in_flight.host.name, in_flight.url, cause)

    def _blame(
        self, in_flight: InFlight, request: Request, exception: Exception, kind: str
    ) -> None:
        rate = in_flight.host.rate
        answer = answer_to(exception)
        if answer is not None and answer.status in THROTTLING:
            # The status is throttling, although the body could not be read.
            asked = next((v for k, v in answer.headers if k.lower() == b"retry-after"), None)
            wanted, chance = self._seconds(asked), random()
            in_flight.wait = self._rule.after_throttling(rate, answer.times.latency, wanted, chance)
            self._refused(in_flight, wanted, chance)
            self._crawler.stats.inc_value("krowl/politeness/throttling_count")
        elif is_answer(exception):
            in_flight.wait = self._rule.after_answer(
                rate, request.meta.get("download_latency", 0.0)
            )
        elif kind == NameNotFound.kind:
            in_flight.wait = self._rule.after_no_such_name(rate, random())
        else:
            in_flight.wait = self._rule.after_error(rate, random())
        in_flight.resting = self._rule.resting(rate)
        if self._rule.parked(rate):
            self._crawler.stats.inc_value("krowl/politeness/parked_count")

    def _refused(self, in_flight: InFlight, asked: float | None, chance: float) -> None:
        """Count a throttling answer for the host's address, and log a long backoff of it.

        The address backs off after three hosts there in a row were throttled.
        """
        host = in_flight.host
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

    def _in_flight(self, request: Request) -> InFlight | None:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler.in_flight(request)

    def _retry_after(self, response: Response) -> float | None:
        return self._seconds(response.headers.get(b"Retry-After"))

    def _seconds(self, value: bytes | None) -> float | None:
        if value is None:
            return None
        return parse_retry_after(value.decode("latin-1"), self._job.wall())
