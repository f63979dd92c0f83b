"""Two processes by a ring from a setting: each domain is fetched by its owner alone, every URL
once, and both know when all is over."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from krowlspider.cluster.membership import parse_ring
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.transport.mark import is_mark
from krowlspider.urls.host import domain_of
from tests.cluster.servers import redis_server
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support.archived import assert_archived
from tests.support.crawling import Crawl, frontier_view, write_seeds
from tests.support.crawls import QUICK, impolite, page, pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.servers import Server

NODES = ("a", "b")
BEATS = "krowlspider:krowlspider:beats"
# The heartbeat of a process with another ring.
ANOTHER_RING = {"start": 2, "beat": 1, "ring": 1}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Server]]:
    with ExitStack() as stack:
        yield {
            node: stack.enter_context(redis_server(tmp_path / f"redis-{node}")) for node in NODES
        }


def ring_setting(servers: dict[str, Server]) -> list[str]:
    return [f"{node}={server.url}" for node, server in servers.items()]


def site_of(node: str) -> str:
    """The name of a site that this node owns."""
    ring = Ring(map(Member, NODES))
    names = (f"site{number}.test" for number in count())
    return next(name for name in names if ring.owner(name) == node)


def crawl_at(
    node: str, servers: dict[str, Server], folder: Path, seeds: list[str], **settings: Any
) -> Crawl:
    return Crawl(
        folder / node,
        arguments={"seeds": write_seeds(folder / f"seeds-{node}.txt", seeds)},
        settings={
            "KROWL_STATIC_NODES": ",".join(ring_setting(servers)),
            "KROWL_NODE_ID": node,
            **settings,
        },
        feed=False,
    )


@pytest.mark.slow
def test_static_nodes_ask_each_page_again_once(tmp_path: Path, servers: dict[str, Server]) -> None:
    """The second start of both asks again what each has fetched, and both know when all is over."""
    with MockWeb(graph=Graph(hosts=20, pages=5, seed=3, features=QUICK)) as web:
        asked = []
        for recrawl in ("off", "once"):
            before = len(web.log())
            crawls = [
                crawl_at(node, servers, tmp_path, web.seeds(), KROWL_RECRAWL=recrawl).start()
                for node in NODES
            ]
            for crawl in crawls:
                crawl.wait()
                assert crawl.stats["finish_reason"] == "finished"
            asked.append(Counter(entry.url for entry in pages(web.log()[before:])))
        assert asked[0] == asked[1]
        assert set(asked[0].values()) == {1}
        assert impolite(web) == []


@pytest.mark.slow
def test_two_static_nodes_fetch_each_url_once_by_its_owner(
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


@pytest.mark.slow
def test_pushed_urls_are_crawled_by_their_owners(
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


@pytest.mark.slow
def test_node_that_fetched_no_page_only_warns(tmp_path: Path, servers: dict[str, Server]) -> None:
    """Another node may have fetched some."""
    spec = [page("/robots.txt", "User-agent: *\nDisallow: /"), page("/", "x")]
    with MockWeb(spec=spec) as web:
        seeds = [web.url(f"site{number}.test") for number in range(12)]
        crawls = [crawl_at(node, servers, tmp_path, seeds).start() for node in NODES]
        for crawl in crawls:
            warning = "No page was fetched by this node: forbidden by robots.txt: "
            assert warning in crawl.wait().log


@pytest.mark.slow
def test_node_without_its_peer_does_its_part_and_waits(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    with MockWeb(graph=Graph(hosts=20, pages=5, seed=4, features=QUICK)) as web:
        alone = crawl_at("a", servers, tmp_path, web.seeds()).start()
        alone.wait_until(lambda: "waits for the other nodes" in alone.log)
        ring = Ring(parse_ring(ring_setting(servers)))
        assert {ring.owner(domain_of(entry.host)) for entry in web.log()} == {"a"}
        other = crawl_at("b", servers, tmp_path, web.seeds()).run()
        alone.wait()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert other.stats["finish_reason"] == alone.stats["finish_reason"] == "finished"


@pytest.mark.slow
def test_owner_fetches_the_robots_txt_that_another_nodes_host_leads_to(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    """It has no pages itself, and would leave the cluster's page budget to the other node."""
    ring = Ring(parse_ring(ring_setting(servers)))
    names = [f"site{number}.test" for number in range(40)]
    ours = next(name for name in names if ring.owner(name) == "a")
    theirs = next(name for name in names if ring.owner(name) == "b")
    with MockWeb(
        spec=[
            {
                "host": ours,
                "path": "/robots.txt",
                "redirect": f"http://{theirs}:{{port}}/robots.txt",
            },
            {
                "host": theirs,
                "path": "/robots.txt",
                "redirect": f"http://www.{ours}:{{port}}/robots.txt",
            },
            page("/robots.txt", "User-agent: *\nDisallow: /private"),
            page("^/", "a page"),
        ]
    ) as web:
        seeds = [web.url(ours, "/"), web.url(ours, "/private")]
        crawls = [
            crawl_at(
                *(node, servers, tmp_path, seeds),
                USER_AGENT=f"{node} (+{{contact}})",
                KROWL_CLUSTER_PAGES=100,
            ).start()
            for node in NODES
        ]
        for crawl in crawls:
            crawl.wait()
        asked = [(each.ua[:1], each.host.partition(":")[0], each.path) for each in web.log()]
        assert asked == [
            ("a", ours, "/robots.txt"),
            ("b", theirs, "/robots.txt"),
            ("a", f"www.{ours}", "/robots.txt"),
            ("a", ours, "/"),
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"KROWL_STATIC_NODES": None, "KROWL_NODE_ID": None},
        {"KROWL_NODE_ID": "b"},
        {"KROWL_CLUSTER": "another"},
    ],
    ids=["without a ring", "as another node", "in another cluster"],
)
def test_job_folder_of_another_place_is_refused(
    tmp_path: Path, servers: dict[str, Server], changes: dict[str, Any]
) -> None:
    with MockWeb(spec=[page("^/", "a page")]) as web:
        seeds = [web.url("site.test", "/")]
        first = crawl_at("a", servers, tmp_path, seeds)
        first.start()
        first.wait_until(lambda: "waits for the other nodes" in first.log)
        first.interrupt()
        again = crawl_at("a", servers, tmp_path, seeds, **changes).run(code=2)
        assert "a new JOBDIR" in again.log
        assert "Traceback" not in again.log


