"""The pages that a crawl's own frontier says are gone.

Rows know more than the archive: which 200s are the error page of their host, for one. Records of
hosts know which hosts have not answered for a month. They are read once the crawl has stopped.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive.finished import PROCESS
from krowlspider.frontier.hosts.host_record import rate_in
from krowlspider.frontier.pages.row import read_row
from krowlspider.frontier.store.schema import PAGES, host_key, host_of_page
from krowlspider.frontier.store.store import LevelStore, StoreError
from krowlspider.politeness.delay import ERRORS_PARK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.frontier.store.store import Store

# Failures in a row of a host that is dead: a parked one is tried once a day, so these are 30 days.
DEAD = ERRORS_PARK + 30


class Gone(NamedTuple):
    """A page that is gone, and the second of the answer that says so."""

    url: str
    second: int


def gone_pages(jobdir: Path) -> Iterator[Gone]:
    """Yield the pages that are tombstones in the rows of a crawl, or whose host is dead, those of
    its processes too; none of a crawl that runs, or without rows."""
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
            last, is_dead = "", False
            # The rows of a host are together.
            for key, value in store.items(PAGES):
                if (host := host_of_page(key)) != last:
                    last, is_dead = host, _is_dead(store, host)
                row = read_row(value, host)
                if row is not None and (is_dead or row.absence.is_tombstone):
                    yield Gone(row.url, int(row.last))


def _is_dead(store: Store, host: str) -> bool:
    """Return whether a host has not answered for 30 days."""
    record = store.get(host_key(host))
    return record is not None and rate_in(record).errors >= DEAD
