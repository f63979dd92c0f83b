"""Run the fetches of robots.txt, and ask other nodes for those of their hosts (RFC 9309).

Asks to other nodes: each is for one robots.txt on a host that another node owns. The owner fetches
that URL alone, when its host is due, and answers what it found there. The node that asked follows
redirects, so they may lead from owner to owner.

Runs the fetches of robots.txt: their retries, redirects and results (RFC 9309). A robots.txt on the
page's own host is fetched when that host is due. If it redirects to another host, the target is
fetched when that other host is due, and the page's host awaits it. A target that the robots.txt of
many hosts redirect to is fetched once for all of them. If another node owns the target's host, that
node is asked, and fetches it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from krowlspider.frontier.hosts.host import DEFERRED, RobotsFetch
from krowlspider.frontier.robots.gate import UNREACHABLE_TTL, RobotsCache, RobotsGate, no_reader
from krowlspider.politeness.delay import THROTTLING, THROTTLING_TIMES
from krowlspider.politeness.robots import RobotsRecord, Ruling, judge
from krowlspider.urls.canonical import domain_of, has_bad_port, host_of, normalise_without_user
from krowlspider.urls.gemini import is_gemini

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.politeness.gemini import ReadPrefixes

# Seconds until an owner is asked again, which then answers at least that the fetch waits; and the
# asks in a row without any answer after which the robots.txt counts as unreachable.
ASK_AGAIN = 30.0
ASKS_MAX = 10


class Peers(Protocol):
    """The other nodes. Messages to them may be lost, or arrive twice."""

    def owner(self, host: str) -> str | None:
        """Return the other node that owns a host; None if this one does."""

    def ask(self, node: str, number: int, url: str) -> bool:
        """Ask a node for the robots.txt at ``url``; return False if it takes no messages now."""

    def answer(
        self,
        node: str,
        number: int,
        *,
        record: RobotsRecord | None = None,
        location: str | None = None,
    ) -> None:
        """Answer a node's ask: by a record, by the target of a redirect, or that it waits."""


class Alone:
    """The peers of a frontier that owns all hosts: there are none."""

    def owner(self, host: str) -> None:
        """Return None: this frontier owns the host."""

    def ask(self, node: str, number: int, url: str) -> bool:
        return False

    def answer(self, node: str, number: int, **_: object) -> None: ...


class PendingAsk(Struct, eq=False):
    """An ask to ``node``, last sent at ``sent``; ``waiting`` are the robots fetches that need it.

    ``number`` is random, so that only who was asked can answer. ``unanswered`` counts how often it
    was sent since the last answer.
    """

    node: str
    number: int
    url: str
    sent: float
    unanswered: int = 1
    waiting: list[RobotsFetch] = field(default_factory=list)


class Asks:
    """The asks that have no final answer. ``now`` returns the job clock in seconds."""

    def __init__(self, peers: Peers, now: Callable[[], float]):
        self._peers = peers
        self._now = now
        self._by_url: dict[str, PendingAsk] = {}
        self._by_number: dict[int, PendingAsk] = {}
        # Robots fetches that wait, by the host of their URL.
        self._waiting: Counter[str] = Counter()

    def waiting_at(self, host: str) -> int:
        return self._waiting[host]

    def add(self, robots_fetch: RobotsFetch, owner: str) -> None:
        """Ask the owner of a robots fetch's URL, once for all robots fetches of that URL."""
        url = robots_fetch.url
        ask = self._by_url.get(url)
        if ask is None:
            ask = PendingAsk(owner, secrets.randbits(52), url, self._now())
            self._by_url[url] = ask
            self._by_number[ask.number] = ask
            self._peers.ask(owner, ask.number, url)
        ask.waiting.append(robots_fetch)
        self._waiting[host_of(url)] += 1

    def by_number(self, number: int) -> PendingAsk | None:
        return self._by_number.get(number)

    def end(self, ask: PendingAsk) -> list[RobotsFetch]:
        """End an ask, and return the robots fetches that waited for it."""
        del self._by_url[ask.url], self._by_number[ask.number]
        self._leave(ask.url, len(ask.waiting))
        return ask.waiting

    def withdraw(self, robots_fetch: RobotsFetch) -> bool:
        """Let a robots fetch wait no more; return whether it waited."""
        ask = self._by_url.get(robots_fetch.url)
        if ask is None or robots_fetch not in ask.waiting:
            return False
        if ask.waiting == [robots_fetch]:
            self.end(ask)
        else:
            ask.waiting.remove(robots_fetch)
            self._leave(ask.url, 1)
        return True

    def _leave(self, url: str, count: int) -> None:
        host = host_of(url)
        self._waiting[host] -= count
        if not self._waiting[host]:
            del self._waiting[host]

    def end_moved(self) -> list[RobotsFetch]:
        """End the asks to nodes that do not own the host any more; return who waited."""
        moved = [
            ask for ask in self._by_url.values() if self._peers.owner(host_of(ask.url)) != ask.node
        ]
        return [robots_fetch for ask in moved for robots_fetch in self.end(ask)]

    def repeat(self) -> list[RobotsFetch]:
        """Send the asks again that are due; end those without an answer, and return who waited."""
        now = self._now()
        given_up = []
        for ask in [each for each in self._by_url.values() if now >= each.sent + ASK_AGAIN]:
            if ask.unanswered >= ASKS_MAX:
                given_up += self.end(ask)
                continue
            ask.sent = now
            # A node that is dead or leaves cannot answer: it returns, or the host gets a new owner.
            ask.unanswered += self._peers.ask(ask.node, ask.number, ask.url)
        return given_up


