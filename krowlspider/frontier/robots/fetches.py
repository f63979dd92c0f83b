"""Runs the fetches of robots.txt: their retries, redirects and results (RFC 9309).

A robots.txt on the page's own host is fetched when that host is due. If it redirects to another
host, the target is fetched when that other host is due, and the page's host awaits it. A target
that the robots.txt of many hosts redirect to is fetched once for all of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from krowlspider.frontier.hosts.host import DEFERRED
from krowlspider.frontier.robots.cache import RobotsCache
from krowlspider.frontier.robots.fetch import RetryLimits, RobotsFetch
from krowlspider.frontier.robots.gate import RobotsGate
from krowlspider.politeness.delay import THROTTLING
from krowlspider.politeness.robots import RobotsRecord, Ruling, judge
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import domain_of, host_of
from krowlspider.urls.ports import is_blocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import Host

# RFC 9309, section 2.3.1.2: follow at least five redirects, then robots.txt counts as unavailable.
REDIRECTS = 5
# Seconds before an unreachable robots.txt is fetched again: shorter than an hour, after which
# deferred hosts are tried again.
# It survives a restart only with a last good copy; without one, the next start tries at once.
UNREACHABLE_TTL = 1800.0
# Hosts waiting in memory (3 kB each) for a robots.txt on one other host, and in all. One turn of
# the event loop settles all of one host. For hosts over the limit robots.txt is unreachable.
WAITING_AT_ONE = 100
WAITING_MAX = 10_000


class RobotsFetches:
    """Handles the answers of robots fetches, and keeps the records in ``cache``, for ``gate``.

    ``agent`` is the product token that rules are read for. ``ttl`` is the life of a record in
    seconds, ``wall`` a clock in epoch seconds. ``on_found`` is called with each robots fetch whose
    robots.txt was fetched or does not exist, and with the sitemaps that the file names. ``waiting``
    counts the fetches that hosts await from others.
    """

    def __init__(
        self,
        frontier: Frontier,
        *,
        agent: str,
        ttl: float,
        limits: RetryLimits,
        wall: Callable[[], float],
        on_found: Callable[[RobotsFetch, list[str]], None] | None = None,
    ):
        self._schedule = frontier.schedule
        self._linked_ports = frontier.linked_ports
        self.cache = RobotsCache(frontier.store, agent, wall, ttl=ttl)
        crawl_delay_max = frontier.schedule.rule.crawl_delay_max
        self.gate = RobotsGate(self.cache, crawl_delay_max=crawl_delay_max, wall=wall)
        self._ttl = ttl
        self._limits = limits
        self._wall = wall
        self._on_found = on_found
        self.waiting = 0

    # --- answers ---

    def answered(
        self, robots_fetch: RobotsFetch, status: int, body: bytes, location: str | None
    ) -> None:
        """Handle an answer; ``location`` is its Location header, None without one."""
        ruling = judge(status)
        if ruling is Ruling.REDIRECT:
            # Other hosts that wait for this robots.txt follow the redirect too. Fetches of this
            # host's own robots.txt stay queued.
            for other in self._sharing(robots_fetch):
                if other.is_away:
                    self._queued_at(host_of(robots_fetch.url)).remove(other)
                    self._follow(other, location)
            self._follow(robots_fetch, location)
            return
        if ruling is Ruling.RETRY:
            for each in (robots_fetch, *self._sharing(robots_fetch)):
                each.throttling += 1
            asks_for_rest = status in THROTTLING
            limit = self._limits.throttling if asks_for_rest else self._limits.retries
            if robots_fetch.throttling <= limit:
                self.queue(robots_fetch)
                return
        self._conclude(robots_fetch, self._record(ruling, status, body))

    def failed(self, robots_fetch: RobotsFetch, *, final: bool) -> None:
        """Handle a try without an answer; ``final`` means that a retry is pointless."""
        for each in (robots_fetch, *self._sharing(robots_fetch)):
            each.retries += 1
        if not final and robots_fetch.retries <= self._limits.retries:
            self.queue(robots_fetch)
        else:
            self._conclude(robots_fetch, self._record(Ruling.RETRY))

    def queue(self, robots_fetch: RobotsFetch) -> None:
        """Queue a robots fetch at the host of its URL. If that is another host, its own host awaits
        it."""
        target, own = host_of(robots_fetch.url), robots_fetch.host
        if not self._schedule.ownership.is_ours(target):
            # The ring changed while it was in flight.
            self._give_up(robots_fetch)
            return
        if target == own.name:
            self._come_home(robots_fetch)
        elif not robots_fetch.is_away:
            own.robots.awaited.append(robots_fetch)
            self.waiting += 1
        self._schedule.enqueue_robots_fetch(target, robots_fetch)

    def _follow(self, robots_fetch: RobotsFetch, location: str | None) -> None:
        """Follow a redirect, or settle for what it leads to."""
        robots_fetch.redirects += 1
        target = normalise(location, robots_fetch.url) if location else None
        if (
            target is None
            or robots_fetch.redirects > REDIRECTS
            or not robots_fetch.may_follow(target)
            or not self._may_ask(host_of(target), robots_fetch.host)
        ):
            self._settle(robots_fetch, self._record(Ruling.ALLOW_ALL))
            return
        if robots_fetch.source is not None:
            robots_fetch.passed.append(robots_fetch.source)
        robots_fetch.url = target
        source = robots_fetch.source
        if source is not None and (known := self.cache.record(source)) is not None:
            self._settle(robots_fetch, known)
        elif self._would_wait_for_ever(robots_fetch.host, host_of(target)):
            self._settle(robots_fetch, self._record(Ruling.RETRY))
        else:
            self.queue(robots_fetch)

    def _may_ask(self, target: str, host: Host) -> bool:
        """Return whether a redirect of a host's robots.txt may lead to a host, judged by its
        port."""
        if ":" not in target or target == host.name:
            return True
        return not is_blocked(target) and self._linked_ports.admits(target)

    def _would_wait_for_ever(self, host: Host, target: str) -> bool:
        """Return whether a host would wait for a day or more for a robots.txt on another host, or
        too many hosts wait already."""
        if not self._schedule.ownership.is_ours(target):
            return True
        return self._schedule.cache.get(target).state is DEFERRED or (
            target != host.name
            and (self.waiting >= WAITING_MAX or len(self._queued_at(target)) >= WAITING_AT_ONE)
        )

    # --- changes of the ring ---

    def ring_changed(self) -> None:
        """Call `Ownership.ring_changed`, then `abandon` each host that another node owns now.

        Afterwards no host awaits a robots.txt from a host that is not ours.
        """
        ownership = self._schedule.ownership
        ownership.ring_changed()
        for host in list(self._schedule.cache.hosts.values()):
            if host.robots.fetches and not ownership.is_ours(host.name):
                self.abandon(host.name)

    def abandon(self, name: str) -> None:
        """End the robots fetches that are queued at a host that another node owns now.

        For our hosts that await them, robots.txt is unreachable.
        """
        queued = self._queued_at(name)
        waiting = queued.copy()
        queued.clear()
        for robots_fetch in waiting:
            self._give_up(robots_fetch)

    def call_back(self, name: str) -> None:
        """End the wait of a host that leaves, if its robots fetch is queued at another host. One
        that is in flight goes on."""
        host = self._schedule.cache.get(name)
        for robots_fetch in cast("list[RobotsFetch]", host.robots.awaited.copy()):
            queued = self._queued_at(host_of(robots_fetch.url))
            if robots_fetch in queued:
                queued.remove(robots_fetch)
                self._come_home(robots_fetch)

    def _give_up(self, robots_fetch: RobotsFetch) -> None:
        """End a robots fetch whose target host belongs to another node."""
        if not robots_fetch.is_away:
            return
        if self._schedule.ownership.is_ours(robots_fetch.host.name):
            self._settle(robots_fetch, self._record(Ruling.RETRY))
        else:
            self._come_home(robots_fetch)

    # --- results ---

    def _conclude(self, robots_fetch: RobotsFetch, record: RobotsRecord) -> None:
        """Keep the final answer at the robots fetch's URL, and end the robots fetch.

        The answer holds for every authority whose robots.txt is at that URL. It also ends all
        robots fetches that wait for the same URL.
        """
        target = self._schedule.cache.get(host_of(robots_fetch.url))
        sources = {*robots_fetch.passed, robots_fetch.source or robots_fetch.authority}
        for authority in sources - {robots_fetch.authority}:
            # That authority will have no robots fetch of its own. The pages of this host may lead
            # to the sitemaps of its own domain only.
            own = domain_of(host_of(authority + "/")) == robots_fetch.host.domain
            passed = RobotsFetch(authority, robots_fetch.host, robots_fetch.url) if own else None
            self._learn(authority, record, passed)
        for other in self._sharing(robots_fetch):
            target.robots.fetches.remove(other)
            self._settle(other, record)
        target.rate.floor = self.gate.crawl_delay(target.name)
        self._settle(robots_fetch, record)

    def _settle(self, robots_fetch: RobotsFetch, record: RobotsRecord) -> None:
        """Keep the record and end the robots fetch."""
        self._learn(robots_fetch.authority, record, robots_fetch)
        host = robots_fetch.host
        host.rate.floor = self.gate.crawl_delay(host.name)
        self._come_home(robots_fetch)

    def _learn(
        self, authority: str, record: RobotsRecord, robots_fetch: RobotsFetch | None
    ) -> None:
        """Keep the record of an authority; report its sitemaps for a robots fetch, if any."""
        receive = None
        if robots_fetch is not None and self._on_found is not None:
            receive = partial(self._on_found, robots_fetch)
        self.cache.learn(authority, record, receive)

    def _come_home(self, robots_fetch: RobotsFetch) -> None:
        """End the wait of the page's host for this fetch, if it waits."""
        if robots_fetch.is_away:
            robots_fetch.host.robots.awaited.remove(robots_fetch)
            self.waiting -= 1
            self._schedule.resume(robots_fetch.host)

    def _sharing(self, robots_fetch: RobotsFetch) -> list[RobotsFetch]:
        """Return the robots fetches that wait for the same URL; this one's tries count for them."""
        queued = self._queued_at(host_of(robots_fetch.url))
        return [other for other in queued if other.url == robots_fetch.url]

    def _queued_at(self, name: str) -> list[RobotsFetch]:
        """Return the list of robots fetches queued at a host: the list itself, not a copy."""
        return self._schedule.cache.get(name).robots.fetches  # type: ignore[return-value]

    def _record(self, ruling: Ruling, status: int = 0, body: bytes = b"") -> RobotsRecord:
        now = self._wall()
        life = UNREACHABLE_TTL if ruling is Ruling.RETRY else self._ttl
        return RobotsRecord(ruling.value, now, now + life, status, body)
