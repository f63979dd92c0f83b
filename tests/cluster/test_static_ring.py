"""Two processes by a ring from a setting: each domain is fetched by its owner alone, every URL once, and both know when all
is over."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from krowlspider.cluster.membership import parse_ring
from krowlspider.cluster.ring import Ring
from krowlspider.urls.host import domain_of
from tests.cluster.servers import redis_server
from tests.crawling import Crawl, frontier_view, write_seeds
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.test_crawl import QUICK, assert_archived, impolite, page, pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.servers import Server

NODES = ("a", "b")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Server]]:
    with ExitStack() as stack:
        yield {
            node: stack.enter_context(redis_server(tmp_path / f"redis-{node}")) for node in NODES
        }


def ring_setting(servers: dict[str, Server]) -> list[str]:
    return [f"{node}={server.url}" for node, server in servers.items()]


def crawl_at(
    node: str, servers: dict[str, Server], folder: Path, seeds: list[str], **settings: Any
) -> Crawl:
    return Crawl(
        folder / node,
        arguments={"seeds": write_seeds(folder / f"seeds-{node}.txt", seeds)},
        settings={
            "KROWL_RING": ",".join(ring_setting(servers)),
            "KROWL_NODE_ID": node,
            **settings,
        },
        feed=False,
    )


def test_two_nodes_fetch_what_one_would_each_host_by_its_owner(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    with MockWeb(graph=Graph(hosts=30, pages=10, seed=3, features=QUICK)) as web:
        crawls = {node: crawl_at(node, servers, tmp_path, web.seeds()).start() for node in NODES}
        for crawl in crawls.values():
            crawl.wait()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert impolite(web) == []
        ring = Ring(parse_ring(ring_setting(servers)))
        for node, crawl in crawls.items():
            assert crawl.stats["finish_reason"] == "finished"
            other = crawls[next(name for name in NODES if name != node)]
            assert (
                crawl.stats["krowl/cluster/sent_count"]
                == crawl.stats["krowl/frontier/foreign_count"]
            )
            assert (
                crawl.stats["krowl/cluster/sent_count"]
                == other.stats["krowl/cluster/taken_count"]
                > 0
            )
            assert crawl.stats["krowl/frontier/outbox"] == 0
            assert frontier_view(crawl.jobdir)["queued"] == 0
            # Exactly what the web was asked of the domains that are this node's.
            own = [entry for entry in web.log() if ring.owner(domain_of(entry.host)) == node]
            assert own
            assert_archived(crawl.jobdir, own)


def test_what_people_push_is_crawled_by_its_owner(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    with MockWeb(spec=[page("^/", "a page")]) as web:
        urls = [web.url(f"site{number}.test", "/pushed") for number in range(12)]
        with Redis.from_url(servers["a"].url) as client:
            client.lpush("broad:start_urls", *urls[:6])
            for url in urls[6:]:
                client.lpush("broad:start_urls", json.dumps({"url": url, "depth": 2}))
            client.lpush("broad:start_urls", b"\x80\x04nothing of ours")
        seed = [web.url("seed.test", "/")]
        crawls = [crawl_at(node, servers, tmp_path, seed).start() for node in NODES]
        for crawl in crawls:
            crawl.wait()
        asked = [entry.url for entry in pages(web.log())]
        assert sorted(asked) == sorted([*urls, *seed])
        with Redis.from_url(servers["a"].url) as client:
            assert client.llen("broad:dead") == 1