@pytest.mark.slow
def test_bad_meta_is_put_aside_and_good_meta_is_kept(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    bad = [
        {"retry_times": "x"},
        {"throttling_times": -1},
        {"retry_times": 1 << 40},
    ]
    with MockWeb(spec=[page("/pushed", "<a href=/further>on</a>"), page("^/", "a page")]) as web:
        with Redis.from_url(servers["a"].url) as client:
            for meta in bad:
                message = {"url": web.url("bad.test", "/"), "meta": meta}
                client.lpush("broad:start_urls", json.dumps(message))
            good = {"url": web.url("good.test", "/pushed"), "meta": {"note": [1]}}
            client.lpush("broad:start_urls", json.dumps(good))
            loader = {"url": web.url("odd.test", "/"), "callback": "from_crawler"}
            client.lpush("broad:requests", json.dumps(loader))
        seeds = [web.url("seed.test", "/")]
        crawls = [crawl_at(node, servers, tmp_path, seeds).start() for node in NODES]
        for crawl in crawls:
            crawl.wait()
            assert crawl.stats["finish_reason"] == "finished"
        asked = {(entry.host.partition(":")[0], entry.path) for entry in pages(web.log())}
        assert asked == {("seed.test", "/"), ("good.test", "/pushed"), ("good.test", "/further")}
        assert crawls[0].stats["krowl/cluster/dead_count"] == len(bad)


@pytest.mark.slow
def test_early_end_of_one_node_ends_the_other(tmp_path: Path, servers: dict[str, Server]) -> None:
    with MockWeb(graph=Graph(hosts=30, pages=10, seed=3, features=QUICK)) as web:
        early = crawl_at("a", servers, tmp_path, web.seeds())
        early.arguments = {**early.arguments, "max_pages": 5}
        early.start()
        other = crawl_at("b", servers, tmp_path, web.seeds()).start()
        early.wait()
        assert early.stats["finish_reason"] == "max_pages"
        other.wait()
        assert other.stats["finish_reason"] == "nodes_left"
        assert "Nodes a have left" in other.log


@pytest.mark.slow
def test_second_process_of_a_static_node_is_refused(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    with MockWeb(spec=[page("^/", "a page")]) as web:
        seeds = [web.url("site.test", "/")]
        first = crawl_at("a", servers, tmp_path, seeds).start()
        first.wait_until(lambda: "waits for the other nodes" in first.log)
        second = crawl_at("a", servers, tmp_path / "elsewhere", seeds).start()
        second.process.wait(60)
        assert "another process is node a of this ring" in second.log
        assert second.process.returncode == 2
        assert first.process.poll() is None
        first.interrupt()


@pytest.mark.slow
def test_nodes_with_another_ring_are_refused(tmp_path: Path, servers: dict[str, Server]) -> None:
    ring = ",".join(ring_setting(servers))
    with (
        MockWeb(spec=[page("^/", "a page")]) as web,
        redis_server(tmp_path / "redis-c") as third,
    ):
        seeds = [web.url(site_of("a"), "/")]
        first = crawl_at("a", servers, tmp_path, seeds).start()
        first.wait_until(lambda: "waits for the other nodes" in first.log)
        others = {"weight": f"{ring}*2", "first-member": f"c={third.url},{ring}"}
        refused = [
            crawl_at("b", servers, tmp_path / name, seeds, KROWL_STATIC_NODES=other).start()
            for name, other in others.items()
        ]
        for crawl in refused:
            crawl.wait(code=2)
            assert "node a of the cluster 'krowlspider' has another KROWL_STATIC_NODES" in crawl.log
        pushed = web.url(site_of("a"), "/pushed")
        with Redis.from_url(servers["a"].url) as client:
            client.lpush("broad:start_urls", pushed)
        first.wait_until(lambda: pushed in {entry.url for entry in web.log()})
        first.interrupt()


@pytest.mark.slow
def test_live_node_with_another_ring_ends_a_running_node(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    with (
        MockWeb(spec=[page("^/", "a page")]) as web,
        Redis.from_url(servers["a"].url) as client,
    ):
        client.hset(BEATS, "b", json.dumps(ANOTHER_RING))
        crawl = crawl_at("a", servers, tmp_path, [web.url(site_of("a"), "/")]).start()
        # Its own heartbeat comes after a look at those of other nodes.
        crawl.wait_until(lambda: client.hexists(BEATS, "a") and len(pages(web.log())) == 1)
        client.hset(BEATS, "b", json.dumps({**ANOTHER_RING, "beat": 2}))
        crawl.wait(code=2)
        assert "node b of the cluster 'krowlspider' has another KROWL_STATIC_NODES" in crawl.log
        assert crawl.stats["finish_reason"] == "cluster_error"


@pytest.mark.slow
def test_message_is_forwarded_at_most_sixteen_times(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    with (
        MockWeb(spec=[page("^/", "a page")]) as web,
        Redis.from_url(servers["a"].url) as ours,
        Redis.from_url(servers["b"].url) as theirs,
    ):
        url = web.url(site_of("b"), "/")
        # That which goes no further comes first: it would be there before the others.
        for meta in ({"krowl_hops": 16}, {"krowl_hops": 15}, {}):
            message = {"url": f"{url}{meta.get('krowl_hops', 0)}", "meta": meta}
            ours.lpush("broad:requests", json.dumps(message))
        crawl = crawl_at("a", servers, tmp_path, [web.url(site_of("a"), "/")]).start()
        crawl.wait_until(lambda: theirs.llen("broad:requests") >= 2)
        crawl.interrupt()
        found = theirs.lrange("broad:requests", 0, -1)
        sent = [json.loads(message) for message in found if not is_mark(message)]
        hops = {message["url"]: message["meta"]["krowl_hops"] for message in sent}
        assert hops == {f"{url}0": 1, f"{url}15": 16}
        assert len(sent) == 2
        assert crawl.stats["krowl/frontier/dropped_count/hops"] == 1


@pytest.mark.slow
def test_pushed_start_url_keeps_depth_priority_and_meta(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    with MockWeb(spec=[page("^/", "a page")]) as web:
        seed, first, *later = (web.url(site_of("a"), path) for path in ("/", "/first", "/2", "/3"))
        crawl = Crawl(
            tmp_path / "a",
            spider="starting",
            arguments={"urls": seed},
            settings={
                "SPIDER_MODULES": "tests.support.spiders",
                "KROWL_STATIC_NODES": ",".join(ring_setting(servers)),
                "KROWL_NODE_ID": "a",
            },
        ).start()
        crawl.wait_until(lambda: "waits for the other nodes" in crawl.log)
        pushed = [{"url": url, "meta": {"note": [0]}} for url in later]
        pushed.insert(1, {"url": first, "depth": 3, "priority": 5, "meta": {"note": [1]}})
        with Redis.from_url(servers["a"].url) as client:
            client.lpush("starting:start_urls", *map(json.dumps, pushed))
        crawl.wait_until(lambda: len(pages(web.log())) == 4)
        crawl.interrupt()
        asked = [entry.url for entry in pages(web.log())]
        assert asked[:2] == [seed, first]
        assert sorted(asked[2:]) == later
        found = {item["url"]: (item["depth"], item["note"]) for item in crawl.items}
        assert found == {seed: (0, None), first: (3, [1]), **dict.fromkeys(later, (0, [0]))}


@pytest.mark.slow
def test_start_requests_are_fetched_once_by_their_owners(
    tmp_path: Path, servers: dict[str, Server]
) -> None:
    with MockWeb(spec=[page("^/", "a page")]) as web:
        urls = [web.url(f"site{number}.test", "/") for number in range(10)]
        crawls = [
            Crawl(
                tmp_path / node,
                spider="starting",
                arguments={"urls": " ".join(urls)},
                settings={
                    "SPIDER_MODULES": "tests.support.spiders",
                    "KROWL_STATIC_NODES": ",".join(ring_setting(servers)),
                    "KROWL_NODE_ID": node,
                },
            ).start()
            for node in NODES
        ]
        for crawl in crawls:
            crawl.wait()
        assert sorted(entry.url for entry in pages(web.log())) == sorted(urls)
        assert sorted(item["url"] for crawl in crawls for item in crawl.items) == sorted(urls)
