"""A Consul that dies, forgets all, or denies what it knows: nobody fetches without a lease, nobody
takes over what is fetched by a node that lives, and the crawl goes on when it is back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.cluster.nodes import NAME, TTL, Cluster
from tests.cluster.partition import Denial
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.support.crawls import QUICK

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NODES = ("a", "b", "c")
GRAPH = Graph(hosts=60, pages=18, seed=13, features=QUICK)
DELAY = 1.5
OUTAGE = 1.3 * TTL


def test_consul_in_trouble_stops_all_nodes_and_moves_nothing(tmp_path: Path) -> None:
    """An agent denies all nodes; Consul dies and comes back with its data, and then without."""
    with (
        MockWeb(graph=GRAPH) as web,
        Cluster(tmp_path, web, KROWL_DELAY_MIN=DELAY) as cluster,
        Denial(cluster.consul, f"/v1/kv/krowlspider/{NAME}/nodes") as denial,
    ):
        cluster.agent_url = denial.url
        for node in NODES:
            cluster.start(node)
        cluster.until(lambda: all(len(cluster.entries(node)) > 50 for node in NODES))
        denial.denying = True
        cluster.meanwhile(OUTAGE)
        denial.denying = False
        assert denial.denied > 2 * len(NODES)
        for keeps_data in (True, False):
            for node in NODES:
                cluster.go_on(node, by=10)
            cluster.consul.kill()
            died = time.monotonic()
            cluster.meanwhile(OUTAGE)
            # While all live by what they knew.
            before = [entry for entry in cluster.entries(since=died) if entry.start < died + TTL]
            assert before
            assert cluster.entries(since=died + TTL) == []
            if not keeps_data:
                cluster.consul.wipe()
            cluster.consul.start()
        # A new node in the empty register must use the identities of the others.
        cluster.start("d")
        for node in (*NODES, "d"):
            cluster.go_on(node, by=10)
        cluster.wait_all()
        assert cluster.faults(delay=DELAY) == []
        assert cluster.lag("p99") < 250
