"""What robots.txt says of a URL, and the errands that find it out (RFC 9309).

No page is popped while the decision of its authority is unknown or expired. A robots.txt on the page's own host
is fetched in that host's turn; one that redirects to another host is fetched in the turn of that host, and the
page's host waits for it. One that many hosts' robots.txt redirect to is fetched once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, cast

from krowlspider.frontier.robotsbook import RobotsBook
from krowlspider.frontier.schema import authorities_of
from krowlspider.politeness.pace import DISTRESS
from krowlspider.politeness.robots import RobotsRecord, Ruling, judge
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import authority_of, domain_of, host_of
from krowlspider.urls.ports import is_blocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts import Host
    from krowlspider.frontier.store import Batch

# RFC 9309, section 2.3.1.2: at least five redirects are followed, then robots.txt counts as unavailable.
REDIRECTS = 5
# Characters of the longest URL that a redirect of robots.txt is followed to: as URLLENGTH_LIMIT.
URL_MAX = 2048
# Seconds for which a robots.txt that could not be fetched is not asked for: shorter than a round of tries. Kept over a
# restart with a last good copy only; without one a start tries at once.
UNREACHABLE_TTL = 1800.0
# Hosts that wait in memory, 3 kB each, for a robots.txt on another host: on one of them, which
# settles all of those that it redirected to in one turn of the loop, and in all. Further ones are
# as if it could not be had.
WAITING_AT_ONE = 100
WAITING_MAX = 10_000


# Seconds after its wait is over in which a host may still wait for its turn.
_ASKED_AFTER = 60.0
# Seconds by which a record may outlast its life: the longest wait of a host that is not parked, and some.
_LONGER = 2 * 3600.0


class Verdict(Enum):
    """What robots.txt says of a URL."""

    ALLOWED = "allowed"
    DISALLOWED = "robots"
    UNDECIDED = "robots_undecided"
    UNREACHABLE = "robots_unreachable"
    TOO_SLOW = "crawl_delay"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Errand:
    """The fetch of one authority's robots.txt. ``host`` is the host whose pages wait for it, ``passed`` are the
    authorities whose robots.txt redirected it, the last of them to ``url``."""

    authority: str
    host: Host
    url: str
    redirects: int = 0
    retries: int = 0
    distress: int = 0
    away: bool = False
    passed: list[str] = field(default_factory=list)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has come of it yet."""
        return not (self.retries or self.distress or self.passed or self.away)

    @property
    def source(self) -> str | None:
        """The authority that the robots.txt at ``url`` speaks for; None for one in another place."""
        authority = authority_of(self.url)
        return authority if self.url == authority + "/robots.txt" else None


@dataclass(frozen=True, slots=True)
class Patience:
    """Tries after no answer or a 5xx (``retries``), and after a 429 or 503 (``distress``)."""

    retries: int
    distress: int


