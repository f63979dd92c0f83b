"""How long to wait before the next request to a host.

The delay follows the host: a moving average of its latencies times a factor, never under what its
robots.txt asks. Distress (429, 503) doubles it, quiet answers halve it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

# A host that answers so asks to be left alone (RFC 6585, section 4; RFC 9110, section 15.6.4).
DISTRESS = frozenset({429, 503})
# Weight of the newest latency in the average: the last six make up 90 %.
ALPHA = 0.3
# Doublings at most: 0.25 s × 2^12 is 17 minutes.
DISTRESS_MAX = 12
# Seconds that distress or errors make a host wait at most.
BACKOFF_MAX = 3600.0
# Seconds of wait that double with each transport error in a row after the first: 2, 4, 8 ...
ERROR_BACKOFF = 1.0


@dataclass(slots=True, eq=False)
class Pace:
    """What is known of the pace of a host.

    ``ema`` is the average latency in seconds, 0 before the first answer; ``floor`` the crawl-delay
    of its robots.txt in seconds; ``distress`` the doublings in force; ``errors`` the transport
    errors in a row.
    """

    ema: float = 0.0
    floor: float = 0.0
    distress: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class PaceRule:
    """Turns a Pace into seconds of wait, counted from the end of a request.

    ``minimum`` and ``maximum`` bound ``factor`` times the average, ``crawl_delay_max`` what a
    robots.txt can ask for, ``retry_after_max`` what a Retry-After can; all in seconds.
    """

    factor: float
    minimum: float
    maximum: float
    crawl_delay_max: float
    retry_after_max: float

    def delay(self, pace: Pace) -> float:
        """The wait between two requests as things are."""
        base = max(self.minimum, min(pace.ema * self.factor, self.maximum))
        floor = min(pace.floor, self.crawl_delay_max)
        slowed = min(max(base, floor) * 2.0**pace.distress, BACKOFF_MAX)
        return max(base, floor, slowed)

    def after_answer(self, pace: Pace, latency: float) -> float:
        """The wait after an ordinary answer that took ``latency`` seconds."""
        self._answered(pace, latency)
        pace.distress = max(0, pace.distress - 1)
        return self.delay(pace)

    def after_distress(self, pace: Pace, latency: float, retry_after: float | None) -> float:
        """The wait after a 429 or 503; ``retry_after`` is what it asked for, in seconds."""
        self._answered(pace, latency)
        pace.distress = min(pace.distress + 1, DISTRESS_MAX)
        return max(self.delay(pace), min(retry_after or 0.0, self.retry_after_max))

    def after_error(self, pace: Pace) -> float:
        """The wait after a transport error: the first costs only the delay, as it may be chance."""
        pace.errors += 1
        doublings = min(pace.errors - 1, DISTRESS_MAX)
        backoff = ERROR_BACKOFF * 2.0**doublings if doublings else 0.0
        return max(self.delay(pace), min(backoff, BACKOFF_MAX))

    def _answered(self, pace: Pace, latency: float) -> None:
        pace.errors = 0
        pace.ema = latency if pace.ema == 0.0 else pace.ema + ALPHA * (latency - pace.ema)


def next_try(tries: int, first: float) -> float:
    """Seconds until a page that failed is tried again: ``first`` after the first try, doubled with each, an hour
    at most."""
    return min(first * 2.0 ** min(tries - 1, DISTRESS_MAX), BACKOFF_MAX)


def parse_retry_after(value: str, now: float) -> float | None:
    """The seconds that a Retry-After asks for: RFC 9110, section 10.2.3.

    ``value`` is a number of seconds or a date in any of the three forms of section 5.6.7; ``now``
    is in epoch seconds. A date that has passed gives 0.0, anything else None.
    """
    value = value.strip()
    if value.isascii() and value.removeprefix("-").isdigit():
        # A number of more digits than a float has overflows to infinity, which the caller caps.
        return max(0.0, float(value))
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now)
