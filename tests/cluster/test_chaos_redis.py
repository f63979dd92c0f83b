"""A Redis that freezes, and junk in inboxes: no node is held up, and nothing is lost."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from redis import Redis

from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.urls.canonical import domain_of
from tests.cluster.nodes import Cluster
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.support.crawls import QUICK

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NODES = ("a", "b", "c")
DELAY = 1.5
OUTAGE = 20.0


def test_frozen_redis_holds_up_no_node_not_even_its_own(tmp_path: Path) -> None:
    graph = Graph(hosts=60, pages=20, seed=12, features=QUICK)
    with MockWeb(graph=graph) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=DELAY) as cluster:
        for node in NODES:
            cluster.start(node)
        cluster.until(lambda: all(len(cluster.entries(node)) > 50 for node in NODES))
        began = time.monotonic()
        with cluster.redis["b"].frozen():
            cluster.meanwhile(OUTAGE)
        # Half of the pace at which a third of the hosts may be asked, in the half of the time in
        # which they lack nothing of what they began with.
        enough = OUTAGE / 2 / DELAY * graph.hosts / len(NODES) / 2
        during = {node: len(cluster.entries(node, since=began)) for node in NODES}
        assert {node for node, pages in during.items() if pages < enough} == set(), during
        cluster.wait_all()
        assert cluster.faults(delay=DELAY) == []
        assert cluster.lag("p99") < 250


def owned(node: str, pattern: str) -> str:
    """A name that is this node's with and without the third: what comes of other nodes' hosts is
    left to be sent again."""
    rings = [Ring(map(Member, NODES[:2])), Ring(map(Member, NODES))]
    names = (pattern.format(number) for number in count())
    return next(name for name in names if {ring.owner(domain_of(name)) for ring in rings} == {node})


def junk_for(node: str) -> dict[str, list[bytes]]:
    """Return unreadable messages by list."""
    host = owned(node, "nobody{}.test")
    chunk = {"host": host, "transfer": "00" * 8, "number": 0, "last": True}
    wrong: list[dict[str, object]] = [
        {"host": owned(node, "../etc{}")},
        {"transfer": "no number"},
        {"entries": [{"url": "http://another.test/"}]},
    ]
    return {
        "broad:requests": [
            b"\x80\x04\x95not a pickle that anybody reads.",
            b"{",
            b"[1, 2]",
            b'{"url": "file:///etc/passwd"}',
            b'{"url": "http://a.test/", "meta": ' + b"[" * 500 + b"]" * 500 + b"}",
            b"x" * 20_000_000,
        ],
        "broad:start_urls": [b"\x80\x04", b'{"url": 7}', b"ftp://nobody.test/"],
        "broad:hosts": [
            *(b"\x80\x04", b"{", b"[]", b'"nobody.test"', b"x" * 20_000_000),
            *(json.dumps({**chunk, **change}).encode() for change in wrong),
        ],
    }


def test_junk_in_inboxes_is_put_aside_with_its_reason(
    tmp_path: Path,
) -> None:
    graph = Graph(hosts=40, pages=12, seed=6, features=QUICK)
    with MockWeb(graph=graph) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=1) as cluster:
        for node in NODES[:2]:
            cluster.start(node)
        cluster.go_on(by=40)
        # Of hosts that no page links to, and in order.
        urls = [web.url(f"unknown{number}.test", "/") for number in range(4)]
        for node, server in cluster.redis.items():
            with Redis.from_url(server.url) as client:
                for key, messages in junk_for(node).items():
                    client.lpush(key, *messages)
                client.lpush("broad:requests", *(json.dumps({"url": url}) for url in urls[:2]))
                client.lpush("broad:start_urls", *urls[2:])
        # One that comes has hosts handed over to it, past all that.
        cluster.start("c")
        cluster.wait_all()
        assert cluster.faults(delay=1) == sorted(
            f"page {url}: 1 requests instead of 0" for url in urls
        ) + sorted(f"robots.txt {urlsplit(url).netloc}: 1 requests instead of 0" for url in urls)
        bad = sum(len(messages) for messages in junk_for("a").values())
        for node in NODES[:2]:
            with Redis.from_url(cluster.redis[node].url) as client:
                dead = [json.loads(note) for note in client.lrange("broad:dead", 0, -1)]
            assert len(dead) == bad
            assert all(note["reason"] and note["time"] for note in dead)
            assert max(len(note["message"]) for note in dead) < 100_000
        counted = [run.crawl.stats.get("krowl/cluster/dead_count", 0) for run in cluster.runs]
        assert sum(counted) == 2 * bad
