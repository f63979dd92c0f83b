"""The tables of a crawl's report, read from its frontier. Each has a bounded number of rows."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.hosts.record import HostFigures, figures_in
from krowlspider.frontier.outcomes import read_counts, read_seeds
from krowlspider.frontier.stopped import read_counters
from krowlspider.frontier.store.queues import records
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from krowlspider.frontier.outcomes import SeedRow
    from krowlspider.frontier.store.store import Store

# Rows of the tables of hosts.
HOSTS_MAX = 1000
SLOWEST_MAX = 100
# Hosts read at a time, 1 to 2 ms, and seconds that the event loop gets after them.
_CHUNK = 200
_PAUSE = 0.0002
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


class _Hosts:
    """The hosts with the most pages, the slowest ones, and those of the seeds."""

    def __init__(self, wanted: set[str]):
        self._wanted = wanted
        self.count = 0
        self.queued = 0
        self.most: list[_Host] = []
        self.slowest: list[_Host] = []
        self.of_seeds: dict[str, HostFigures] = {}

    def add(self, hosts: list[_Host]) -> None:
        self.count += len(hosts)
        self.queued += sum(figures.queued for _, figures in hosts)
        self.most = _greatest(HOSTS_MAX, self.most, hosts, itemgetter(1))
        answered = [host for host in hosts if host[1].latency]
        self.slowest = _greatest(SLOWEST_MAX, self.slowest, answered, lambda h: h[1].latency)
        self.of_seeds |= {name: figures for name, figures in hosts if name in self._wanted}


def _greatest(
    most: int, known: list[_Host], hosts: list[_Host], key: Callable[[_Host], Any]
) -> list[_Host]:
    """Return the ``most`` greatest of both, the greatest first; ``known`` is in this order."""
    if len(known) >= most:
        # Most are less than all that are known: they cost no sorting.
        least = key(known[-1])
        hosts = [host for host in hosts if key(host) > least]
    return nlargest(most, known + hosts, key=key) if hosts else known


def read_tables(store: Store) -> Tables:
    """Return the tables of a frontier. This may take many seconds: call it in a thread.

    :raises StoreError: the store cannot be read
    """
    counts, counters = read_counts(store), read_counters(store)
    seeds = list(read_seeds(store))
    hosts = _Hosts({host_of(seed.url) for seed in seeds})
    end, is_whole = time.monotonic() + _TIME_LIMIT, True
    found = ((name, figures_in(record)) for name, record in records(store))
    while some := list(islice(found, _CHUNK)):
        hosts.add(some)
        if time.monotonic() > end:
            is_whole = False
            break
        # Otherwise each turn of the loop waits for the interpreter for 5 ms.
        time.sleep(_PAUSE)
    dropped = _under("dropped/", counters)
    sizes = _under("bytes/", counts)
    seed_rows = [_seed_row(seed, hosts.of_seeds, is_whole=is_whole) for seed in seeds]
    outcomes = Counter(str(row[1]) for row in seed_rows)
    types = [(name, n, sizes[name]) for name, n in _sorted(_under("type/", counts))]
    seed_count = counts["seeds"] + counts["seeds_beyond"]
    tables = [
        _counted("seed-outcomes", "Seeds by outcome", ("outcome", "seeds"), outcomes),
        _counted("statuses", "Pages by status", ("status", "pages"), _under("status/", counts)),
        Table("types", "Pages by media type", ("media type", "pages", "bytes"), types),
        _counted("drops", "Dropped URLs by reason", ("reason", "URLs"), dropped),
        Table("hosts", "Hosts with the most pages", _HOST, _host_rows(hosts.most), hosts.count),
        Table("slowest", f"The {SLOWEST_MAX} slowest hosts", _HOST, _host_rows(hosts.slowest)),
        Table("seeds", "Seeds", _SEED, seed_rows, seed_count),
    ]
    totals = {
        "done": counters["done"],
        "dropped": dropped.total(),
        "queued": hosts.queued,
        "hosts": hosts.count,
        "received": sizes.total(),
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


def _seed_row(seed: SeedRow, hosts: dict[str, HostFigures], *, is_whole: bool) -> Row:
    host, outcome = hosts.get(host_of(seed.url)), seed.outcome
    if not outcome:
        outcome = "queued"
        if host is not None and host.health is Health.DEAD:
            outcome = "deferred"
        elif host is None and is_whole:
            outcome = "moved or forgotten"
    return seed.url, outcome, seed.status or "", seed.location, 0 if host is None else host.done


def _under(prefix: str, counts: Counter[str]) -> Counter[str]:
    return Counter(
        {
            name.removeprefix(prefix): count
            for name, count in counts.items()
            if name.startswith(prefix)
        }
    )


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _counted(name: str, title: str, columns: tuple[str, str], counts: Counter[str]) -> Table:
    return Table(name, title, columns, _sorted(counts))
