"""Compute how long to wait before the next request to a host.

The delay is a moving average of the host's latencies times a factor. It is at least what the host's
robots.txt asks for; a host that asks for more than the cap is retired elsewhere. Throttling (429,
503) doubles it; ten ordinary answers in a row halve it again. A host with transport errors waits
for seconds, then for minutes, then for a day at a time. It is never given up.

Retry-After is read by RFC 9110, section 10.2.3, and as servers send it in place of that. No value
that names a time yields a shorter wait than it says; `RETRY_AFTER_MAX` bounds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import orders_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

# Statuses by which a host asks for fewer requests (RFC 6585, section 4; RFC 9110, section 15.6.4;
# "slow down" of Gemini).
THROTTLING = frozenset({429, 503, 44})
# A host asks for a payment (RFC 9110, section 15.5.3). None is ever made.
PAYMENT_REQUIRED = 402
# Retries of a page after such an answer, each later. The page is not their cause.
THROTTLING_TIMES = 10
# Seconds. A longer Retry-After counts as this, like the longest backoff.
RETRY_AFTER_MAX = 3600.0
# Weight of the newest latency in the average: the last six make up 90 %.
ALPHA = 0.3
# The most doublings: 0.25 s × 2^12 is 17 minutes.
THROTTLING_MAX = 12
# Ordinary answers in a row that halve the backoff. Halving after each would restore within
# seconds the rate that the host throttled.
GOOD_ANSWERS = 10
# Longest backoff in seconds for throttling or errors, before a host is parked.
BACKOFF_MAX = 3600.0
# From this many transport errors in a row, a host backs off for 2, 4, 8 ... minutes. From the
# second to the fourth it backs off for 2, 4 and 8 seconds.
ERRORS_BACKOFF = 5
# Transport errors in a row after which a host is parked: a longer backoff would change nothing.
ERRORS_PARK = 10
PARKED = 86_400.0
# The bit of `HostRate.has_no_name`.
_NO_NAME = 1 << 15
# Largest random extension of a backoff, as a share of it. Hosts of one server fail together, and
# must not all be retried together.
JITTER = 0.25
# The least average latency of a host that has answered, in seconds.
_LATENCY_MIN = 1e-6


@dataclass(slots=True, eq=False)
class HostRate:
    """The request rate data of one host.

    ``ema`` is the average latency in seconds, 0 before the first answer. ``floor`` is the
    crawl-delay of its robots.txt in seconds. ``good_answers`` counts the ordinary answers since the
    last throttling or halving. ``throttling`` counts the doublings in force, ``errors`` the
    transport errors in a row. ``has_no_name``: the DNS did not know its name since the last answer.
    """

    ema: float = 0.0
    floor: float = 0.0
    good_answers: int = 0
    throttling: int = 0
    errors: int = 0
    has_no_name: bool = False

    @classmethod
    def restored(
        cls, ema: float, floor: float, good_answers: int, throttling: int, errors: int
    ) -> Self:
        """Return the rate with these numbers, ``errors`` being `saved_errors`."""
        has_no_name = errors >= _NO_NAME
        return cls(
            ema, floor, good_answers, throttling, errors - _NO_NAME * has_no_name, has_no_name
        )

    @property
    def saved_errors(self) -> int:
        """Errors and ``has_no_name`` as one number of 16 bits."""
        return min(self.errors, _NO_NAME - 1) + _NO_NAME * self.has_no_name


@dataclass(slots=True)
class DelayPolicy:
    """Turns a HostRate into seconds of wait, counted from the end of a request.

    ``minimum`` and ``maximum`` bound ``factor`` times the average latency. ``crawl_delay_max`` caps
    the delay of a robots.txt until the host is retired for it, ``retry_after_max`` that of a
    Retry-After. All are in seconds. ``minimum`` holds even if it is longer than ``maximum``.
    ``of_hosts`` has the policies of single hosts, by host, or by name for all ports of a name. A
    person may change a policy while the crawl runs.

    The methods that begin with ``after_`` update the rate and return the wait after the outcome of
    a request. ``latency`` is in seconds, ``chance`` a random number from 0 to 1.
    """

    factor: float
    minimum: float
    maximum: float
    crawl_delay_max: float
    retry_after_max: float = RETRY_AFTER_MAX
    of_hosts: dict[str, DelayPolicy] = field(default_factory=dict)

    def of(self, host: str) -> DelayPolicy:
        """Return the policy of a host."""
        if not self.of_hosts:
            return self
        found = (self.of_hosts.get(each) for each in orders_for(host))
        return next((policy for policy in found if policy is not None), self)

    @property
    def longest(self) -> float:
        """An upper bound in seconds of every `delay`, those of single hosts included."""
        own = max(self.minimum, self.maximum, self.crawl_delay_max, BACKOFF_MAX)
        return max([own, *(policy.longest for policy in self.of_hosts.values())])

    def delay(self, rate: HostRate) -> float:
        """Return the wait between two requests at the host's current rate."""
        wait = max(self.minimum, min(rate.ema * self.factor, self.maximum))
        if rate.floor > wait:
            wait = max(wait, min(rate.floor, self.crawl_delay_max))
        if not rate.throttling:
            return wait
        return max(wait, min(wait * 2.0**rate.throttling, BACKOFF_MAX))

    def after_answer(self, rate: HostRate, latency: float) -> float:
        self._answered(rate, latency)
        if rate.throttling:
            rate.good_answers += 1
            if rate.good_answers == GOOD_ANSWERS:
                rate.good_answers = 0
                rate.throttling -= 1
        return self.delay(rate)

    def after_throttling(
        self, rate: HostRate, latency: float, retry_after: float | None, chance: float
    ) -> float:
        """Return the wait after a 429 or 503, or a 5xx of a robots.txt.

        It is the longer of the new delay and ``retry_after`` seconds, and up to a quarter more.
        """
        self._answered(rate, latency)
        rate.good_answers = 0
        rate.throttling = min(rate.throttling + 1, THROTTLING_MAX)
        asked = min(retry_after or 0.0, self.retry_after_max)
        return max(self.delay(rate), asked) * (1 + JITTER * chance)

    def after_error(self, rate: HostRate, chance: float) -> float:
        """Return the wait after a transport error. The first in a row causes no backoff."""
        rate.errors += 1
        if self.parked(rate):
            return PARKED * (1 + JITTER * chance)
        return max(self.delay(rate), _backoff(rate.errors) * (1 + JITTER * chance))

    def after_no_such_name(self, rate: HostRate, chance: float) -> float:
        """Return the wait after NXDOMAIN: the host is parked."""
        rate.has_no_name = True
        return self.after_error(rate, chance)

    def resting(self, rate: HostRate) -> bool:
        """Return whether a host backs off for minutes or more. A crawl may end without it."""
        return rate.errors >= ERRORS_BACKOFF or rate.has_no_name

    def parked(self, rate: HostRate) -> bool:
        """Return whether a host is parked: out of the crawl but for one try a day."""
        return rate.errors >= ERRORS_PARK or rate.has_no_name

    def _answered(self, rate: HostRate, latency: float) -> None:
        rate.errors, rate.has_no_name = 0, False
        # Where the event loop was late, nothing may be left of a latency: 0 means no answer yet.
        latency = max(latency, _LATENCY_MIN)
        rate.ema = latency if rate.ema == 0.0 else rate.ema + ALPHA * (latency - rate.ema)


