"""Which members of a cluster are live, by the last reading of the register. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TYPE_CHECKING

from krowlspider.cluster.ring.record import BadRecordError, Record, load_counters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


def dead_record(entry: RegisterEntry) -> Record | None:
    """Return the record of a node that died with claims; None for a live one, or one that left."""
    if entry.session:
        return None
    with suppress(BadRecordError):
        record = Record.loads(entry.node, entry.value)
        return replace(record, dead=True) if record.claims else None
    return None


class LiveMembers:
    """The members by the last reading: those whose key a session holds, and those that are dead.

    The key of a dead member has claims and no session. It stays a member until its key is deleted,
    which is `overdue` after ``delay`` seconds. It stays for ``ttl`` seconds in any case, as its
    lease may still be valid. All seconds count from the first reading that showed it dead.
    """

    def __init__(self, own: str, ttl: float, delay: float) -> None:
        self.members: Mapping[str, Record] = {}
        self.epoch = 0
        # Index in the register of the last change of our own key.
        self.modified = 0
        self._own = own
        self._ttl = ttl
        self._delay = max(ttl, delay)
        # Of each dead member: the index of its key, 0 for a deleted one, and when that was read.
        self._dead: dict[str, tuple[int, float]] = {}

    def update(self, epoch: int, entries: Sequence[RegisterEntry], now: float) -> bool:
        """Take a reading that has our own key. Return whether more than counters has changed.

        :raises BadRecordError: the record of a live member cannot be read; nothing is changed
        """
        by_id = {entry.node: entry for entry in entries}
        found = {
            node: Record.loads(node, entry.value) for node, entry in by_id.items() if entry.session
        }
        dead: dict[str, tuple[int, float]] = {}
        for node, entry in by_id.items():
            if (record := dead_record(entry)) is not None:
                index, since = self._dead.get(node, (0, now))
                dead[node] = entry.modified, since if index == entry.modified else now
                found[node] = record
        for node in self.members.keys() - by_id.keys():
            _, since = self._dead.get(node, (0, now))
            if now < since + self._ttl:
                dead[node] = 0, since
                found[node] = replace(self.members[node], dead=True)
        self._dead = dead
        before, self.epoch, self.modified = self.members, epoch, by_id[self._own].modified
        self.members = {
            node: replace(record, counters=before[node].counters) if node in before else record
            for node, record in found.items()
        }
        return before != self.members

    def news(self, before: Mapping[str, Record]) -> list[str]:
        """Return what has changed since the members were ``before``, a sentence for each node.

        If there were none, return only which members are dead.
        """
        told = []
        for node in sorted((self.members.keys() | before.keys()) - {self._own}):
            was, now = before.get(node), self.members.get(node)
            if now is None:
                is_dead = was is not None and was.dead
                how = "is dead: other nodes take its domains over" if is_dead else "has left"
                told.append(f"Node {node} {how}")
            elif now.dead:
                if was is None or not was.dead:
                    end = (
                        f" for up to {self._delay:g} s; `scrapy ring --forget {node}` ends the wait"
                    )
                    wait = "its domains wait for it" + (end if self._delay < inf else "")
                    told.append(f"Node {node} has lost its lease: {wait}")
            elif was is not None and was.dead:
                told.append(f"Node {node} is back")
            elif was is None:
                told += [f"Node {node} has joined"] if before else []
            elif now.leaving > was.leaving:
                told.append(f"Node {node} is leaving: it hands its hosts over")
        return told

    def is_stale(self, now: float) -> bool:
        """Return whether a new reading would drop a member whose key was deleted."""
        return any(not index and now >= since + self._ttl for index, since in self._dead.values())

    def overdue(self, now: float) -> dict[str, int]:
        """Return the dead members whose keys are to be deleted, and the index of each key."""
        ends = ((node, index, since + self._delay) for node, (index, since) in self._dead.items())
        return {node: index for node, index, end in ends if index and now >= end}

    def waits(self, now: float) -> dict[str, int]:
        """Return how many seconds are left until each dead member is overdue."""
        return {
            node: max(0, ceil(since + self._delay - now))
            for node, (index, since) in self._dead.items()
            if index and self._delay < inf
        }

    def count(self, heartbeats: Sequence[RegisterEntry]) -> None:
        """Take the counters of the members. Counters that cannot be read change nothing."""
        counted = dict(self.members)
        for heartbeat in heartbeats:
            if heartbeat.node in counted and heartbeat.session:
                with suppress(BadRecordError):
                    counters = load_counters(heartbeat.value)
                    counted[heartbeat.node] = replace(counted[heartbeat.node], counters=counters)
        self.members = counted
