"""This process as one node of a cluster.

A node finds the owner of a domain, sends URLs to other nodes and takes in the URLs that they send.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from krowlspider.cluster.allowance import Allowance
from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.ring.termination import Heartbeat, TerminationDetector
from krowlspider.cluster.signal import Signal
from krowlspider.cluster.tasks import end
from krowlspider.cluster.transport.forwarder import Forwarder
from krowlspider.cluster.transport.inbox import Inbox, lengths, requests_key
from krowlspider.cluster.transport.redis_connection import RedisTrouble, redis_client, shown
from krowlspider.errors import KrowlError
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Sequence

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.membership import Membership
    from krowlspider.cluster.ring.claims import View
    from krowlspider.cluster.ring.record import Counters
    from krowlspider.cluster.signals import Budget, Signals
    from krowlspider.cluster.transport.message import Message
    from krowlspider.frontier.handover.arrival import Arrivals
    from krowlspider.frontier.handover.departure import Departures
    from krowlspider.frontier.outbox import Outbox

logger = logging.getLogger(__name__)

# Seconds between two heartbeats. The end of a crawl is detected after three heartbeats.
BEAT = 1.0
# Most heartbeats to send after the end, so that live nodes read that the crawl is over.
_LAST_BEATS = 5


class Crawl(Protocol):
    """The crawl of this node, as the code that talks to other nodes sees it."""

    departures: Departures
    arrivals: Arrivals

    @property
    def outbox(self) -> Outbox: ...

    async def take_in(self, messages: list[Message]) -> None:
        """Queue the URLs and requests that other nodes have sent."""

    def take_back(self, found: Sequence[tuple[bytes, bytes]]) -> None:
        """Queue URLs that waited in the outbox and that this node owns now.

        ``found`` has the key and the message of each.
        """

    async def commit(self) -> None:
        """Acknowledge the finished pages in the store."""

    async def make_durable(self) -> None:
        """Return when all that was written is durable on disk."""

    def hang_up(self) -> None:
        """Close the connections of all requests in flight."""

    def ring_changed(self) -> None:
        """React to a change of domain owners, or of the domains that may be fetched."""

    @property
    def left(self) -> int:
        """URLs in the frontier and the outbox that other nodes can read."""

    @property
    def stays(self) -> int:
        """Entries of other nodes' hosts that no other node can read or take."""

    @property
    def full(self) -> bool:
        """Return whether to take in no more messages."""

    @property
    def turn(self) -> int:
        """The most messages to take in at once."""

    @property
    def lacks_room(self) -> bool:
        """Return whether a disk is full, or has less free space than required."""

    @property
    def rests(self) -> bool:
        """Return whether frontier and outbox are empty and nothing is in flight."""

    def activity(self) -> int:
        """Return a counter that grows with everything done on this node."""

    def figures(self) -> Counters:
        """Return the counters that are shown to people."""


