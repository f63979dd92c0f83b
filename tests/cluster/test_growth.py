"""A cluster that grows from one node to five and shrinks to two, under load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.nodes import Cluster
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# 5,000 pages, and 1,000 robots.txt.
GRAPH = Graph(hosts=1000, pages=3, seed=21, features=frozenset())
# Seconds: about 150 requests a second.
DELAY = 7.0


def test_cluster_grows_to_five_nodes_and_shrinks_to_two(
    tmp_path: Path,
) -> None:
    with MockWeb(graph=GRAPH) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=DELAY) as cluster:
        cluster.start("a")
        cluster.go_on("a", by=300)
        for node in ("b", "c"):
            cluster.start(node)
        cluster.until(lambda: all(len(cluster.entries(node)) > 100 for node in "bc"))
        for node in ("d", "e"):
            cluster.start(node)
        cluster.until(lambda: all(len(cluster.entries(node)) > 100 for node in "de"))
        # The first one too, which has had all hosts.
        cluster.leave("a", "c", "e")
        assert cluster.pending_nodes == ["b", "d"]
        before, of_those = len(cluster.entries()), len(cluster.entries("a", "c", "e"))
        cluster.wait_all()
        # They left in the midst of it, and fetched nothing after that.
        assert len(cluster.entries()) > before + 300
        assert len(cluster.entries("a", "c", "e")) == of_those
        assert cluster.faults(delay=DELAY) == []
        assert cluster.lag("p99") < 500
