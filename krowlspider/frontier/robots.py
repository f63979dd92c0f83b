"""What robots.txt says of a URL, and the errands that find it out (RFC 9309).

No page is popped while the decision of its authority is unknown or expired. A robots.txt on the page's own host
is fetched in that host's turn; one that redirects to another host is fetched in the turn of that host, and the
page's host waits for it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from krowlspider.politeness.pace import DISTRESS
from krowlspider.politeness.robots import RobotsRecord, RobotsRules, Ruling, judge
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import authority_of, host_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts import Host

# RFC 9309, section 2.3.1.2: at least five redirects are followed, then robots.txt counts as unavailable.
REDIRECTS = 5
# Characters of the longest URL that a redirect of robots.txt is followed to: as URLLENGTH_LIMIT.
URL_MAX = 2048
# Parsed rules kept in memory: ordinary ones take about 5 kB, the longest that is read (500 KiB) some MB.
PARSED_CACHE = 4096
# Seconds for which a robots.txt that could not be fetched is not asked for: shorter than a round of tries. Not kept
# over a restart, which tries at once.
UNREACHABLE_TTL = 1800.0


class Verdict(Enum):
    """What robots.txt says of a URL."""

    ALLOWED = "allowed"
    DISALLOWED = "robots"
    UNREACHABLE = "robots_unreachable"
    TOO_SLOW = "crawl_delay"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Errand:
    """The fetch of one authority's robots.txt. ``host`` is the host whose pages wait for it."""

    authority: str
    host: Host
    url: str
    redirects: int = 0
    retries: int = 0
    distress: int = 0
    away: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """Tries after no answer or a 5xx (``retries``), and after a 429 or 503 (``distress``)."""

    retries: int
    distress: int


def _may_be_robots(target: str, errand: Errand) -> bool:
    """Whether a redirect of robots.txt is followed: on another host only to its /robots.txt, which nothing
    disallows. Anything else would fetch there what that host's rules were never asked about."""
    if len(target) > URL_MAX:
        return False
    return host_of(target) == errand.host.name or target == authority_of(target) + "/robots.txt"


class RobotsGate:
    """Decides by stored robots.txt records; ``wall`` is a clock in epoch seconds, ``ttl`` their life in seconds,
    ``crawl_delay_max`` the longest delay in seconds that this crawl keeps."""

    def __init__(
        self,
        frontier: Frontier,
        *,
        agent: str,
        ttl: float,
        patience: Patience,
        crawl_delay_max: float,
        wall: Callable[[], float],
    ):
        self._frontier = frontier
        self._agent = agent
        self._ttl = ttl
        self._patience = patience
        self._crawl_delay_max = crawl_delay_max
        self._wall = wall
        self._parsed: OrderedDict[str, tuple[float, RobotsRules | None]] = OrderedDict()
        self.waiting = 0

    def verdict(self, authority: str, url: str) -> Verdict:
        known = self._parsed.get(authority) or self._recall(authority)
        if known is None:
            return Verdict.UNKNOWN
        expires, rules = known
        if expires <= self._wall():
            self._parsed.pop(authority, None)
            return Verdict.UNKNOWN
        if rules is None:
            return Verdict.UNREACHABLE
        return Verdict.ALLOWED if rules.allowed(url) else Verdict.DISALLOWED

    def crawl_delay(self, host: str) -> float:
        """The longest that the robots.txt of a host ask for, on http and https; seconds."""
        both = (self._parsed.get(f"{scheme}://{host}") for scheme in ("http", "https"))
        asked = (known[1].crawl_delay for known in both if known is not None and known[1])
        return max((delay for delay in asked if delay is not None), default=0.0)

    def too_slow(self, host: str) -> bool:
        """Whether its robots.txt asks for a longer delay than this crawl keeps."""
        return self.crawl_delay(host) > self._crawl_delay_max

    def errand(self, authority: str, host: Host) -> Errand:
        """The errand that makes an unknown decision known."""
        return Errand(authority, host, authority + "/robots.txt")

    def answered(self, errand: Errand, status: int, body: bytes, location: str | None) -> bool:
        """An answer came. True when the page's host must wait, out of the heap, for another host's turn."""
        ruling = judge(status)
        if ruling is Ruling.REDIRECT:
            return self._redirected(errand, location)
        if ruling is Ruling.RETRY:
            errand.distress += 1
            asks_for_rest = status in DISTRESS
            limit = self._patience.distress if asks_for_rest else self._patience.retries
            if errand.distress <= limit:
                return self._again(errand, errand.host)
        return self._conclude(errand, ruling, status, body)

    def failed(self, errand: Errand, *, final: bool) -> bool:
        """No answer came; ``final`` when trying again is pointless. Returns as `answered` does."""
        errand.retries += 1
        if not final and errand.retries <= self._patience.retries:
            return self._again(errand, errand.host)
        return self._conclude(errand, Ruling.RETRY, 0, b"")

    def _redirected(self, errand: Errand, location: str | None) -> bool:
        errand.redirects += 1
        target = normalise(location, errand.url) if location else None
        if target is None or errand.redirects > REDIRECTS or not _may_be_robots(target, errand):
            return self._conclude(errand, Ruling.ALLOW_ALL, 0, b"")
        errand.url = target
        return self._again(errand, errand.host)

    def _again(self, errand: Errand, host: Host) -> bool:
        target = host_of(errand.url)
        away, errand.away = errand.away, target != host.name
        if errand.away and not away:
            self.waiting += 1
        elif away and not errand.away:
            self.waiting -= 1
            self._frontier.resume(host)
        self._frontier.urge(target, errand)
        return errand.away and not away

    def _conclude(self, errand: Errand, ruling: Ruling, status: int, body: bytes) -> bool:
        now = self._wall()
        life = UNREACHABLE_TTL if ruling is Ruling.RETRY else self._ttl
        record = RobotsRecord(ruling.value, now, now + life, status, body)
        if ruling is not Ruling.RETRY:
            self._frontier.put_robots(errand.authority, record.encode())
        self._keep(errand.authority, record)
        errand.host.pace.floor = self.crawl_delay(errand.host.name)
        if errand.away:
            errand.away = False
            self.waiting -= 1
            self._frontier.resume(errand.host)
        return False

    def _recall(self, authority: str) -> tuple[float, RobotsRules | None] | None:
        saved = self._frontier.robots(authority)
        if saved is None:
            return None
        self._keep(authority, RobotsRecord.decode(saved))
        return self._parsed[authority]

    def _keep(self, authority: str, record: RobotsRecord) -> None:
        rules: RobotsRules | None = None
        if record.ruling == Ruling.RULES.value:
            rules = RobotsRules.parse(record.body, self._agent)
        elif record.ruling == Ruling.ALLOW_ALL.value:
            rules = RobotsRules.allow_all()
        self._parsed[authority] = (record.expires, rules)
        self._parsed.move_to_end(authority)
        if len(self._parsed) > PARSED_CACHE:
            self._parsed.popitem(last=False)
