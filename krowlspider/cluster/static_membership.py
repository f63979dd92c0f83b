"""Membership by a static list of nodes, which show their counters on a board in Redis."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import ClusterError, UnansweredError
from krowlspider.cluster.ring.record import Counters, Record
from krowlspider.cluster.ring.ring import Member, Ring

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krowlspider.cluster.transport.redis_keys import RedisBoard

# Seconds to listen for a process that must not be there: longer than two heartbeats.
_LISTEN = 2.5


class StaticMembership:
    """Node ``own`` among ``members``, which stay the same for the whole crawl.

    A member that is down keeps its domains; what is found for it waits in its inbox. ``boards`` are
    those in the Redis of each member; the first is shared by all. ``seal`` tells identity seeds
    apart.
    """

    # Members that ended are not waited for, unlike the pending nodes in Consul.
    pending_nodes: frozenset[str] = frozenset()
    stopped: frozenset[str] = frozenset()

    def __init__(
        self,
        own: str,
        members: Sequence[Member],
        boards: Sequence[RedisBoard],
        *,
        cluster: str,
        seal: int,
    ) -> None:
        """:raises ClusterError: ``own`` is not among the members"""
        by_id = {member.id: member for member in members}
        if own not in by_id:
            raise ClusterError(
                f"this node's id {own} is not in KROWL_STATIC_NODES ({', '.join(by_id)}):"
                " set KROWL_NODE_ID to one of them"
            )
        self.own = by_id[own]
        self.ring = Ring(members)
        self.members = {name: Record(member, (self.ring,)) for name, member in by_id.items()}
        self._boards = boards
        self._cluster = cluster
        self._seal = seal
        self._last: Mapping[str, Counters] = {}

    def state(self, node: str) -> str:
        """Return how a pending node ended; there is none."""
        raise KeyError(node)

    async def start(self) -> None:
        """Check that no other process conflicts with this node.

        :raises ClusterError: another process has this id, or another ring or secret
        """
        # Nodes with another list may have their board in another Redis.
        before = await asyncio.gather(*map(_read, self._boards))
        if any(self._conflict(name, shown) for board in before for name, shown in board.items()):
            await asyncio.sleep(_LISTEN)
            after = await asyncio.gather(*map(_read, self._boards))
            for earlier, later in zip(before, after, strict=True):
                self.refuse_conflict(earlier, later)

    async def beat(self, counters: Counters) -> bool:
        """Show this node's counters and read those of all. Return whether the board has answered.

        :raises ClusterError: another process conflicts with this node
        """
        own, ring, seal = self.own.id, self.ring.number, self._seal
        self._set_counters(own, counters)
        try:
            before, after = await self._boards[0].exchange(
                own, {**counters, "ring": ring, "seed": seal}
            )
        except UnansweredError:
            return False
        for name in after.keys() & self.members.keys():
            self._set_counters(name, after[name])
        start = counters.get("start")
        others = {name: shown for name, shown in before.items() if shown.get("start") != start}
        last, self._last = self._last, before
        self.refuse_conflict(last, others)
        return True

    def _set_counters(self, name: str, counters: Counters) -> None:
        self.members[name] = Record(self.members[name].member, (self.ring,), counters)

    def refuse_conflict(self, before: Mapping[str, Counters], now: Mapping[str, Counters]) -> None:
        """Refuse to run beside a conflicting process that has sent a new heartbeat.

        :raises ClusterError: there is one
        """
        for name, shown in now.items():
            earlier = before.get(name, shown)
            # A Redis that was restored from a backup shows heartbeats of processes that are gone.
            is_live = (
                shown.get("beat", 0) > earlier.get("beat", 0)
                and shown.get("start") == earlier.get("start")
                and not shown.get("left")
            )
            if is_live and (conflict := self._conflict(name, shown)):
                raise ClusterError(conflict)

    def _conflict(self, name: str, shown: Counters) -> str:
        """Return why another process with these counters conflicts with this node, else ''."""
        whose = f"node {name} of the cluster {self._cluster!r} has another"
        if shown.get("seed", self._seal) != self._seal:
            return f"{whose} KROWL_STATIC_NODES_SECRET: give all nodes the same"
        if shown.get("ring", self.ring.number) != self.ring.number:
            return (
                f"{whose} KROWL_STATIC_NODES, so that both may fetch one domain: give all nodes the"
                " same members with the same weights, or this one a KROWL_CLUSTER of its own"
            )
        if name == self.own.id:
            return (
                f"another process is node {name} of this ring: give one of them a KROWL_NODE_ID of"
                " its own, or stop it"
            )
        return ""


async def _read(board: RedisBoard) -> Mapping[str, Counters]:
    """Return the counters on a board, by node; empty if it cannot be read."""
    try:
        return await board.read()
    except UnansweredError:
        return {}
