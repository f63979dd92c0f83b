"""What is known of each authority's robots.txt: records on disk, and the rules of some of them in memory.

While a robots.txt cannot be had, its last good copy decides, for 30 days from when it was fetched.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from krowlspider.frontier.schema import robots_key
from krowlspider.politeness.robots import RobotsRecord, RobotsRules, Ruling

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.store import Batch

# Authorities of which the parsed rules are kept in memory, ordinary ones of about 5 kB, and rules and sitemaps of all of
# them together, about 200 bytes each: the longest robots.txt that is read (500 KiB) has 60,000.
AUTHORITIES_MAX = 8192
RULES_MAX = 1_000_000
# Seconds from when it was fetched for which the last good copy is used while the server fails: the "reasonably long
# period" of RFC 9309, section 2.3.1.4.
LAST_GOOD_MAX = 30 * 86_400.0


class RobotsBook:
    """Robots.txt records by authority, for one product token; ``wall`` is a clock in epoch seconds, ``longest`` the
    most seconds for which a record may hold."""

    def __init__(
        self, frontier: Frontier, agent: str, wall: Callable[[], float], *, longest: float
    ):
        self._frontier = frontier
        self._agent = agent
        self._wall = wall
        self._longest = longest
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
        return self._remember(authority, record.expires, self._rules_of(record))

    def record(self, authority: str) -> RobotsRecord | None:
        """The record that decides now, None when robots.txt is to be fetched: for others, one that was extended is."""
        expires, rules = self.look_up(authority)
        if not self.holds(expires):
            return None
        if rules is None:
            return RobotsRecord(Ruling.RETRY.value, self._wall(), expires, 0, b"")
        record = self._stored(authority)
        return record if record is not None and self.holds(record.expires) else None

    def holds(self, expires: float) -> bool:
        """Whether what expires then, in epoch seconds, decides now. What would hold for longer than any record may was
        fetched while the clock was ahead."""
        return 0 < expires - self._wall() <= self._longest

    def extend(self, authority: str, needed: float, expires: float) -> None:
        """Have what is in memory of an authority expire later, if it would before it is ``needed``."""
        known = self._parsed.get(authority)
        if known is not None and 0 < known[0] <= needed:
            self._parsed[authority] = expires, known[1]

    def learn(
        self,
        authority: str,
        record: RobotsRecord,
        told: Callable[[list[str]], None] | None = None,
    ) -> None:
        """Keep a record. One of a robots.txt that could not be had is kept in memory only; until it expires the last
        good copy goes before it.

        ``told`` gets the sitemaps that it names, none where there is no robots.txt, before it is kept: a death in
        between would miss them. Those of a last good copy were told when it came.
        """
        if record.ruling == Ruling.RETRY.value:
            record = self._last_good(authority, record.expires) or record
            told = None
        rules = self._rules_of(record)
        if rules is not None:
            if told is not None:
                told(rules.sitemaps)
            self._frontier.put_robots(authority, record.encode())
        self._remember(authority, record.expires, rules)

    def take_over(self, authority: str, record: RobotsRecord, batch: Batch) -> None:
        """Keep what another frontier fetched, if it is later than what is here, in a batch that the caller writes."""
        stored = self._stored(authority)
        if record.ruling != Ruling.RETRY.value and (
            stored is None or stored.fetched < record.fetched
        ):
            batch.put(robots_key(authority), record.encode())
            self._remember(authority, record.expires, self._rules_of(record))

    def _last_good(self, authority: str, expires: float) -> RobotsRecord | None:
        record = self._stored(authority)
        if record is None or record.fetched + LAST_GOOD_MAX <= self._wall():
            return None
        record.expires = min(expires, record.fetched + LAST_GOOD_MAX)
        return record

    def _stored(self, authority: str) -> RobotsRecord | None:
        saved = self._frontier.robots(authority)
        return None if saved is None else RobotsRecord.decode(saved)

    def _rules_of(self, record: RobotsRecord) -> RobotsRules | None:
        if record.ruling == Ruling.RULES.value:
            return RobotsRules.parse(record.body, self._agent)
        if record.ruling == Ruling.ALLOW_ALL.value:
            return RobotsRules.allow_all()
        return None

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
