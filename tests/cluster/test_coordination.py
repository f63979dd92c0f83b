"""What one person says to all nodes, and the pages that they fetch together, by each register."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.urls.canonical import domain_of
from tests.cluster.register_nodes import delete, found, open_at
from tests.cluster.servers import redis_server
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support.crawling import CONTACT, Crawl, scrapy, write_seeds
from tests.support.crawls import QUICK, anchors, is_redirect, page, pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.register_nodes import Place
    from tests.cluster.servers import Server
    from tests.mockweb.log import Entry

pytestmark = pytest.mark.slow

NODES = ("a", "b")
# Seconds in which a signal is honoured.
HONOURED = 5.0
# Seconds: so long that a node on a busy machine loses no lease, nor waits in vain for the other.
TTL = 30
GRAPH = Graph(hosts=30, pages=10, seed=3, features=QUICK)


AGENT = "krowlspider/{} (+{{contact}})"


def block(crawl: Crawl, name: str) -> None:
    """Block a host by the API of a node."""
    (page,) = re.findall(r"page (http://\S+/);", crawl.log)
    token = (crawl.jobdir / "control-token").read_text().strip()
    request = urllib.request.Request(
        f"{page}api/v1/block",
        json.dumps({"name": name}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        assert "is blocked" in json.load(answer)["message"]


class Pair:
    """Two nodes of one cluster, and the web that they crawl."""

    def __init__(
        self,
        folder: Path,
        register: Server | Place,
        places: dict[str, dict[str, Any]],
        web: MockWeb,
    ):
        self.folder = folder
        self.register = register
        self.places = places
        self.web = web

    def crawl(self, node: str, **settings: Any) -> Crawl:
        return Crawl(
            self.folder / node,
            arguments={"seeds": write_seeds(self.folder / "seeds.txt", self.web.seeds())},
            settings={**self.places[node], **settings},
            feed=False,
        )

    def start(self, **settings: Any) -> list[Crawl]:
        return [self.crawl(node, **settings).start() for node in NODES]

    def fetched(self) -> int:
        return len(pages(self.web.log()))

    def ring(self, *arguments: str) -> str:
        given = {"KROWL_CONTACT": CONTACT, **self.places["a"]}
        pairs = [part for name, value in given.items() for part in ("-s", f"{name}={value}")]
        return scrapy("ring", *pairs, *arguments).stdout.decode()

    def lose_seed(self) -> None:
        """Make the register lose the identity seed while no node runs."""
        delete(self.register, self.places["a"]["KROWL_CLUSTER"], "seed")

    def asked(self, since: float) -> list[Entry]:
        """Return the requests that the web got from a time on."""
        return [entry for entry in self.web.log() if entry.start > since]


@pytest.fixture
def pair(register: Server | Place, cluster: str, tmp_path: Path) -> Iterator[Pair]:
    # As if the cluster were old: leases begin at once.
    found(register, cluster)
    with ExitStack() as stack:
        places = {
            node: {
                "KROWL_CONSUL": register.url,
                "KROWL_CLUSTER": cluster,
                "KROWL_CONSUL_TTL": TTL,
                "KROWL_NODE_ID": node,
                "REDIS_URL": stack.enter_context(redis_server(tmp_path / f"redis-{node}")).url,
            }
            for node in NODES
        }
        yield Pair(tmp_path, register, places, stack.enter_context(MockWeb(graph=GRAPH)))


def test_all_nodes_obey_signals_within_five_seconds(pair: Pair) -> None:
    """They pause and resume; they stop, keep everything where it is, and resume once restarted."""
    crawls = pair.start(KROWL_DELAY_MIN=1)
    for crawl in crawls:
        crawl.wait_until(lambda: pair.fetched() > 20)
    assert "PAUSED" in pair.ring("--signal", "PAUSED")
    paused = time.monotonic() + HONOURED
    time.sleep(HONOURED + 3)
    assert pair.asked(since=paused) == []
    assert all(crawl.process.poll() is None for crawl in crawls)
    pair.ring("--signal", "RUNNING")
    ring = Ring(map(Member, NODES))
    running = time.monotonic()
    crawls[0].wait_until(
        lambda: {ring.owner(domain_of(e.host)) for e in pair.asked(since=paused)} == set(NODES)
    )
    assert time.monotonic() < running + HONOURED
    pair.ring("--signal", "STOP")
    stopped = time.monotonic() + HONOURED
    for crawl in crawls:
        crawl.wait()
        assert crawl.stats["finish_reason"] == "cluster_stop"
        assert "scrapy ring --signal RUNNING" in crawl.log
    assert pair.asked(since=stopped) == []
    late = pair.crawl("a").start().wait(code=5)
    assert "is stopped by its signal STOP" in late.log
    pair.lose_seed()
    pair.ring("--signal", "RUNNING")
    for crawl in pair.start():
        crawl.wait()
        assert crawl.stats["finish_reason"] == "finished"
    assert reachable(pair.web.graph, pair.web.seeds()).differences(pair.web.log()) == []


def test_node_that_leaves_urls_behind_ends_with_code_6(pair: Pair) -> None:
    a, b = (pair.crawl(node, KROWL_DELAY_MIN=1, KROWL_DRAIN_TIMEOUT=0.01).start() for node in NODES)
    a.wait_until(lambda: pair.fetched() > 20)
    a.process.send_signal(signal.SIGINT)
    a.wait(code=6)
    assert "; start this node again" in a.log
    if open_at(pair.register).is_supervised:
        # The other node comes back.
        b.kill()
    else:
        # Without other nodes, it stops as a single crawl does.
        b.interrupt()


def test_all_nodes_together_keep_to_the_page_budget(pair: Pair) -> None:
    for crawl in pair.start(KROWL_CLUSTER_PAGES=60):
        crawl.wait()
        assert crawl.stats["finish_reason"] == "cluster_pages"
    # A node that ends gives back what it has not fetched when others may have ended before.
    found = [entry for entry in pages(pair.web.log()) if not is_redirect(entry)]
    assert 55 <= len(found) <= 60


def test_links_wait_for_the_seeds_of_other_nodes(pair: Pair) -> None:
    """While pages are limited. All sites of node b are slow, and its links are not waited for."""
    ring = Ring(map(Member, NODES))
    sites = [f"site{number}.test" for number in range(60)]
    slow = [site for site in sites if ring.owner(domain_of(site)) == "b"]
    links = anchors(*(f"/p{number}" for number in range(10)))
    spec = [
        *({"host": f"^{site}", **page("/robots.txt", "", latency=2.0)} for site in slow),
        page("/robots.txt", "", status=404),
        page("/", links),
        page("^/p", "leaf"),
    ]
    with MockWeb(spec=spec) as web:
        seeds = [web.url(site) for site in sites]
        given = {"seeds": write_seeds(pair.folder / "seeds.txt", seeds)}
        crawls = [
            Crawl(
                pair.folder / node,
                arguments=given,
                settings={**pair.places[node], "KROWL_CLUSTER_PAGES": 64},
                feed=False,
            ).start()
            for node in NODES
        ]
        for crawl in crawls:
            crawl.wait()
        asked = [entry.path for entry in pages(web.log())]
    assert 60 <= len(asked) <= 64
    assert asked.count("/") == 60


def test_a_node_that_joins_obeys_the_orders_given_before(pair: Pair) -> None:
    """A host that is blocked at node a is not asked by node b, which owns it and comes later."""
    ring = Ring(map(Member, NODES))
    names = sorted(str(urlsplit(url).hostname) for url in pair.web.seeds())
    blocked = next(name for name in names if ring.owner(domain_of(name)) == "b")

    def asked(node: str, since: float) -> list[str]:
        return [
            each.host for each in pair.asked(since) if each.ua.startswith(f"krowlspider/{node}")
        ]

    a, b = (pair.crawl(node, KROWL_DELAY_MIN=1, USER_AGENT=AGENT.format(node)) for node in NODES)
    a.start().wait_until(lambda: pair.fetched() > 5)
    block(a, blocked)
    at = time.monotonic()
    b.start().wait_until(lambda: len(asked("b", at)) > 60)
    assert not [host for host in asked("a", at) + asked("b", at) if host.startswith(f"{blocked}:")]
    for crawl in (a, b):
        crawl.kill()


def test_second_node_without_gemini_is_refused(pair: Pair) -> None:
    first = pair.crawl("a", KROWL_DELAY_MIN=1, KROWL_GEMINI=1).start()
    first.wait_until(lambda: pair.fetched() > 5)
    second = pair.crawl("b").start().wait(code=2)
    assert "KROWL_GEMINI is False here, and True at node a" in second.log
    first.interrupt()


def test_second_node_with_the_same_redis_is_refused(
    pair: Pair,
) -> None:
    pair.places["b"]["REDIS_URL"] = pair.places["a"]["REDIS_URL"]
    first = pair.crawl("a", KROWL_DELAY_MIN=1).start()
    first.wait_until(lambda: pair.fetched() > 5)
    second = pair.crawl("b").start().wait(code=2)
    assert "node a has the same REDIS_URL" in second.log
    first.wait_until(lambda: pair.fetched() > 40)
    first.interrupt()
