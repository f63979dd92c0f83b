"""The table of seeds of a crawl of several processes: one row for each line, as it ended."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from krowlspider.crawl.report.tables import SEED_COLUMNS, Spool, Table, seed_row
from krowlspider.frontier.seed_table import GIVEN, is_elsewhere, line_counts, read_rows
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

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


@contextmanager
def seeds_of_all(frontiers: Sequence[Path], folder: Path) -> Iterator[Table]:
    """Return the table of the seeds in these frontiers. A file in ``folder`` has the rows until the
    context ends.

    :raises StoreError: a frontier is missing, damaged or in use
    :raises OSError: the file cannot be written
    """
    total = 0
    with ExitStack() as stack:
        rows = stack.enter_context(closing(Spool(folder)))
        stores = [stack.enter_context(closing(LevelStore(each))) for each in frontiers]
        met: set[str] = set()
        for lines in stores:
            store = cast("Any", _Joined(lines, stores))
            # Several processes have read one source; each has lines of its own given by hand.
            counts = {name: n for name, n in line_counts(lines).items() if name not in met}
            rows.add(seed_row(store, row) for row in read_rows(store) if row.source in counts)
            total += sum(counts.values())
            met |= counts.keys() - {GIVEN}
        yield Table("seeds", "Seeds", SEED_COLUMNS, rows, total)
