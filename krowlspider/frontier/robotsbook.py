"""What is known of each authority's robots.txt: records on disk, and the rules of some of them in memory.

While a robots.txt cannot be had, its last good copy decides, for 30 days from when it was fetched.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from krowlspider.frontier.schema import authorities_of, robots_key
from krowlspider.politeness.robots import RobotsRecord, RobotsRules, Ruling

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.store import Batch

# Authorities of which the parsed rules are kept in memory, about 300 bytes each; one that is not takes 180 µs for each page.
AUTHORITIES_MAX = 65_536
# What several of them share counts once: different rules, ordinary ones of about 5 kB, and their sizes together, which
# stand for about 200 bytes: the longest robots.txt that is read (500 KiB) has 60,000.
DIFFERENT_MAX = 8192
RULES_MAX = 1_000_000
# Authorities that are known to have no record, about 180 bytes each: one of http and https of nearly every host.
WITHOUT_MAX = 65_536
# Bodies of at most so many bytes whose rules are kept for the next authority with the same: what hosting and publishing
# software writes is the same on many hosts. With their rules 5 kB each.
_SHARED_SIZE = 1024
_SHARED = 1024
# Seconds from when it was fetched for which the last good copy is used while the server fails: the "reasonably long
# period" of RFC 9309, section 2.3.1.4.
LAST_GOOD_MAX = 30 * 86_400.0

_Known = tuple[float, RobotsRules | None]
_NOTHING: _Known = (0.0, None)


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
        self._parsed: OrderedDict[str, _Known] = OrderedDict()
        # How many authorities have the same rules, and the size of all of them.
        self._holders: Counter[RobotsRules] = Counter()
        self.size = 0
        self._without: OrderedDict[str, None] = OrderedDict()
        # The last record that was kept: many hosts' robots.txt may lead to one, of 500 KiB.
        self._encoded: tuple[RobotsRecord | None, bytes] = None, b""
        self._parse = lru_cache(_SHARED)(partial(RobotsRules.parse, agent=agent))
        self._allow_all = RobotsRules.allow_all()
        # The last longer body. Many hosts may redirect to one: it is parsed once for all of them.
        self._long: tuple[bytes, RobotsRules] = (b"", self._allow_all)

    def look_up(self, authority: str) -> _Known:
        """When what is known expires, in epoch seconds, and the rules: None for nothing known, or none to be had."""
        if (known := self._parsed.get(authority)) is not None:
            return known
        if authority in self._without:
            return _NOTHING
        return self._recall(authority)

    def _recall(self, authority: str) -> _Known:
        """Take what is on disk of an authority into memory, and of the other one of its host, which is asked for next."""
        found = _NOTHING
        both = authorities_of(authority.partition("://")[2])
        for each, saved in zip(both, self._frontier.robots_of(both), strict=True):
            if each in self._parsed:
                # It may be known for longer than by its record.
                continue
            if saved is None:
                self._without[each] = None
                if len(self._without) > WITHOUT_MAX:
                    self._without.popitem(last=False)
                continue
            record = RobotsRecord.decode(saved)
            known = self._remember(each, record.expires, self._rules_of(record))
            if each == authority:
                found = known
        return found

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
            if record is not self._encoded[0]:
                self._encoded = record, record.encode()
            self._frontier.put_robots(authority, self._encoded[1])
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
            if len(record.body) <= _SHARED_SIZE:
                return self._parse(record.body)
            if record.body != self._long[0]:
                self._long = record.body, RobotsRules.parse(record.body, self._agent)
            return self._long[1]
        if record.ruling == Ruling.ALLOW_ALL.value:
            return self._allow_all
        return None

    def _remember(self, authority: str, expires: float, rules: RobotsRules | None) -> _Known:
        self._without.pop(authority, None)
        if authority in self._parsed:
            self._let_go(self._parsed.pop(authority))
        known = self._parsed[authority] = expires, rules
        if rules is not None:
            if rules not in self._holders:
                self.size += rules.size
            self._holders[rules] += 1
        while (
            len(self._parsed) > AUTHORITIES_MAX
            or len(self._holders) > DIFFERENT_MAX
            or self.size > RULES_MAX
        ):
            self._let_go(self._parsed.popitem(last=False)[1])
        return known

    def _let_go(self, known: _Known) -> None:
        _, rules = known
        if rules is None:
            return
        self._holders[rules] -= 1
        if not self._holders[rules]:
            del self._holders[rules]
            self.size -= rules.size
