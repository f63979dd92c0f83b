"""Nodes of a cluster that are killed: others fetch what is theirs, they come back to it, and
nothing is lost."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.urls.host import domain_of
from tests.cluster.judges import node_of
from tests.cluster.nodes import Cluster
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.test_crawl import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mockweb.log import Entry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NODES = ("a", "b", "c")
RING = Ring(map(Member, NODES))
GRAPH = Graph(hosts=60, pages=24, seed=11, features=QUICK)
DELAY = 1.5
# Pages of a node that are in flight or not committed when it is killed: a third of the hosts are
# its own, or half of them, and each is asked for one page in a delay, which is longer than a commit
# takes.
UNCOMMITTED = GRAPH.hosts


def owner(entry: Entry) -> str:
    """The node that an entry belongs to while all are there."""
    return RING.owner(domain_of(entry.host))


def test_killed_and_restarted_nodes_lose_nothing(tmp_path: Path) -> None:
    """One is replaced before it comes back, one is killed while it hands hosts over, and then two
    at once. What is fetched again is at most what the replaced one had fetched, and what deaths
    left uncommitted."""
    chance = random.Random(7)
    first, second, third = chance.sample(NODES, 3)
    with MockWeb(graph=GRAPH) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=DELAY) as cluster:
        for node in NODES:
            cluster.start(node)
        cluster.go_on(first, by=chance.randrange(20, 200))
        cluster.kill(first)
        died, fetched = time.monotonic(), len(cluster.entries(first))
        cluster.until(
            lambda: any(owner(e) == first != node_of(e) for e in cluster.entries(since=died))
        )
        cluster.go_on(by=chance.randrange(100))
        cluster.restart(first)
        cluster.go_on(first, by=1)
        cluster.kill(second)
        cluster.restart(second)
        cluster.go_on(second, by=1 + chance.randrange(20))
        for node in (first, third):
            cluster.kill(node)
        for node in (first, third):
            cluster.restart(node)
        cluster.wait_all()
        assert cluster.faults(delay=DELAY, repeats=fetched + 4 * UNCOMMITTED) == []


def test_crawl_waits_for_a_dead_node_with_work(tmp_path: Path) -> None:
    graph = Graph(hosts=30, pages=10, seed=4, features=QUICK)
    with MockWeb(graph=graph) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=1) as cluster:
        for node in ("a", "b"):
            crawl = cluster.start(node)
        cluster.go_on("a", by=20)
        cluster.kill("a")
        fetched = len(cluster.entries("a"))
        cluster.until(lambda: "on the disks of nodes a, " in crawl.log)
        cluster.restart("a")
        cluster.wait_all()
        assert cluster.faults(delay=1, repeats=fetched + UNCOMMITTED) == []
