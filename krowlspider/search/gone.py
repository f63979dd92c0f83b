"""The pages that a crawl's own frontier says are gone.

Rows know more than the archive: which 200s are the error page of their host, for one. Records of
hosts know which hosts have not answered for a month, while others have. They are read once the
crawl has stopped.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive.finished import PROCESS
from krowlspider.frontier.hosts.host_record import decode_host, rate_in
from krowlspider.frontier.pages.row import read_row
from krowlspider.frontier.store.schema import PAGES, host_key, host_of_page, page_prefix
from krowlspider.frontier.store.store import LevelStore, StoreError
from krowlspider.politeness.delay import ERRORS_PARK, PARKED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.frontier.store.store import Store

# Days for which a host has not answered that is dead.
DAYS = 30
# Failures in a row of such a host: a parked one is tried once a day.
DEAD = ERRORS_PARK + DAYS


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
            yield from _gone_in(store)


def _gone_in(store: Store) -> Iterator[Gone]:
    # Of each host with so many failures: the day of its last try at the latest, and of its last
    # answer.
    tried: dict[str, int] = {}
    heard: dict[str, int] = {}
    last, answered = "", set[int]()
    # The rows of a host are together.
    for key, value in store.items(PAGES):
        if (host := host_of_page(key)) != last:
            last, record = host, store.get(host_key(host))
            if record is not None and rate_in(record).errors >= DEAD:
                tried[host] = _day(decode_host(host, record).due - PARKED)
        if (row := read_row(value, host, key)) is None:
            continue
        if row.absence.is_tombstone:
            yield Gone(row.url, int(row.last))
        if host in tried:
            heard[host] = max(heard.get(host, 0), _day(row.last))
        else:
            answered.add(_day(row.last))
    for host, day in heard.items():
        silent = range(tried[host] - DAYS + 1, tried[host])
        # Prices that it asks for count as failures too. And where nobody has answered between its
        # tries, the network of this machine failed.
        if day < silent.start and answered & {*silent}:
            for key, value in store.items(page_prefix(host)):
                if (row := read_row(value, host, key)) is not None and not row.absence.is_tombstone:
                    yield Gone(row.url, int(row.last))


def _day(second: float) -> int:
    return int(second // PARKED)