class SiteDelay(DelayPolicy):
    """The policy of a host whose least delay is one of its own."""


class SiteDelays(DelayPolicy):
    """A policy in which sites may have longer delays of their own.

    ``least_of`` returns the least delay of a host in seconds, 0 for none, and ``longest_least`` is
    the longest of them. They are no fields, because a crawl's folder keeps all fields.
    """

    # A copy by `dataclasses.replace` has none of either.
    least_of: Callable[[str], float] = staticmethod(lambda _: 0.0)
    longest_least = 0.0

    @classmethod
    def over(
        cls, policy: DelayPolicy, least_of: Callable[[str], float], longest_least: float
    ) -> Self:
        """Return the policy with the delays of sites, besides those that it has."""
        found = cls(**{each.name: getattr(policy, each.name) for each in fields(policy)})
        if isinstance(policy, SiteDelays):
            before = policy.least_of
            found.least_of = lambda host: max(before(host), least_of(host))
            found.longest_least = max(policy.longest_least, longest_least)
        else:
            found.least_of, found.longest_least = least_of, longest_least
        return found

    def of(self, host: str) -> DelayPolicy:
        policy, least = super().of(host), self.least_of(host)
        if least <= policy.minimum:
            return policy
        return SiteDelay(
            policy.factor,
            least,
            policy.maximum,
            policy.crawl_delay_max,
            policy.retry_after_max,
        )

    @property
    def longest(self) -> float:
        return max(super().longest, self.longest_least)


