"""A network in two parts: those without Consul stop before the others take over, and none is
hurried when it heals."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from krowlspider.cluster.ring.ring import Member, Ring
from tests.cluster.judges import node_of
from tests.cluster.nodes import TTL, Cluster, end_session
from tests.cluster.partition import Network
from tests.cluster.test_chaos_nodes import GRAPH, NODES, UNCOMMITTED, owner
from tests.mockweb import MockWeb
from tests.support.crawls import page, pages

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DELAY = 1.5


def test_only_the_part_with_consul_fetches_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """The greater part is without Consul. What is fetched again is at most what it had fetched
    until its leases ended."""
    with (
        MockWeb(graph=GRAPH) as web,
        Network() as network,
        Cluster(
            tmp_path, web, network=network, KROWL_DELAY_MIN=DELAY, KROWL_TAKEOVER_DELAY=0
        ) as cluster,
    ):
        for node in NODES:
            cluster.start(node)
        cluster.until(lambda: all(len(cluster.entries(node)) > 50 for node in NODES))
        with network.parted("b", "c"):
            parted = time.monotonic()
            # Until one takes over, and a while after that.
            cluster.until(lambda: any(owner(e) != "a" for e in cluster.entries("a", since=parted)))
            cluster.go_on("a", by=20)
            fetched = len(cluster.entries("b", "c"))
            during = cluster.entries("b", "c", since=parted)
        healed = time.monotonic()
        assert healed > parted + TTL
        assert [entry.url for entry in during if entry.start > parted + TTL] == []
        cluster.wait_all()
        assert cluster.faults(delay=DELAY, repeats=fetched + UNCOMMITTED) == []
        # Back to who had them; a may be done with its own by then.
        assert {"b", "c"} <= {node_of(entry) for entry in cluster.entries(since=healed)}


def test_cut_off_node_hangs_up_before_others_take_over(
    tmp_path: Path,
) -> None:
    """The soonest that others may: a TTL after its last renewal. Its request would last for two
    minutes more."""
    ring = Ring(map(Member, "ab"))
    host = next(name for name in map("site{}.test".format, range(99)) if ring.owner(name) == "b")
    slow = [page("/slow", "", latency=150.0, first=1), page("^/", "a page")]
    with (
        MockWeb(spec=slow) as web,
        Network() as network,
        Cluster(
            tmp_path, web, [web.url(host, "/slow")], network=network, KROWL_TAKEOVER_DELAY=0
        ) as cluster,
    ):
        crawl = cluster.start_together("a", "b")["b"]
        crawl.wait_until(lambda: bool(web.log()) and "| 1 in flight" in crawl.log)
        # robots.txt is over.
        time.sleep(1)
        with network.parted("b"):
            end_session(cluster, "b")
            with Redis.from_url(cluster.redis["a"].url) as client:
                client.lpush("broad:start_urls", web.url(host, "/"))
            cluster.until(lambda: len(pages(web.log())) == 2)
        cut, taken_over = sorted(pages(web.log()), key=lambda entry: entry.start)
        assert (cut.path, node_of(cut), node_of(taken_over)) == ("/slow", "b", "a")
        assert cut.end < taken_over.start
