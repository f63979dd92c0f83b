"""A network in two parts: those without Consul stop before the others take over, and none is hurried when it heals."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.cluster.judges import node_of
from tests.cluster.nodes import TTL, Cluster
from tests.cluster.partition import Network
from tests.cluster.test_chaos_nodes import GRAPH, NODES, UNCOMMITTED, owner
from tests.mockweb import MockWeb

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DELAY = 1.5
PARTED = 60.0


def test_of_a_cluster_in_two_parts_one_fetches_and_healed_it_has_lost_nothing(
    tmp_path: Path,
) -> None:
    """The greater part is without Consul. What is fetched again is at most what it had fetched before."""
    with (
        MockWeb(graph=GRAPH) as web,
        Network() as network,
        Cluster(tmp_path, web, network=network, KROWL_DELAY_MIN=DELAY) as cluster,
    ):
        for node in NODES:
            cluster.start(node)
        cluster.until(lambda: all(len(cluster.entries(node)) > 50 for node in NODES))
        with network.parted("b", "c"):
            parted = time.monotonic()
            fetched = len(cluster.entries("b", "c"))
            cluster.meanwhile(PARTED)
            during = cluster.entries(since=parted)
        healed = time.monotonic()
        assert [e.url for e in during if node_of(e) != "a" and e.start > parted + TTL] == []
        assert any(owner(entry) != "a" for entry in during if node_of(entry) == "a")
        cluster.wait_all()
        assert cluster.faults(delay=DELAY, repeats=fetched + UNCOMMITTED) == []
        # Back to who had them; a may be done with its own by then.
        assert {"b", "c"} <= {node_of(entry) for entry in cluster.entries(since=healed)}
