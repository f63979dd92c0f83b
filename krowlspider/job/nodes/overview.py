"""The nodes of the cluster, as this one knows them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krowlspider.cluster.ring.claims import ClusterView
    from krowlspider.cluster.ring.ring import MemberRecord
    from krowlspider.job.nodes.node import Node


# Seconds after which a node without heartbeats is shown as silent; it sends one a second.
SILENT_AFTER = 10


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of the cluster, by its last heartbeat.

    - ``share`` is its part of all domains, from 0 to 1. ``is_own``: this is the node that answers.
    - ``state``: *agreed* on the same ring as this node, *not agreed* while hosts move, *leaving*,
      *silent* when its last heartbeat is SILENT_AFTER seconds old, or *dead*.
    - ``outbox`` and ``inbox`` are messages that wait; ``seconds_ago`` is the age of the heartbeat.
      They are -1 as long as they are not known.
    """

    node: str
    is_own: bool
    state: str
    share: float
    done: int
    queued: int
    outbox: int
    inbox: int
    seconds_ago: int


def node_rows(node: Node) -> list[NodeRow]:
    """Return a row for each member, in the order of their names; none before the first view."""
    view = node.cluster.view
    if view is None:
        return []
    members = node.cluster.membership.members
    return [
        _row(view, members[name], is_own=name == node.own, silence=node.silence(name))
        for name in sorted(members)
    ]


def _row(view: ClusterView, record: MemberRecord, *, is_own: bool, silence: float) -> NodeRow:
    name, counters = record.member.id, record.counters
    done, queued, outbox, inbox = (
        int(counters.get(each, -1)) for each in ("done", "queued", "outbox", "inbox")
    )
    beat = counters.get("time")
    return NodeRow(
        node=name,
        is_own=is_own,
        state=_state(view, record, is_silent=silence >= SILENT_AFTER),
        share=view.ring.share(name) if name in dict(view.ring.weights) else 0.0,
        done=done,
        queued=queued,
        outbox=outbox,
        inbox=inbox,
        seconds_ago=-1 if beat is None else max(0, round(time.time() - beat)),
    )


def _state(view: ClusterView, record: MemberRecord, *, is_silent: bool) -> str:
    if record.dead:
        return "dead"
    if is_silent:
        return "silent"
    if record.gives_away:
        return "leaving"
    claims = view.reading.claims.get(record.member.id, ())
    return "agreed" if claims == (view.ring,) else "not agreed"
