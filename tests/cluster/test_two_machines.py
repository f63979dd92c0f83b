"""Two nodes on two machines, of which each sees only its own web and the servers of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.judges import node_of, not_archived, repeated
from tests.cluster.nodes import Cluster
from tests.cluster.servers import redis_server
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support import warm
from tests.support.crawls import QUICK, pages
from tests.support.debian import program
from tests.support.machines import FIRST, SECOND, two_machines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.crawling import Crawl
    from tests.support.machines import Machine

GRAPH = Graph(hosts=16, pages=8, seed=5, features=QUICK)

pytestmark = pytest.mark.slow


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Machine, Machine]]:
    # A process that starts warm is of the machine on which the tests began.
    monkeypatch.setattr(warm, "enabled", False)
    # They are fetched while there is a network.
    for name in ("consul", "ip", "redis-server"):
        program(name)
    try:
        joined = two_machines()
        made = joined.__enter__()
    except OSError as error:
        pytest.skip(f"no network namespaces ({error}): the operator's path has two addresses")
    yield made
    joined.__exit__(None, None, None)


class Machines(Cluster):
    """Has node b on the second machine."""

    second: Machine

    def start(self, node: str) -> Crawl:
        if node == "a":
            return super().start(node)
        with self.second:
            return super().start(node)


def test_node_on_a_second_machine(tmp_path: Path, machines: tuple[Machine, Machine]) -> None:
    """Consul and the Redis of the first machine are reached over the network."""
    first, second = machines
    with first, MockWeb(graph=GRAPH) as web:
        other_web = MockWeb(graph=GRAPH, port=web.port)
        # Without a password it serves its own machine alone.
        open_to_all = ("--protected-mode", "no")
        redis = [redis_server(tmp_path / name, *open_to_all, host=name) for name in (FIRST, SECOND)]
        with (
            second.has(other_web),
            Machines(tmp_path, web, host=FIRST, KROWL_DELAY_MIN=0.1) as cluster,
            redis[0] as cluster.redis["a"],
            second.has(redis[1]) as cluster.redis["b"],
        ):
            cluster.second = second
            cluster.start_together("a", "b")
            cluster.wait_all()
        asked = {"a": web.log(), "b": other_web.log()}
        entries = [entry for log in asked.values() for entry in log]
        assert {node: {*map(node_of, pages(log))} for node, log in asked.items()} == {
            "a": {"a"},
            "b": {"b"},
        }
        assert reachable(web.graph, web.seeds()).differences(entries) == []
        assert repeated(entries) == []
        assert not_archived(entries, [tmp_path / node for node in "ab"], exactly=True) == []
