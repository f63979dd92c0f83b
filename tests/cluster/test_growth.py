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

# 10,000 pages, and 2,000 robots.txt.
GRAPH = Graph(hosts=2000, pages=3, seed=21, features=frozenset())
# Seconds: 150 to 200 requests a second, and a host is asked for a minute.
DELAY = 12.0


def test_cluster_grows_to_five_nodes_and_shrinks_to_two(
    tmp_path: Path,
) -> None:
    with MockWeb(graph=GRAPH) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=DELAY) as cluster:
        cluster.start("a")
        cluster.go_on("a", by=600)
        for node in ("b", "c"):
            cluster.start(node)
        cluster.until(lambda: all(len(cluster.entries(node)) > 100 for node in "bc"))
        for node in ("d", "e"):
            cluster.start(node)
        cluster.until(lambda: all(len(cluster.entries(node)) > 100 for node in "de"))
        # The first one too, which has had all hosts.
        cluster.leave("a", "c", "e")
        assert cluster.pending_nodes == ["b", "d"]
        before = len(cluster.entries())
        cluster.wait_all()
        # They left in the midst of it.
        assert len(cluster.entries()) > before + 500
        assert cluster.faults(delay=DELAY) == []
        assert cluster.lag("p99") < 500
