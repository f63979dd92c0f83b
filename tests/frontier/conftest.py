"""Fixtures: both stores, and a frontier over each with clocks that only tests move."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import Candidate, Lease
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.hosts.host_record import Tally
from krowlspider.frontier.limits import FrontierLimits, MemoryLimits
from krowlspider.frontier.moves.chunks import decode_chunk, encode_chunk
from krowlspider.frontier.moves.departure import Departures
from krowlspider.frontier.moves.transfer import Arrivals
from krowlspider.frontier.pages.rows import PageRows
from krowlspider.frontier.quotas import Quotas
from krowlspider.frontier.robots.fetches import RobotsFetches
from krowlspider.frontier.seen import FilterFile, SeenSet
from krowlspider.frontier.store.schema import robots_key
from krowlspider.frontier.store.store import LevelStore, Store, entries, records
from krowlspider.politeness.delay import DelayPolicy
from krowlspider.urls.canonical import IdentityHasher, domain_of, host_of
from tests.frontier.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from krowlspider.frontier.hosts.host import Host, RobotsFetch
    from krowlspider.frontier.outbox import Foreign
    from krowlspider.policies.sheets import Policies
    from krowlspider.politeness.robots import RobotsRecord

RULE = DelayPolicy(factor=5.0, minimum=0.25, maximum=30.0, crawl_delay_max=300.0)
LIMITS = FrontierLimits(host_queue=1000, total=100_000, domain_concurrency=2)
# So little memory that every host and due time is read from disk.
TINY = replace(LIMITS, memory=MemoryLimits(hosts=1, window=1, waiting=1, in_line=2))


def counted(store: Store) -> Tally:
    """Return the tally of the host records on disk."""
    tally = Tally()
    for _, record in records(store):
        tally.replace(b"", record)
    return tally


class KeptMemoryStore(MemoryStore):
    """A store in memory that keeps its content when closed, as a folder does."""

    def close(self) -> None:
        pass


@dataclass
class Clocks:
    monotonic: float = 1000.0
    wall: float = 1_700_000_000.0

    def pass_(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds


@dataclass
class SentPeers:
    """Peers that keep what is sent to them: asks, and answers with what each says."""

    foreign: set[str]
    asks: list[tuple[str, int, str]] = field(default_factory=list)
    answers: list[tuple[str, int, RobotsRecord | str | None]] = field(default_factory=list)
    reaches: bool = True

    def owner(self, host: str) -> str | None:
        return "there" if domain_of(host) in self.foreign else None

    def ask(self, node: str, number: int, url: str) -> bool:
        self.asks.append((node, number, url))
        return self.reaches

    def answer(
        self,
        node: str,
        number: int,
        *,
        record: RobotsRecord | None = None,
        location: str | None = None,
    ) -> None:
        self.answers.append((node, number, location if record is None else record))


@dataclass
class World:
    """A frontier that can be closed, crashed and opened again over the same store."""

    open_store: Callable[[], Store]
    limits: FrontierLimits = LIMITS
    rule: DelayPolicy = field(default_factory=lambda: RULE)
    verify: bool = False
    clocks: Clocks = field(default_factory=Clocks)
    hasher: IdentityHasher = field(default_factory=lambda: IdentityHasher(1))
    node: str = "here"
    # Entries of a hand-over chunk.
    most: int = 2
    # Domains that another node owns.
    foreign: set[str] = field(default_factory=set)
    # Domains for which the scheduler asked whether it may fetch.
    looked_at: list[str] = field(default_factory=list)
    # Robots fetches that ended, with the sitemaps that each robots.txt names.
    found: list[tuple[RobotsFetch, list[str]]] = field(default_factory=list)
    file: FilterFile | None = None
    # Whether the disk has no room for an overflow of the whole frontier.
    is_scarce: bool = False
    sheets: Policies | None = None

    def __post_init__(self) -> None:
        self.peers = SentPeers(self.foreign)
        self.open()

    def open(self) -> Frontier:
        self.store = self.open_store()
        seen = SeenSet(self.store, 1000, verify=self.verify, file=self.file)
        self.frontier = Frontier(
            self.store,
            seen,
            self.limits,
            replace(self.rule, of_hosts=dict(self.rule.of_hosts)),
            monotonic=lambda: self.clocks.monotonic,
            wall=lambda: self.clocks.wall,
            may_fetch=self._may_fetch,
            may_overflow=lambda: not self.is_scarce,
            pages=PageRows(self.store, self.hasher.key),
            quotas=(
                None
                if self.sheets is None
                else Quotas(self.store, self.sheets.of_host, lambda: self.clocks.wall)
            ),
        )
        self.robots_fetches = RobotsFetches(
            self.frontier,
            agent="krowlspider",
            ttl=1000.0,
            retries=1,
            throttling=2,
            wall=lambda: self.clocks.wall,
            on_found=lambda robots_fetch, sitemaps: self.found.append((robots_fetch, sitemaps)),
            peers=self.peers,
        )
        self.gate = self.robots_fetches.gate
        self.departures = Departures(
            self.frontier,
            self.store,
            self.robots_fetches,
            node=self.node,
            identify=self.identify,
            most=self.most,
        )
        self.arrivals = Arrivals(
            self.frontier, self.store, self.robots_fetches.cache, self.identify, url_max=2048
        )
        return self.frontier

    def _may_fetch(self, domain: str) -> bool:
        self.looked_at.append(domain)
        return domain not in self.foreign

    def await_robots(self, host: Host, wait: float) -> None:
        """Release a host that awaits a robots.txt from another host."""
        host.robots.awaited.append("fetch")
        self.frontier.schedule.release(host, wait)

    def end_wait(self, host: Host) -> None:
        """Resume a host: the robots.txt it awaits has arrived."""
        host.robots.awaited.clear()
        self.frontier.schedule.resume(host)

    def identify(self, entry: Entry) -> bytes | None:
        if entry.request[:1] == b"P":
            raise ValueError("a pickle")
        return None if b"dont_filter" in entry.request else self.hasher.key(entry.url)

    def hand_over(self, name: str, other: World) -> None:
        """Hand a host over to another frontier, from the first chunk to the last."""
        departure = self.departures.begin(name)
        arrived = 0
        while (chunk := departure.chunk(arrived)) is not None:
            arrived = other.arrivals.take(decode_chunk(encode_chunk(chunk)))
        for _ in departure.end():
            pass

    def queued(self, name: str) -> list[str]:
        """Return the URLs that the disk has queued of a host, in order."""
        return [entry_of(key, value).url for key, value in entries(self.store, name)]

    def restart(self) -> Frontier:
        self.frontier.close()
        return self.open()

    def crash(self) -> Frontier:
        """Reopen as after a kill: nothing in memory is written."""
        self.store.close()
        self.clocks.monotonic = 5.0
        return self.open()

    def candidate(self, url: str, priority: int = 0, depth: int = 0) -> Candidate:
        return Candidate(host_of(url), self.hasher.key(url), Entry(url, depth), priority)

    def add(self, *urls: str, priority: int = 0) -> int:
        return self.frontier.add([self.candidate(url, priority) for url in urls])

    def forward(self, items: Iterable[Foreign]) -> int:
        """Queue only foreign URLs; return how many were put into the outbox."""
        before = self.frontier.counters["foreign"]
        self.frontier.queue([], list(items))
        return self.frontier.counters["foreign"] - before

    def pop(self) -> Lease | None:
        """Pop the next due entry; its host stays in flight."""
        while (host := self.frontier.schedule.pop()) is not None:
            if (lease := self.frontier.queues.pop(host)) is not None:
                return lease
            self.frontier.schedule.give_back(host)
        return None

    def fetch(self, wait: float = 0.25) -> str | None:
        """Pop, fetch and acknowledge one page; return its URL."""
        lease = self.pop()
        if lease is None:
            return None
        self.frontier.schedule.release(lease.host, wait)
        self.frontier.acknowledge(lease)
        return lease.entry.url

    def put_robots(self, authority: str, record: bytes) -> None:
        """Store a robots record, as after a fetch."""
        batch = self.store.batch()
        batch.put(robots_key(authority), record)
        batch.write()

    def commit(self) -> None:
        commit = self.frontier.begin_commit()
        commit.write()
        self.frontier.end_commit(commit)


@contextmanager
def _opener(kind: str, folder: Path) -> Iterator[Callable[[], Store]]:
    opened: list[Store] = []
    kept = KeptMemoryStore()

    def open_() -> Store:
        store = kept if kind == "memory" else LevelStore(folder, create=not folder.exists())
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


@pytest.fixture(params=["leveldb", "memory"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    with _opener(request.param, tmp_path / "db") as open_:
        yield open_


# Each store and each size of memory is in one of the quick two.
WORLDS = [
    *("leveldb, tiny", "memory, roomy"),
    *(pytest.param(other, marks=pytest.mark.slow) for other in ("leveldb, roomy", "memory, tiny")),
]


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    store, _, memory = request.param.partition(", ")
    with _opener(store, tmp_path / "db") as open_:
        yield World(open_, limits={"roomy": LIMITS, "tiny": TINY}[memory])
