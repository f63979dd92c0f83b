"""The table of seeds of a crawl of several processes: one row for each line, as it ended."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from krowlspider.crawl.report.tables import SEED_COLUMNS, Spool, Table, seed_row
from krowlspider.frontier.seed_table import ELSEWHERE, GIVEN, line_counts, read_rows
from krowlspider.frontier.store.store import LevelStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from krowlspider.frontier.seed_table import SeedRow
    from krowlspider.frontier.store.store import Store


class _AnyOf:
    """Stores of which one has a host's record. They can only be read."""

    def __init__(self, stores: Sequence[Store]):
        self._stores = stores

    def get(self, key: bytes) -> bytes | None:
        found = (store.get(key) for store in self._stores)
        return next((each for each in found if each is not None), None)


def _on_its_way(row: SeedRow) -> SeedRow:
    """Return a row; one that no process has an outcome for is in an outbox or in Redis."""
    return row._replace(outcome="queued") if row.outcome == ELSEWHERE else row


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
        every, met = cast("Any", _AnyOf(stores)), set[str]()
        for lines in stores:
            # Several processes have read one source; each has lines of its own given by hand.
            counts = {name: n for name, n in line_counts(lines).items() if name not in met}
            others = [each for each in stores if each is not lines]
            found = (row for row in read_rows(lines, others) if row.source in counts)
            rows.add(seed_row(every, _on_its_way(row)) for row in found)
            total += sum(counts.values())
            met |= counts.keys() - {GIVEN}
        yield Table("seeds", "Seeds", SEED_COLUMNS, rows, total)
