"""The robots.txt of each authority, kept on disk, and whether it allows a URL (RFC 9309).

The robots.txt of each authority: all records on disk, and parsed rules of some in memory. While a
robots.txt is unreachable, its last good copy decides, for 30 days after it was fetched.

Decides by robots.txt whether a URL may be fetched (RFC 9309). No page is sent while the decision of
its authority is unknown or expired.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import robots_key, web_authorities_of
from krowlspider.frontier.store.store import Batch, Store, put
from krowlspider.politeness.gemini import PrefixRules
from krowlspider.politeness.robots import RobotsRecord, RobotsRules, Ruling
from krowlspider.urls.gemini import is_gemini

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.politeness.gemini import ReadPrefixes

# Authorities whose parsed rules stay in memory, about 300 bytes each. Any other is read and parsed
# again for each page.
AUTHORITIES_MAX = 65_536
# Maximum of different rules in memory (ordinary ones take 5 kB), and of their sizes together.
# Shared rules count once. A unit of size is about 200 bytes; a file of 500 KiB has up to 60,000.
DIFFERENT_MAX = 8192
RULES_MAX = 1_000_000
# Authorities known to have no record, about 180 bytes each. Nearly every host has one: http or
# https.
WITHOUT_MAX = 65_536
# Bodies of up to so many bytes, and how many of them (5 kB each with rules) are parsed only once.
# Hosting and publishing software writes the same robots.txt on many hosts.
_SHARED_SIZE = 1024
_SHARED = 1024
# Seconds after its fetch for which the last good copy decides while the server fails: the
# "reasonably long period" of RFC 9309, section 2.3.1.4.
LAST_GOOD_MAX = 30 * 86_400.0

# Seconds before an unreachable robots.txt is fetched again: shorter than an hour, after which
# deferred hosts are tried again.
# It survives a restart only with a last good copy; without one, the next start tries at once.
UNREACHABLE_TTL = 1800.0
# Seconds by which a record may outlast its TTL: the longest wait of a host that is not parked, and
# a margin.
_LONGER = 2 * 3600.0
# Seconds that a host may still wait for its request after its delay is over.
_ASKED_AFTER = 60.0

_Rules = RobotsRules | PrefixRules
_Known = tuple[float, _Rules | None]
_NOTHING: _Known = (0.0, None)


def _no_reader(body: bytes) -> PrefixRules:
    raise NotImplementedError("a robots.txt of a Gemini server, and no reader of it")


class RobotsCache:
    """Robots.txt records by authority, for one product token (``agent``).

    ``wall`` is a clock in epoch seconds, ``ttl`` the life of a record in seconds. ``size`` is the
    size of all rules in memory, in units of 200 bytes. ``read_prefixes`` reads the robots.txt of a
    Gemini server.
    """

    def __init__(
        self,
        store: Store,
        agent: str,
        wall: Callable[[], float],
        *,
        ttl: float,
        read_prefixes: ReadPrefixes = _no_reader,
    ):
        self._store = store
        self._read_prefixes = read_prefixes
        self._read_short = lru_cache(_SHARED)(read_prefixes)
        self._agent = agent
        self._wall = wall
        self._ttl = ttl
        self._longest = ttl + _LONGER
        self._parsed: OrderedDict[str, _Known] = OrderedDict()
        # By rules, the number of authorities that share them.
        self._holders: Counter[_Rules] = Counter()
        self.size = 0
        self._without: OrderedDict[str, None] = OrderedDict()
        # The last record that was encoded: many hosts may redirect to the same one, of 500 KiB.
        self._encoded: tuple[RobotsRecord | None, bytes] = None, b""
        self._parse = lru_cache(_SHARED)(partial(RobotsRules.parse, agent=agent))
        self._allow_all = RobotsRules.allow_all()
        # The last body over _SHARED_SIZE: it is parsed once for all hosts that redirect to it.
        self._long: tuple[bytes, RobotsRules] = (b"", self._allow_all)

    def new_record(self, ruling: Ruling, status: int = 0, body: bytes = b"") -> RobotsRecord:
        """Return the record of an answer, or of none, that came now."""
        now = self._wall()
        life = UNREACHABLE_TTL if ruling is Ruling.RETRY else self._ttl
        return RobotsRecord(ruling.value, now, now + life, status, body)

    def received(self, theirs: RobotsRecord) -> RobotsRecord:
        """Return another node's record, which holds no longer than one of this node."""
        record = self.new_record(Ruling(theirs.ruling), theirs.status, theirs.body)
        record.fetched, record.expires = theirs.fetched, min(theirs.expires, record.expires)
        return record

    def look_up(self, authority: str) -> _Known:
        """Return when the decision expires, in epoch seconds, and the rules.

        The rules are None if robots.txt is unreachable. Return ``(0.0, None)`` if nothing is known.
        An expired decision is returned too: see `holds`.
        """
        if (known := self._parsed.get(authority)) is not None:
            return known
        if authority in self._without:
            return _NOTHING
        return self._recall(authority)

    def _recall(self, authority: str) -> _Known:
        """Read an authority's record from disk into memory, and return as `look_up` does.

        Also read the record of the host's other authority, which is needed next.
        """
        found = _NOTHING
        both = (
            (authority,)
            if is_gemini(authority)
            else web_authorities_of(authority.partition("://")[2])
        )
        for each, saved in zip(both, self._store.read(map(robots_key, both)), strict=True):
            if each in self._parsed:
                # `outlast` may have made it expire later than its record.
                continue
            if saved is None:
                self._without[each] = None
                if len(self._without) > WITHOUT_MAX:
                    self._without.popitem(last=False)
                continue
            record = RobotsRecord.decode(saved)
            known = self._remember(each, record.expires, self._rules_of(each, record))
            if each == authority:
                found = known
        return found

    def record(self, authority: str) -> RobotsRecord | None:
        """Return the record that decides now, for another authority that redirects to this one.

        Return None if robots.txt must be fetched first. This includes a record that is valid only
        because of `outlast`.
        """
        expires, rules = self.look_up(authority)
        if not self.holds(expires):
            return None
        if rules is None:
            return RobotsRecord(Ruling.RETRY.value, self._wall(), expires, 0, b"")
        record = self._stored(authority)
        return record if record is not None and self.holds(record.expires) else None

    def holds(self, expires: float) -> bool:
        """Return whether a decision that expires at ``expires``, in epoch seconds, is valid now.

        One that expires too far in the future is not: it was fetched while the clock was ahead.
        """
        return 0 < expires - self._wall() <= self._longest

    def outlast(self, authority: str, wait: float) -> None:
        """Keep an authority's decision valid until its host's next request, ``wait`` seconds ahead.

        Otherwise a host whose wait is longer than the TTL of its robots.txt would be asked for
        robots.txt only, and never for a page. That robots.txt is unreachable allows no page: it is
        fetched again then. The record on disk stays as it is.
        """
        expires, rules = self._parsed.get(authority, _NOTHING)
        needed = self._wall() + wait
        if rules is not None and 0 < expires <= needed:
            self._parsed[authority] = needed + _ASKED_AFTER, rules

    def learn(
        self,
        authority: str,
        record: RobotsRecord,
        receive_sitemaps: Callable[[list[str]], None] | None = None,
    ) -> None:
        """Keep a record on disk and in memory.

        The record of an unreachable robots.txt is kept in memory only. If there is a last good
        copy, that copy is kept in its place, until it expires.

        ``receive_sitemaps`` is called with the sitemaps that the file names, or with an empty list
        if there is no robots.txt. It is called before the record is kept, so that no crash loses
        the sitemaps. It is not called for a last good copy: its sitemaps were handled when it was
        fetched.
        """
        if record.ruling == Ruling.RETRY.value:
            record = self._last_good(authority, record.expires) or record
            receive_sitemaps = None
        rules = self._rules_of(authority, record)
        if rules is not None:
            if receive_sitemaps is not None:
                receive_sitemaps(rules.sitemaps)
            if record is not self._encoded[0]:
                self._encoded = record, record.encode()
            put(self._store, robots_key(authority), self._encoded[1])
        self._remember(authority, record.expires, rules)

    def take_over(self, authority: str, record: RobotsRecord, batch: Batch) -> None:
        """Put another frontier's record into ``batch``, if it was fetched later than ours.

        The caller writes the batch. A record of an unreachable robots.txt is ignored.
        """
        stored = self._stored(authority)
        if record.ruling != Ruling.RETRY.value and (
            stored is None or stored.fetched < record.fetched
        ):
            batch.put(robots_key(authority), record.encode())
            self._remember(authority, record.expires, self._rules_of(authority, record))

    def _last_good(self, authority: str, expires: float) -> RobotsRecord | None:
        """Return the last good copy, which expires at ``expires`` or earlier; None if too old."""
        record = self._stored(authority)
        if record is None or record.fetched + LAST_GOOD_MAX <= self._wall():
            return None
        record.expires = min(expires, record.fetched + LAST_GOOD_MAX)
        return record

    def _stored(self, authority: str) -> RobotsRecord | None:
        saved = self._store.read((robots_key(authority),))[0]
        return None if saved is None else RobotsRecord.decode(saved)

    def _rules_of(self, authority: str, record: RobotsRecord) -> _Rules | None:
        if record.ruling == Ruling.RULES.value:
            if is_gemini(authority):
                is_short = len(record.body) <= _SHARED_SIZE
                return (self._read_short if is_short else self._read_prefixes)(record.body)
            if len(record.body) <= _SHARED_SIZE:
                return self._parse(record.body)
            if record.body != self._long[0]:
                self._long = record.body, RobotsRules.parse(record.body, self._agent)
            return self._long[1]
        if record.ruling == Ruling.ALLOW_ALL.value:
            return self._allow_all
        return None

    def _remember(self, authority: str, expires: float, rules: _Rules | None) -> _Known:
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
        """Drop one authority's share of its rules; count their size off with the last share."""
        _, rules = known
        if rules is None:
            return
        self._holders[rules] -= 1
        if not self._holders[rules]:
            del self._holders[rules]
            self.size -= rules.size


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
        # That of a Gemini server names none.
        for authority in web_authorities_of(host):
            _, rules = self._cache.look_up(authority)
            if rules is not None and rules.crawl_delay is not None:
                longest = max(longest, rules.crawl_delay)
        return longest

    def too_slow(self, host: str) -> bool:
        """Return whether the host's robots.txt asks for a longer delay than this crawl keeps."""
        return self.crawl_delay(host) > self.crawl_delay_max
