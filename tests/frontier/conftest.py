"""Both stores, and a frontier over each with clocks that only tests move."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.frontier import Candidate, Frontier, Lease
from krowlspider.frontier.memory import MemoryStore
from krowlspider.frontier.seen import SeenSet
from krowlspider.frontier.store import LevelStore, Store
from krowlspider.frontier.turns import Limits
from krowlspider.politeness.pace import PaceRule
from krowlspider.urls.canonical import IdentityHasher
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RULE = PaceRule(
    factor=5.0, minimum=0.25, maximum=30.0, crawl_delay_max=300.0, retry_after_max=3600.0
)
LIMITS = Limits(host_queue=1000, total=100_000, domain_concurrency=2)
# Memory for next to nothing: every host and place comes from disk.
TINY = replace(LIMITS, hosts_in_memory=1, window=1)


class KeptMemoryStore(MemoryStore):
    """A twin whose content outlives `close`, as a folder's does."""

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
class World:
    """A frontier that can be closed, crashed and opened again over the same store."""

    open_store: Callable[[], Store]
    limits: Limits = LIMITS
    verify: bool = False
    clocks: Clocks = field(default_factory=Clocks)
    hasher: IdentityHasher = field(default_factory=lambda: IdentityHasher(1))

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> Frontier:
        self.store = self.open_store()
        seen = SeenSet(self.store, 1000, verify=self.verify)
        self.frontier = Frontier(
            self.store,
            seen,
            self.limits,
            RULE,
            monotonic=lambda: self.clocks.monotonic,
            wall=lambda: self.clocks.wall,
        )
        return self.frontier

    def restart(self) -> Frontier:
        self.frontier.close()
        return self.open()

    def crash(self) -> Frontier:
        """The process dies: nothing of its memory is written."""
        self.store.close()
        self.clocks.monotonic = 5.0
        return self.open()

    def candidate(self, url: str, priority: int = 0, depth: int = 0) -> Candidate:
        return Candidate(host_of(url), self.hasher.key(url), Entry(url, depth), priority)

    def add(self, *urls: str, priority: int = 0) -> int:
        return self.frontier.add([self.candidate(url, priority) for url in urls])

    def pop(self) -> Lease | None:
        """Pop the next due entry, leaving its host in transit."""
        while (host := self.frontier.pop_host()) is not None:
            if (lease := self.frontier.pop(host)) is not None:
                return lease
            self.frontier.give_back(host)
        return None

    def fetch(self, wait: float = 0.25) -> str | None:
        """Pop, fetch and acknowledge one page."""
        lease = self.pop()
        if lease is None:
            return None
        self.frontier.release(lease.host, wait)
        self.frontier.acknowledge(lease)
        return lease.entry.url

    def commit(self) -> None:
        commit = self.frontier.begin_commit()
        commit.write()
        self.frontier.end_commit(commit)


@pytest.fixture(params=["leveldb", "memory"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    opened: list[Store] = []
    kept = KeptMemoryStore()

    def open_() -> Store:
        store = (
            kept
            if request.param == "memory"
            else LevelStore(tmp_path / "db", create=not (tmp_path / "db").exists())
        )
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


@pytest.fixture(params=[LIMITS, TINY], ids=["roomy", "tiny"])
def world(open_store: Callable[[], Store], request: pytest.FixtureRequest) -> World:
    return World(open_store, limits=request.param)
