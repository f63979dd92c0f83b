"""The register of a cluster in Consul, as read by a process that is no member."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from krowlspider.cluster.consul.agent import Agent, step, unchanged
from krowlspider.cluster.consul.pending_nodes import PENDING, NodeInfo
from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.ring.claims import Reading, View
from krowlspider.cluster.ring.record import BadRecordError, Record, load_counters
from krowlspider.cluster.ring.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.cluster.ring.live_members import RegisterEntry
    from krowlspider.cluster.ring.ring import Member

# Entries by the part of the register that they are in, then by node id.
_Parts: TypeAlias = "dict[str, dict[str, RegisterEntry]]"


@dataclass(frozen=True, slots=True)
class Register:
    """The register at one moment; ``unreadable`` says why a member's record cannot be read."""

    epoch: int
    members: Mapping[str, Record]
    pending_nodes: Mapping[str, NodeInfo]
    unreadable: Mapping[str, str]

    @property
    def ring(self) -> Ring | None:
        """The ring of the members that are not leaving; None if there are none."""
        staying = Reading.of(self.epoch, self.members).members
        return Ring(staying) if staying else None

    @property
    def ended(self) -> dict[str, NodeInfo]:
        """The pending nodes that are not live."""
        live = self.members.keys() | self.unreadable.keys()
        return {node: info for node, info in self.pending_nodes.items() if node not in live}

    @property
    def redis(self) -> dict[str, str]:
        """The URL of the Redis of each live or pending node."""
        pending = {node: info.redis for node, info in self.pending_nodes.items()}
        return pending | {node: record.member.redis for node, record in self.members.items()}

    def admit(self, own: Member) -> bool:
        """Return whether ``own`` is a pending node, before it joins.

        :raises ClusterError: it must not join: another node has its Redis, or publishes what cannot
            be read
        """
        for reason in self.unreadable.values():
            raise ClusterError(reason)
        refuse_same_redis(own, self.pending_nodes)
        return own.id in self.pending_nodes

    def state(self, node: str) -> str:
        """Return the state of a member: agreed, handing over, joining (no claims yet), leaving."""
        record = self.members[node]
        if record.leaving:
            return "leaving"
        if not record.claims:
            return "joining"
        return "agreed" if record.claims == (self.ring,) else "handing over"

    def fetcher(self, domain: str) -> str | None:
        """Return the member that may fetch a domain now, None while it is handed over."""
        reading = Reading.of(self.epoch, self.members)
        views = (View(node, reading, record.claims) for node, record in self.members.items())
        return next((view.own for view in views if view.may_fetch(domain)), None)


async def read_register(agent: Agent, cluster: str) -> Register | None:
    """Return the register, None if Consul knows no such cluster.

    :raises UnansweredError: Consul does not answer
    """
    epoch, parts = await _parts(agent, cluster)
    if not parts:
        return None
    members: dict[str, Record] = {}
    unreadable: dict[str, str] = {}
    for node, entry in parts.get("nodes", {}).items():
        if entry.session:
            try:
                members[node] = Record.loads(node, entry.value)
            except BadRecordError as error:
                unreadable[node] = str(error)
    for node, entry in parts.get("beats", {}).items():
        with suppress(BadRecordError, KeyError):
            members[node] = replace(members[node], counters=load_counters(entry.value))
    pending = {node: NodeInfo.loads(entry.value) for node, entry in parts.get(PENDING, {}).items()}
    return Register(epoch, members, pending, unreadable)


def refuse_same_redis(own: Member, others: Mapping[str, Record | NodeInfo]) -> None:
    """:raises ClusterError: another node has the Redis of ``own``"""
    for node, each in others.items():
        redis = each.member.redis if isinstance(each, Record) else each.redis
        if own.redis and redis == own.redis and node != own.id:
            raise same_redis(node)


def same_redis(node: str) -> ClusterError:
    return ClusterError(
        f"node {node} has the same REDIS_URL: give each node a Redis of its own, as the others"
        " reach it, or a database of its own (/0, /1); if that node will not come back, give it up"
        f" with scrapy ring --forget {node}"
    )


async def _parts(agent: Agent, cluster: str) -> tuple[int, _Parts]:
    epoch, entries = await agent.list(f"krowlspider/{cluster}/")
    parts: _Parts = {}
    for entry in entries:
        parts.setdefault(entry.key.split("/")[2], {})[entry.node] = entry
    return epoch, parts


def check_forgettable(register: Register, cluster: str, node: str) -> None:
    """:raises ClusterError: the node is live, or not pending"""
    if node not in register.pending_nodes:
        raise ClusterError(
            f"no node {node} is waited for in the cluster {cluster!r}:"
            f" its pending nodes are {', '.join(sorted(register.pending_nodes)) or 'none'}"
        )
    if node not in register.ended:
        raise ClusterError(_live(node))


async def forget(agent: Agent, cluster: str, node: str) -> None:
    """Remove a dead node from the pending nodes, so that nobody waits for what is on its disk.

    :raises ClusterError: the node is live
    :raises UnansweredError: it may be removed or not
    """
    root = f"krowlspider/{cluster}"
    place = await agent.get(f"{root}/nodes/{node}")
    # A node that was started meanwhile has another place.
    steps = unchanged(f"{root}/nodes/{node}", place), step("delete", f"{root}/{PENDING}/{node}")
    if (place is not None and place.session) or not await agent.change(*steps):
        raise ClusterError(_live(node))


def _live(node: str) -> str:
    return f"node {node} is live, or its lease has not ended yet: stop it, or wait for a minute"
