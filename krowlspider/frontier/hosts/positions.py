"""The hosts on disk by the positions of their domains in the ring of a cluster.

Hosts that another node owns are found within its ranges of positions. As they leave, these ranges
hold only hosts that have come to them since: no look at all other hosts is needed.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.store import schema
from krowlspider.urls.host import domain_of, position_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.frontier.store.store import Batch, Store

# Most hosts and ranges that are looked at for one list.
_STEP = 100
# Behind all positions.
_END = 2**64


class HostPositions:
    """An index of the hosts that have a record.

    It is made while a node runs: `begin`, then `add` for all records, then `finish`, from when on
    it ``is_complete``. Before `begin` nothing is written. Each process makes it anew, because
    commands change records without it. So an entry has the tag of the process that wrote it, and
    those of others are passed over.
    """

    def __init__(self, store: Store):
        self._store = store
        self._tag = os.urandom(8)
        self._is_kept = False
        self.is_complete = False

    def begin(self) -> None:
        """Note each new and each erased record from now on."""
        self._is_kept = True

    def finish(self) -> None:
        """Note that each record has its entry."""
        self.is_complete = True

    def put(self, name: str, batch: Batch) -> None:
        """Put the entry of a host into the batch of its first record."""
        if self._is_kept:
            batch.put(_key(name), self._tag)

    def delete(self, name: str, batch: Batch) -> None:
        """Put the removal of an entry into the batch that erases the record."""
        if self._is_kept:
            batch.delete(_key(name))

    def add(self, names: Iterable[str]) -> None:
        """Write the entries of some hosts."""
        batch = self._store.batch()
        for name in names:
            batch.put(_key(name), self._tag)
        batch.write()

    def within(self, ranges: Iterable[tuple[int, int]]) -> Iterator[list[str]]:
        """Yield the hosts within ranges of positions, in lists, which may be empty.

        A range is its first and its last position; they are in order. The index must be complete.
        """
        found = self._found(ranges)
        while step := list(islice(found, _STEP)):
            yield [name for name in step if name is not None]

    def _found(self, ranges: Iterable[tuple[int, int]]) -> Iterator[str | None]:
        """Yield the hosts, and None after each range.

        A read passes over removed entries up to the next one that is there. What lies in between
        is known to be empty then, and is not read again.
        """
        following = 0
        for first, last in ranges:
            if last >= following:
                end, following = schema.position_prefix(last), _END
                after = schema.position_prefix(first)
                for key, tag in self._store.items(schema.POSITION, after=after):
                    if key[: len(end)] > end:
                        following = int.from_bytes(key[1 : len(end)])
                        break
                    if tag == self._tag:
                        yield key[len(end) :].decode()
            yield None


def _key(name: str) -> bytes:
    return schema.position_prefix(position_of(domain_of(name))) + name.encode()
