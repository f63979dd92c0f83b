"""A cluster's register in Consul as somebody sees it who is no member: who is live, who is away, who may fetch what."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from krowlspider.cluster.consul.pending_nodes import NodeInfo, node_info_of
from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.ring.claims import Reading, View
from krowlspider.cluster.ring.record import BadRecordError, Record, load_counters
from krowlspider.cluster.ring.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.cluster.consul.calls import Agent, Step
    from krowlspider.cluster.ring.census import Entry

# Keys by the part of the register that they are in, and the id that they end with.
_Parts: TypeAlias = "dict[str, dict[str, Entry]]"


@dataclass(frozen=True, slots=True)
class Register:
    """At one moment: Consul's index ``epoch``, the live ``members``, the notes of the ``pending_nodes``, and why records of live
    members are ``unreadable``, each by id."""

    epoch: int
    members: Mapping[str, Record]
    pending_nodes: Mapping[str, NodeInfo]
    unreadable: Mapping[str, str]

    @property
    def reading(self) -> Reading:
        """As the claims want it."""
        members = self.members.values()
        return Reading(
            self.epoch,
            tuple(record.member for record in members if not record.leaving),
            {record.member.id: record.claims for record in members},
        )

    @property
    def ring(self) -> Ring | None:
        """Of the members that stay; None when there are none."""
        staying = self.reading.members
        return Ring(staying) if staying else None

    @property
    def gone(self) -> list[str]:
        """Those of the crew that are not live."""
        return sorted(self.pending_nodes.keys() - self.members.keys() - self.unreadable.keys())

    def state(self, node: str) -> str:
        """What a member is at, by its claims: agreed, handing over, joining (it claims nothing yet), leaving."""
        record = self.members[node]
        if record.leaving:
            return "leaving"
        if not record.claims:
            return "joining"
        return "agreed" if record.claims == (self.ring,) else "handing over"

    def fetcher(self, domain: str) -> str | None:
        """The id of the member that may fetch a domain while its lease is good; None while it is handed over."""
        now = self.reading
        views = (View(node, now, record.claims) for node, record in self.members.items())
        return next((view.own for view in views if view.may_fetch(domain)), None)


async def read_register(agent: Agent, cluster: str) -> Register | None:
    """None when Consul knows no such cluster.

    :raises UnansweredError:
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
    pending_nodes = {
        node: node_info_of(entry.value) for node, entry in parts.get("crew", {}).items()
    }
    return Register(epoch, members, pending_nodes, unreadable)


async def _parts(agent: Agent, cluster: str) -> tuple[int, _Parts]:
    epoch, entries = await agent.list(f"krowlspider/{cluster}/")
    parts: _Parts = {}
    for entry in entries:
        parts.setdefault(entry.key.split("/")[2], {})[entry.node] = entry
    return epoch, parts


async def forget(agent: Agent, cluster: str, node: str) -> None:
    """Take a node out of the crew that has died and will not come back: what is on its disk is not waited for.

    :raises ClusterError: it is live, or not of the crew
    :raises UnansweredError: it may be done or not
    """
    _, parts = await _parts(agent, cluster)
    pending_nodes = parts.get("crew", {})
    if node not in pending_nodes:
        raise ClusterError(
            f"no node {node} is waited for in the cluster {cluster!r}: its crew is {', '.join(sorted(pending_nodes)) or 'empty'}"
        )
    place = parts.get("nodes", {}).get(node)
    is_live = ClusterError(
        f"node {node} is live, or its lease has not ended yet: stop it, or wait for a minute"
    )
    if place is not None and place.session:
        raise is_live
    # Had it been started meanwhile, it would have its place, and its note, again.
    key = f"krowlspider/{cluster}/nodes/{node}"
    as_found: Step = {"Verb": "check-not-exists", "Key": key}
    if place is not None:
        as_found = {"Verb": "check-index", "Key": key, "Index": place.modified}
    if not await agent.change(as_found, {"Verb": "delete", "Key": pending_nodes[node].key}):
        raise is_live
