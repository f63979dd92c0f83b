"""The table of seeds of a crawl of several processes: one row for each line, as it ended."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, cast

from krowlspider.crawl.report.tables import SEED_COLUMNS, Table, seed_row
from krowlspider.frontier.seed_table import GIVEN, is_elsewhere, read_rows
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from krowlspider.crawl.report.spool import Row
    from krowlspider.frontier.store.store import Store


class _Joined:
    """The stores of all processes, with the lines of one of them. It can only be read."""

    def __init__(self, lines: Store, stores: Sequence[Store]):
        self._lines = lines
        self._stores = stores

    def get(self, key: bytes) -> bytes | None:
        if key == schema.SEED_SOURCES:
            return self._lines.get(key)
        found = [value for store in self._stores if (value := store.get(key)) is not None]
        if not key.startswith(schema.SEED):
            return found[0] if found else None
        # The owner of a URL knows what became of it; a former owner had it queued.
        owned = [each for each in found if not is_elsewhere(each)]
        return next(filter(None, owned), (*owned, *found, None)[0])

    def items(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self._lines.items(prefix, after)


class _Rows:
    """The rows of all sources; those of a source that several processes have read come once."""

    def __init__(self, stores: Sequence[Store]):
        self._stores = stores

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Row]:
        met: set[str] = set()
        for lines in self._stores:
            store, here = cast("Any", _Joined(lines, self._stores)), set[str]()
            for row in read_rows(store):
                if row.source in met:
                    continue
                here.add(row.source)
                yield seed_row(store, row)
            # Each process has lines of its own that were given by hand.
            met |= here - {GIVEN}


def open_seeds(stack: ExitStack, frontiers: Sequence[Path]) -> Table:
    """Return the table of the seeds in these frontiers, which are open until ``stack`` ends.

    :raises StoreError: one is missing, damaged or in use
    """
    stores = [stack.enter_context(closing(LevelStore(each))) for each in frontiers]
    return Table("seeds", "Seeds", SEED_COLUMNS, _Rows(stores))
