"""A node of a static ring: a setting names the members, which stay the same for the whole crawl."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import (
    ClusterError,
    DuplicateNodeError,
    StaticMembership,
    UnansweredError,
    parse_ring,
    reading,
    seal_of,
    static_seed,
)
from krowlspider.cluster.ring.claims import View
from krowlspider.cluster.ring.ring import Ring
from krowlspider.cluster.signals import RedisBoard, RedisBudget, RedisSignals
from krowlspider.cluster.transport.inbox import Inbox
from krowlspider.crawl.nodes.node import BEAT, Crawl, Node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.ring.record import Counters
    from krowlspider.cluster.ring.termination import Heartbeat

# Heartbeat intervals to listen for another process that should not be there.
_LISTENING = 2.5
# The KROWL_STATIC_NODES_SECRET of a ring that was started before it had a secret.
_NO_SECRET = "none"  # noqa: S105 - it says that there is none
# Times to send the last heartbeat while it does not show on the board.
_LAST_WORDS = 3


class StaticNode(Node):
    """A member of KROWL_STATIC_NODES.

    :raises ClusterError: this node is not among the members, or the Redis URL of a member is
        invalid
    """

    def __init__(self, settings: BaseSettings, spider: str):
        super().__init__(settings, spider)
        members = parse_ring(settings.getlist("KROWL_STATIC_NODES"))
        secret: str = settings["KROWL_STATIC_NODES_SECRET"]
        seed = static_seed(settings["KROWL_CLUSTER"], "" if secret == _NO_SECRET else secret)
        self.seed = int.from_bytes(seed, "big")
        self._seal = seal_of(seed)
        self.may_begin = bool(secret)
        try:
            self._of = {member.id: self._client(member.redis) for member in members}
        except ClusterError as error:
            raise ClusterError(f"KROWL_STATIC_NODES: {error}") from error
        # All nodes share one board of heartbeats, in the Redis of the first member.
        self._cluster: str = settings["KROWL_CLUSTER"]
        self._board = RedisBoard(self._of[members[0].id], self._cluster)
        self._heard: Mapping[str, Counters] = {}
        self.membership: StaticMembership = StaticMembership(
            self.own, members, self._cluster, board=self._board
        )
        self.signals = RedisSignals(self._of[members[0].id], self._cluster)
        if self.pages:
            self.budget = RedisBudget(self._of[members[0].id], self._cluster, self.pages)
        # Every member claims this ring, for the whole crawl.
        ring = Ring(members)
        self._number = ring.number
        self._view = View(self.own, reading(self.membership), (ring,))
        self.known.set()

    @property
    def place(self) -> str:
        return f"{self.own} of {self._view.ring.checksum}"

    @property
    def view(self) -> View:
        return self._view

    def may_fetch(self, domain: str) -> bool:
        return self._view.may_fetch(domain)

    @property
    def knows(self) -> bool:
        return True

    def prepare(self) -> None: ...

    def client_of(self, node: str) -> Redis | None:
        return self._of.get(node)

    def _make_inbox(self, crawl: Crawl) -> Inbox:
        return Inbox(
            self._of[self.own],
            self._spider,
            self.own,
            crawl.take_in,
            settle=crawl.make_durable,
            paused=lambda: crawl.full,
            turn=crawl.turn,
        )

    def _figures(self) -> Counters:
        return {**super()._figures(), "ring": self._number, "seed": self._seal}

    async def _join(self) -> None:
        """Check that no other process conflicts with this node.

        :raises ClusterError: another process has this id, or a process of this cluster has another
            ring or another secret
        """
        # Nodes with another ring may have their board in another Redis.
        boards = [RedisBoard(client, self._cluster) for client in self._of.values()]
        before = await asyncio.gather(*map(_read, boards))
        if not any(self._is_amiss(node, said) for heard in before for node, said in heard.items()):
            return
        await asyncio.sleep(_LISTENING * BEAT)
        for earlier, now in zip(before, await asyncio.gather(*map(_read, boards)), strict=True):
            self._refuse(earlier, now)

    def _is_amiss(self, node: str, said: Counters) -> bool:
        return node == self.own or not (self._has_our_ring(said) and self._has_our_seed(said))

    def _has_our_ring(self, said: Counters) -> bool:
        return said.get("ring", self._number) == self._number

    def _has_our_seed(self, said: Counters) -> bool:
        return said.get("seed", self._seal) == self._seal

    def _refuse(self, before: Mapping[str, Counters], now: Mapping[str, Counters]) -> None:
        """Refuse to go on beside a conflicting process that has sent a new heartbeat.

        :raises ClusterError: such a process exists
        """
        for node, said in now.items():
            was = before.get(node, said)
            # A Redis restored from a backup shows old heartbeats, of processes that are gone.
            is_newer = said.get("beat", 0) > was.get("beat", 0)
            goes_on = is_newer and was.get("start") == said.get("start") and not said.get("left")
            if not goes_on or not self._is_amiss(node, said):
                continue
            if not self._has_our_seed(said):
                raise ClusterError(
                    f"node {node} of the cluster {self._cluster!r} has another KROWL_STATIC_NODES_SECRET: give all nodes the same"
                )
            if self._has_our_ring(said):
                raise self._double()
            raise ClusterError(
                f"node {node} of the cluster {self._cluster!r} has another KROWL_STATIC_NODES, so that both may fetch one domain: give all"
                " nodes the same members with the same weights, or this one a KROWL_CLUSTER of its own"
            )

    def _double(self) -> DuplicateNodeError:
        return DuplicateNodeError(
            f"another process is node {self.own} of this ring: give one of them a KROWL_NODE_ID of its own, or stop it"
        )

    async def _check(self) -> None:
        if not (heard := await _read(self._board)):
            return
        before, self._heard = self._heard, heard
        others = {node: said for node, said in heard.items() if said.get("start") != self._start}
        self._refuse(before, others)

    def _hear(self, heartbeats: dict[str, Heartbeat | None]) -> None:
        self._run_over = self._termination.hear(heartbeats) if self._was_quiet else 0
        self.left = sorted(
            name
            for name, heartbeat in heartbeats.items()
            if heartbeat is not None and heartbeat.left and not heartbeat.over
        )

    async def part(self, *, drain: bool) -> None: ...

    async def _depart(self) -> None:
        if self.joined:
            # Nodes that have not detected the end read it here; this process sends no more
            # heartbeats.
            for _ in range(_LAST_WORDS):
                await self._tell(left=True)
                if self.own in await _read(self._board):
                    break
        await self.membership.leave()


async def _read(board: RedisBoard) -> Mapping[str, Counters]:
    """Return the counters on a board, by node; empty when it cannot be read."""
    try:
        return await board.read()
    except UnansweredError:
        return {}
