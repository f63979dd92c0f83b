"""The sum of all host records, kept beside them: a start after a death need not read every host."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host_record import queued_in
from krowlspider.frontier.store.queues import records
from krowlspider.frontier.store.schema import TALLY

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Batch, Store

_TALLY = Struct(">QQQ")


@dataclass(slots=True)
class Tally:
    """Totals over all hosts. On disk they change in the batches that change the records, so they
    agree whenever the process dies.

    - ``queued``: entries, leased ones too.
    - ``hosts``: hosts that have entries and are not deferred.
    - ``deferred``: entries of deferred hosts.
    """

    queued: int = 0
    hosts: int = 0
    deferred: int = 0

    @classmethod
    def read(cls, store: Store) -> Tally:
        """Return the tally on disk. Where a change by hand has removed it, count all host
        records."""
        if (saved := store.get(TALLY)) is not None:
            return cls(*_TALLY.unpack(saved))
        tally = cls()
        for _, record in records(store):
            tally.replace(b"", record)
        return tally

    def replace(self, old: bytes, new: bytes) -> None:
        """Count the new record of a host in place of the old one; empty for none."""
        if old:
            queued, aside = queued_in(old)
            self.queued -= queued
            if aside:
                self.deferred -= queued
            elif queued:
                self.hosts -= 1
        if new:
            queued, aside = queued_in(new)
            self.queued += queued
            if aside:
                self.deferred += queued
            elif queued:
                self.hosts += 1

    def put(self, batch: Batch) -> None:
        """Put the tally into the batch that has the records it counts."""
        if min(self.queued, self.hosts, self.deferred) < 0:
            # Negative totals are impossible: have the next start count anew.
            batch.delete(TALLY)
        else:
            batch.put(TALLY, _TALLY.pack(self.queued, self.hosts, self.deferred))
