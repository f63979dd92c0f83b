"""Decide by robots.txt whether a URL may be fetched, and run the robots fetches (RFC 9309).

No page is sent while the decision of its authority is unknown or expired. A robots.txt on the
page's own host is fetched when that host is due. If it redirects to another host, the target is
fetched when that other host is due, and the page's host waits for it. A target that the robots.txt
of many hosts redirect to is fetched once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, cast

from krowlspider.frontier.robots.cache import RobotsCache
from krowlspider.frontier.store.schema import authorities_of
from krowlspider.politeness.delay import THROTTLING
from krowlspider.politeness.robots import RobotsRecord, Ruling, judge
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import authority_of, domain_of, host_of
from krowlspider.urls.ports import is_blocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.store.store import Batch

# RFC 9309, section 2.3.1.2: follow at least five redirects, then robots.txt counts as unavailable.
REDIRECTS = 5
# Maximum characters of a URL that a redirect of robots.txt is followed to, like URLLENGTH_LIMIT.
URL_MAX = 2048
# Seconds before an unreachable robots.txt is fetched again: shorter than a round of tries.
# It survives a restart only with a last good copy; without one, the next start tries at once.
UNREACHABLE_TTL = 1800.0
# Hosts waiting in memory (3 kB each) for a robots.txt on one other host, and in all. One turn of
# the event loop settles all of one host. For hosts over the limit robots.txt is unreachable.
WAITING_AT_ONE = 100
WAITING_MAX = 10_000


# Seconds that a host may still wait for its request after its delay is over.
_ASKED_AFTER = 60.0
# Seconds by which a record may outlast its TTL: the longest wait of a host that is not parked, and
# a margin.
_LONGER = 2 * 3600.0


class Verdict(Enum):
    """The decision of robots.txt about one URL."""

    ALLOWED = "allowed"
    DISALLOWED = "robots"
    UNDECIDED = "robots_undecided"
    UNREACHABLE = "robots_unreachable"
    TOO_SLOW = "crawl_delay"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class RobotsFetch:
    """The fetch of one authority's robots.txt.

    ``host`` is the host whose pages wait for it. ``url`` is the URL to fetch next. ``passed`` are
    the authorities whose robots.txt redirected, the last of them to ``url``. ``away`` is true while
    ``url`` is on another host than ``host``. ``redirects``, ``retries`` and ``throttling`` count
    redirects, tries without an answer, and answers 429 or 5xx.
    """

    authority: str
    host: Host
    url: str
    redirects: int = 0
    retries: int = 0
    throttling: int = 0
    away: bool = False
    passed: list[str] = field(default_factory=list)

    @property
    def is_fresh(self) -> bool:
        """Return whether no try has failed and no redirect was followed."""
        return not (self.retries or self.throttling or self.passed or self.away)

    @property
    def source(self) -> str | None:
        """Return the authority whose robots.txt is ``url``; None if ``url`` is another file."""
        authority = authority_of(self.url)
        return authority if self.url == authority + "/robots.txt" else None


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Limits of retries: ``retries`` after no answer or a 5xx, ``throttling`` after 429/503."""

    retries: int
    throttling: int


def _may_be_robots(target: str, robots_fetch: RobotsFetch) -> bool:
    """Return whether a redirect of robots.txt may be followed.

    A redirect to another host must lead to a file named robots.txt. Any other page there would be
    fetched without that host's rules, and a home page holds no rules.
    """
    if len(target) > URL_MAX:
        return False
    path = target.partition("?")[0]
    return host_of(target) == robots_fetch.host.name or path.lower().endswith("/robots.txt")


