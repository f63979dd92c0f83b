"""The pages that a crawl's own rows say are gone.

Rows know more than the archive: which 200s are the error page of their host, for one. They are read
once the crawl has stopped.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive.finished import PROCESS
from krowlspider.frontier.pages.row import read_row
from krowlspider.frontier.store.schema import PAGES, host_of_page
from krowlspider.frontier.store.store import LevelStore, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Gone(NamedTuple):
    """A page that is gone, and the second of the answer that says so."""

    url: str
    second: int


def gone_pages(jobdir: Path) -> Iterator[Gone]:
    """Yield the pages that are tombstones in the rows of a crawl, those of its processes too; none
    of a crawl that runs, or without rows."""
    places = [jobdir, *(each for each in jobdir.glob("p[1-9]*") if PROCESS.fullmatch(each.name))]
    for folder in (place / "frontier" for place in places):
        if not folder.is_dir():
            continue
        try:
            store = LevelStore(folder)
        except StoreError:
            # The crawl runs; the next run of the command reads them.
            continue
        with closing(store):
            for key, value in store.items(PAGES):
                row = read_row(value, host_of_page(key))
                if row is not None and row.absence.is_tombstone:
                    yield Gone(row.url, int(row.last))
