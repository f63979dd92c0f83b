"""Decide what an answer or a failure means for its host and for its page.

`HostFeedback` keeps the rate of the host. `krowlspider.job.flights.Flights.settle` applies the
wait and the end of the request.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from scrapy.exceptions import IgnoreRequest

from krowlspider.fetch import errors
from krowlspider.fetch.errors import UNKNOWN_NAMES, AddressForbidden, NameNotFound, ProxyFailed
from krowlspider.frontier.entry_queues import FELL_BACK, NOT_MODIFIED, LastAnswer
from krowlspider.frontier.robots.gate import Verdict
from krowlspider.job.answers.outages import PROXY_KINDS, Judgement, Outages, Way
from krowlspider.job.answers.retries import (
    REFUSALS,
    Refusals,
    answer_to,
    failure_kind,
    is_answer,
    shows_no_https,
)
from krowlspider.job.in_flight import End, InFlight
from krowlspider.politeness.delay import (
    PAYMENT_REQUIRED,
    THROTTLING,
    DelayPolicy,
    longest_retry_after,
)
from krowlspider.politeness.gemini import REDIRECTS
from krowlspider.politeness.robots import Ruling, judge
from krowlspider.urls.canonical import authority_of
from krowlspider.urls.page.headers import price_in, terms_in, value_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy.http.headers import Headers

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.politeness.silence import SilentServers


class WaitCause(Enum):
    """For what a host waits after a request."""

    ANSWER = "an ordinary answer"
    THROTTLING = "throttling"
    PRICE = "a price"
    ERROR = "an error"
    NO_NAME = "an unknown name"
    NOTHING = "nothing"


def cause_of_answer(status: int, *, is_robots: bool) -> WaitCause:
    """Return for what the host waits after an answer.

    All pages of a host wait for its robots.txt, so an answer after which robots.txt is fetched
    again counts as throttling.
    """
    if is_robots:
        return WaitCause.THROTTLING if judge(status) is Ruling.RETRY else WaitCause.ANSWER
    if status == PAYMENT_REQUIRED:
        return WaitCause.PRICE
    if status in THROTTLING:
        return WaitCause.THROTTLING
    return WaitCause.ANSWER


def cause_of_failure(
    kind: str, status: int | None, *, is_refused: bool, is_of_proxy: bool
) -> WaitCause:
    """Return for what the host waits after a failure that is not excused.

    ``status`` is that of an answer whose body could not be read, None without one. ``is_refused``:
    the host answered, and the crawler refused the answer. ``is_of_proxy``: the proxy has failed.
    """
    if status in THROTTLING:
        return WaitCause.THROTTLING
    if is_refused:
        return WaitCause.ANSWER
    if is_of_proxy:
        # It is no failure of the host, which waits for its usual delay.
        return WaitCause.NOTHING
    return WaitCause.NO_NAME if kind == NameNotFound.kind else WaitCause.ERROR


def end_of_failure(*, is_excused: bool, goes_last: bool, may_fall_back: bool) -> End:
    """Return how a request has ended that has failed.

    ``goes_last``: the way that its page chose has failed, and the next page of its host may have
    another one. ``may_fall_back``: its page is a seed without a scheme, and its host has no https.
    """
    if is_excused:
        return End.EXCUSED_LAST if goes_last else End.EXCUSED
    return End.FELL_BACK if may_fall_back else End.FAILED


# Causes that are named, the largest first.
_NAMED = 3
_FAILED = "krowl/fetch/failed_count/"
# Pages that count as fetched: the host answered and the crawler refused the answer, or a middleware
# refused the request.
_ANSWERED = (errors.TooLarge.kind, errors.DecodeFailed.kind, "stopped", "ignored")


class _Cause(NamedTuple):
    text: str
    way_out: str


_SEED_NAME = _Cause("unknown name", "Check the spelling of the seeds.")
_LINKED_NAME = _Cause(
    "unknown name in a link",
    "Pages named these hosts, no seed: if they exist, check the name servers of this machine.",
)
_DNS = _Cause(
    "no answer of the DNS", "Check the name servers of this machine, or set KROWL_DNS_SERVERS."
)
_ADDRESS = _Cause("address not public", errors.AddressForbidden.remedy)
_PORT = _Cause("port not allowed", errors.PortForbidden.remedy)
_CONNECTION = _Cause(
    "connection failed", "Check that the hosts are up and that this machine can reach them."
)
_PROXY = _Cause("proxy failed", "Check the URL and the credentials of the proxy, and that it runs.")
_LATER = _Cause("answers 429, 503 or, for robots.txt, 5xx", "Start the crawl again later.")
_ROBOTS = _Cause("forbidden by robots.txt", "Choose seeds that robots.txt allows.")
_SLOW = _Cause("Crawl-delay too long", "See KROWL_CRAWL_DELAY_MAX.")
_DEFERRED = _Cause(
    "URLs left on hosts that do not answer",
    "They are tried again within a day: scrapy frontier JOBDIR --host NAME says when. Start the"
    " crawl again then.",
)
_OTHER = _Cause("other failures", "The summary lists the failures by kind.")
_EXCLUDED = _Cause("excluded", "Change the file of KROWL_EXCLUDE, or the seeds.")
_LENGTH = _Cause("URL too long", "See URLLENGTH_LIMIT.")
_REFUSED = _Cause("refused for other reasons", "The summary lists the dropped URLs by reason.")

_OF_KIND = {
    **dict.fromkeys(errors.UNKNOWN_NAMES, _LINKED_NAME),
    errors.NameFailed.kind: _DNS,
    errors.NameServerFailed.kind: _DNS,
    errors.NameTimeout.kind: _DNS,
    errors.NameServersDown.kind: _DNS,
    errors.AddressForbidden.kind: _ADDRESS,
    errors.PortForbidden.kind: _PORT,
    errors.NetworkDown.kind: _CONNECTION,
    errors.ConnectRefused.kind: _CONNECTION,
    errors.ConnectTimeout.kind: _CONNECTION,
    errors.ConnectFailed.kind: _CONNECTION,
    errors.TLSFailed.kind: _CONNECTION,
    errors.ProxyFailed.kind: _PROXY,
    errors.ProxyInvalid.kind: _PROXY,
    errors.ProxyDenied.kind: _PROXY,
    errors.ProxyRefused.kind: _PROXY,
    errors.ProxyClosed.kind: _PROXY,
    errors.TargetUnreached.kind: _CONNECTION,
    errors.FirstByteTimeout.kind: _CONNECTION,
    errors.TotalTimeout.kind: _CONNECTION,
    errors.ConnectionLost.kind: _CONNECTION,
    errors.ConnectionReset.kind: _CONNECTION,
    errors.NoCloseNotify.kind: _CONNECTION,
}
_OF_VERDICT = {
    Verdict.DISALLOWED: _ROBOTS,
    Verdict.UNDECIDED: _ROBOTS,
    Verdict.TOO_SLOW: _SLOW,
}
_OF_REFUSAL = {"exclude": _EXCLUDED, "length": _LENGTH, "port": _PORT}
# The stat that counts failed look-ups of seeds.
UNKNOWN_SEEDS = "krowl/fetch/unknown_seed_count"
_DROPPED = "dropped/"
# Without these stats, the spider has made nothing.
_MADE = ("downloader/request_count", "item_scraped_count")
_NO_REQUEST = (
    "the spider made no request. Give it start_urls, or a start() that yields requests: Scrapy no"
    " longer calls start_requests()"
)


def why_nothing_was_fetched(
    frontier: Frontier, counted: Counter[str], stats: Mapping[str, int], *, alone: bool
) -> str:
    """Return the causes with their counts and the way out; "" if a page was fetched, or none was
    left to fetch.

    ``counted`` is what the frontier has counted since the start; ``stats`` are the crawl's.
    ``alone``: no node of a cluster may have sent URLs.
    """
    is_asked = counted["done"] or counted[f"done/{NOT_MODIFIED}"]
    if is_asked or any(counted[f"dropped/{reason}"] for reason in _ANSWERED):
        return ""
    causes = _causes(counted, stats)
    if not causes and frontier.deferred_queued:
        causes[_DEFERRED] = frontier.deferred_queued
    if not causes and not (frontier.counters["queued"] or frontier.counters["foreign"]):
        causes = _refusals(counted)
        is_new = not any(counted.values()) and not len(frontier.seen)
        if not causes and alone and is_new and not any(stats.get(name) for name in _MADE):
            return _NO_REQUEST
    if not causes:
        return ""
    largest = causes.most_common(_NAMED)
    listing = ", ".join(f"{cause.text}: {count:,}" for cause, count in largest)
    return f"{listing}. {largest[0][0].way_out}"


def _causes(counted: Counter[str], stats: Mapping[str, int]) -> Counter[_Cause]:
    """Return the failed fetches, with those of robots.txt, and the URLs that robots.txt refused."""
    found: Counter[_Cause] = Counter()
    for name, count in stats.items():
        if name.startswith(_FAILED):
            found[_OF_KIND.get(name.removeprefix(_FAILED), _OTHER)] += count
    seeds = stats.get(UNKNOWN_SEEDS, 0)
    found[_SEED_NAME] += seeds
    found[_LINKED_NAME] -= seeds
    found[_LATER] = stats.get("krowl/politeness/throttling_count", 0)
    for verdict, cause in _OF_VERDICT.items():
        found[cause] += counted[f"dropped/{verdict.value}"]
    return +found


def _refusals(counted: Counter[str]) -> Counter[_Cause]:
    """Return the URLs that were not queued, of a crawl that has never queued any: its seeds."""
    found: Counter[_Cause] = Counter()
    for name, count in counted.items():
        if name.startswith(_DROPPED):
            found[_OF_REFUSAL.get(name.removeprefix(_DROPPED), _REFUSED)] += count
    return found


logger = logging.getLogger(__name__)

# Wait in seconds of a host that did not cause its failure. Name servers that did not answer are
# not asked sooner.
_AGAIN = 10.0
# A backoff of an address is logged if it lasts this many seconds or more.
_LONG_REST = 10.0


class HostFeedback:
    """Sets the wait of a host by its rate, and keeps the rate.

    ``wall`` returns epoch seconds, ``chance`` a random number from 0 to 1. ``count`` is called with
    the name of each stat to increment. ``silent`` has the servers that make no connection.
    """

    def __init__(
        self,
        frontier: Frontier,
        outages: Outages,
        rule: DelayPolicy,
        wall: Callable[[], float],
        count: Callable[[str], None],
        *,
        silent: SilentServers,
        chance: Callable[[], float],
    ):
        self._addresses = frontier.schedule.shares.addresses
        self._queues = frontier.queues
        self._outcomes = frontier.outcomes
        self._header_terms = frontier.header_terms
        self._now = frontier.now
        self._outages = outages
        self._rule = rule
        self._silent = silent
        self._wall = wall
        self._chance = chance
        self._count = count
        self._refusals = Refusals(time.monotonic)

    def answered(
        self, in_flight: InFlight, status: int, latency: float, headers: Headers, proxy: str
    ) -> None:
        """Record an answer. ``latency`` is in seconds; ``proxy`` is its URL, or empty."""
        self._outages.answered(in_flight.host, proxy)
        if self._silent.are_counted:
            self._silent.connected(authority_of(in_flight.url))
        if (lease := in_flight.lease) is not None:
            is_redirect = 300 <= status < 400 or status in REDIRECTS
            location = value_of(headers, b"Location") if is_redirect else None
            media_type = value_of(headers, b"Content-Type")
            lease.answer = LastAnswer.of(status, media_type, location, in_flight.received, latency)
            if terms := terms_in(headers):
                self._header_terms.note(in_flight.host.name, terms, in_flight.url)
        is_robots = in_flight.robots_fetch is not None
        cause = cause_of_answer(status, is_robots=is_robots)
        if cause is WaitCause.THROTTLING:
            self._throttled(in_flight, status, latency, values_of(headers, b"Retry-After"))
        elif cause is WaitCause.PRICE:
            self._priced(in_flight, price_in(headers))
        else:
            host = in_flight.host
            in_flight.must_wait(self._rule.of(host.name).after_answer(host.rate, latency))
            self._addresses.answered(host, latency)

    def _priced(self, in_flight: InFlight, price: str) -> None:
        """Note the price of a page. A host with nothing else for us is put off as one that does not
        answer: for minutes after five such answers in a row, for a day after ten."""
        host = in_flight.host
        rule = self._rule.of(host.name)
        in_flight.must_wait(rule.after_error(host.rate, self._chance()))
        if rule.resting(host.rate):
            in_flight.put_off()
        if rule.parked(host.rate):
            self._count("krowl/politeness/parked_count")
        self._count("krowl/prices/asked_count")
        self._outcomes.priced(host.name, price)

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
        outages = self._outages.begun
        excuse = self._excuse(in_flight.host, error, kind, way)
        if self._outages.begun > outages:
            self._silent.forget()
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
            in_flight.lease.answer = LastAnswer(
                answer.status, None, None, in_flight.received, answer.times.latency
            )
        cause = cause_of_failure(
            kind,
            None if answer is None else answer.status,
            is_refused=is_answer(error),
            is_of_proxy=isinstance(error.__cause__, ProxyFailed),
        )
        if cause is WaitCause.NOTHING:
            return
        if cause is WaitCause.THROTTLING:
            assert answer is not None
            retry_after = [
                value for name, value in answer.headers if name.lower() == b"retry-after"
            ]
            self._throttled(in_flight, answer.status, answer.times.latency, retry_after)
        elif cause is WaitCause.ANSWER:
            in_flight.must_wait(rule.after_answer(rate, latency))
        elif cause is WaitCause.NO_NAME:
            in_flight.must_wait(rule.after_no_such_name(rate, self._chance()))
        else:
            in_flight.must_wait(rule.after_error(rate, self._chance()))
        authority = authority_of(in_flight.url)
        if kind != errors.ConnectTimeout.kind:
            self._silent.connected(authority)
        elif rate.ema > 0.0:
            self._silent.timed_out(authority, in_flight.host.name, self._now())
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
