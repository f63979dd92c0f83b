"""The traffic of a crawl with the other nodes of its cluster.

URLs of hosts that other nodes own go out; requests that other nodes have sent come in.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.message import (
    TURN,
    Acknowledgement,
    BadMessage,
    Mark,
    Message,
    decode,
    encode,
    encode_mark,
)
from krowlspider.cluster.transport.posts import (
    OrderAsk,
    OrderReply,
    RobotsAnswer,
    RobotsAsk,
    reply_to,
)
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.hosts.host import SEED_PRIORITY
from krowlspider.frontier.moves.departure import Departures
from krowlspider.frontier.moves.transfer import Arrivals
from krowlspider.frontier.outbox import Finders, Foreign
from krowlspider.frontier.schedule.orders import encode_orders
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.urls.canonical import URL_MAX, host_of, normalise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scrapy.settings import BaseSettings

    from krowlspider.cluster.ring.ring import Counters
    from krowlspider.cluster.transport.posts import OrderFields
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.robots.fetches import RobotsFetches
    from krowlspider.job.codec import RequestCodec
    from krowlspider.job.intake import Intake
    from krowlspider.job.job import Job
    from krowlspider.job.limits import SeedsFirst
    from krowlspider.job.nodes.node import Node

logger = logging.getLogger(__name__)

# Most nodes that a URL is forwarded to before it is dropped: they do not agree on the ring.
_HOPS_MAX = 16
# Standing orders in a message: each has up to a kilobyte.
_ORDERS_AT_ONCE = 50


class ClusterTraffic:
    """What a crawl sends to the other nodes of its cluster, and takes in from them.

    ``is_out_of_work`` returns whether the frontier is empty and nothing is in flight. ``seeds``
    says when links must wait for seeds.
    ``carry_out`` carries an order of another node out, as in `reply_to`.
    """

    def __init__(
        self,
        job: Job,
        node: Node,
        codec: RequestCodec,
        intake: Intake,
        *,
        settings: BaseSettings,
        is_out_of_work: Callable[[], bool],
        seeds: SeedsFirst,
        carry_out: Callable[[OrderAsk], OrderFields],
    ):
        self._job = job
        self._codec = codec
        self._node = node
        self._intake = intake
        self.is_out_of_work = is_out_of_work
        self.has_seeds: Callable[[], bool] = seeds.has_own
        self.waits_for_seeds: Callable[[], bool] = seeds.waits_for_others
        self._carry_out = carry_out
        # Called when there is something new to fetch.
        self.wake: Callable[[], None] = intake.wake
        # Acknowledge the finished pages; stop the crawl because of an error; close all connections.
        self.commit: Callable[[], Awaitable[None]] = job.commits.commit
        self.fail: Callable[[Exception], None] = job.fail
        self.hang_up: Callable[[], None] = job.fetching.client.hang_up
        frontier, store = job.frontier, job.store
        self.outbox = frontier.outbox
        self._robots = job.robots_fetches
        self._most = settings.getint("KROWL_FRONTIER_MAX")
        # The most messages to take in at a time.
        self.turn = max(1, min(TURN, self._most // 4))
        self._finders = Finders(store)
        self.departures = Departures(
            frontier, store, self._robots, node=node.own, identify=self.identity
        )
        self.arrivals = Arrivals(
            frontier, store, self._robots.cache, self.identity, url_max=URL_MAX
        )

    def identity(self, entry: Entry) -> bytes | None:
        """Return the fingerprint of an entry, None for a request with ``dont_filter``.

        :raises ValueError: only this job can read the request, or this node must not read it
        """
        if not entry.request:
            return self._job.hasher.key(entry.url)
        request = self._codec.portable(entry)
        return None if request.dont_filter else self._intake.identify(request, entry.url)

    def is_full(self) -> bool:
        """Return whether to leave messages in Redis: a cap that refuses a URL here loses it."""
        frontier = self._job.frontier
        # Each of the two lists brings up to ``turn`` messages.
        return (
            self.lacks_room()
            or (frontier.queued + 2 * self.turn >= self._most and not self._job.may_overflow())
            # Those under way do not count: their owners may be as full, and wait for this node.
            or frontier.outbox.is_full_of_unsent
        )

    def lacks_room(self) -> bool:
        """Return whether a disk is full, or has less free space than the disk guard requires."""
        return self._job.full is not None

    @property
    def left(self) -> int:
        """The URLs in frontier and outbox that other nodes can read."""
        frontier = self._job.frontier
        return frontier.pending - self.stays + frontier.outbox.depth

    def rests(self) -> bool:
        """Return whether this node is out of work, and its outbox is empty."""
        return self.is_out_of_work() and not self.awaited

    @property
    def awaited(self) -> int:
        """The URLs in the outbox that their owners may still acknowledge: they have not ended."""
        depths = self.outbox.depths()
        return sum(depths.values()) - sum(depths.get(node, 0) for node in self._node.stopped_nodes)

    @property
    def stays(self) -> int:
        """The entries of other nodes' hosts that no other node can take."""
        kept, host = self.departures.kept, self._job.frontier.schedule.cache.get
        return (
            sum(max(count, host(name).queue.queued) for name, count in kept.items()) if kept else 0
        )

    def activity(self) -> int:
        """Return a number that grows with everything done on this node."""
        return self._job.frontier.counters.total()

    async def make_durable(self, marks: Sequence[Mark] = ()) -> dict[str, bytes]:
        """Return when all that was written is durable on disk.

        ``marks`` stood behind messages that were taken. Return an acknowledgement for the finder of
        each.

        :raises StoreError: the store cannot be written
        """
        batch = self._job.store.batch(sync=True)
        acknowledgements: dict[str, bytes] = {}
        for mark in marks:
            # One for another owner is of a Redis that had another node's id.
            if mark.owner == self._node.own:
                arrived, has_gap = self._finders.take(
                    mark.finder, mark.stream, mark.number, mark.last, batch
                )
                found = Acknowledgement(mark.stream, arrived.last, has_gap)
                acknowledgements[mark.finder] = encode_mark(found)
        try:
            await self._job.commits.make_durable(batch)
        except STORE_ERRORS as error:
            self._job.fail(error)
            raise
        return acknowledgements

    def ring_changed(self) -> None:
        self._robots.ring_changed()
        self._job.frontier.schedule.shares.divide(self._node.node_count)
        self.wake()

    def figures(self) -> Counters:
        """Return counters for this node's heartbeat. ``orders``, the stamp of its last standing
        order, is for other nodes, the others are shown to people."""
        frontier = self._job.frontier
        return {
            "orders": frontier.schedule.orders.standing.latest,
            "done": frontier.counters["done"],
            "queued": frontier.queued,
            "outbox": frontier.outbox.depth,
        }

    def ask_again(self) -> None:
        """Ask other nodes again for a robots.txt for which no answer came, and send the standing
        orders to nodes that have come, or come back."""
        self._robots.ask_again()
        if not (lacking := self._node.without_orders()):
            return
        orders = self._job.frontier.schedule.orders.standing.all()
        texts = [
            {"orders": encode_orders(orders[at : at + _ORDERS_AT_ONCE])}
            for at in range(0, len(orders), _ORDERS_AT_ONCE)
        ]
        for node, start in lacking.items():
            self._node.send_orders(node, start, texts)

    async def take_in(self, messages: list[Message]) -> None:
        """Queue the requests that other nodes, or people, have sent, or forward them.

        :raises StoreError: the store cannot be written
        """
        self._take(messages)
        for _ in self._intake.promote_known():
            await asyncio.sleep(0)

    def take_back(self, found: Sequence[tuple[bytes, bytes]]) -> None:
        """Queue URLs in the outbox that this node owns now, given as keys and messages.

        :raises StoreError: the store cannot be written
        """
        messages = []
        for _, data in found:
            try:
                messages.append(decode(data))
            except BadMessage as error:
                # It was written by a version with wider bounds; no other node would take it either.
                logger.error("Dropping an unreadable message in the outbox: %s", error)
                self._intake.count_dropped("unserializable")
        self._take(messages, [key for key, _ in found])
        for _ in self._intake.promote_known():
            pass

    async def take_robots(self, messages: list[RobotsAsk | RobotsAnswer]) -> list[None]:
        """Take messages of other nodes about robots.txt.

        :raises StoreError: the store cannot be written
        """
        for message in messages:
            take_robots_message(self._robots, message, self._job.wall())
            # Parsing a long robots.txt takes some ms.
            await asyncio.sleep(0)
        self.wake()
        return [None] * len(messages)

    async def take_orders(self, messages: list[OrderAsk | OrderReply]) -> list[str | None]:
        """Carry orders of other nodes out, durably, and take their replies. Return for each message
        why it cannot be used, or None.

        :raises StoreError: the store cannot be written
        """
        replies: list[tuple[str, OrderReply]] = []
        unusable = [self._take_order(message, replies) for message in messages]
        if replies:
            await self.make_durable()
        for node, reply in replies:
            self._node.orders.reply(node, reply)
        return unusable

    def _take_order(
        self, message: OrderAsk | OrderReply, replies: list[tuple[str, OrderReply]]
    ) -> str | None:
        orders = self._node.orders
        if isinstance(message, OrderReply):
            orders.take_reply(message)
            return None
        if self._node.cluster.client_of(message.node) is None:
            return f"from {message.node!r}, which is no member"
        try:
            replies.append((message.node, reply_to(message, self._carry_out)))
        except BadMessage as error:
            return str(error)
        return None

    def _take(self, messages: list[Message], decided: Sequence[bytes] = ()) -> None:
        hosts = [host_of(message.url) for message in messages]
        foreign: list[Foreign] = []
        plain: list[tuple[Message, str]] = []
        for message, host, owner in zip(
            messages, hosts, self._node.foreign_owners(hosts), strict=True
        ):
            if message.words:
                self._intake.learn_words(message.seed or message.url, message.words)
            if owner is not None:
                foreign += self._forwarded(message, owner, host)
            elif message.rest or message.meta:
                self._take_request(message)
            else:
                plain.append((message, host))
        candidates = self._candidates(plain)
        # A seed, or a URL from a person: the caps on queues do not hold for it.
        given = [each for each in candidates if not (each.entry.depth or each.entry.redirects)]
        moved = []
        for each in candidates:
            if self._is_seed(each.entry):
                each.priority = each.priority or SEED_PRIORITY
                if each.entry.chain and each.entry.redirects:
                    moved.append(each)
        added = 0
        if given:
            added = self._intake.add(given, is_exempt=True, has_lines=True)
        if moved:
            added += self._intake.add(moved)
        if given or moved:
            keys = {each.key for each in (*given, *moved)}
            candidates = [each for each in candidates if each.key not in keys]
        if self._intake.add(candidates, foreign, decided) or added:
            self.wake()

    def _is_seed(self, entry: Entry | Message) -> bool:
        """Return whether an entry is a seed of a crawl of pages, or what one redirects to: that has
        the seed's depth, and is fetched as a seed too."""
        is_given = bool(entry.chain) or not entry.redirects
        return self._codec.makes_pages and not entry.depth and is_given

    def _candidates(self, plain: list[tuple[Message, str]]) -> list[Candidate]:
        """Return the candidates for the messages that are neither known nor refused."""
        intake = self._intake
        keys = self._job.hasher.keys([message.url for message, _ in plain])
        known = intake.knows(keys, lambda at: plain[at][1])
        candidates, seeds = [], []
        for (message, host), key, is_known in zip(plain, keys, known, strict=True):
            is_seed = self._is_seed(message)
            if is_seed and message.chain:
                intake.follow_from(message.chain[-1])
            if is_known:
                if is_seed:
                    seeds.append(Candidate(host, key, self._codec.received(message), SEED_PRIORITY))
                continue
            # A URL given by a person has no depth; a request of an ordinary spider counts as given.
            is_stray = bool(message.redirects or (message.depth and self._codec.makes_pages))
            if reason := intake.refusal(message.url, host, message.depth, None, is_stray=is_stray):
                intake.count_dropped(reason)
                if is_seed:
                    intake.refuse_seed(message.url, reason, message.chain)
            else:
                entry = self._codec.received(message)
                candidates.append(Candidate(host, key, entry, message.priority))
        intake.note_known(seeds)
        return candidates

    def _forwarded(self, message: Message, owner: str, host: str) -> list[Foreign]:
        """Return the message for its owner, known here or not; empty if it is dropped."""
        if message.hops >= _HOPS_MAX:
            self._intake.count_dropped("hops")
            return []
        message.hops += 1
        try:
            return [Foreign(owner, host, None, encode(message))]
        except ValueError:
            self._intake.count_dropped("unserializable")
            return []

    def _take_request(self, message: Message) -> None:
        """Queue a request of an ordinary spider; drop one that this spider cannot use."""
        try:
            request = self._codec.whole(message)
            url = normalise(request.url)
            if url is None:
                raise ValueError("not an http or https URL")
            entry = self._codec.entry(request, url)
            entry.state = message.state
            if entry.is_requisite:
                entry.via, entry.path = message.via, message.hop
        except ValueError as error:
            logger.warning("Dropping a request for %s that cannot be used: %s", message.url, error)
            self._intake.count_dropped("unserializable")
        else:
            self._intake.request(request, url, entry, is_decided=True)


def take_robots_message(
    fetches: RobotsFetches, message: RobotsAsk | RobotsAnswer, wall: float
) -> None:
    """Take one message of another node about robots.txt; ``wall`` is epoch seconds."""
    if isinstance(message, RobotsAsk):
        fetches.take_ask(message.node, message.number, message.url)
    else:
        record = message.record_at(wall)
        fetches.take_answer(message.number, record=record, location=message.location)
