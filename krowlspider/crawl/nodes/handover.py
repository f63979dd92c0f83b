"""The hand-over of a node's hosts and messages when the ring changes, both ways."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from krowlspider.crawl.handover.loop_share import SHARE
from krowlspider.crawl.handover.receiver import HandoverReceiver
from krowlspider.crawl.handover.sender import HandoverSender
from krowlspider.frontier.admin.words import counted
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Sequence

    from redis.asyncio import Redis

    from krowlspider.cluster.controller import OwnershipController
    from krowlspider.cluster.ring.claims import View
    from krowlspider.cluster.ring.record import Counters
    from krowlspider.cluster.transport.mark import Mark
    from krowlspider.cluster.transport.message import Message
    from krowlspider.cluster.transport.order_message import OrderAsk, OrderReply
    from krowlspider.cluster.transport.robots_message import RobotsAnswer, RobotsAsk
    from krowlspider.frontier.moves.arrival import Arrivals
    from krowlspider.frontier.moves.departure import Departures
    from krowlspider.frontier.outbox import Outbox

logger = logging.getLogger(__name__)


class CrawlPort(Protocol):
    """The members of `krowlspider.crawl.cluster_traffic.ClusterTraffic`, documented there.

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


def may_take(view: View | None, host: str) -> bool:
    try:
        return view is not None and view.may_take(domain_of(host))
    except ValueError:
        # The arrivals refuse it as no chunk.
        return True
