"""This process as one node of a cluster: whose a domain is, what goes out to other nodes, and what comes in from them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from krowlspider.cluster.allowance import Allowance
from krowlspider.cluster.forwarder import Forwarder
from krowlspider.cluster.inbox import Inbox, lengths, requests_key
from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.quiet import Quiet, Word
from krowlspider.cluster.redisio import RedisTrouble, redis_client, shown
from krowlspider.cluster.signal import Signal
from krowlspider.cluster.tasks import end
from krowlspider.errors import KrowlError
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Sequence

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.claims import View
    from krowlspider.cluster.membership import Counters, Membership
    from krowlspider.cluster.message import Message
    from krowlspider.cluster.signals import Budget, Signals
    from krowlspider.frontier.arrival import Arrivals
    from krowlspider.frontier.departure import Departures
    from krowlspider.frontier.outbox import Outbox

logger = logging.getLogger(__name__)

# Seconds between two heartbeats: the end of a crawl is seen after three.
BEAT = 1.0
# Beats in which the others have heard that all is over, or do not live.
_LAST_BEATS = 5


class Crawl(Protocol):
    """The crawl of this node, to those who deal with the others."""

    departures: Departures
    arrivals: Arrivals

    @property
    def outbox(self) -> Outbox: ...

    async def take_in(self, messages: list[Message]) -> None:
        """Queue what came."""

    def take_back(self, found: Sequence[tuple[bytes, bytes]]) -> None:
        """Decide what waited in the outbox, and is ours now: key and message of each."""

    async def commit(self) -> None:
        """Acknowledge what is done."""

    async def make_durable(self) -> None:
        """Return when all that was written is on the disk to stay."""

    def hang_up(self) -> None:
        """End what is in transit."""

    def ring_changed(self) -> None:
        """Whose a domain is, or whether it may be fetched, may be told otherwise now."""

    @property
    def left(self) -> int:
        """URLs in the frontier and the outbox, which other nodes can read."""

    @property
    def stays(self) -> int:
        """Entries of others' hosts that no other node can read or takes."""

    @property
    def full(self) -> bool:
        """Whether nothing is to be taken in."""

    @property
    def turn(self) -> int:
        """The most messages that are to be taken in at once."""

    @property
    def lacks_room(self) -> bool:
        """Whether there is no room on a disk, or less than is wanted."""

    @property
    def stalled(self) -> bool:
        """Whether nothing may be written, so nothing can leave the outbox."""

    @property
    def rests(self) -> bool:
        """Whether frontier and outbox are empty, and nothing is in transit."""

    def activity(self) -> int:
        """Counts all that was ever done here."""

    def figures(self) -> Counters:
        """For people."""


