"""The hosts on disk by the positions of their domains in the ring of a cluster.

What changes its owner in a small step of a ring is a few ranges of positions. So its hosts are
found without a look at all others.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.store import schema
from krowlspider.urls.host import domain_of, position_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.frontier.store.store import Batch, Store

# Most ranges, and most hosts, that are looked at in one step of `within`.
_RANGES = 200
_NAMES = 500


class HostPositions:
    """An index of the hosts that have a record. Nothing is written to it before `begin`.

    From then on, `put` and `delete` note each new and each erased record, in its batch. With `add`
    for all records that there were at `begin`, the index ``is_complete``. The next process begins
    anew: others, such as commands, do not keep the index. Entries that they left are passed over.
    """

    def __init__(self, store: Store):
        self._store = store
        self._is_kept = False
        self.is_complete = False

    def begin(self) -> None:
        self._is_kept = True

    def put(self, name: str, batch: Batch) -> None:
        if self._is_kept:
            batch.put(_key(name), b"")

    def delete(self, name: str, batch: Batch) -> None:
        if self._is_kept:
            batch.delete(_key(name))

    def add(self, names: Iterable[str]) -> None:
        """Write the entries of some hosts."""
        batch = self._store.batch()
        for name in names:
            batch.put(_key(name), b"")
        batch.write()

    def within(self, ranges: Iterable[tuple[int, int]]) -> Iterator[list[str]]:
        """Yield the hosts within ranges of positions; a list, which may be empty, a step.

        A range is its first and its last position.
        """
        ranges = iter(ranges)
        while some := list(islice(ranges, _RANGES)):
            names = (name for first, last in some for name in self._between(first, last))
            while found := list(islice(names, _NAMES)):
                yield self._recorded(found)
            yield []

    def _between(self, first: int, last: int) -> Iterator[str]:
        after, end = schema.position_prefix(first), schema.position_prefix(last)
        for key in self._store.keys(schema.POSITION, after=after):
            if key[: len(end)] > end:
                return
            yield key[len(end) :].decode()

    def _recorded(self, names: list[str]) -> list[str]:
        """Return those hosts that have a record."""
        records = self._store.read(map(schema.host_key, names))
        return [name for name, record in zip(names, records, strict=True) if record is not None]


def _key(name: str) -> bytes:
    return schema.position_prefix(position_of(domain_of(name))) + name.encode()
