"""What is known of each authority's robots.txt: records on disk, and the rules of some of them in memory.

While a robots.txt cannot be had, its last good copy decides, for 30 days from when it was fetched.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from krowlspider.politeness.robots import RobotsRecord, RobotsRules, Ruling

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.frontier import Frontier

# Authorities of which the parsed rules are kept in memory, ordinary ones of about 5 kB, and rules and sitemaps of all of
# them together, about 200 bytes each: the longest robots.txt that is read (500 KiB) has 60,000.
AUTHORITIES_MAX = 8192
RULES_MAX = 1_000_000
# Seconds from when it was fetched for which the last good copy is used while the server fails: the "reasonably long
# period" of RFC 9309, section 2.3.1.4.
LAST_GOOD_MAX = 30 * 86_400.0


class RobotsBook:
    """Robots.txt records by authority, for one product token; ``wall`` is a clock in epoch seconds."""

    def __init__(self, frontier: Frontier, agent: str, wall: Callable[[], float]):
        self._frontier = frontier
        self._agent = agent
        self._wall = wall
        self._parsed: OrderedDict[str, tuple[float, RobotsRules | None]] = OrderedDict()
        # Rules and sitemaps of all of them.
        self.size = 0

    def look_up(self, authority: str) -> tuple[float, RobotsRules | None]:
        """When what is known expires, in epoch seconds, and the rules: None for nothing known, or none to be had."""
        if (known := self._parsed.get(authority)) is not None:
            return known
        record = self._stored(authority)
        if record is None:
            return self._remember(authority, 0.0, None)
        return self._parse(authority, record)

    def record(self, authority: str) -> RobotsRecord | None:
        """The record that decides now, None when robots.txt is to be fetched."""
        expires, rules = self.look_up(authority)
        now = self._wall()
        if expires <= now:
            return None
        if rules is None:
            return RobotsRecord(Ruling.RETRY.value, now, expires, 0, b"")
        return self._stored(authority)

    def extend(self, authority: str, needed: float, expires: float) -> None:
        """Have what is in memory of an authority expire later, if it would before it is ``needed``."""
        known = self._parsed.get(authority)
        if known is not None and 0 < known[0] <= needed:
            self._parsed[authority] = expires, known[1]

    def learn(self, authority: str, record: RobotsRecord) -> None:
        """Keep a record. One of a robots.txt that could not be had is kept in memory only; until it expires the last
        good copy goes before it."""
        if record.ruling == Ruling.RETRY.value:
            record = self._last_good(authority, record.expires) or record
        if record.ruling != Ruling.RETRY.value:
            self._frontier.put_robots(authority, record.encode())
        self._parse(authority, record)

    def _last_good(self, authority: str, expires: float) -> RobotsRecord | None:
        record = self._stored(authority)
        if record is None or record.fetched + LAST_GOOD_MAX <= self._wall():
            return None
        record.expires = min(expires, record.fetched + LAST_GOOD_MAX)
        return record

    def _stored(self, authority: str) -> RobotsRecord | None:
        saved = self._frontier.robots(authority)
        return None if saved is None else RobotsRecord.decode(saved)

    def _parse(self, authority: str, record: RobotsRecord) -> tuple[float, RobotsRules | None]:
        rules: RobotsRules | None = None
        if record.ruling == Ruling.RULES.value:
            rules = RobotsRules.parse(record.body, self._agent)
        elif record.ruling == Ruling.ALLOW_ALL.value:
            rules = RobotsRules.allow_all()
        return self._remember(authority, record.expires, rules)

    def _remember(
        self, authority: str, expires: float, rules: RobotsRules | None
    ) -> tuple[float, RobotsRules | None]:
        if authority in self._parsed:
            self.size -= _size(self._parsed.pop(authority))
        known = self._parsed[authority] = expires, rules
        self.size += _size(known)
        while len(self._parsed) > AUTHORITIES_MAX or self.size > RULES_MAX:
            self.size -= _size(self._parsed.popitem(last=False)[1])
        return known


def _size(known: tuple[float, RobotsRules | None]) -> int:
    return 0 if known[1] is None else known[1].size
