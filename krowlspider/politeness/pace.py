"""How long to wait before the next request to a host.

The delay follows the host: a moving average of its latencies times a factor, never under what its
robots.txt asks. Distress (429, 503) doubles it, each quiet period halves it again. A host that does not
answer is left alone for minutes, then for days; it is asked again for ever.
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
# Ordinary answers in a row that are a quiet period: after a single one the host would be back at the
# pace that it complained of within seconds.
QUIET = 10
# Seconds that distress or errors make a host wait at most, before it is parked.
BACKOFF_MAX = 3600.0
# Transport errors in a row from which on a host is left alone for minutes, 2, 4, 8 ...; before that
# for 2, 4 and 8 seconds after the second.
ERRORS_BACKOFF = 5
# Transport errors in a row after which a host is parked: half an hour more would change nothing.
ERRORS_PARK = 10
PARKED = 86_400.0
# Waits of hosts that are backing off are stretched by up to this share, by chance: hosts of one server
# went down together, and are not to come back together.
JITTER = 0.25


@dataclass(slots=True, eq=False)
class Pace:
    """What is known of the pace of a host.

    ``ema`` is the average latency in seconds, 0 before the first answer; ``floor`` the crawl-delay
    of its robots.txt in seconds; ``quiet`` the ordinary answers since the last distress or halving;
    ``distress`` the doublings in force; ``errors`` the transport errors in a row.
    """

    ema: float = 0.0
    floor: float = 0.0
    quiet: int = 0
    distress: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class PaceRule:
    """Turns a Pace into seconds of wait, counted from the end of a request. ``chance`` is a random number
    from 0 to 1.

    ``minimum`` and ``maximum`` bound ``factor`` times the average, ``crawl_delay_max`` what a
    robots.txt can ask for, ``retry_after_max`` what a Retry-After can; all in seconds.
    """

    factor: float
    minimum: float
    maximum: float
    crawl_delay_max: float
    retry_after_max: float

    @property
    def longest(self) -> float:
        """No `delay` is longer."""
        return max(self.minimum, self.maximum, self.crawl_delay_max, BACKOFF_MAX)

    def delay(self, pace: Pace) -> float:
        """The wait between two requests as things are."""
        wait = max(self.minimum, min(pace.ema * self.factor, self.maximum))
        if pace.floor > wait:
            wait = max(wait, min(pace.floor, self.crawl_delay_max))
        if not pace.distress:
            return wait
        return max(wait, min(wait * 2.0**pace.distress, BACKOFF_MAX))

    def after_answer(self, pace: Pace, latency: float) -> float:
        """The wait after an ordinary answer that took ``latency`` seconds."""
        self._answered(pace, latency)
        if pace.distress:
            pace.quiet += 1
            if pace.quiet == QUIET:
                pace.quiet = 0
                pace.distress -= 1
        return self.delay(pace)

    def after_distress(
        self, pace: Pace, latency: float, retry_after: float | None, chance: float
    ) -> float:
        """The wait after a 429 or 503; ``retry_after`` is what it asked for, in seconds."""
        self._answered(pace, latency)
        pace.quiet = 0
        pace.distress = min(pace.distress + 1, DISTRESS_MAX)
        asked = min(retry_after or 0.0, self.retry_after_max)
        return max(self.delay(pace), asked) * (1 + JITTER * chance)

    def after_error(self, pace: Pace, chance: float) -> float:
        """The wait after a transport error: the first costs only the delay, as it may be chance."""
        pace.errors += 1
        if self.parked(pace):
            return PARKED * (1 + JITTER * chance)
        return max(self.delay(pace), _backoff(pace.errors) * (1 + JITTER * chance))

    def after_no_such_name(self, pace: Pace, chance: float) -> float:
        """The wait after the DNS said that there is no such host: it need not say so ten times."""
        pace.errors = max(pace.errors, ERRORS_PARK - 1)
        return self.after_error(pace, chance)

    def resting(self, pace: Pace) -> bool:
        """Whether a host is left alone for minutes at least: it does not keep a crawl from ending."""
        return pace.errors >= ERRORS_BACKOFF

    def parked(self, pace: Pace) -> bool:
        """Whether a host is out of the crawl, but for one try each day."""
        return pace.errors >= ERRORS_PARK

    def _answered(self, pace: Pace, latency: float) -> None:
        pace.errors = 0
        pace.ema = latency if pace.ema == 0.0 else pace.ema + ALPHA * (latency - pace.ema)


def _backoff(errors: int) -> float:
    """Seconds of rest after so many transport errors in a row."""
    if errors < ERRORS_BACKOFF:
        return 2.0 ** (errors - 1) if errors > 1 else 0.0
    return min(60.0 * 2.0 ** (errors - ERRORS_BACKOFF + 1), BACKOFF_MAX)


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
