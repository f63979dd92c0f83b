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

# Ranges that are read together, and most hosts in a list. Wider ranges are divided: LevelDB passes
# over the removed entries of a range in one call, which takes 1 ms for a thousand.
_RANGES = 50
_WIDEST = 2**64 // 4096
_NAMES = 500


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

        A range is its first and its last position. The index must be complete.
        """
        narrow = (each for first, last in ranges for each in _divided(first, last))
        while some := list(islice(narrow, _RANGES)):
            names = (name for first, last in some for name in self._between(first, last))
            while found := list(islice(names, _NAMES)):
                yield found
            yield []

    def _between(self, first: int, last: int) -> Iterator[str]:
        after, end = schema.position_prefix(first), schema.position_prefix(last)
        for key, tag in self._store.items(schema.POSITION, after=after):
            if key[: len(end)] > end:
                return
            if tag == self._tag:
                yield key[len(end) :].decode()


def _divided(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range, none of them wider than `_WIDEST`."""
    while last - first >= _WIDEST:
        yield first, first + _WIDEST - 1
        first += _WIDEST
    yield first, last


def _key(name: str) -> bytes:
    return schema.position_prefix(position_of(domain_of(name))) + name.encode()
