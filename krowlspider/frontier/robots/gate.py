"""Decides by robots.txt whether a URL may be fetched (RFC 9309).

No page is sent while the decision of its authority is unknown or expired.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import authorities_of

if TYPE_CHECKING:
    from krowlspider.frontier.robots.cache import RobotsCache


class Verdict(Enum):
    """The decision of robots.txt about one URL."""

    ALLOWED = "allowed"
    DISALLOWED = "robots"
    UNDECIDED = "robots_undecided"
    UNREACHABLE = "robots_unreachable"
    TOO_SLOW = "crawl_delay"
    UNKNOWN = "unknown"


class RobotsGate:
    """Decides by the robots.txt records in ``cache``. ``crawl_delay_max`` is the longest delay in
    seconds that this crawl keeps."""

    def __init__(self, cache: RobotsCache, *, crawl_delay_max: float):
        self._cache = cache
        self.crawl_delay_max = crawl_delay_max

    def verdict(self, authority: str, url: str) -> Verdict:
        """Return the decision of an authority's robots.txt about ``url``.

        UNKNOWN means that robots.txt must be fetched first; UNREACHABLE, that it could not be.
        UNDECIDED means that matching the rules takes too long; the URL must not be fetched.
        """
        expires, rules = self._cache.look_up(authority)
        if not self._cache.holds(expires):
            return Verdict.UNKNOWN
        if rules is None:
            return Verdict.UNREACHABLE
        if allowed := rules.allowed(url):
            return Verdict.ALLOWED
        return Verdict.UNDECIDED if allowed is None else Verdict.DISALLOWED

    def crawl_delay(self, host: str) -> float:
        """Return the longest crawl-delay of a host's http and https robots.txt, in seconds.

        Return 0 if neither names one.
        """
        longest = 0.0
        for authority in authorities_of(host):
            _, rules = self._cache.look_up(authority)
            if rules is not None and rules.crawl_delay is not None:
                longest = max(longest, rules.crawl_delay)
        return longest

    def too_slow(self, host: str) -> bool:
        """Return whether the host's robots.txt asks for a longer delay than this crawl keeps."""
        return self.crawl_delay(host) > self.crawl_delay_max
