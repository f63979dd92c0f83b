"""Who is live, by what the register held when it was read. Pure: readings and times are handed in."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from krowlspider.cluster.ring.record import BadRecordError, Record, load_counters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of the register; ``session`` is that of the process that holds it, or None. ``modified`` grows with each
    change."""

    key: str
    value: bytes
    session: str | None
    modified: int

    @property
    def node(self) -> str:
        """The id that the key ends with."""
        return self.key.rpartition("/")[2]


class Census:
    """The members by the last reading. A key that a session holds is a live member, one that nobody holds is one that
    has said goodbye; who vanished without that is a member for ``ttl`` seconds more, because the lease may still run.
    """

    def __init__(self, own: str, ttl: float) -> None:
        self.members: Mapping[str, Record] = {}
        self.epoch = 0
        # The register's index of our own key.
        self.modified = 0
        self._own = own
        self._ttl = ttl
        # When the reading came that lacked them first.
        self._vanished: dict[str, float] = {}

    def take(self, epoch: int, entries: Sequence[Entry], now: float) -> bool:
        """Take a reading that has our own key; whether more than counters has changed.

        :raises BadRecordError: a live member cannot be read: nothing is changed
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
        return _without_counters(before) != _without_counters(self.members)

    def stale(self, now: float) -> bool:
        """Whether the time of a vanished member is over, and a reading would drop it."""
        return any(now >= since + self._ttl for since in self._vanished.values())

    def count(self, beats: Sequence[Entry]) -> None:
        """Take the counters of the members; what cannot be read leaves those that were there."""
        counted = dict(self.members)
        for beat in beats:
            if beat.node in counted and beat.session:
                with suppress(BadRecordError):
                    counters = load_counters(beat.value)
                    counted[beat.node] = replace(counted[beat.node], counters=counters)
        self.members = counted


def _without_counters(members: Mapping[str, Record]) -> dict[str, tuple[object, ...]]:
    return {node: (r.member, r.claims, r.leaving) for node, r in members.items()}
