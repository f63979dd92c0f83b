"""Whether the clock of this machine is right, by the Date of answers: a signature of another time
is refused, and one of a clock that is ahead can be used for longer than it should."""

from __future__ import annotations

import logging
from collections import OrderedDict
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import domain_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.fetch.errors import Headers

logger = logging.getLogger(__name__)

# Domains that decide: the last ones, if they agree with each other.
_DOMAINS = 3
# Characters of a date that are read.
_DATE_MAX = 32
_WAY_OUT = "Set the clock (timedatectl set-ntp true)"


class ClockCheck:
    """Compares the clock ``wall``, in epoch seconds, with those of sites. A difference of up to
    ``life`` seconds is none. ``monotonic`` returns seconds of a clock that nobody sets.

    ``is_off``: the last three domains that were heard agree that this clock is wrong. One of them
    that says otherwise ends that, and so does a person who sets the clock.
    """

    def __init__(self, life: float, wall: Callable[[], float], monotonic: Callable[[], float]):
        self._life = life
        self._wall = wall
        self._monotonic = monotonic
        # Seconds by which this clock is ahead of that of each of the last domains.
        self._ahead: OrderedDict[str, float] = OrderedDict()
        self._was_off = self._was_logged = False
        # The difference between both clocks of this machine when ``is_off`` was found.
        self._shift = 0.0

    @property
    def is_off(self) -> bool:
        if self._was_off and abs(self._wall() - self._monotonic() - self._shift) > 1.0:
            self._was_off = False
            self._ahead.clear()
            logger.info("The clock of this machine was set: requests are signed again")
        return self._was_off

    def hear(self, host: str, headers: Headers) -> None:
        """Take the time of an answer."""
        if (date := _number_of(headers, b"date")) is None:
            return
        # What a cache has kept for a while was dated before.
        ahead = self._wall() - date - (_number_of(headers, b"age") or 0.0)
        domain = domain_of(name_of(host))
        self._ahead.pop(domain, None)
        self._ahead[domain] = ahead
        if len(self._ahead) > _DOMAINS:
            self._ahead.popitem(last=False)
        if abs(ahead) > self._life:
            self._warn(host, ahead)
        self._decide()

    def _decide(self) -> None:
        all_ahead = self._ahead.values()
        is_off = (
            len(all_ahead) == _DOMAINS
            and min(map(abs, all_ahead)) > self._life
            and max(all_ahead) - min(all_ahead) <= self._life
        )
        if is_off and not self._was_off:
            self._shift = self._wall() - self._monotonic()
            logger.error(
                "The clock of this machine is %.0f s %s, as %s say: no request is signed, and hosts"
                " that get signed requests are deferred. %s: then requests are signed again",
                abs(min(all_ahead)),
                "ahead" if min(all_ahead) > 0 else "behind",
                ", ".join(self._ahead),
                _WAY_OUT,
            )
        elif self._was_off and not is_off:
            logger.info("The clock of this machine is right: requests are signed again")
        self._was_off = is_off

    def _warn(self, host: str, ahead: float) -> None:
        """Log once that the clock of a site differs."""
        if self._was_logged:
            return
        self._was_logged = True
        logger.warning(
            "The clock of this machine may be wrong: that of %s is %.0f s %s, and a signature"
            " expires after %d s, so that sites refuse it. %s, or raise KROWL_SIGN_EXPIRY. Further"
            " hosts are not named",
            host,
            abs(ahead),
            "behind" if ahead > 0 else "ahead",
            self._life,
            _WAY_OUT,
        )


def _number_of(headers: Headers, wanted: bytes) -> float | None:
    """Return the epoch seconds of a date, or a number of seconds; None without a valid one."""
    for name, value in headers:
        if name.lower() == wanted and len(value) <= _DATE_MAX:
            text = value.decode("latin-1")
            try:
                if text.isdigit():
                    return float(text)
                # Without a zone it is UTC (RFC 9110, section 5.6.7).
                date = parsedate_to_datetime(text)
                return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
            except (ValueError, OverflowError):
                return None
    return None