class RobotsGate:
    """Decides by stored robots.txt records, and handles the answers of robots fetches.

    ``wall`` is a clock in epoch seconds. ``ttl`` is the life of a record in seconds.
    ``crawl_delay_max`` is the longest delay in seconds that this crawl keeps. ``waiting`` counts
    the hosts that wait for a robots.txt on another host.
    """

    def __init__(
        self,
        frontier: Frontier,
        *,
        agent: str,
        ttl: float,
        patience: RetryLimits,
        crawl_delay_max: float,
        wall: Callable[[], float],
    ):
        self._frontier = frontier
        self._book = RobotsCache(frontier, agent, wall, longest=ttl + _LONGER)
        self._ttl = ttl
        self._patience = patience
        self._crawl_delay_max = crawl_delay_max
        self._wall = wall
        self.waiting = 0
        # Called with each robots fetch whose robots.txt was fetched or does not exist, and with
        # the sitemaps that the file names.
        self.come: Callable[[RobotsFetch, list[str]], None] | None = None

    def verdict(self, authority: str, url: str) -> Verdict:
        """Return the decision of an authority's robots.txt about ``url``.

        UNKNOWN means that robots.txt must be fetched first; UNREACHABLE, that it could not be.
        UNDECIDED means that matching the rules takes too long; the URL must not be fetched.
        """
        expires, rules = self._book.look_up(authority)
        if not self._book.holds(expires):
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
            _, rules = self._book.look_up(authority)
            if rules is not None and rules.crawl_delay is not None:
                longest = max(longest, rules.crawl_delay)
        return longest

    def too_slow(self, host: str) -> bool:
        """Return whether the host's robots.txt asks for a longer delay than this crawl keeps."""
        return self.crawl_delay(host) > self._crawl_delay_max

    def robots_fetch(self, authority: str, host: Host) -> RobotsFetch:
        """Return a new robots fetch of an authority, for pages of ``host``."""
        return RobotsFetch(authority, host, authority + "/robots.txt")

    def answered(
        self, robots_fetch: RobotsFetch, status: int, body: bytes, location: str | None
    ) -> bool:
        """Handle an answer; ``location`` is its Location header, None without one.

        Return true if the page's host must now wait, out of the heap, for the robots.txt on
        another host.
        """
        ruling = judge(status)
        if ruling is Ruling.REDIRECT:
            return self._redirected(robots_fetch, location)
        if ruling is Ruling.RETRY:
            for each in (robots_fetch, *self._sharing(robots_fetch)):
                each.throttling += 1
            asks_for_rest = status in THROTTLING
            limit = self._patience.throttling if asks_for_rest else self._patience.retries
            if robots_fetch.throttling <= limit:
                return self._again(robots_fetch, robots_fetch.host)
        return self._conclude(robots_fetch, ruling, status, body)

    def failed(self, robots_fetch: RobotsFetch, *, final: bool) -> bool:
        """Handle a try without an answer; ``final`` means that a retry is pointless.

        Return as `answered` does.
        """
        for each in (robots_fetch, *self._sharing(robots_fetch)):
            each.retries += 1
        if not final and robots_fetch.retries <= self._patience.retries:
            return self._again(robots_fetch, robots_fetch.host)
        return self._conclude(robots_fetch, Ruling.RETRY, 0, b"")

    def postponed(self, robots_fetch: RobotsFetch) -> bool:
        """Queue the robots fetch again after a failure that the host did not cause.

        It does not count as a retry. Return as `answered` does.
        """
        return self._again(robots_fetch, robots_fetch.host)

    def _redirected(self, robots_fetch: RobotsFetch, location: str | None) -> bool:
        # Only those with ``away``: the host of any other would have to be made to wait first.
        for other in self._sharing(robots_fetch):
            if other.away:
                self._frontier.host(host_of(robots_fetch.url)).robots_fetches.remove(other)
                self._follow(other, location)
        return self._follow(robots_fetch, location)

    def _may_ask(self, host: str, robots_fetch: RobotsFetch) -> bool:
        """Return whether a redirect of robots.txt may lead to a host, judged by its port."""
        if ":" not in host or host == robots_fetch.host.name:
            return True
        return not is_blocked(host) and self._frontier.linked_ports.admits(host)

    def _follow(self, robots_fetch: RobotsFetch, location: str | None) -> bool:
        robots_fetch.redirects += 1
        target = normalise(location, robots_fetch.url) if location else None
        if (
            target is None
            or robots_fetch.redirects > REDIRECTS
            or not _may_be_robots(target, robots_fetch)
            or not self._may_ask(host_of(target), robots_fetch)
        ):
            return self._settle(robots_fetch, self._record(Ruling.ALLOW_ALL, 0, b""))
        if robots_fetch.source is not None:
            robots_fetch.passed.append(robots_fetch.source)
        robots_fetch.url = target
        if (
            robots_fetch.source is not None
            and (known := self._book.record(robots_fetch.source)) is not None
        ):
            return self._settle(robots_fetch, known)
        other = host_of(target)
        if (
            not self._frontier.is_ours(other)
            or self._frontier.is_deferred(other)
            or (other != robots_fetch.host.name and self._is_crowded(other))
        ):
            # This host would wait for a day or for ever, or too many hosts wait already.
            return self._settle(robots_fetch, self._record(Ruling.RETRY, 0, b""))
        return self._again(robots_fetch, robots_fetch.host)

    def _is_crowded(self, target: str) -> bool:
        return (
            self.waiting >= WAITING_MAX
            or len(self._frontier.host(target).robots_fetches) >= WAITING_AT_ONE
        )

    def _again(self, robots_fetch: RobotsFetch, host: Host) -> bool:
        target = host_of(robots_fetch.url)
        if not self._frontier.is_ours(target):
            # The ring changed while it was in flight.
            self._give_up(robots_fetch)
            return False
        away, robots_fetch.away = robots_fetch.away, target != host.name
        if robots_fetch.away and not away:
            self.waiting += 1
        elif away and not robots_fetch.away:
            self.waiting -= 1
            self._frontier.resume(host)
        self._frontier.enqueue_robots_fetch(target, robots_fetch)
        return robots_fetch.away and not away

    def ring_changed(self) -> None:
        """Call `HostScheduler.ring_changed`, then `abandon` each host that another node owns now.

        Afterwards no host waits for a robots.txt on a host that is not ours.
        """
        self._frontier.ring_changed()
        for host in list(self._frontier.hosts.values()):
            if host.robots_fetches and not self._frontier.is_ours(host.name):
                self.abandon(host.name)

    def abandon(self, host: str) -> None:
        """End the robots fetches that are queued at a host that another node owns now.

        For our hosts that waited for them, robots.txt is unreachable.
        """
        robots_fetches = cast("list[RobotsFetch]", self._frontier.host(host).robots_fetches)
        waiting = robots_fetches.copy()
        robots_fetches.clear()
        for robots_fetch in waiting:
            self._give_up(robots_fetch)

    def call_back(self, name: str) -> None:
        """End the wait of a host that leaves, if its robots fetch is queued at another host."""
        host = self._frontier.host(name)
        if not host.waits:
            return
        # All hosts with robots fetches are in memory. A robots fetch in flight is in none of them.
        for other in self._frontier.hosts.values():
            for robots_fetch in cast("list[RobotsFetch]", other.robots_fetches):
                if robots_fetch.host is host and robots_fetch.away:
                    other.robots_fetches.remove(robots_fetch)
                    self._come_home(robots_fetch)
                    return

    def _give_up(self, robots_fetch: RobotsFetch) -> None:
        """End a robots fetch whose target host belongs to another node."""
        if robots_fetch.away and self._frontier.is_ours(robots_fetch.host.name):
            self._settle(robots_fetch, self._record(Ruling.RETRY, 0, b""))
        elif robots_fetch.away:
            self._come_home(robots_fetch)

    def _come_home(self, robots_fetch: RobotsFetch) -> None:
        """End the wait of the page's host: it is in the heap again."""
        robots_fetch.away = False
        self.waiting -= 1
        self._frontier.resume(robots_fetch.host)

    def take_over(self, authority: str, record: RobotsRecord, batch: Batch) -> None:
        """Put another frontier's record into ``batch``, if it was fetched later than ours.

        The caller writes the batch.
        """
        self._book.take_over(authority, record, batch)

    def _conclude(
        self, robots_fetch: RobotsFetch, ruling: Ruling, status: int, body: bytes
    ) -> bool:
        """Keep the final answer at the robots fetch's URL, and end the robots fetch.

        The answer holds for every authority whose robots.txt is at that URL. It also ends all
        robots fetches that wait for the same URL. Return as `answered` does.
        """
        record = self._record(ruling, status, body)
        target = self._frontier.host(host_of(robots_fetch.url))
        sources = {*robots_fetch.passed, robots_fetch.source or robots_fetch.authority}
        for authority in sources - {robots_fetch.authority}:
            self._book.learn(authority, record, self._told(authority, robots_fetch))
        for other in self._sharing(robots_fetch):
            target.robots_fetches.remove(other)
            self._settle(other, record)
        target.rate.floor = self.crawl_delay(target.name)
        return self._settle(robots_fetch, record)

    def _told(
        self, authority: str, robots_fetch: RobotsFetch
    ) -> Callable[[list[str]], None] | None:
        """Return the receiver of the sitemaps of an authority that a redirect led to.

        That authority will have no robots fetch of its own. Return None if it is on another
        domain: the pages of the robots fetch's host may not lead there.
        """
        own = domain_of(host_of(authority + "/")) == domain_of(robots_fetch.host.name)
        if self.come is None or not own:
            return None
        return partial(self.come, RobotsFetch(authority, robots_fetch.host, robots_fetch.url))

    def _sharing(self, robots_fetch: RobotsFetch) -> list[RobotsFetch]:
        """Return the robots fetches that wait for the same URL; this one's tries count for them."""
        waiting = cast(
            "list[RobotsFetch]", self._frontier.host(host_of(robots_fetch.url)).robots_fetches
        )
        return [other for other in waiting if other.url == robots_fetch.url]

    def _record(self, ruling: Ruling, status: int, body: bytes) -> RobotsRecord:
        now = self._wall()
        life = UNREACHABLE_TTL if ruling is Ruling.RETRY else self._ttl
        return RobotsRecord(ruling.value, now, now + life, status, body)

    def outlast(self, authority: str, wait: float) -> None:
        """Keep an authority's decision valid until its host's next request, ``wait`` seconds ahead.

        Otherwise a host whose wait is longer than the TTL of its robots.txt would be asked for
        robots.txt only, and never for a page.
        """
        end = self._wall() + wait
        self._book.extend(authority, end, end + _ASKED_AFTER)

    def _settle(self, robots_fetch: RobotsFetch, record: RobotsRecord) -> bool:
        """Keep the record and end the robots fetch. Return false: no host has to wait for it."""
        told = None if self.come is None else partial(self.come, robots_fetch)
        self._book.learn(robots_fetch.authority, record, told)
        robots_fetch.host.rate.floor = self.crawl_delay(robots_fetch.host.name)
        if robots_fetch.away:
            self._come_home(robots_fetch)
        return False
