"""When a crawl of several nodes is over: no frontier, inbox or outbox has anything left. Pure.

A URL that one node sends is in its outbox until it is in the other's frontier. So the crawl is over
if all nodes are idle at one moment. Nobody can look at all of them at one moment. But a node that
sends two idle heartbeats, with the same activity count, was idle all the time between. So read one
idle heartbeat of each node. If each node then sends another one that was begun after these were
read, idle and with the same activity count, all nodes were idle together.

The nodes that count are the *pending* ones, with work that may be on their disks. A node is pending
before anybody can send to it, until it has nothing left. A node that joins changes the pending
nodes, and detection starts again. A node that died stays pending, sends no heartbeats, and has a
new ``start`` after its restart. A node that is cut off hears nothing new, not even its own
heartbeats.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.cluster.ring.record import Counters

# A heartbeat so many beats later was surely begun after the first one of another node was read: the
# next may have been on its way then.
_LATER = 2
# JSON readers keep whole numbers only up to 2^53.
_MASK = (1 << 52) - 1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The state of a node, sent every second.

    ``start`` is a random number of the process, ``beat`` counts its heartbeats, ``activity`` what
    it has done. ``idle``: frontier, outbox and inbox are empty, and nothing is in flight. ``over``
    is the `run_number` for which it knows that the crawl is over, else 0.
    """

    start: int
    beat: int
    idle: bool
    activity: int
    over: int = 0

    def counters(self) -> dict[str, int]:
        return {name: int(value) for name, value in asdict(self).items()}

    @classmethod
    def of(cls, counters: Counters) -> Heartbeat | None:
        """Return the heartbeat in a node's counters, None if there is none."""
        if "beat" not in counters:
            return None
        start, beat, activity, over = (
            int(counters.get(name, 0)) for name in ("start", "beat", "activity", "over")
        )
        return cls(start, beat, bool(counters.get("idle")), activity, over)


def run_number(heartbeats: Mapping[str, Heartbeat]) -> int:
    """Return a number of these processes of these nodes; other processes have another one."""
    text = ",".join(f"{node}={heartbeats[node].start}" for node in sorted(heartbeats)).encode()
    return (xxhash.xxh3_64_intdigest(text) & _MASK) or 1


class TerminationDetector:
    """Finds the end of the crawl from the heartbeats of all nodes, this node's among them.

    ``waiting_for`` are the pending nodes that are not live while all others have nothing left.
    """

    def __init__(self) -> None:
        # One idle heartbeat of each node, and the nodes that were pending at that time.
        self._first: dict[str, Heartbeat] | None = None
        self._pending_nodes: frozenset[str] = frozenset()
        self.waiting_for: tuple[str, ...] = ()

    def update(
        self,
        heartbeats: Mapping[str, Heartbeat | None],
        pending_nodes: frozenset[str] = frozenset(),
    ) -> int:
        """Take the last heartbeats of all members, None for those that have not sent any.

        Return the `run_number` for which the crawl is over, else 0.
        """
        if pending_nodes != self._pending_nodes:
            self._first, self._pending_nodes = None, pending_nodes
        run = self._idle_run(heartbeats)
        self.waiting_for = tuple(sorted(pending_nodes - heartbeats.keys())) if run else ()
        return 0 if self.waiting_for else run

    def _idle_run(self, heartbeats: Mapping[str, Heartbeat | None]) -> int:
        """Return the run of the members if all of them were idle at one moment, else 0."""
        sent = {node: heartbeat for node, heartbeat in heartbeats.items() if heartbeat is not None}
        if len(sent) < len(heartbeats) or not sent:
            self._first = None
            return 0
        run = run_number(sent)
        if any(heartbeat.over == run for heartbeat in sent.values()):
            return run
        first = self._first
        if first is None or not _is_unchanged(first, sent):
            all_idle = all(heartbeat.idle for heartbeat in sent.values())
            self._first = sent if all_idle else None
            return 0
        later = all(sent[node].beat >= heartbeat.beat + _LATER for node, heartbeat in first.items())
        return run if later else 0


def _is_unchanged(first: Mapping[str, Heartbeat], now: Mapping[str, Heartbeat]) -> bool:
    """Return whether all nodes are idle, and none has done anything since ``first``."""
    return first.keys() == now.keys() and all(
        heartbeat.idle
        and (heartbeat.start, heartbeat.activity) == (first[node].start, first[node].activity)
        for node, heartbeat in now.items()
    )
