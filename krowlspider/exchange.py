"""What a crawl gives to the other nodes of its cluster, and what it takes from them: URLs of hosts that others own, and
requests that others have sent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.cluster.message import MAX_URL, TURN, BadMessage, decode, encode
from krowlspider.frontier.arrival import Arrivals
from krowlspider.frontier.departure import Departures
from krowlspider.frontier.frontier import Candidate
from krowlspider.frontier.outbox import Foreign
from krowlspider.frontier.store import STORE_ERRORS
from krowlspider.job import frontier_limits
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.membership import Counters
    from krowlspider.cluster.message import Message
    from krowlspider.codec import RequestCodec
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.outbox import Outbox
    from krowlspider.job import Job
    from krowlspider.node import Node
    from krowlspider.scheduler import Scheduler

logger = logging.getLogger(__name__)

# Nodes that a URL is sent on to before it is dropped: they do not agree on the ring.
_HOPS_MAX = 16


class Exchange:
    """The scheduler's dealings with other nodes."""

    def __init__(
        self,
        scheduler: Scheduler,
        job: Job,
        codec: RequestCodec,
        node: Node,
        *,
        identify: Callable[[Request, str], bytes],
        settings: BaseSettings,
    ):
        self._scheduler = scheduler
        self._job = job
        self._codec = codec
        self._node = node
        self._identify = identify
        self._most = frontier_limits(settings).total
        frontier, store, gate = job.frontier, job.store, job.robots
        frontier.may_fetch = node.may_fetch
        self.departures = Departures(frontier, store, gate, node=node.own, identify=self.identity)
        self.arrivals = Arrivals(frontier, store, gate, self.identity, url_max=MAX_URL)
        node.on_change = scheduler.wake
        node.on_failure = job.fail

    def identity(self, entry: Entry) -> bytes | None:
        """That of an entry, None where it is to be fetched whether it is known or not.

        :raises ValueError: its request can be read by this job only, or must not be read where it comes from
        """
        if not entry.request:
            return self._job.hasher.key(entry.url)
        request = self._codec.portable(entry)
        return None if request.dont_filter else self._identify(request, entry.url)

    # --- how it goes ---

    @property
    def outbox(self) -> Outbox:
        return self._job.frontier.outbox

    @property
    def full(self) -> bool:
        """Whether nothing is to be taken in: what waits in Redis is not lost, and what a cap refuses here, its sender
        would not offer again."""
        frontier = self._job.frontier
        # A turn of both lists brings so many.
        return (
            self.lacks_room or frontier.queued + 2 * self.turn >= self._most or frontier.outbox.full
        )

    @property
    def turn(self) -> int:
        """The most messages that are to be taken in at once."""
        return max(1, min(TURN, self._most // 4))

    @property
    def lacks_room(self) -> bool:
        """Whether there is no room on a disk, or less than the disk guard wants."""
        return self._job.full is not None

    @property
    def stalled(self) -> bool:
        """Whether the frontier keeps in memory what it cannot write: nothing may leave the outbox."""
        return self._job.store.stalled

    @property
    def left(self) -> int:
        """URLs in the frontier and the outbox, which other nodes can read."""
        frontier = self._job.frontier
        return frontier.pending - self.stays + frontier.outbox.depth

    @property
    def stays(self) -> int:
        """Entries of hosts that belong to others, which no other node can read or takes."""
        kept, host = self.departures.kept, self._job.frontier.host
        return sum(max(count, host(name).queued) for name, count in kept.items()) if kept else 0

    @property
    def rests(self) -> bool:
        """Whether frontier and outbox are empty, and nothing is in transit."""
        return self._scheduler.rests

    def activity(self) -> int:
        return self._job.frontier.counters.total()

    async def commit(self) -> None:
        """:raises StoreError: it cannot be written"""
        await self._job.commit()

    async def make_durable(self) -> None:
        """:raises StoreError: it cannot be written, or never will be for want of room"""
        try:
            await self._job.make_durable()
        except STORE_ERRORS as error:
            self._job.fail(error)
            raise

    def hang_up(self) -> None:
        self._job.client.hang_up()

    def ring_changed(self) -> None:
        self._job.robots.ring_changed()
        self._scheduler.wake()

    def figures(self) -> Counters:
        """For people, in this node's heartbeat."""
        frontier = self._job.frontier
        return {
            "done": frontier.counters["done"],
            "queued": frontier.queued,
            "outbox": frontier.outbox.depth,
        }

    # --- out ---

    def outgoing(
        self, owner: str, host: str, identity: bytes | None, entry: Entry
    ) -> list[Foreign]:
        """A discovered URL on its way to its owner; nothing when it cannot go."""
        if len(entry.url) > MAX_URL:
            self._scheduler.count_dropped("length")
            return []
        if len(entry.via) > MAX_URL:
            entry.via = entry.hop = ""
        try:
            return [Foreign(owner, host, identity, self._codec.message(entry))]
        except ValueError:
            self._scheduler.count_dropped("unserializable")
            return []

    def send_off(self, owner: str, candidate: Candidate) -> bool:
        """Whether a request goes to the node that owns its host; not when it is known there, or cannot."""
        entry, key = candidate.entry, candidate.key
        try:
            message = self._codec.message(entry, candidate.priority, always=key is None)
        except ValueError as error:
            logger.error("%s cannot be sent to node %s, which owns it: %s", entry.url, owner, error)
            self._scheduler.count_dropped("unserializable")
            return False
        counters = self._job.frontier.counters
        before = counters["foreign"]
        self._scheduler.add([], [Foreign(owner, candidate.host, key, message)])
        return counters["foreign"] > before

    # --- in ---

    async def take_in(self, messages: list[Message]) -> None:
        """Queue what other nodes, or people, have sent. What another node owns by now goes on to it. They are removed from
        Redis after `make_durable`.

        :raises StoreError: it cannot be written
        """
        self._take(messages)

    def take_back(self, found: Sequence[tuple[bytes, bytes]]) -> None:
        """Decide what waited in the outbox for a node whose domains are ours now: key and message of each.

        :raises StoreError: it cannot be written
        """
        messages, decided = [], []
        for key, data in found:
            try:
                messages.append(decode(data))
            except BadMessage as error:
                # Of a version that took more: nobody else would take it either.
                logger.error("What waited in the outbox cannot be read: %s", error)
                self._scheduler.count_dropped("unserializable")
            decided.append(key)
        self._take(messages, decided)

    def _take(self, messages: list[Message], decided: Sequence[bytes] = ()) -> None:
        hosts = [host_of(message.url) for message in messages]
        foreign: list[Foreign] = []
        plain: list[tuple[Message, str]] = []
        for message, host, owner in zip(messages, hosts, self._node.others(hosts), strict=True):
            if owner is not None:
                foreign += self._sent_on(message, owner, host)
            elif message.rest or message.meta:
                self._take_whole(message)
            else:
                plain.append((message, host))
        if self._scheduler.add(self._received(plain), foreign, decided):
            self._scheduler.wake()

    def _received(self, plain: list[tuple[Message, str]]) -> list[Candidate]:
        """Those pages that are not known, and in scope. They were asked for by name, or were in the scope of a page."""
        scheduler = self._scheduler
        keys = self._job.hasher.keys([message.url for message, _ in plain])
        known = scheduler.knows(keys, lambda at: plain[at][1])
        candidates = []
        for (message, host), key, is_known in zip(plain, keys, known, strict=True):
            if is_known:
                continue
            if reason := scheduler.scope.refusal(message.url, host, message.depth, None):
                scheduler.count_dropped(reason)
            elif self._is_stray(message, host) and not scheduler.may_link(host):
                scheduler.count_dropped("port")
            elif scheduler.exclusions.patterns and scheduler.exclusions.hold_for(message.url):
                scheduler.count_dropped("exclude")
            else:
                entry = self._codec.received(message)
                candidates.append(Candidate(host, key, entry, message.priority))
        return candidates

    def _is_stray(self, message: Message, host: str) -> bool:
        """Whether a link or redirect led to a host with a port: what a person gives has no depth.
        What an ordinary spider asks for has, and is as good as given."""
        led = message.redirects or (message.depth and self._codec.makes_pages)
        return ":" in host and bool(led)

    def _sent_on(self, message: Message, owner: str, host: str) -> list[Foreign]:
        """To the node that owns it now. It has been marked as sent where it came from, so it goes whether known or not."""
        if message.hops >= _HOPS_MAX:
            self._scheduler.count_dropped("hops")
            return []
        message.hops += 1
        try:
            return [Foreign(owner, host, None, encode(message))]
        except ValueError:
            self._scheduler.count_dropped("unserializable")
            return []

    def _take_whole(self, message: Message) -> None:
        """A request of an ordinary spider."""
        try:
            request = self._codec.whole(message)
        except ValueError as error:
            logger.warning("A request for %s is no use to this spider: %s", message.url, error)
            self._scheduler.count_dropped("unserializable")
        else:
            self._scheduler.enqueue_request(request)
