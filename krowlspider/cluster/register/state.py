"""The register of a cluster, as read by a process that is no member."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.register.lease import PENDING, NodeInfo
from krowlspider.cluster.register.port import Register, step, unchanged
from krowlspider.cluster.ring.claims import ClusterView, RegisterReading
from krowlspider.cluster.ring.live_members import RegisterEntry, dead_record
from krowlspider.cluster.ring.ring import BadRecordError, Member, MemberRecord, Ring, load_counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


# Begins the name of a counter: the seconds for which its node still waits for a dead one.
WAIT = "wait:"


@dataclass(frozen=True, slots=True)
class RegisterState:
    """The register at one moment; ``unreadable`` says why a member's record cannot be read.

    ``members`` include the dead that are waited for.
    """

    epoch: int
    members: Mapping[str, MemberRecord]
    pending_nodes: Mapping[str, NodeInfo]
    unreadable: Mapping[str, str]

    @property
    def ring(self) -> Ring | None:
        """The ring of the members that are not leaving; None if there are none."""
        return _ring(self.members.values())

    @property
    def ended(self) -> dict[str, NodeInfo]:
        """The nodes that are waited for, because they are pending or dead, and are not live."""
        members = self.members.items()
        live = {node for node, record in members if not record.dead} | self.unreadable.keys()
        dead = {n: NodeInfo(r.member.redis, r.member.address) for n, r in members if r.dead}
        waited_for = {**dead, **self.pending_nodes}
        return {node: info for node, info in waited_for.items() if node not in live}

    def takeover_in(self, node: str) -> int | None:
        """Return the seconds until a dead node is replaced; None if no live node counts them."""
        found = [record.counters.get(f"{WAIT}{node}") for record in self.members.values()]
        return min((int(left) for left in found if left is not None), default=None)

    @property
    def redis(self) -> dict[str, str]:
        """The URL of the Redis of each live or pending node."""
        pending = {node: info.redis for node, info in self.pending_nodes.items()}
        return pending | {node: record.member.redis for node, record in self.members.items()}

    def admit(self, own: Member, *, gemini: bool) -> bool:
        """Return whether ``own`` is a pending node, before it joins.

        :raises ClusterError: it must not join: another node has its Redis or another ``gemini``, or
            publishes what cannot be read
        """
        for reason in self.unreadable.values():
            raise ClusterError(reason)
        refuse_same_redis(own, self.pending_nodes)
        self.refuse_other_gemini(own, gemini=gemini)
        return own.id in self.pending_nodes

    def refuse_other_gemini(self, own: Member, *, gemini: bool) -> None:
        """:raises ClusterError: a live node crawls Gemini and ``own`` does not, or the reverse"""
        for node, record in self.members.items():
            info = self.pending_nodes.get(node)
            if record.dead or node == own.id or info is None or info.gemini == gemini:
                continue
            raise ClusterError(
                f"KROWL_GEMINI is {gemini} here, and {info.gemini} at node {node}: give all nodes"
                " of a cluster the same value"
            )

    def state(self, node: str) -> str:
        """Return the state of a member: agreed, handing over, joining (no claims yet), leaving,
        dead."""
        record = self.members[node]
        if record.dead:
            return "dead"
        if record.gives_away:
            return "leaving"
        if not record.claims:
            return "joining"
        return "agreed" if record.claims == (self.ring,) else "handing over"

    def fetcher(self, domain: str) -> str | None:
        """Return the member that may fetch a domain now, None while it is handed over."""
        reading = RegisterReading.of(self.epoch, self.members)
        live = (record for record in self.members.values() if not record.dead)
        views = (ClusterView(record.member.id, reading, record.claims) for record in live)
        return next((view.own for view in views if view.may_fetch(domain)), None)


async def read_register(register: Register, cluster: str) -> RegisterState | None:
    """Return the state of a cluster, None if the register has none of this name.

    :raises UnansweredError: the register does not answer
    """
    epoch, entries = await register.list(f"krowlspider/{cluster}/")
    if not entries:
        return None
    parts: defaultdict[str, dict[str, RegisterEntry]] = defaultdict(dict)
    for entry in entries:
        parts[entry.key.split("/")[2]][entry.node] = entry
    members: dict[str, MemberRecord] = {}
    unreadable: dict[str, str] = {}
    for node, entry in parts["nodes"].items():
        if entry.session:
            try:
                members[node] = MemberRecord.loads(node, entry.value)
            except BadRecordError as error:
                unreadable[node] = str(error)
        elif (dead := dead_record(entry)) is not None:
            members[node] = dead
    for node, entry in parts["beats"].items():
        with suppress(BadRecordError, KeyError):
            members[node] = replace(members[node], counters=load_counters(entry.value))
    pending = {node: NodeInfo.loads(entry.value) for node, entry in parts[PENDING].items()}
    return RegisterState(epoch, members, pending, unreadable)


def refuse_same_redis(own: Member, others: Mapping[str, MemberRecord | NodeInfo]) -> None:
    """:raises ClusterError: another node has the Redis of ``own``"""
    for node, each in others.items():
        redis = each.member.redis if isinstance(each, MemberRecord) else each.redis
        if own.redis and redis == own.redis and node != own.id:
            raise same_redis(node)


def same_redis(node: str) -> ClusterError:
    return ClusterError(
        f"node {node} has the same REDIS_URL: give each node a Redis of its own, as the others"
        " reach it, or a database of its own (/0, /1); if that node will not come back, give it up"
        f" with scrapy ring --forget {node}"
    )


def check_forgettable(register: RegisterState, cluster: str, node: str) -> None:
    """:raises ClusterError: the node is live, or not pending"""
    if node in register.ended:
        return
    if node in register.pending_nodes:
        raise ClusterError(_live(node))
    waited_for = sorted(register.ended.keys() | register.pending_nodes.keys())
    raise ClusterError(
        f"no node {node} is waited for in the cluster {cluster!r}:"
        f" its pending nodes are {', '.join(waited_for) or 'none'}"
    )


async def forget(register: Register, cluster: str, node: str) -> None:
    """Remove a dead node, so that nobody waits for it or for what is on its disk.

    :raises ClusterError: the node is live
    :raises UnansweredError: it may be removed or not
    """
    root = f"krowlspider/{cluster}"
    place = await register.get(f"{root}/nodes/{node}")
    # A node that was started meanwhile has another place.
    parts = ("nodes", "beats", PENDING)
    removal = (step("delete", f"{root}/{part}/{node}") for part in parts)
    steps = unchanged(f"{root}/nodes/{node}", place), *removal
    if (place is not None and place.session) or not await register.change(*steps):
        raise ClusterError(_live(node))


async def remove_dead(register: Register, root: str, node: str, index: int) -> None:
    """Delete the key of a dead node, unless it has changed since ``index``: others take over.

    :raises UnansweredError: it may be deleted or not
    """
    key = f"{root}/nodes/{node}"
    await register.change(
        step("check-index", key, Index=index),
        step("delete", key),
        step("delete", f"{root}/beats/{node}"),
    )


def _ring(records: Iterable[MemberRecord]) -> Ring | None:
    staying = [record.member for record in records if not record.leaving]
    return Ring(staying) if staying else None


def _live(node: str) -> str:
    return f"node {node} is live, or its lease has not ended yet: stop it, or wait for a minute"