class Node(ABC):
    """A member of a cluster: ``own`` is its id, ``seed`` that of the identities of all.

    Nothing is to be popped unless it is `ready`. ``on_change`` is called when that may have changed, ``on_over`` when the
    crawl is over for all, ``on_stop`` when all are told to stop, and ``on_failure`` when this node cannot go on.
    """

    membership: Membership
    signals: Signals
    inbox: Inbox
    forwarder: Forwarder

    def __init__(self, settings: BaseSettings, spider: str):
        self.own: str = settings["KROWL_NODE_ID"] or socket.gethostname()
        self.seed = 0
        # Whether a new folder may have that seed.
        self.may_begin = True
        self._spider = spider
        self._inbox_max = settings.getint("KROWL_INBOX_MAX")
        # Of all nodes together, 0 for no limit.
        self.pages = settings.getint("KROWL_CLUSTER_PAGES")
        self.budget: Budget | None = None
        self.allowance: Allowance | None = None
        self._clients: dict[str, Redis] = {}
        self._quiet = Quiet()
        # Of this process, among all that have this id.
        self._start = secrets.randbits(52)
        self._beat = 0
        # What the last word said: that others find all to be over counts for nothing while there is work here.
        self._was_quiet = False
        # The processes for which the crawl is over.
        self._crew = 0
        self._tasks: list[asyncio.Task[None]] = []
        # Whether it has been begun, and whether it is a member.
        self.running = self.joined = False
        # Set when it is known whose a URL is, or when that will never be.
        self.known = asyncio.Event()
        # Those that ended before all was over.
        self.left: list[str] = []
        self.on_change: Callable[[], None] = lambda: None
        self.on_over: Callable[[], None] = lambda: None
        self.on_stop: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda _: None

    # --- whose a domain is ---

    @property
    @abstractmethod
    def place(self) -> str:
        """This node in this cluster, in a word: a job folder belongs to it."""

    @property
    @abstractmethod
    def view(self) -> View:
        """The ring by which URLs go to their owners."""

    @abstractmethod
    def may_fetch(self, domain: str) -> bool:
        """Whether a host of the domain may be fetched: errands for robots.txt too may lead to others'."""

    def others(self, hosts: list[str]) -> list[str | None]:
        """The node that owns each host, None for one of ours."""
        own, owner_of = self.own, self.view.owner
        return [None if (owner := owner_of(domain_of(host))) == own else owner for host in hosts]

    @property
    def over(self) -> bool:
        """Whether nothing is left to fetch at any node."""
        return bool(self._crew)

    @property
    def ready(self) -> bool:
        """Whether anything may be fetched now."""
        paged = self.allowance is None or self.allowance.left > 0
        return self.joined and paged and self.signals.signal is Signal.RUNNING

    @property
    def may_send(self) -> bool:
        """Whether it is known whose a URL is now."""
        return True

    @property
    def spent(self) -> bool:
        """Whether the pages of the whole cluster have been fetched."""
        return self.allowance is not None and self.allowance.spent

    @property
    @abstractmethod
    def knows(self) -> bool:
        """Whether it is known whose a URL is."""

    # --- life ---

    @abstractmethod
    def prepare(self) -> None:
        """Learn the seed, before the job is opened.

        :raises ClusterError: nobody can be reached
        """

    def run(self, crawl: Crawl) -> None:
        """Join, forward what is in the outbox, and have what comes in stored."""
        self._crawl = crawl
        self.forwarder = Forwarder(
            crawl.outbox,
            self.client_of,
            requests_key(self._spider),
            inbox_max=self._inbox_max,
            paused=lambda: crawl.stalled or not self.may_send,
        )
        self.inbox = self._make_inbox(crawl)
        self.running = True
        self.signals.on_change = self._signalled
        self._spawn(self._work())

    def _signalled(self) -> None:
        if self.signals.signal is Signal.STOP:
            self.on_stop()
        self.on_change()

    @abstractmethod
    def _make_inbox(self, crawl: Crawl) -> Inbox: ...

    @abstractmethod
    def client_of(self, node: str) -> Redis | None:
        """The Redis of a member, None for one that is none."""

    async def _work(self) -> None:
        await self.signals.start()
        await self._join()
        self.joined = True
        for work in (self.forwarder.run(), self.inbox.run(), self._keep_telling()):
            self._spawn(work)
        if self.budget is not None:
            self.allowance = Allowance(
                self.budget, self.pages, self.on_change, wanted=lambda: not self._crawl.rests
            )
            self._spawn(self.allowance.run())
        self.on_change()

    @abstractmethod
    async def _join(self) -> None:
        """:raises ClusterError: this node cannot be a member"""

    def _spawn(self, work: Awaitable[None]) -> None:
        # Each by itself: of a group of tasks one that misses its cancellation is waited for in vain.
        self._tasks.append(asyncio.create_task(self._watched(work)))

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            # Without it URLs would neither go nor come.
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                (error,) = error.exceptions
            if not isinstance(error, KrowlError):
                logger.critical("This node of the cluster cannot go on", exc_info=error)
            self.on_failure(error)
            self.known.set()

    async def _keep_telling(self) -> None:
        """Say how it goes, and hear the others, until the crawl of all is over."""
        while not self._crew:
            await asyncio.sleep(BEAT)
            await self._check()
            await self._tell()
            self._hear(self._words())
        # The others hear it from this one's words while it is there, and need not find it out for themselves.
        for _ in range(_LAST_BEATS):
            await self._tell()
            if all(
                word is not None and (word.left or word.over) for word in self._words().values()
            ):
                break
            await asyncio.sleep(BEAT)
        self.on_over()

    def _words(self) -> dict[str, Word | None]:
        return {name: Word.of(record.counters) for name, record in self.membership.members.items()}

    @abstractmethod
    async def _check(self) -> None:
        """Before each word."""

    @abstractmethod
    def _hear(self, words: dict[str, Word | None]) -> None:
        """What all have said last: is it over?"""

    async def _tell(self, *, left: bool = False) -> None:
        # What was done is read first, and the inbox before the frontier: what moves from the one to the other
        # meanwhile is seen in one of them, or as activity.
        activity = self._activity()
        quiet = await self.is_inbox_empty() and self._rests() and activity == self._activity()
        self._was_quiet = quiet
        self._beat += 1
        word = Word(self._start, self._beat, quiet, activity, self._crew, left)
        await self.membership.beat({**self._figures(), **word.counters()})

    def _figures(self) -> Counters:
        """For people, and those who leave."""
        return {**self._crawl.figures(), "time": round(time.time())}

    def _activity(self) -> int:
        return self._crawl.activity()

    def _rests(self) -> bool:
        return self._crawl.rests

    @property
    def waits_for(self) -> str:
        """Why nothing is fetched now; empty when something may be."""
        if not self.joined:
            return "to be a member of the cluster"
        if self.signals.signal is not Signal.RUNNING:
            return "as the cluster's signal says"
        if self._crawl.rests:
            return "for the other nodes"
        is_spent = self.allowance is not None and not self.allowance.left
        return "for pages of the cluster's" if is_spent else ""

    def counts(self) -> dict[str, int]:
        """What went out and came in since this start, by the names of the stats below ``krowl/cluster/``."""
        sent, taken = self.forwarder.stats, self.inbox.stats
        counts = {
            "sent_count": sent.sent,
            "taken_count": taken.taken,
            "held_count": sent.held,
            "dead_count": taken.dead,
            "dead_lost_count": taken.dead_lost,
        }
        for kind, failed in self._failed().items():
            counts[f"failed_count/{kind}"] = failed
        return counts

    def _failed(self) -> Counter[str]:
        """Troubles with Redis, by kind."""
        return self.forwarder.stats.failed + self.inbox.stats.failed

    async def is_inbox_empty(self) -> bool:
        """Whether nothing waits in this node's Redis; not when it does not tell."""
        client = self.client_of(self.own)
        if client is None:
            return False
        try:
            found = await lengths(client, self._spider, self.own)
        except RedisTrouble:
            return False
        return not (found.requests or found.start_urls or found.hosts or found.processing)

    @abstractmethod
    async def part(self, *, drain: bool) -> None:
        """Before the end, while it still runs: give away what is ours if the crawl goes on elsewhere, and ``drain``."""

    async def stop(self) -> None:
        """Forward and take no more, and say so. What has not been sent stays in the outbox."""
        running, self._tasks = self._tasks, []
        await end(running)
        self.known.set()
        if self.running:
            await self.signals.close()
            if self.allowance is not None:
                await self.allowance.close()
            await self._depart()
        for client in self._clients.values():
            await client.aclose()

    @abstractmethod
    async def _depart(self) -> None:
        """Be no member any more."""

    def _client(self, url: str) -> Redis:
        """:raises ClusterError: it is no URL of a Redis"""
        if url not in self._clients:
            try:
                self._clients[url] = redis_client(url)
            except ValueError as error:
                raise ClusterError(f"{shown(url)}: {error}") from error
        return self._clients[url]