def _backoff(errors: int) -> float:
    """Return the backoff in seconds after ``errors`` transport errors in a row."""
    if errors < ERRORS_BACKOFF:
        return 2.0 ** (errors - 1) if errors > 1 else 0.0
    return min(60.0 * 2.0 ** (errors - ERRORS_BACKOFF + 1), BACKOFF_MAX)


def next_try(tries: int, first: float) -> float:
    """Return the seconds until a failed page is retried: ``first``, doubled with each further try.

    The wait is at most an hour.
    """
    return min(first * 2.0 ** min(tries - 1, THROTTLING_MAX), BACKOFF_MAX)


# A number, as the RFC has it or with a fraction or an exponent, and a unit: without one, seconds.
_NUMBER = r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:e[+-]?[0-9]++)?)[ \t]*+"
_UNIT = (
    r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)\.?"
)
_DURATION = re.compile(rf"{_NUMBER}(?:{_UNIT})?", re.IGNORECASE)
# "1 hour, 30 minutes" and "1h30m": parts of one duration.
_PARTS = re.compile(rf"(?:{_NUMBER}{_UNIT}(?:,|[ \t]|and\b)*+)+", re.IGNORECASE)
_PART = re.compile(_NUMBER + _UNIT, re.IGNORECASE)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BLANK = " \t\"'"
# RFC 9110, section 5.6.7, in all three forms; ISO 8601.
_DATES: tuple[Callable[[str], datetime], ...] = (parsedate_to_datetime, datetime.fromisoformat)


def longest_retry_after(values: Iterable[bytes], now: float) -> float | None:
    """Return the seconds that the headers of an answer ask for, the longest of several.

    Return None if there is no valid value. ``now`` is in epoch seconds.
    """
    asked = (parse_retry_after(value.decode("latin-1"), now) for value in values)
    return max((wait for wait in asked if wait is not None), default=None)


def parse_retry_after(value: str, now: float) -> float | None:
    """Return the seconds that one header asks for, 0.0 for a date that has passed.

    Return None if the value is invalid. It may be infinity: the caller caps it.
    """
    value = value.strip(_BLANK)
    if _PARTS.fullmatch(value):
        return sum(_seconds(*part) for part in _PART.findall(value))
    # Longer than the same digits as several values.
    value = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), value)
    durations = [_duration(part.strip(_BLANK)) for part in value.split(",")]
    known = [duration for duration in durations if duration is not None]
    if len(known) == len(durations):
        # One value, or several that a proxy has joined.
        return max(known)
    for read in _DATES:
        try:
            date = read(value)
        except (ValueError, OverflowError):
            continue
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now)
    return None


def _duration(text: str) -> float | None:
    found = _DURATION.fullmatch(text)
    return None if found is None else _seconds(found[1], found[2] or "s")


def _seconds(number: str, unit: str) -> float:
    unit = unit.lower()
    factor = 0.001 if unit.startswith(("ms", "mil")) else _SECONDS[unit[0]]
    # A number with more digits than a float holds is infinity.
    return max(0.0, float(number) * factor)