def _may_be_robots(target: str, errand: Errand) -> bool:
    """Whether a redirect of robots.txt is followed: on another host only to a file of that name. Anything else would
    fetch there what that host's rules were never asked about, and a home page says nothing of robots."""
    if len(target) > URL_MAX:
        return False
    path = target.partition("?")[0]
    return host_of(target) == errand.host.name or path.lower().endswith("/robots.txt")


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
        self._book = RobotsBook(frontier, agent, wall, longest=ttl + _LONGER)
        self._ttl = ttl
        self._patience = patience
        self._crawl_delay_max = crawl_delay_max
        self._wall = wall
        self.waiting = 0
        # Told of each errand when its robots.txt has come, or is known not to be there, and of the sitemaps it names.
        self.come: Callable[[Errand, list[str]], None] | None = None

    def verdict(self, authority: str, url: str) -> Verdict:
        expires, rules = self._book.look_up(authority)
        if not self._book.holds(expires):
            return Verdict.UNKNOWN
        if rules is None:
            return Verdict.UNREACHABLE
        if allowed := rules.allowed(url):
            return Verdict.ALLOWED
        return Verdict.UNDECIDED if allowed is None else Verdict.DISALLOWED

    def crawl_delay(self, host: str) -> float:
        """The longest that the robots.txt of a host ask for, on http and https; seconds."""
        longest = 0.0
        for authority in authorities_of(host):
            _, rules = self._book.look_up(authority)
            if rules is not None and rules.crawl_delay is not None:
                longest = max(longest, rules.crawl_delay)
        return longest

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
            for each in (errand, *self._sharing(errand)):
                each.distress += 1
            asks_for_rest = status in DISTRESS
            limit = self._patience.distress if asks_for_rest else self._patience.retries
            if errand.distress <= limit:
                return self._again(errand, errand.host)
        return self._conclude(errand, ruling, status, body)

    def failed(self, errand: Errand, *, final: bool) -> bool:
        """No answer came; ``final`` when trying again is pointless. Returns as `answered` does."""
        for each in (errand, *self._sharing(errand)):
            each.retries += 1
        if not final and errand.retries <= self._patience.retries:
            return self._again(errand, errand.host)
        return self._conclude(errand, Ruling.RETRY, 0, b"")

    def postponed(self, errand: Errand) -> bool:
        """No answer came, for which the host is not to blame: no try is used up. Returns as `answered` does."""
        return self._again(errand, errand.host)

    def _redirected(self, errand: Errand, location: str | None) -> bool:
        # The host of one that is not away would have to be told to wait.
        for other in self._sharing(errand):
            if other.away:
                self._frontier.host(host_of(errand.url)).errands.remove(other)
                self._follow(other, location)
        return self._follow(errand, location)

    def _may_ask(self, host: str, errand: Errand) -> bool:
        """Whether a redirect of robots.txt may lead to a host, by its port."""
        if ":" not in host or host == errand.host.name:
            return True
        return not is_blocked(host) and self._frontier.linked_ports.admits(host)

    def _follow(self, errand: Errand, location: str | None) -> bool:
        errand.redirects += 1
        target = normalise(location, errand.url) if location else None
        if (
            target is None
            or errand.redirects > REDIRECTS
            or not _may_be_robots(target, errand)
            or not self._may_ask(host_of(target), errand)
        ):
            return self._settle(errand, self._record(Ruling.ALLOW_ALL, 0, b""))
        if errand.source is not None:
            errand.passed.append(errand.source)
        errand.url = target
        if errand.source is not None and (known := self._book.record(errand.source)) is not None:
            return self._settle(errand, known)
        other = host_of(target)
        if (
            not self._frontier.is_ours(other)
            or self._frontier.is_put_off(other)
            or (other != errand.host.name and self._is_crowded(other))
        ):
            # It would have this host wait for a day, or for a turn that never comes; or it is one
            # too many.
            return self._settle(errand, self._record(Ruling.RETRY, 0, b""))
        return self._again(errand, errand.host)

    def _is_crowded(self, target: str) -> bool:
        return (
            self.waiting >= WAITING_MAX
            or len(self._frontier.host(target).errands) >= WAITING_AT_ONE
        )

    def _again(self, errand: Errand, host: Host) -> bool:
        target = host_of(errand.url)
        if not self._frontier.is_ours(target):
            # It was on its way while the ring changed.
            self._give_up(errand)
            return False
        away, errand.away = errand.away, target != host.name
        if errand.away and not away:
            self.waiting += 1
        elif away and not errand.away:
            self.waiting -= 1
            self._frontier.resume(host)
        self._frontier.urge(target, errand)
        return errand.away and not away

    def ring_changed(self) -> None:
        """As `HostTurns.ring_changed`, which it calls; no host waits for one that is not ours."""
        self._frontier.ring_changed()
        for host in list(self._frontier.hosts.values()):
            if host.errands and not self._frontier.is_ours(host.name):
                self.abandon(host.name)

    def abandon(self, host: str) -> None:
        """A host is not ours to fetch any more: the errands that wait for its turn are over. Hosts of ours whose
        robots.txt it has are as if that could not be had."""
        errands = cast("list[Errand]", self._frontier.host(host).errands)
        waiting = errands.copy()
        errands.clear()
        for errand in waiting:
            self._give_up(errand)

    def call_back(self, name: str) -> None:
        """A host leaves: should it wait for its robots.txt on another host, whose turn that waits for, it waits no more."""
        host = self._frontier.host(name)
        if not host.waits:
            return
        # Those with errands are all in memory; one that is in transit is none of theirs.
        for other in self._frontier.hosts.values():
            for errand in cast("list[Errand]", other.errands):
                if errand.host is host and errand.away:
                    other.errands.remove(errand)
                    self._come_home(errand)
                    return

    def _give_up(self, errand: Errand) -> None:
        """Nobody here asks the host that has it."""
        if errand.away and self._frontier.is_ours(errand.host.name):
            self._settle(errand, self._record(Ruling.RETRY, 0, b""))
        elif errand.away:
            self._come_home(errand)

    def _come_home(self, errand: Errand) -> None:
        errand.away = False
        self.waiting -= 1
        self._frontier.resume(errand.host)

    def take_over(self, authority: str, record: RobotsRecord, batch: Batch) -> None:
        """Keep what another frontier fetched, if it is later than what is here, in a batch that the caller writes."""
        self._book.take_over(authority, record, batch)

    def _conclude(self, errand: Errand, ruling: Ruling, status: int, body: bytes) -> bool:
        """What is at the errand's URL is known: to all authorities whose robots.txt it is, and to all errands that
        wait to fetch it."""
        record = self._record(ruling, status, body)
        target = self._frontier.host(host_of(errand.url))
        sources = {*errand.passed, errand.source or errand.authority}
        for authority in sources - {errand.authority}:
            self._book.learn(authority, record, self._told(authority, errand))
        for other in self._sharing(errand):
            target.errands.remove(other)
            self._settle(other, record)
        target.pace.floor = self.crawl_delay(target.name)
        return self._settle(errand, record)

    def _told(self, authority: str, errand: Errand) -> Callable[[list[str]], None] | None:
        """Who is told of an authority that another's errand led to: it will have no errand of its own. Nobody, where it
        is on another domain, to which the pages of the errand's host may not lead."""
        own = domain_of(host_of(authority + "/")) == domain_of(errand.host.name)
        if self.come is None or not own:
            return None
        return partial(self.come, Errand(authority, errand.host, errand.url))

    def _sharing(self, errand: Errand) -> list[Errand]:
        """The errands that wait to fetch what this one has asked for: its tries are theirs."""
        waiting = cast("list[Errand]", self._frontier.host(host_of(errand.url)).errands)
        return [other for other in waiting if other.url == errand.url]

    def _record(self, ruling: Ruling, status: int, body: bytes) -> RobotsRecord:
        now = self._wall()
        life = UNREACHABLE_TTL if ruling is Ruling.RETRY else self._ttl
        return RobotsRecord(ruling.value, now, now + life, status, body)

    def outlast(self, authority: str, wait: float) -> None:
        """What is known of an authority holds for the next request of its host, after ``wait`` seconds, too: else a
        host that waits longer than its robots.txt lives would be asked for nothing else."""
        end = self._wall() + wait
        self._book.extend(authority, end, end + _ASKED_AFTER)

    def _settle(self, errand: Errand, record: RobotsRecord) -> bool:
        """The errand is over."""
        told = None if self.come is None else partial(self.come, errand)
        self._book.learn(errand.authority, record, told)
        errand.host.pace.floor = self.crawl_delay(errand.host.name)
        if errand.away:
            self._come_home(errand)
        return False
