"""Charge each host with how its requests end: its rate, its wait, and its failures."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

from krowlspider.crawl.answers.decisions import (
    Charge,
    charge_of_answer,
    charge_of_failure,
    end_of_failure,
)
from krowlspider.crawl.answers.failures import (
    REFUSALS,
    Refusals,
    answer_to,
    failure_kind,
    is_answer,
    shows_no_https,
)
from krowlspider.crawl.answers.nothing_fetched import UNKNOWN_SEEDS
from krowlspider.crawl.answers.ways import PROXY_KINDS, Judgement
from krowlspider.crawl.in_flight import End
from krowlspider.fetch.errors import UNKNOWN_NAMES, AddressForbidden, ProxyFailed
from krowlspider.frontier.entry_queues import FELL_BACK, Answer
from krowlspider.politeness.delay import THROTTLING, longest_retry_after
from krowlspider.urls.host import authority_of
from krowlspider.urls.page.headers import value_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http.headers import Headers

    from krowlspider.crawl.answers.outages import Outages
    from krowlspider.crawl.answers.ways import Way
    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.politeness.delay import DelayPolicy

logger = logging.getLogger(__name__)

# Wait in seconds of a host that did not cause its failure. Name servers that did not answer are
# not asked sooner.
_AGAIN = 10.0
# A backoff of an address is logged if it lasts this many seconds or more.
_LONG_REST = 10.0


class HostFeedback:
    """Sets the wait of a host by its rate, and keeps the rate.

    ``wall`` returns epoch seconds, ``chance`` a random number from 0 to 1. ``count`` is called with
    the name of each stat to increment.
    """

    def __init__(
        self,
        frontier: Frontier,
        outages: Outages,
        rule: DelayPolicy,
        wall: Callable[[], float],
        count: Callable[[str], None],
        *,
        chance: Callable[[], float],
    ):
        self._addresses = frontier.schedule.shares.addresses
        self._queues = frontier.queues
        self._now = frontier.now
        self._outages = outages
        self._rule = rule
        self._wall = wall
        self._chance = chance
        self._count = count
        self._refusals = Refusals(time.monotonic)

    def answered(
        self, in_flight: InFlight, status: int, latency: float, headers: Headers, proxy: str
    ) -> None:
        """Record an answer. ``latency`` is in seconds; ``proxy`` is its URL, or empty."""
        self._outages.answered(in_flight.host, proxy)
        if (lease := in_flight.lease) is not None:
            location = value_of(headers, b"Location") if 300 <= status < 400 else None
            media_type = value_of(headers, b"Content-Type")
            lease.answer = Answer.of(status, media_type, location, in_flight.received, latency)
        is_robots = in_flight.robots_fetch is not None
        charge = charge_of_answer(status, is_robots=is_robots)
        if charge is Charge.THROTTLING:
            self._throttled(in_flight, status, latency, values_of(headers, b"Retry-After"))
        else:
            host = in_flight.host
            in_flight.must_wait(self._rule.of(host.name).after_answer(host.rate, latency))
            self._addresses.answered(host, latency)

    def failed(self, in_flight: InFlight, error: Exception, latency: float, way: Way) -> None:
        """Record a request without a usable answer, which went by ``way``."""
        self._count("downloader/exception_count")
        if isinstance(error, IgnoreRequest) and error.__cause__ is None:
            # A middleware refused the request: the host was not asked.
            return
        kind = failure_kind(error)
        entry = self._entry(in_flight)
        if kind in UNKNOWN_NAMES and entry is not None and entry.is_seed:
            self._count(UNKNOWN_SEEDS)
        excuse = self._excuse(in_flight.host, error, kind, way)
        end = end_of_failure(
            is_excused=excuse is not None,
            # The next page of its host may have a proxy that works.
            goes_last=kind in PROXY_KINDS and not way.is_own,
            may_fall_back=self._falls_back(in_flight, entry, error),
        )
        in_flight.fail(FELL_BACK if end is End.FELL_BACK else kind, end)
        if end is End.FELL_BACK:
            # The host has no https, which is no failure of it.
            return
        self._count(f"krowl/fetch/failed_count/{kind}")
        if excuse is not None:
            in_flight.must_wait(excuse)
            self._count("krowl/politeness/blameless_count")
        else:
            self._log_refusal(in_flight, error.__cause__)
            self._blame(in_flight, error, kind, latency)

    def _excuse(self, host: Host, error: Exception, kind: str, way: Way) -> float | None:
        """Return the seconds for which a host waits whose failure does not count; None if it
        counts."""
        if kind in PROXY_KINDS:
            judgement = self._outages.proxy_failed(kind, str(error), way)
            if judgement is Judgement.COUNT:
                return None
            # In an outage nothing is sent before its end, but for probes.
            return _AGAIN if judgement is Judgement.EXCUSE else 0.0
        if way.proxy and self._outages.doubted(host, kind, way):
            return 0.0
        has_head = answer_to(error) is not None
        return _AGAIN if self._outages.failed(host, kind, has_head=has_head) else None

    def _entry(self, in_flight: InFlight) -> Entry | None:
        """Return the entry of a page, or of the page that waits for a robots.txt; None if none
        does."""
        if in_flight.lease is not None:
            return in_flight.lease.entry
        if (lease := self._queues.pop(in_flight.host)) is None:
            return None
        self._queues.unpop(lease)
        return lease.entry

    def _falls_back(self, in_flight: InFlight, entry: Entry | None, error: Exception) -> bool:
        """Return whether a seed without a scheme goes on with http, after one try of https."""
        fetch = in_flight.robots_fetch
        return (
            entry is not None
            and entry.may_fall_back
            and (fetch is None or fetch.url == f"{authority_of(entry.url)}/robots.txt")
            and shows_no_https(error)
        )

    def _log_refusal(self, in_flight: InFlight, cause: BaseException | None) -> None:
        # RobotsAnswers logs a robots.txt at a forbidden address.
        is_logged = in_flight.robots_fetch is not None and isinstance(cause, AddressForbidden)
        if isinstance(cause, REFUSALS) and not is_logged:
            self._refusals.log(in_flight.host.name, in_flight.url, cause)

    def _blame(self, in_flight: InFlight, error: Exception, kind: str, latency: float) -> None:
        rate, rule = in_flight.host.rate, self._rule.of(in_flight.host.name)
        answer = answer_to(error)
        if answer is not None and in_flight.lease is not None:
            in_flight.lease.answer = Answer(
                answer.status, None, None, in_flight.received, answer.times.latency
            )
        charge = charge_of_failure(
            kind,
            None if answer is None else answer.status,
            is_refused=is_answer(error),
            is_of_proxy=isinstance(error.__cause__, ProxyFailed),
        )
        if charge is Charge.NOTHING:
            return
        if charge is Charge.THROTTLING:
            assert answer is not None
            retry_after = [
                value for name, value in answer.headers if name.lower() == b"retry-after"
            ]
            self._throttled(in_flight, answer.status, answer.times.latency, retry_after)
        elif charge is Charge.ANSWER:
            in_flight.must_wait(rule.after_answer(rate, latency))
        elif charge is Charge.NO_NAME:
            in_flight.must_wait(rule.after_no_such_name(rate, self._chance()))
        else:
            in_flight.must_wait(rule.after_error(rate, self._chance()))
        in_flight.fail(kind, defers=rule.resting(rate))
        if rule.parked(rate):
            self._count("krowl/politeness/parked_count")

    def _throttled(
        self, in_flight: InFlight, status: int, latency: float, retry_after: list[bytes]
    ) -> None:
        host, chance = in_flight.host, self._chance()
        asked = longest_retry_after(retry_after, self._wall())
        rule = self._rule.of(host.name)
        in_flight.must_wait(rule.after_throttling(host.rate, latency, asked, chance))
        self._count("krowl/politeness/throttling_count")
        if status not in THROTTLING:
            return
        # The address backs off after three hosts there in a row were throttled.
        rest = self._addresses.refused(host, asked, self._now(), chance)
        if rest:
            self._count("krowl/politeness/address_rested_count")
        if rest >= _LONG_REST:
            logger.info(
                "Address %s rests for %.0f s: three hosts there in a row answered 429 or 503, the"
                " last of them %s",
                host.shares.address[1:],
                rest,
                host.name,
            )
