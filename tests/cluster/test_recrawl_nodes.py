"""Three nodes fetch pages again: each by its owner only, once for each due time, whoever comes and
goes."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.frontier.pages.rows import rows_in
from krowlspider.frontier.store.store import LevelStore, StoreError
from krowlspider.urls.canonical import domain_of
from tests.cluster.judges import node_of
from tests.cluster.nodes import Cluster
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import Graph
from tests.support.crawls import pages
from tests.support.moved_clocks import FILE, MOVED, MovedClocks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from krowlspider.frontier.pages.row import PageRow
    from tests.mockweb.log import Entry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

HOUR = 3600.0
DELAY = 1.0
GRAPH = Graph(hosts=24, pages=4, seed=11, features=frozenset())
# Seconds in which the nodes commit what they have fetched, longer than the delay of a host.
SETTLED = 3.0
TICK = 60.0
# Requests of a round after which a node comes or goes.
SOME = 8


def rows_of(jobdir: Path, scratch: Path) -> dict[str, PageRow]:
    """Return the rows of a crawl that is idle, by URL."""
    copy, end = scratch / "copy", time.monotonic() + 30
    while True:
        shutil.rmtree(copy, ignore_errors=True)
        # A table may be merged meanwhile.
        with suppress(StoreError, shutil.Error):
            left_out = shutil.ignore_patterns("LOCK", "synced")
            shutil.copytree(jobdir / "frontier", copy, ignore=left_out)
            store = LevelStore(copy)
            try:
                return {row.url: row for row in rows_in(store) if row is not None}
            finally:
                store.close()
        assert time.monotonic() < end, f"{jobdir} cannot be copied"


class Rounds:
    """What the nodes ask between two moves of their clocks."""

    def __init__(self, cluster: Cluster, clocks: MovedClocks) -> None:
        self.cluster, self.clocks = cluster, clocks
        self.nodes: list[str] = []
        self._begun = 0.0
        self._due: set[str] = set()

    def rows(self) -> dict[str, PageRow]:
        """Return the rows of all nodes. No page has two."""
        found: dict[str, PageRow] = {}
        for node in self.nodes:
            own = rows_of(self.cluster.folder / node, self.cluster.folder)
            assert own.keys().isdisjoint(found)
            found |= own
        return found

    def begin(self, hours: float) -> None:
        """Move the clocks, by whole ticks: pages come up at the next one."""
        rows = self.rows()
        self._begun = time.monotonic()
        self.clocks.move(hours * HOUR)
        self._due = {url for url, row in rows.items() if row.due <= self.clocks.wall()}

    def some(self) -> None:
        """Wait until some pages were asked."""
        self.cluster.until(lambda: len(self._asked()) >= SOME)

    def _asked(self) -> list[Entry]:
        return self.cluster.entries(since=self._begun)

    def end(self, *rings: Ring) -> None:
        """Wait until all that are due were asked, and check that they were asked once, each by the
        owner of one of these rings; by that of the last one, once it has asked for any page of the
        host.

        Pages that were handed over come up at the next tick: the clocks move to it once no host
        rests.
        """
        count, since = 0, time.monotonic()

        def all_were_asked() -> bool:
            nonlocal count, since
            asked, now = self._asked(), time.monotonic()
            if len(asked) > count:
                count, since = len(asked), now
            elif now > since + SETTLED:
                since = now
                self.clocks.move(TICK)
            return self._due <= {entry.url for entry in asked}

        self.cluster.until(all_were_asked)
        self.cluster.meanwhile(SETTLED)
        asked = self._asked()
        assert Counter(entry.url for entry in asked) == Counter(self._due)
        by_host: dict[str, list[str]] = {}
        for entry in sorted(asked, key=lambda entry: entry.start):
            by_host.setdefault(entry.host, []).append(node_of(entry))
        for host, nodes in by_host.items():
            owners = [str(ring.owner(domain_of(host))) for ring in rings]
            assert sorted(nodes, key=owners.index) == nodes, f"{host}: {nodes}, of {owners}"


def ring_of(*nodes: str) -> Ring:
    return Ring([Member(node) for node in nodes])


def late_by(before: dict[str, PageRow], after: dict[str, PageRow], now: float) -> list[str]:
    """Return the pages whose next time was not kept: it may be rounded up to a bucket."""
    assert after.keys() == before.keys()
    return [
        f"{url}: {row.due - now:.0f} s became {after[url].due - now:.0f} s"
        for url, row in before.items()
        if not row.due <= after[url].due <= row.due + max(TICK, (row.due - now) / 16)
    ]


def test_each_page_is_fetched_by_its_owner_once_for_a_due_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node leaves while all rest, another joins and one more leaves while pages are fetched."""
    clocks = MovedClocks(tmp_path / "clocks")
    monkeypatch.setenv(FILE, str(tmp_path / "clocks"))
    settings = {"KROWL_RECRAWL": "continuous", "EXTENSIONS": MOVED, "KROWL_DELAY_MIN": DELAY}
    with MockWeb(graph=GRAPH) as web, Cluster(tmp_path, web, **settings) as cluster:
        rounds = Rounds(cluster, clocks)
        cluster.start_together("a", "b", "c")
        rounds.nodes = ["a", "b", "c"]
        cluster.until(lambda: len(cluster.entries()) >= GRAPH.hosts * GRAPH.pages)
        cluster.meanwhile(SETTLED)
        rounds.begin(48)
        rounds.end(ring_of("a", "b", "c"))

        before = rounds.rows()
        cluster.leave("c")
        rounds.nodes = ["a", "b"]
        cluster.meanwhile(SETTLED)
        assert late_by(before, rounds.rows(), clocks.wall()) == []

        rounds.begin(48)
        rounds.some()
        cluster.start("d")
        rounds.end(ring_of("a", "b"), ring_of("a", "b", "d"))
        rounds.nodes = ["a", "b", "d"]

        rounds.begin(48)
        rounds.some()
        cluster.leave("a")
        rounds.end(ring_of("a", "b", "d"), ring_of("b", "d"))
        rounds.nodes = ["b", "d"]

        rounds.begin(48)
        rounds.end(ring_of("b", "d"))
        # What is planned for the next tick comes up.
        clocks.move(TICK)
        cluster.meanwhile(2 * SETTLED)
        assert_all_is_told(rounds.rows().values(), cluster.entries())
        cluster.leave("b")
        cluster.leave("d")
        assert violations(web.log(), min_delay=DELAY) == []


def assert_all_is_told(rows: Iterable[PageRow], entries: list[Entry]) -> None:
    """Check that each page has its next time, and that its row knows of all its fetches."""
    asked = Counter(entry.url for entry in entries)
    assert {row.url: row.fetches for row in rows} == dict(asked)
    assert all(row.due for row in rows)
    assert min(asked.values()) >= 3


def test_three_nodes_ask_each_page_once_more(tmp_path: Path) -> None:
    """By KROWL_RECRAWL=once, after a crawl of all."""
    nodes = ("a", "b", "c")
    with MockWeb(graph=GRAPH) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=0.3) as cluster:
        cluster.start_together(*nodes)
        cluster.wait_all()
        first = Counter(entry.url for entry in pages(web.log()))
        cluster.start_together(*nodes, KROWL_RECRAWL="once")
        cluster.wait_all()
        log = web.log()
        assert set(first.values()) == {1}
        assert Counter(entry.url for entry in pages(log)) == first + first
        owners = {(ring_of(*nodes).owner(domain_of(entry.host)), node_of(entry)) for entry in log}
        assert owners == {(node, node) for node in nodes}
        assert violations(log, min_delay=0.3) == []
        assert cluster.pending_nodes == []
