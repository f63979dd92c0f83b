"""Which members of a cluster are live, by the last reading of the register. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from krowlspider.cluster.ring.record import BadRecordError, Record, load_counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class RegisterEntry:
    """A key of the register, held by ``session`` or None; ``modified`` grows with each change."""

    key: str
    value: bytes
    session: str | None
    modified: int

    @property
    def node(self) -> str:
        return self.key.rpartition("/")[2]


class LiveMembers:
    """The live members by the last reading: those whose key a session holds.

    A node whose key vanished stays a member for ``ttl`` seconds, as its lease may still be valid.
    """

    def __init__(self, own: str, ttl: float) -> None:
        self.members: Mapping[str, Record] = {}
        self.epoch = 0
        # Index in the register of the last change of our own key.
        self.modified = 0
        self._own = own
        self._ttl = ttl
        # Time of the first reading that lacked each of these members.
        self._vanished: dict[str, float] = {}
        # Those of them that `news` has named.
        self._told: set[str] = set()

    def update(self, epoch: int, entries: Sequence[RegisterEntry], now: float) -> bool:
        """Take a reading that has our own key. Return whether more than counters has changed.

        :raises BadRecordError: the record of a live member cannot be read; nothing is changed
        """
        by_id = {entry.node: entry for entry in entries}
        live = {
            node: Record.loads(node, entry.value) for node, entry in by_id.items() if entry.session
        }
        missing = self.members.keys() - by_id.keys()
        vanished = {node: self._vanished.get(node, now) for node in missing}
        self._vanished = {n: since for n, since in vanished.items() if now < since + self._ttl}
        late = {node: self.members[node] for node in self._vanished}
        before, self.epoch, self.modified = self.members, epoch, by_id[self._own].modified
        self.members = {
            node: replace(record, counters=before[node].counters) if node in before else record
            for node, record in {**live, **late}.items()
        }
        return before != self.members

    def news(self, before: Mapping[str, Record], entries: Iterable[RegisterEntry]) -> list[str]:
        """Return what has changed since the members were ``before``, a sentence for each node.

        ``entries`` are those of the last reading.
        """
        known = {entry.node for entry in entries}
        now, others = self.members, (self.members.keys() | before.keys()) - {self._own}
        told = []
        for node in sorted(others):
            if node not in before:
                told.append(f"Node {node} has joined")
            elif node not in now:
                # A node that leaves gives its key back; that of a dead node ends with its lease.
                how = "has left" if node in known else "is dead: its lease has ended"
                told.append(f"Node {node} {how}")
            elif now[node].leaving > before[node].leaving:
                told.append(f"Node {node} is leaving: it hands its hosts over")
            elif node in self._vanished and node not in self._told:
                told.append(
                    f"Node {node} has lost its lease: its hosts wait up to {self._ttl:g} s for it"
                )
        self._told = set(self._vanished)
        return told

    def is_stale(self, now: float) -> bool:
        """Return whether a new reading would drop a vanished member."""
        return any(now >= since + self._ttl for since in self._vanished.values())

    def count(self, heartbeats: Sequence[RegisterEntry]) -> None:
        """Take the counters of the members. Counters that cannot be read change nothing."""
        counted = dict(self.members)
        for heartbeat in heartbeats:
            if heartbeat.node in counted and heartbeat.session:
                with suppress(BadRecordError):
                    counters = load_counters(heartbeat.value)
                    counted[heartbeat.node] = replace(counted[heartbeat.node], counters=counters)
        self.members = counted
