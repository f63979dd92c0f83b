"""A node of a cluster whose members join and leave, as registered in Consul.

The ring of the live members decides which domains each node owns.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.consul.agent import ConsulMembership
from krowlspider.cluster.consul.calls import Agent
from krowlspider.cluster.controller import OwnershipController
from krowlspider.cluster.handover.loop_share import SHARE
from krowlspider.cluster.handover.receiver import HandoverReceiver, OwnedHosts
from krowlspider.cluster.handover.sender import HandoverSender
from krowlspider.cluster.membership import ClusterError, UnansweredError
from krowlspider.cluster.ring.ring import Member
from krowlspider.cluster.signals import ConsulBudget, ConsulSignals
from krowlspider.cluster.transport.inbox import Inbox
from krowlspider.crawl.archiving.provenance import own_address
from krowlspider.crawl.nodes.node import BEAT, Crawl, Node
from krowlspider.frontier.handover.chunks import BadChunk
from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.ring.claims import View
    from krowlspider.cluster.ring.record import Counters
    from krowlspider.cluster.ring.termination import Heartbeat

logger = logging.getLogger(__name__)

# Seconds to wait for messages still under way when the other nodes read that this node leaves.
_ON_ITS_WAY = 3.0
# Seconds between two checks whether everything is handed over.
_LOOK = 0.2
# Part of the TTL that requests in flight may go on without a lease. The lease ends at 0.8 of the
# TTL; others take over after 1 TTL if Consul ends the session at once, else after 2.2.
_PATIENCE = 0.15


class ConsulNode(Node):
    """A member of KROWL_CLUSTER, registered in the Consul of KROWL_CONSUL.

    Its inbox is in REDIS_URL.

    :raises ClusterError: a setting is invalid
    """

    mover: HandoverSender
    arriving: HandoverReceiver

    def __init__(self, settings: BaseSettings, spider: str):
        super().__init__(settings, spider)
        self.cluster: str = settings["KROWL_CLUSTER"]
        self._drain_timeout = settings.getfloat("KROWL_DRAIN_TIMEOUT")
        redis: str = settings["REDIS_URL"]
        own = Member(self.own, settings.getint("KROWL_NODE_WEIGHT"), redis, own_address() or "")
        self._ttl = settings.getint("KROWL_CONSUL_TTL")
        self._agent = Agent(settings["KROWL_CONSUL"], settings["KROWL_CONSUL_TOKEN"] or None)
        self.membership: ConsulMembership = ConsulMembership(
            self._agent, self.cluster, own, ttl=self._ttl
        )
        self._redis = self._client(redis)
        self.controller = OwnershipController(self.membership, self, patience=_PATIENCE * self._ttl)
        self.membership.on_change = self.controller.changed
        self.signals = ConsulSignals(self._agent, self.cluster)
        if self.pages:
            self.budget = ConsulBudget(self._agent, self.cluster, self.pages)
        # Published Redis URLs of other nodes that are invalid.
        self._refused: set[str] = set()
        self._warned: tuple[str, ...] = ()
        # Whether others have everything that was here, and know that this node is leaving.
        self._handed_over = False

    @property
    def place(self) -> str:
        return f"{self.own} of {self.cluster}"

    def prepare(self) -> None:
        # A wrong cluster must stop the start, so block here; nothing else runs yet.
        with ThreadPoolExecutor(1) as thread:
            seed = thread.submit(asyncio.run, self.membership.agree_seed(None)).result()
        self.seed = int.from_bytes(seed, "big")

    @property
    def view(self) -> View:
        assert self.controller.view is not None
        return self.controller.view

    @property
    def knows(self) -> bool:
        return self.controller.view is not None

    def may_fetch(self, domain: str) -> bool:
        return self.controller.may_fetch(domain)

    @property
    def ready(self) -> bool:
        return super().ready and self.controller.holds

    @property
    def may_send(self) -> bool:
        # By an outdated ring, a URL could go to a node that has left.
        return self.controller.holds

    def client_of(self, node: str) -> Redis | None:
        if node == self.own:
            return self._redis
        record = self.membership.members.get(node)
        # A node that leaves may not read messages that arrive now.
        if record is None or record.leaving or record.member.redis in self._refused:
            return None
        try:
            return self._client(record.member.redis)
        except ClusterError as error:
            logger.error("What belongs to node %s waits in the outbox: %s", node, error)
            self._refused.add(record.member.redis)
            return None

    def _make_inbox(self, crawl: Crawl) -> Inbox:
        self.mover = HandoverSender(
            crawl.departures,
            self.client_of,
            self._spider,
            busy=HostBusyError,
            share=lambda: 1.0 if self.controller.leaving else SHARE,
        )
        ours = OwnedHosts(crawl.arrivals, lambda: self.view, domain_of, busy=HostBusyError)
        self.arriving = HandoverReceiver(
            ours,
            self._redis,
            self._spider,
            crawl.make_durable,
            bad=BadChunk,
            busy=HostBusyError,
            share=lambda: SHARE,
            came=lambda _: self.on_change(),
        )

        async def take_hosts(chunks: list[Any]) -> Sequence[str | None]:
            await ours.wait(chunks)
            return await self.arriving.take(chunks)

        return Inbox(
            self._redis,
            self._spider,
            self.own,
            crawl.take_in,
            settle=crawl.make_durable,
            paused=lambda: crawl.full,
            turn=crawl.turn,
            take_hosts=take_hosts,
            # The frontier's cap does not apply: the host was queued at its former owner, and its
            # domain would stay unfetched there.
            hosts_paused=lambda: crawl.lacks_room,
        )

    async def _join(self) -> None:
        """Return when the ring is known, and with it the owner of every URL."""
        await self.membership.start()
        own = self.membership.own
        for name, record in self.membership.members.items():
            if name != self.own and record.member.redis == own.redis:
                raise ClusterError(
                    f"node {name} has the same REDIS_URL: give each node a Redis of its own, as the others reach it, or a"
                    " database of its own (/0, /1)"
                )
        await self._wait_for_pending_nodes()
        self._spawn(self.controller.run())
        await self.controller.seen.wait()
        self.known.set()

    async def _wait_for_pending_nodes(self) -> None:
        """Wait up to two TTLs for the pending nodes to join, as after a restart of all nodes.

        Pending nodes have work on their disks, and state of their domains that this node does not
        know.
        """
        end = time.monotonic() + 2 * self._ttl
        told = False
        while time.monotonic() < end:
            # The heartbeat also reads the pending nodes.
            await self.membership.beat({})
            away = sorted(self.membership.pending_nodes - self.membership.members.keys())
            if not away:
                return
            if not told:
                logger.info("Waiting up to %d s for nodes %s", 2 * self._ttl, ", ".join(away))
            told = True
            await asyncio.sleep(BEAT)

    def stop_moving(self) -> None:
        self._crawl.departures.stop()

    def hang_up(self) -> None:
        logger.warning("Others may take over what this node has: it hangs up on what is in flight")
        self._crawl.hang_up()

    def ring_changed(self) -> None:
        self._crawl.ring_changed()
        self.on_change()

    async def move(self, owner_of: Callable[[str], str | None]) -> None:
        for ours in self._crawl.outbox.rebucket(owner_of):
            if ours:
                self._crawl.take_back(ours)
            await asyncio.sleep(0)
        await self.mover.send_all(owner_of)
        await self._crawl.make_durable()

    def _figures(self) -> Counters:
        epoch = {"epoch": self.view.epoch} if self.knows else {}
        return {**super()._figures(), **epoch}

    async def _check(self) -> None: ...

    def _activity(self) -> int:
        # The URLs of a host that arrives were already counted by its former owner.
        return super()._activity() + self.mover.stats.hosts + self.arriving.stats.chunks

    def _rests(self) -> bool:
        return self.controller.settled and not self.mover.open and self._crawl.rests

    def _hear(self, heartbeats: dict[str, Heartbeat | None]) -> None:
        self._run_over = (
            self._termination.hear(heartbeats, self.membership.pending_nodes)
            if self._was_quiet
            else 0
        )
        waits = self._termination.waiting_for
        if waits and waits != self._warned:
            logger.warning(
                "All is done but for what is on the disks of nodes %s, which are gone: start them again, or give them up"
                " by scrapy ring --forget NODE",
                ", ".join(waits),
            )
        self._warned = waits

    @property
    def waits_for(self) -> str:
        if self.joined and not self.controller.holds:
            return "for a lease from Consul"
        if self.controller.leaving:
            return "for the others to take what is here"
        return super().waits_for

    def counts(self) -> dict[str, int]:
        moved, came = self.mover.stats, self.arriving.stats
        return {
            **super().counts(),
            "members": len(self.membership.members),
            "moved_count": moved.hosts,
            "moving": self.mover.open,
            "stays": self._crawl.stays,
            "arrived_count": came.hosts,
        }

    def _failed(self) -> Counter[str]:
        return super()._failed() + self.mover.stats.failed + self.arriving.stats.failed

    async def part(self, *, drain: bool) -> None:
        if not (drain and self.joined and self._drain_timeout and self._has_others()):
            return
        logger.info(
            "Leaving the cluster %s: %d URLs are handed over to the others",
            self.cluster,
            self._crawl.left,
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout):
                await self._drain()
        if left := self._crawl.left + self._crawl.stays:
            logger.warning(
                "%d URLs could not be handed over: they wait in the job folder for the next start of node %s",
                left,
                self.own,
            )

    def _has_others(self) -> bool:
        return any(
            name != self.own and not record.leaving
            for name, record in self.membership.members.items()
        )

    def _is_nothing_left(self) -> bool:
        """Return whether no node needs to wait for this node to come back."""
        if self.over:
            # URLs of hosts that do not answer do not keep a crawl from its end.
            return self._crawl.rests
        alone = not self.membership.members.keys() - {self.own}
        nothing = not (self._crawl.left or self._crawl.stays)
        return nothing and (self._handed_over or alone or not self.joined)

    async def _drain(self) -> None:
        """Return when nothing is left here, or when no other node is there to take it."""
        await self._crawl.commit()
        self.controller.leave()
        gone_since: float | None = None
        while self._has_others():
            await asyncio.sleep(_LOOK)
            if not (self._is_gone() and not self._crawl.left and await self.is_inbox_empty()):
                gone_since = None
            elif gone_since is None:
                gone_since = time.monotonic()
            elif time.monotonic() >= gone_since + _ON_ITS_WAY:
                self._handed_over = True
                return

    def _is_gone(self) -> bool:
        """Return whether nothing is left here and all others use a ring without this node."""
        since = self.controller.left_at
        return (
            self.controller.gone
            and since is not None
            and all(
                record.counters.get("epoch", 0) >= since
                for name, record in self.membership.members.items()
                if name != self.own
            )
        )

    async def _depart(self) -> None:
        await self.arriving.close()
        with suppress(UnansweredError):
            if self.over and self.budget is not None:
                await self.budget.reset()
        with suppress(UnansweredError):
            if self._is_nothing_left() and await self.is_inbox_empty():
                await self.membership.dismiss()
        await self.membership.leave()
        self._agent.close()
