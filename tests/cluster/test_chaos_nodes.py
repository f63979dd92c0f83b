"""Nodes of a cluster that are killed: others fetch what is theirs, they come back to it, and
nothing is lost."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.urls.canonical import domain_of
from tests.cluster.judges import node_of
from tests.cluster.nodes import TTL, Cluster, end_session
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.support.crawls import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mockweb.log import Entry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NODES = ("a", "b", "c")
RING = Ring(map(Member, NODES))
GRAPH = Graph(hosts=60, pages=10, seed=11, features=QUICK)
DELAY = 1.5
# Pages of a node that are in flight or not committed when it is killed: a third of the hosts are
# its own, or half of them, and each is asked for one page in a delay, which is longer than a commit
# takes.
UNCOMMITTED = GRAPH.hosts


def owner(entry: Entry) -> str:
    """The node that an entry belongs to while all are there."""
    return RING.owner(domain_of(entry.host))


def test_killed_nodes_lose_nothing_and_are_waited_for(tmp_path: Path) -> None:
    """One is replaced before it comes back, one is restarted at once, and one is killed while it
    hands hosts over, and not replaced before all others are done.

    What is fetched again is at most what the replaced one had fetched, and what deaths left
    uncommitted.
    """
    chance = random.Random(7)
    first, second, third = chance.sample(NODES, 3)
    settings = {"KROWL_DELAY_MIN": DELAY, "KROWL_TAKEOVER_DELAY": 0}
    with MockWeb(graph=GRAPH) as web, Cluster(tmp_path, web, **settings) as cluster:
        for node in NODES:
            cluster.start(node)
        cluster.go_on(first, by=chance.randrange(20, 100))
        cluster.kill(first)
        cluster.kill(second)
        died, fetched = time.monotonic(), len(cluster.entries(first))
        cluster.restart(second)
        cluster.until(
            lambda: any(owner(e) == first != node_of(e) for e in cluster.entries(since=died))
        )
        last = cluster.restart(first)
        cluster.go_on(first, by=1)
        cluster.kill(third)
        fetched += len(cluster.entries(third))
        cluster.until(lambda: f"on the disks of nodes {third} (dead)" in last.log)
        cluster.restart(third)
        cluster.wait_all()
        assert cluster.faults(delay=DELAY, repeats=fetched + 3 * UNCOMMITTED) == []


def test_killed_node_that_comes_back_refetches_only_what_was_under_way(tmp_path: Path) -> None:
    """Its domains wait for it, and the other node does not end, although it has nothing left."""
    graph = Graph(hosts=30, pages=5, seed=11, features=frozenset())
    ring = Ring(map(Member, "ab"))
    hosts = [each for each in map(graph.host, range(graph.hosts)) if ring.owner(each) == "b"]
    with MockWeb(graph=graph) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=DELAY) as cluster:
        other = cluster.start_together("a", "b")["a"]
        cluster.go_on("b", by=25)
        cluster.kill("b")
        end_session(cluster, "b")
        # Longer than a lease, after which its domains could be fetched.
        cluster.meanwhile(1.2 * TTL)
        assert {ring.owner(domain_of(entry.host)) for entry in cluster.entries("a")} == {"a"}
        assert other.log.count("its domains wait for it for up to 900 s") == 1
        cluster.restart("b")
        cluster.wait_all()
        assert cluster.faults(delay=DELAY, repeats=len(hosts)) == []
