"""What all host records say together, kept beside them: a start after a death need not go through all hosts."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts import queued_in
from krowlspider.frontier.queues import records
from krowlspider.frontier.schema import TALLY

if TYPE_CHECKING:
    from krowlspider.frontier.store import Batch, Store

_TALLY = Struct(">QQQ")


@dataclass(slots=True)
class Tally:
    """``queued`` entries, leased ones too, ``put_off`` those of hosts that are put off, ``hosts`` that have entries and are
    not. On disk it changes in the batches that change the records, so it is what they say whenever the process dies."""

    queued: int = 0
    hosts: int = 0
    put_off: int = 0

    @classmethod
    def read(cls, store: Store) -> Tally:
        """As it is on disk, or counted, 4 µs a host, where a change by hand has removed it."""
        if (saved := store.get(TALLY)) is not None:
            return cls(*_TALLY.unpack(saved))
        tally = cls()
        for _, record in records(store):
            tally.replace(b"", record)
        return tally

    def replace(self, old: bytes, new: bytes) -> None:
        """The record of a host has become another; empty for none."""
        if old:
            queued, aside = queued_in(old)
            self.queued -= queued
            if aside:
                self.put_off -= queued
            elif queued:
                self.hosts -= 1
        if new:
            queued, aside = queued_in(new)
            self.queued += queued
            if aside:
                self.put_off += queued
            elif queued:
                self.hosts += 1

    def put(self, batch: Batch) -> None:
        """With the records that it is of."""
        if min(self.queued, self.hosts, self.put_off) < 0:
            # It cannot be. The next start counts.
            batch.delete(TALLY)
        else:
            batch.put(TALLY, _TALLY.pack(self.queued, self.hosts, self.put_off))
