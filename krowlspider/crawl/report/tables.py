"""The tables of a crawl's report, read from its frontier. Each has a bounded number of rows."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.report.slices import in_slices
from krowlspider.crawl.status import by_last_part
from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.hosts.record import HostFigures, figures_in
from krowlspider.frontier.outcomes import read_counts, read_seeds
from krowlspider.frontier.stopped import read_counters
from krowlspider.frontier.store.queues import records
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krowlspider.frontier.outcomes import SeedRow
    from krowlspider.frontier.store.store import Store

# Rows of the tables of hosts.
HOSTS_MAX = 1000
SLOWEST_MAX = 100
# Seconds of reading host records, after which the tables of hosts have those read so far.
_TIME_LIMIT = 30.0

_HOST = ("host", "done", "dropped", "queued", "state", "latency (s)", "errors")
_SEED = ("seed", "outcome", "status", "redirected to", "pages of its host")
Row = tuple[str | int | float, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: ``name`` is that of its file. ``total`` is the number of rows that a table without
    a limit would have; 0 for one that has all."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    total: int = 0

    @property
    def cut(self) -> str:
        """Return a line that says which rows are missing, "" if none is."""
        if self.total <= len(self.rows):
            return ""
        return f"{len(self.rows):,} of {self.total:,} rows"


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables, with totals: ``done``, ``dropped``, ``queued``, ``hosts``, ``received`` bytes,
    ``began`` in epoch seconds and ``starts``. ``is_whole`` is false if the time did not suffice
    for all hosts."""

    totals: dict[str, int]
    tables: list[Table]
    is_whole: bool


# Its name, and what its record says.
_Host = tuple[str, HostFigures]


class _Greatest:
    """The ``most`` hosts with the greatest ``key`` among those added whose key is above ``least``.

    ``least`` rises: no host of this key or below is among them.
    """

    def __init__(self, most: int, key: Callable[[_Host], Any], least: Any):
        self._most = most
        self._key = key
        self.least = least
        self._found: list[_Host] = []

    def add(self, host: _Host) -> None:
        """Add a host whose key is above ``least``."""
        self._found.append(host)
        # Most hosts of a large crawl are not above the least, and cost no sorting.
        if len(self._found) >= 2 * self._most:
            self._found = self.hosts()
            self.least = self._key(self._found[-1])

    def hosts(self) -> list[_Host]:
        """Return the hosts, the greatest first; of equal ones, the one that was added first."""
        return sorted(self._found, key=self._key, reverse=True)[: self._most]


class _Hosts:
    """The hosts with the most pages, the slowest ones, and those that are ``wanted``."""

    def __init__(self, wanted: set[str]):
        self._wanted = wanted
        self.count = 0
        self.queued = 0
        self.most = _Greatest(HOSTS_MAX, itemgetter(1), ())
        self.slowest = _Greatest(SLOWEST_MAX, lambda host: host[1].latency, 0.0)
        # Pages done of those that are wanted, and those among them that are deferred.
        self.done: dict[str, int] = {}
        self.deferred: set[str] = set()

    def add(self, hosts: list[_Host]) -> None:
        most, slowest, wanted = self.most, self.slowest, self._wanted
        self.count += len(hosts)
        for host in hosts:
            name, figures = host
            self.queued += figures.queued
            if figures > most.least:
                most.add(host)
            if figures.latency > slowest.least:
                slowest.add(host)
            if name in wanted:
                self.done[name] = figures.done
                if figures.health is Health.DEAD:
                    self.deferred.add(name)


def read_tables(store: Store) -> Tables:
    """Return the tables of a frontier. This may take many seconds: call it in a thread.

    :raises StoreError: the store cannot be read
    """
    counts, counters = read_counts(store), read_counters(store)
    # Seeds are read twice and not kept: the event loop waits while new objects are looked at by the
    # garbage collector.
    wanted: set[str] = set()
    for seeds in in_slices(read_seeds(store)):
        wanted.update(host_of(seed.url) for seed in seeds)
    hosts = _Hosts(wanted)
    end, is_whole = time.monotonic() + _TIME_LIMIT, True
    for read in in_slices(records(store)):
        hosts.add([(name, figures_in(record)) for name, record in read])
        if time.monotonic() > end:
            is_whole = False
            break
    seed_rows: list[Row] = []
    outcomes: Counter[str] = Counter()
    for seeds in in_slices(read_seeds(store)):
        rows = [_seed_row(seed, hosts, is_whole=is_whole) for seed in seeds]
        outcomes.update(str(row[1]) for row in rows)
        seed_rows += rows
    dropped = by_last_part(counters, "dropped/")
    statuses, sizes = by_last_part(counts, "status/"), by_last_part(counts, "bytes/")
    types = [(name, n, sizes.get(name, 0)) for name, n in _sorted(by_last_part(counts, "type/"))]
    seed_count = counts["seeds"] + counts["seeds_beyond"]
    tables = [
        _counted("seed-outcomes", "Seeds by outcome", ("outcome", "seeds"), outcomes),
        _counted("statuses", "Pages by status", ("status", "pages"), statuses),
        Table("types", "Pages by media type", ("media type", "pages", "bytes"), types),
        _counted("drops", "Dropped URLs by reason", ("reason", "URLs"), dropped),
        Table(
            "hosts", "Hosts with the most pages", _HOST, _host_rows(hosts.most.hosts()), hosts.count
        ),
        Table("slowest", "The slowest hosts", _HOST, _host_rows(hosts.slowest.hosts())),
        Table("seeds", "Seeds", _SEED, seed_rows, seed_count),
    ]
    totals = {
        "done": counters["done"],
        "dropped": sum(dropped.values()),
        "queued": hosts.queued,
        "hosts": hosts.count,
        "received": sum(sizes.values()),
        "began": counts["began"],
        "starts": counts["starts"],
    }
    return Tables(totals, tables, is_whole)


def _host_rows(hosts: Iterable[_Host]) -> list[Row]:
    return [
        (
            name,
            found.done,
            found.dropped,
            found.queued,
            found.health.words,
            round(found.latency, 3),
            found.errors,
        )
        for name, found in hosts
    ]


def _seed_row(seed: SeedRow, hosts: _Hosts, *, is_whole: bool) -> Row:
    host, outcome = host_of(seed.url), seed.outcome
    if not outcome:
        outcome = "queued"
        if host in hosts.deferred:
            outcome = "deferred"
        elif host not in hosts.done and is_whole:
            outcome = "moved or forgotten"
    return seed.url, outcome, seed.status or "", seed.location, hosts.done.get(host, 0)


def _sorted(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _counted(name: str, title: str, columns: tuple[str, str], counts: Mapping[str, int]) -> Table:
    return Table(name, title, columns, _sorted(counts))
