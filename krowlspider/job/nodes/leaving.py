"""Hand over a node's hosts and messages: when the ring changes, and when the node leaves."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from krowlspider.errors import counted
from krowlspider.job.nodes.receiver import SHARE, HandoverReceiver
from krowlspider.job.nodes.sender import HandoverSender
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from redis.asyncio import Redis

    from krowlspider.cluster.controller import OwnershipController
    from krowlspider.cluster.register.membership import RegisteredMembership
    from krowlspider.cluster.ring.claims import ClusterView
    from krowlspider.cluster.ring.ring import Counters, MemberRecord
    from krowlspider.cluster.transport.message import Mark, Message
    from krowlspider.cluster.transport.posts import OrderAsk, OrderReply, RobotsAnswer, RobotsAsk
    from krowlspider.frontier.moves.departure import Departures
    from krowlspider.frontier.moves.transfer import Arrivals
    from krowlspider.frontier.outbox import Outbox

logger = logging.getLogger(__name__)


class CrawlPort(Protocol):
    """The members of `krowlspider.job.cluster_traffic.ClusterTraffic`, documented there.

    It cannot be imported here, because it needs the job, and the job has the node.
    """

    departures: Departures
    arrivals: Arrivals
    outbox: Outbox
    turn: int
    is_out_of_work: Callable[[], bool]
    has_seeds: Callable[[], bool]
    waits_for_seeds: Callable[[], bool]
    wake: Callable[[], None]
    fail: Callable[[Exception], None]
    commit: Callable[[], Awaitable[None]]
    hang_up: Callable[[], None]

    @property
    def left(self) -> int: ...

    @property
    def stays(self) -> int: ...

    def rests(self) -> bool: ...

    def is_full(self) -> bool: ...

    def lacks_room(self) -> bool: ...

    def ask_again(self) -> None: ...

    async def take_in(self, messages: list[Message]) -> None: ...

    async def take_robots(self, messages: list[RobotsAsk | RobotsAnswer]) -> list[None]: ...

    async def take_orders(self, messages: list[OrderAsk | OrderReply]) -> list[str | None]: ...

    def take_back(self, found: Sequence[tuple[bytes, bytes]]) -> None: ...

    async def make_durable(self, marks: Sequence[Mark] = ()) -> dict[str, bytes]: ...

    def ring_changed(self) -> None: ...

    def activity(self) -> int: ...

    def figures(self) -> Counters: ...


class NodeHandover:
    """Implements `cluster.controller.HandoverPort`: a sender to the Redis of other nodes, and a
    receiver from ``own``."""

    def __init__(
        self,
        crawl: CrawlPort,
        controller: OwnershipController,
        own: Redis,
        client_for: Callable[[str], Redis | None],
        spider: str,
    ):
        self._crawl = crawl
        self._controller = controller
        self.stop_handover = crawl.departures.stop
        self.ring_changed = crawl.ring_changed
        self.sender = HandoverSender(
            crawl.departures,
            client_for,
            spider,
            share=lambda: 1.0 if controller.shrinking or controller.leaving else SHARE,
        )
        self.receiver = HandoverReceiver(
            crawl.arrivals,
            own,
            spider,
            crawl.make_durable,
            may_take=lambda host: may_take(controller.view, host),
            on_arrival=crawl.wake,
        )

    def hang_up(self) -> None:
        logger.warning(
            "Closing all connections: the lease has ended, so other nodes may take the hosts over"
        )
        self._crawl.hang_up()

    async def hand_over(
        self, owner_of: Callable[[str], str | None], ranges: Sequence[tuple[int, int]]
    ) -> None:
        await rebucket(self._crawl, owner_of)
        before = self.sender.stats.hosts
        await self.sender.send_all(owner_of, ranges)
        await self._crawl.make_durable()
        if moved := self.sender.stats.hosts - before:
            logger.info("Handed %s over to other nodes", counted(moved, "host"))

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is to be handed over, here and by other live nodes."""
        return self._controller.settled and not self.sender.open

    def activity(self) -> int:
        # The URLs of a host that arrives were counted by its former owner.
        return self.sender.stats.hosts + self.receiver.stats.chunks

    def counts(self) -> dict[str, int]:
        return {
            "moved_count": self.sender.stats.hosts,
            "moving": self.sender.open,
            "stays": self._crawl.stays,
            "arrived_count": self.receiver.stats.hosts,
        }

    def failed(self) -> Counter[str]:
        return self.sender.stats.failed + self.receiver.stats.failed


async def rebucket(crawl: CrawlPort, owner_of: Callable[[str], str | None]) -> None:
    """Give what is in the outbox to the owners by a new ring; queue what is ours now."""
    for ours in crawl.outbox.rebucket(owner_of):
        if ours:
            crawl.take_back(ours)
        await asyncio.sleep(0)