class Node(ABC):
    """A member of a cluster. ``own`` is its id, ``seed`` the identity seed of all nodes.

    Pop nothing from the frontier unless the node is `ready`. It calls four callbacks, which are
    assigned after it is made:

    - ``on_change`` when `ready` may have changed.
    - ``on_over`` when the crawl is over on all nodes.
    - ``on_stop`` when the cluster signal is STOP.
    - ``on_failure``, with the error, when this node cannot go on.
    """

    membership: Membership
    signals: Signals
    inbox: Inbox
    forwarder: Forwarder

    def __init__(self, settings: BaseSettings, spider: str):
        self.own: str = settings["KROWL_NODE_ID"] or socket.gethostname()
        self.seed = 0
        # Whether a new job folder may be created with that seed.
        self.may_begin = True
        self._spider = spider
        self._inbox_max = settings.getint("KROWL_INBOX_MAX")
        # Page limit of all nodes together, 0 for no limit.
        self.pages = settings.getint("KROWL_CLUSTER_PAGES")
        self.budget: Budget | None = None
        self.allowance: Allowance | None = None
        self._clients: dict[str, Redis] = {}
        self._termination = TerminationDetector()
        # Random number of this process; it tells apart the processes that have had this id.
        self._start = secrets.randbits(52)
        self._beat = 0
        # Whether the last heartbeat said quiet. Only then does this node judge whether the crawl is
        # over.
        self._was_quiet = False
        # The `run_number` for which the crawl is over, 0 while it is not.
        self._run_over = 0
        self._tasks: list[asyncio.Task[None]] = []
        # ``running``: `run` was called. ``joined``: this node is a member of the cluster.
        self.running = self.joined = False
        # Set when the owner of a URL is known, or when it will never be known.
        self.known = asyncio.Event()
        # Ids of the nodes that ended before the crawl was over.
        self.left: list[str] = []
        self.on_change: Callable[[], None] = lambda: None
        self.on_over: Callable[[], None] = lambda: None
        self.on_stop: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda _: None

    @property
    @abstractmethod
    def place(self) -> str:
        """The name of this node in this cluster. A job folder belongs to one such name."""

    @property
    @abstractmethod
    def view(self) -> View:
        """The view whose ring decides which node a URL goes to."""

    @abstractmethod
    def may_fetch(self, domain: str) -> bool:
        """Return whether a host of the domain may be fetched.

        Robots fetches are checked too, because a robots.txt may redirect to another node's host.
        """

    def others(self, hosts: list[str]) -> list[str | None]:
        """Return the owner of each host, in the order given, None for a host of this node."""
        own, owner_of = self.own, self.view.owner
        return [None if (owner := owner_of(domain_of(host))) == own else owner for host in hosts]

    @property
    def over(self) -> bool:
        """Return whether no node has anything left to fetch."""
        return bool(self._run_over)

    @property
    def ready(self) -> bool:
        """Return whether this node may fetch now."""
        paged = self.allowance is None or self.allowance.left > 0
        return self.joined and paged and self.signals.signal is Signal.RUNNING

    @property
    def may_send(self) -> bool:
        """Return whether the owner of a URL is known now, so that URLs may be sent."""
        return True

    @property
    def spent(self) -> bool:
        """Return whether the page limit of the whole cluster is used up."""
        return self.allowance is not None and self.allowance.spent

    @property
    @abstractmethod
    def knows(self) -> bool:
        """Return whether the owner of a URL is known."""

    @abstractmethod
    def prepare(self) -> None:
        """Find the identity seed, before the job is opened.

        :raises ClusterError: the cluster cannot be reached
        """

    def run(self, crawl: Crawl) -> None:
        """Start to join, to forward the outbox and to take in messages.

        It returns at once; the work runs in tasks.
        """
        self._crawl = crawl
        self.forwarder = Forwarder(
            crawl.outbox,
            self.client_of,
            requests_key(self._spider),
            inbox_max=self._inbox_max,
            paused=lambda: not self.may_send,
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
        """Return the Redis client of a member, None for a node that is no member."""

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
        """Join the cluster.

        :raises ClusterError: this node cannot be a member
        """

    def _spawn(self, work: Awaitable[None]) -> None:
        # No TaskGroup: it would wait for ever for a task that swallows its cancellation.
        self._tasks.append(asyncio.create_task(self._watched(work)))

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            # Without this task, URLs would no longer be sent or taken in.
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                (error,) = error.exceptions
            if not isinstance(error, KrowlError):
                logger.critical("This node of the cluster cannot go on", exc_info=error)
            self.on_failure(error)
            self.known.set()

    async def _keep_telling(self) -> None:
        """Send heartbeats and read the others' until the crawl is over on all nodes."""
        while not self._run_over:
            await asyncio.sleep(BEAT)
            await self._check()
            await self._tell()
            self._hear(self._heartbeats())
        # The other nodes learn the end from these heartbeats, and need not detect it themselves.
        for _ in range(_LAST_BEATS):
            await self._tell()
            if all(
                heartbeat is not None and (heartbeat.left or heartbeat.over)
                for heartbeat in self._heartbeats().values()
            ):
                break
            await asyncio.sleep(BEAT)
        self.on_over()

    def _heartbeats(self) -> dict[str, Heartbeat | None]:
        return {
            name: Heartbeat.of(record.counters) for name, record in self.membership.members.items()
        }

    @abstractmethod
    async def _check(self) -> None:
        """Check the cluster before each heartbeat."""

    @abstractmethod
    def _hear(self, heartbeats: dict[str, Heartbeat | None]) -> None:
        """Decide from the last heartbeats of all nodes whether the crawl is over."""

    async def _tell(self, *, left: bool = False) -> None:
        # Activity is read first, and the inbox before the frontier. So a message that moves between
        # them is seen in one of them, or as activity.
        activity = self._activity()
        quiet = await self.is_inbox_empty() and self._rests() and activity == self._activity()
        self._was_quiet = quiet
        self._beat += 1
        heartbeat = Heartbeat(self._start, self._beat, quiet, activity, self._run_over, left)
        await self.membership.beat({**self._figures(), **heartbeat.counters()})

    def _figures(self) -> Counters:
        """Return the counters that are shown to people and read by nodes that leave."""
        return {**self._crawl.figures(), "time": round(time.time())}

    def _activity(self) -> int:
        return self._crawl.activity()

    def _rests(self) -> bool:
        return self._crawl.rests

    @property
    def waits_for(self) -> str:
        """Why nothing is fetched now, as the end of a sentence; empty if this node may fetch."""
        if not self.joined:
            return "to be a member of the cluster"
        if self.signals.signal is not Signal.RUNNING:
            return "as the cluster's signal says"
        if self._crawl.rests:
            return "for the other nodes"
        is_spent = self.allowance is not None and not self.allowance.left
        return "for pages of the cluster's" if is_spent else ""

    def counts(self) -> dict[str, int]:
        """Return counts since this start, by the names of the stats below ``krowl/cluster/``."""
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
        """Return the number of failed Redis calls, by kind."""
        return self.forwarder.stats.failed + self.inbox.stats.failed

    async def is_inbox_empty(self) -> bool:
        """Return whether no message waits in this node's Redis; False if Redis does not answer."""
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
        """Prepare to leave the cluster, while this node still runs.

        With ``drain``, hand over everything to the other nodes if the crawl goes on there.
        """

    async def stop(self) -> None:
        """Stop forwarding and taking in messages, and leave the cluster.

        Messages that were not sent stay in the outbox.
        """
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
        """Leave the cluster."""

    def _client(self, url: str) -> Redis:
        """Return the client for a Redis URL; each URL has one client.

        :raises ClusterError: ``url`` is not the URL of a Redis
        """
        if url not in self._clients:
            try:
                self._clients[url] = redis_client(url)
            except ValueError as error:
                raise ClusterError(f"{shown(url)}: {error}") from error
        return self._clients[url]