# RFC 9309, section 2.3.1.2: follow at least five redirects, then robots.txt counts as unavailable.
REDIRECTS = 5
# Maximum characters of a URL that a redirect of robots.txt is followed to, like URLLENGTH_LIMIT.
URL_MAX = 2048
# Hosts waiting in memory (3 kB each) for a robots.txt on one other host, and in all. One turn of
# the event loop settles all of one host. For hosts over the limit robots.txt is unreachable. The
# same limits hold for what other nodes ask for.
WAITING_AT_ONE = 100
WAITING_MAX = 10_000


class RobotsFetches:
    """Handles the answers of robots fetches, and keeps the records in ``cache``, for ``gate``.

    ``agent`` is the product token that rules are read for. ``ttl`` is the life of a record in
    seconds, ``wall`` a clock in epoch seconds. A fetch is tried again ``retries`` times after no
    answer or a 5xx, ``throttling`` times after 429 or 503. ``on_found`` is called with each robots
    fetch whose robots.txt was fetched or does not exist, and with the sitemaps that the file names.
    ``waiting`` counts the fetches that hosts await from others. ``peers`` are the other nodes,
    ``read_prefixes`` is as in `RobotsCache`.
    """

    def __init__(
        self,
        frontier: Frontier,
        *,
        agent: str,
        ttl: float,
        retries: int,
        wall: Callable[[], float],
        throttling: int = THROTTLING_TIMES,
        on_found: Callable[[RobotsFetch, list[str]], None] | None = None,
        peers: Peers | None = None,
        read_prefixes: ReadPrefixes = no_reader,
    ):
        self._schedule = frontier.schedule
        self._peers = Alone() if peers is None else peers
        self._asks = Asks(self._peers, frontier.now)
        # The fetches that other nodes asked for, by URL.
        self._asked: dict[str, RobotsFetch] = {}
        self._linked_ports = frontier.linked_ports
        self.cache = RobotsCache(frontier.store, agent, wall, ttl=ttl, read_prefixes=read_prefixes)
        crawl_delay_max = frontier.schedule.rule.crawl_delay_max
        self.gate = RobotsGate(self.cache, crawl_delay_max=crawl_delay_max)
        self._on_found = on_found
        self._retries = retries
        self._throttling = throttling
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
                if other.is_away or other.asked_by:
                    self._queued_at(host_of(robots_fetch.url)).remove(other)
                    self._follow(other, location)
            self._follow(robots_fetch, location)
            return
        if ruling is Ruling.RETRY:
            for each in (robots_fetch, *self._sharing(robots_fetch)):
                each.throttling += 1
            asks_for_rest = status in THROTTLING
            limit = self._throttling if asks_for_rest else self._retries
            if robots_fetch.throttling <= limit:
                self.queue(robots_fetch)
                return
        self._conclude(robots_fetch, self.cache.new_record(ruling, status, body))

    def failed(self, robots_fetch: RobotsFetch, *, final: bool) -> None:
        """Handle a try without an answer; ``final`` means that a retry is pointless."""
        for each in (robots_fetch, *self._sharing(robots_fetch)):
            each.retries += 1
        if not final and robots_fetch.retries <= self._retries:
            self.queue(robots_fetch)
        else:
            self._conclude(robots_fetch, self.cache.new_record(Ruling.RETRY))

    def queue(self, robots_fetch: RobotsFetch) -> None:
        """Queue a robots fetch at the host of its URL, or ask the node that owns that host. If it
        is another host, the fetch's own host awaits it."""
        target, own = host_of(robots_fetch.url), robots_fetch.host
        owner = self._peers.owner(target)
        if owner is not None and self._peers.owner(own.name) is not None:
            # The ring changed while it was in flight.
            self._give_up(robots_fetch)
            return
        if target == own.name:
            self._come_home(robots_fetch)
        elif not robots_fetch.is_away:
            own.robots.awaited.append(robots_fetch)
            self.waiting += 1
        if owner is None:
            self._schedule.enqueue_robots_fetch(target, robots_fetch)
        else:
            self._asks.add(robots_fetch, owner)

    def _follow(self, robots_fetch: RobotsFetch, location: str | None) -> None:
        """Follow a redirect, or settle for what it leads to. For other nodes, answer with it."""
        robots_fetch.redirects += 1
        # RFC 9309 knows no user names: the file is fetched without them.
        target = normalise_without_user(location, robots_fetch.url) if location else None
        if target is not None and (
            len(target) > URL_MAX or is_gemini(target) != is_gemini(robots_fetch.url)
        ):
            # The rules of one protocol say nothing to the other.
            target = None
        if target is not None and robots_fetch.asked_by:
            self._answer(robots_fetch, location=target)
            return
        own = robots_fetch.host.name
        if (
            target is None
            or robots_fetch.redirects > REDIRECTS
            or not (host_of(target) == own or self._may_ask(target))
        ):
            self._settle(robots_fetch, self.cache.new_record(Ruling.ALLOW_ALL))
            return
        if robots_fetch.source is not None:
            robots_fetch.passed.append(robots_fetch.source)
        robots_fetch.url = target
        source = robots_fetch.source
        if source is not None and (known := self.cache.record(source)) is not None:
            self._settle(robots_fetch, known)
        elif self._would_wait_for_ever(own, host_of(target)):
            self._settle(robots_fetch, self.cache.new_record(Ruling.RETRY))
        else:
            self.queue(robots_fetch)

    def _may_ask(self, url: str) -> bool:
        """Return whether a redirect of robots.txt may lead to a URL on another host.

        It must be a text file by its name. Any other page there would be fetched without that
        host's rules, and a home page holds no rules. A port must be one that links may lead to.
        """
        if not url.partition("?")[0].lower().endswith(".txt"):
            return False
        host = host_of(url)
        return ":" not in host or (not has_bad_port(host) and self._linked_ports.admits(host))

    def _would_wait_for_ever(self, host: str, target: str) -> bool:
        """Return whether ``host`` would wait for a day or more for a robots.txt on ``target``, or
        too many hosts wait already."""
        if target != host and self.waiting >= WAITING_MAX:
            return True
        if self._peers.owner(target) is not None:
            return self._asks.waiting_at(target) >= WAITING_AT_ONE
        found = self._schedule.cache.get(target)
        if found.state is DEFERRED and found.due > self._schedule.now() + UNREACHABLE_TTL:
            return True
        return target != host and len(found.robots.fetches) >= WAITING_AT_ONE

    # --- other nodes ---

    @property
    def asked(self) -> int:
        """Return how many robots.txt are to be fetched here for other nodes."""
        return len(self._asked)

    def take_ask(self, node: str, number: int, url: str) -> None:
        """Answer another node's ask for the robots.txt at a normalised URL, now or once it is
        fetched.

        An ask for a host of another node is ignored: its sender asks again, by its new ring.
        """
        name = host_of(url)
        if self._peers.owner(name) is not None:
            return
        if (known := self._asked.get(url)) is not None:
            if known.asked_by.get(node) == number:
                self._peers.answer(node, number)
            known.asked_by[node] = number
            return
        asked = RobotsFetch("", self._schedule.cache.get(name), url, asked_by={node: number})
        source = asked.source
        if not self._may_ask(url):
            self._settle(asked, self.cache.new_record(Ruling.ALLOW_ALL))
        elif source is not None and (record := self.cache.record(source)) is not None:
            self._settle(asked, record)
        elif len(self._asked) >= WAITING_MAX or self._would_wait_for_ever("", name):
            self._settle(asked, self.cache.new_record(Ruling.RETRY))
        else:
            self._asked[url] = asked
            self.queue(asked)

    def take_answer(
        self, number: int, *, record: RobotsRecord | None = None, location: str | None = None
    ) -> None:
        """Take another node's answer, as in `Peers.answer`; ignore it if nothing waits for it."""
        ask = self._asks.by_number(number)
        if ask is None:
            return
        if location is not None:
            for robots_fetch in self._asks.end(ask):
                self._follow(robots_fetch, location)
        elif record is not None:
            waiting, ours = self._asks.end(ask), self.cache.received(record)
            self._learn_passed(waiting[0], ours)
            for robots_fetch in waiting:
                self._settle(robots_fetch, ours)
        else:
            ask.unanswered = 0

    def ask_again(self) -> None:
        """Ask again where no answer came for a while. Call it about once a second."""
        for robots_fetch in self._asks.repeat():
            self._settle(robots_fetch, self.cache.new_record(Ruling.RETRY))

    def _answer(
        self,
        robots_fetch: RobotsFetch,
        *,
        record: RobotsRecord | None = None,
        location: str | None = None,
    ) -> None:
        """Answer the nodes that asked for a robots fetch, which is over."""
        self._asked.pop(robots_fetch.url, None)
        for node, number in robots_fetch.asked_by.items():
            self._peers.answer(node, number, record=record, location=location)

    # --- changes of the ring ---

    def ring_changed(self) -> None:
        """Call `Ownership.ring_changed`, then `abandon` each host that another node owns now.

        Afterwards every robots.txt of another node's host is asked for from its present owner.
        """
        self._schedule.ownership.ring_changed()
        for host in list(self._schedule.cache.hosts.values()):
            if host.robots.fetches and self._peers.owner(host.name) is not None:
                self.abandon(host.name)
        for robots_fetch in self._asks.end_moved():
            self.queue(robots_fetch)

    def abandon(self, name: str) -> None:
        """Remove the robots fetches that are queued at a host that another node owns now.

        Our hosts that await them ask that node.
        """
        queued = self._queued_at(name)
        waiting = queued.copy()
        queued.clear()
        for robots_fetch in waiting:
            (self.queue if robots_fetch.is_away else self._give_up)(robots_fetch)

    def call_back(self, name: str) -> None:
        """End the wait of a host that leaves, if its robots fetch is queued at another host, or
        another node was asked. One that is in flight here goes on."""
        host = self._schedule.cache.get(name)
        for robots_fetch in host.robots.awaited.copy():
            queued = self._queued_at(host_of(robots_fetch.url))
            if robots_fetch in queued:
                queued.remove(robots_fetch)
                self._come_home(robots_fetch)
            elif self._asks.withdraw(robots_fetch):
                self._come_home(robots_fetch)

    def _give_up(self, robots_fetch: RobotsFetch) -> None:
        """End a robots fetch whose own host, and that of its URL, belong to other nodes."""
        if robots_fetch.asked_by:
            # The node that asked asks the new owner.
            self._asked.pop(robots_fetch.url, None)
        self._come_home(robots_fetch)

    # --- results ---

    def _conclude(self, robots_fetch: RobotsFetch, record: RobotsRecord) -> None:
        """Keep the final answer at the robots fetch's URL, and end the robots fetch.

        The answer holds for every authority whose robots.txt is at that URL. It also ends all
        robots fetches that wait for the same URL.
        """
        target = self._schedule.cache.get(host_of(robots_fetch.url))
        self._learn_passed(robots_fetch, record)
        for other in self._sharing(robots_fetch):
            target.robots.fetches.remove(other)
            self._settle(other, record)
        target.rate.floor = self.gate.crawl_delay(target.name)
        self._settle(robots_fetch, record)

    def _settle(self, robots_fetch: RobotsFetch, record: RobotsRecord) -> None:
        """Keep the record and end the robots fetch."""
        if robots_fetch.asked_by:
            self._answer(robots_fetch, record=record)
            return
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

    def _learn_passed(self, robots_fetch: RobotsFetch, record: RobotsRecord) -> None:
        """Keep the record of the other authorities whose robots.txt led to the fetch's URL."""
        sources = {*robots_fetch.passed, robots_fetch.source or robots_fetch.authority}
        for authority in sources - {robots_fetch.authority}:
            # That authority will have no robots fetch of its own. The pages of this host may lead
            # to the sitemaps of its own domain only.
            own = domain_of(host_of(authority + "/")) == robots_fetch.host.domain
            passed = RobotsFetch(authority, robots_fetch.host, robots_fetch.url) if own else None
            self._learn(authority, record, passed)

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
        return self._schedule.cache.get(name).robots.fetches
