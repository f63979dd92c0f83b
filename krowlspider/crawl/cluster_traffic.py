"""The exchange of a crawl with the other nodes of its cluster.

URLs of hosts that other nodes own go out; requests that other nodes have sent come in.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.message import MAX_URL, TURN, BadMessage, decode, encode
from krowlspider.crawl.parts import frontier_limits
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.handover.arrival import Arrivals
from krowlspider.frontier.handover.departure import Departures
from krowlspider.frontier.outbox import Foreign
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.ring.record import Counters
    from krowlspider.cluster.transport.message import Message
    from krowlspider.crawl.codec import RequestCodec
    from krowlspider.crawl.intake import Intake
    from krowlspider.crawl.job import Job
    from krowlspider.crawl.nodes.node import Node
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.outbox import Outbox

logger = logging.getLogger(__name__)

# Nodes that a URL is forwarded to before it is dropped, because the nodes do not agree on the ring.
_HOPS_MAX = 16


class ClusterTraffic:
    """What a crawl sends to the other nodes of its cluster, and takes in from them.

    ``rests`` returns whether this node has nothing left to do. ``wake`` is called when there is
    something new to fetch.
    """

    def __init__(
        self,
        job: Job,
        node: Node,
        codec: RequestCodec,
        intake: Intake,
        *,
        identify: Callable[[Request, str], bytes],
        settings: BaseSettings,
        rests: Callable[[], bool],
        wake: Callable[[], None],
    ):
        self._job = job
        self._codec = codec
        self._node = node
        self._intake = intake
        self._rests = rests
        self._wake = wake
        self._identify = identify
        self._most = frontier_limits(settings).total
        frontier, store = job.frontier, job.store
        self.departures = Departures(
            frontier, store, job.robots_fetches, node=node.own, identify=self.identity
        )
        self.arrivals = Arrivals(frontier, store, job.robots_cache, self.identity, url_max=MAX_URL)
        node.on_change = wake
        node.on_failure = job.fail

    def identity(self, entry: Entry) -> bytes | None:
        """Return the fingerprint of an entry, None for a request with ``dont_filter``.

        :raises ValueError: only this job can read the request, or this node must not read it
        """
        if not entry.request:
            return self._job.hasher.key(entry.url)
        request = self._codec.portable(entry)
        return None if request.dont_filter else self._identify(request, entry.url)

    @property
    def outbox(self) -> Outbox:
        return self._job.frontier.outbox

    @property
    def full(self) -> bool:
        """Return whether to take in no more messages.

        Messages that wait in Redis are not lost. A URL that a cap refuses here is lost: its sender
        does not offer it again.
        """
        frontier = self._job.frontier
        # Each of the two lists brings up to ``turn`` messages.
        return (
            self.lacks_room or frontier.queued + 2 * self.turn >= self._most or frontier.outbox.full
        )

    @property
    def turn(self) -> int:
        """The most messages to take in at once."""
        return max(1, min(TURN, self._most // 4))

    @property
    def lacks_room(self) -> bool:
        """Return whether a disk is full, or has less free space than the disk guard requires."""
        return self._job.full is not None

    @property
    def left(self) -> int:
        """URLs in the frontier and the outbox that other nodes can read."""
        frontier = self._job.frontier
        return frontier.pending - self.stays + frontier.outbox.depth

    @property
    def stays(self) -> int:
        """Entries of other nodes' hosts that no other node can read or take."""
        kept, host = self.departures.kept, self._job.frontier.schedule.cache.get
        return (
            sum(max(count, host(name).queue.queued) for name, count in kept.items()) if kept else 0
        )

    @property
    def rests(self) -> bool:
        """Return whether frontier and outbox are empty and nothing is in flight."""
        return self._rests()

    def activity(self) -> int:
        """Return a counter that grows with everything done on this node."""
        return self._job.frontier.counters.total()

    async def commit(self) -> None:
        """Acknowledge the finished pages in the store.

        :raises StoreError: the store cannot be written
        """
        await self._job.commit()

    async def make_durable(self) -> None:
        """Return when all that was written is durable on disk.

        :raises StoreError: the store cannot be written
        """
        try:
            await self._job.make_durable()
        except STORE_ERRORS as error:
            self._job.fail(error)
            raise

    def hang_up(self) -> None:
        self._job.client.hang_up()

    def ring_changed(self) -> None:
        self._job.robots_fetches.ring_changed()
        self._wake()

    def figures(self) -> Counters:
        """Return the counters of this node's heartbeat that are shown to people."""
        frontier = self._job.frontier
        return {
            "done": frontier.counters["done"],
            "queued": frontier.queued,
            "outbox": frontier.outbox.depth,
        }

    async def take_in(self, messages: list[Message]) -> None:
        """Queue the requests that other nodes, or people, have sent.

        A request that another node owns by now is forwarded to that node. The caller removes the
        messages from Redis after `make_durable`.

        :raises StoreError: the store cannot be written
        """
        self._take(messages)

    def take_back(self, found: Sequence[tuple[bytes, bytes]]) -> None:
        """Queue URLs that waited in the outbox for a node whose domains are ours now.

        ``found`` has the key and the message of each.

        :raises StoreError: the store cannot be written
        """
        messages, decided = [], []
        for key, data in found:
            try:
                messages.append(decode(data))
            except BadMessage as error:
                # It was written by a version with wider bounds; no other node would take it either.
                logger.error("What waited in the outbox cannot be read: %s", error)
                self._intake.count_dropped("unserializable")
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
        if self._intake.add(self._received(plain), foreign, decided):
            self._wake()

    def _received(self, plain: list[tuple[Message, str]]) -> list[Candidate]:
        """Return the candidates for the messages that are neither known nor refused."""
        intake = self._intake
        keys = self._job.hasher.keys([message.url for message, _ in plain])
        known = intake.knows(keys, lambda at: plain[at][1])
        candidates = []
        for (message, host), key, is_known in zip(plain, keys, known, strict=True):
            if is_known:
                continue
            is_stray = self._is_stray(message)
            if reason := intake.refusal(message.url, host, message.depth, None, is_stray=is_stray):
                intake.count_dropped(reason)
            else:
                entry = self._codec.received(message)
                candidates.append(Candidate(host, key, entry, message.priority))
        return candidates

    def _is_stray(self, message: Message) -> bool:
        """Return whether the URL came from a page or a redirect.

        A URL given by a person has no depth. A request of an ordinary spider counts as given.
        """
        return bool(message.redirects or (message.depth and self._codec.makes_pages))

    def _sent_on(self, message: Message, owner: str, host: str) -> list[Foreign]:
        """Return the message for the outbox, addressed to its owner; empty if it is dropped.

        The sender has marked the URL as seen, so forward it whether this node knows it or not.
        """
        if message.hops >= _HOPS_MAX:
            self._intake.count_dropped("hops")
            return []
        message.hops += 1
        try:
            return [Foreign(owner, host, None, encode(message))]
        except ValueError:
            self._intake.count_dropped("unserializable")
            return []

    def _take_whole(self, message: Message) -> None:
        """Queue a request of an ordinary spider, and drop a message that this spider cannot use."""
        try:
            request = self._codec.whole(message)
            url = normalise(request.url)
            if url is None:
                raise ValueError("not an http or https URL")
            entry = self._codec.entry(request, url)
        except ValueError as error:
            logger.warning("A request for %s is no use to this spider: %s", message.url, error)
            self._intake.count_dropped("unserializable")
        else:
            self._intake.request(request, url, entry)