def may_take(view: ClusterView | None, host: str) -> bool:
    try:
        return view is not None and view.may_take(domain_of(host))
    except ValueError:
        # The arrivals refuse it as no chunk.
        return True


# Seconds to wait for messages still under way when the other nodes know that this node leaves.
_UNDER_WAY = 3.0
# Seconds between two checks whether everything is handed over.
_LOOK = 0.2
# Seconds of the time limit that are left for the last step.
_LAST_STEP = 60.0
# Seconds to wait for a dead node to return. Just after an outage of Consul, all nodes seem dead.
_RETURN = 15.0


def urls_of(records: Iterable[MemberRecord]) -> int:
    """Return how many URLs nodes have, queued or done, by their heartbeats."""
    counted = (record.counters.get(name, 0) for record in records for name in ("queued", "done"))
    return int(sum(counted))


class Leaving:
    """How this node leaves the cluster, within ``time_limit`` seconds from the first call. The last
    step has 60 of them, or as many after the last request in flight.

    ``is_drained``: other nodes have everything that was here, and know that this node leaves.
    ``not_handed_over`` counts the URLs that stay here although other nodes were there to take them.
    """

    def __init__(
        self,
        membership: RegisteredMembership,
        controller: OwnershipController,
        crawl: CrawlPort,
        is_inbox_empty: Callable[[], Awaitable[bool]],
        time_limit: float,
    ) -> None:
        self._membership = membership
        self._controller = controller
        self._crawl = crawl
        self._is_inbox_empty = is_inbox_empty
        self._time_limit = time_limit
        self._end = 0.0
        # The dead nodes, and when this set changed last.
        self._dead: frozenset[str] = frozenset()
        self._dead_since = 0.0
        self.is_drained = False
        self.not_handed_over = 0

    @property
    def other_nodes(self) -> list[MemberRecord]:
        """The other nodes that live."""
        own, members = self._membership.own.id, self._membership.members
        return [each for node, each in members.items() if node != own and not each.dead]

    @property
    def _has_takers(self) -> bool:
        own, members = self._membership.own.id, self._membership.members
        staying = [r for node, r in members.items() if node != own and not r.gives_away]
        return any(not (record.dead and self._has_dead) for record in staying)

    @property
    def _has_dead(self) -> bool:
        return bool(self._dead) and monotonic() >= self._dead_since + _RETURN

    async def _wait(self) -> None:
        await asyncio.sleep(_LOOK)
        members = self._membership.members.items()
        if (dead := frozenset(node for node, record in members if record.dead)) != self._dead:
            self._dead, self._dead_since = dead, monotonic()

    async def shrink(self) -> None:
        """Hand the domains over in steps, all but those of the last step.

        If the crawl goes on, a domain is fetched here until its step comes.
        """
        if not (self._time_limit and self._has_takers):
            return
        self._end = self._end or monotonic() + self._time_limit
        if self._time_limit <= _LAST_STEP:
            return
        controller = self._controller
        controller.shrink(urls_of(self._membership.members.values()))
        if not controller.at_last_step:
            what = counted(self._crawl.left, "URL")
            logger.info("Leaving the cluster in steps: handing over %s", what)
        # A step would wait for a dead node; the last one does not.
        while not controller.at_last_step and self._has_takers and not self._has_dead:
            if monotonic() >= self._end - _LAST_STEP:
                return
            await self._wait()

    async def drain(self) -> None:
        """Hand over everything, if there are nodes to take it."""
        if not (self._time_limit and self._has_takers):
            return
        await self._crawl.commit()
        if not self._controller.shrinking:
            await self.shrink()
        logger.info("Leaving the cluster: handing over %s", counted(self._crawl.left, "URL"))
        # Since the stop, requests in flight may have taken the time of the last step.
        last = min(self._time_limit, _LAST_STEP)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._end - monotonic(), last)):
                await self._drain()
        left = self._crawl.left + self._crawl.stays
        self.not_handed_over = left if self._has_takers else 0
        if left:
            logger.warning(
                "Not handed over: %s; what is left waits in the job folder for the next start of"
                " node %s",
                *(counted(left, "URL"), self._membership.own.id),
            )

    async def _drain(self) -> None:
        """Return when nothing is left here, or no live node is there to take what is left."""
        self._controller.leave()
        gone_since: float | None = None
        while self._has_takers:
            await self._wait()
            rests = not self._crawl.left or self._has_dead
            if not (self._is_gone() and rests and await self._is_inbox_empty()):
                gone_since = None
            elif gone_since is None:
                gone_since = monotonic()
            elif monotonic() >= gone_since + _UNDER_WAY:
                self.is_drained = True
                return

    def _is_gone(self) -> bool:
        """Return whether nothing is left here and all others use a ring without this node."""
        since = self._controller.left_at
        return (
            self._controller.is_gone
            and since is not None
            and all(record.counters.get("epoch", 0) >= since for record in self.other_nodes)
        )
