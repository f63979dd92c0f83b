"""Two processes by the register of a supervisor: each domain is fetched by its owner alone, every
URL once, and both know when all is over."""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.transport.message import is_mark
from krowlspider.urls.canonical import domain_of
from tests.cluster.register_nodes import delete, expect, supervisor_register
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

    from tests.cluster.register_nodes import Place
    from tests.cluster.servers import Server

NODES = ("a", "b")
CLUSTER = "krowlspider"
RING = Ring(map(Member, NODES))


@dataclass
class Servers:
    """The register of both nodes, and the Redis of each."""

    register: Place
    redis: dict[str, Server]


@contextmanager
def servers_in(folder: Path, *arguments: str) -> Iterator[Servers]:
    """Servers of nodes that wait for each other; ``arguments`` are for the Redis of node b."""
    with ExitStack() as stack:
        (folder / "register").mkdir()
        register = stack.enter_context(supervisor_register(folder / "register"))
        expect(register, CLUSTER, *NODES)
        given = {"a": (), "b": arguments}
        redis = {
            node: stack.enter_context(redis_server(folder / f"redis-{node}", *given[node]))
            for node in NODES
        }
        yield Servers(register, redis)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with servers_in(tmp_path) as servers:
        yield servers


def place_of(node: str, servers: Servers) -> dict[str, Any]:
    """The settings that make a process this node."""
    return {
        "KROWL_CONSUL": servers.register.url,
        "KROWL_NODE_ID": node,
        "REDIS_URL": servers.redis[node].url,
        # As a supervisor has it.
        "KROWL_DRAIN_TIMEOUT": 0,
    }


def site_of(node: str) -> str:
    """The name of a site that this node owns."""
    names = (f"site{number}.test" for number in count())
    return next(name for name in names if RING.owner(name) == node)


def crawl_at(node: str, servers: Servers, folder: Path, seeds: list[str], **settings: Any) -> Crawl:
    return Crawl(
        folder / node,
        arguments={"seeds": write_seeds(folder / f"seeds-{node}.txt", seeds)},
        settings={**place_of(node, servers), **settings},
        feed=False,
    )


@pytest.mark.slow
def test_two_supervised_nodes_fetch_each_url_once_by_its_owner(
    tmp_path: Path, servers: Servers
) -> None:
    with MockWeb(graph=Graph(hosts=30, pages=10, seed=3, features=QUICK)) as web:
        crawls = {node: crawl_at(node, servers, tmp_path, web.seeds()).start() for node in NODES}
        for crawl in crawls.values():
            crawl.wait()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert impolite(web) == []
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
            own = [entry for entry in web.log() if RING.owner(domain_of(entry.host)) == node]
            assert own
            assert_archived(crawl.jobdir, own)


@pytest.mark.slow
def test_two_nodes_ask_each_page_again_once(tmp_path: Path) -> None:
    """The second start of both asks again what each has fetched, and both know when all is over."""
    asked = []
    with MockWeb(graph=Graph(hosts=20, pages=5, seed=3, features=QUICK)) as web:
        for recrawl in ("off", "once"):
            before = len(web.log())
            (tmp_path / recrawl).mkdir()
            with servers_in(tmp_path / recrawl) as servers:
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
def test_pushed_urls_are_crawled_by_their_owners(tmp_path: Path, servers: Servers) -> None:
    with MockWeb(spec=[page("^/", "a page")]) as web:
        urls = [web.url(f"site{number}.test", "/pushed") for number in range(12)]
        with Redis.from_url(servers.redis["a"].url) as client:
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
        with Redis.from_url(servers.redis["a"].url) as client:
            assert client.llen("broad:dead") == 1


@pytest.mark.slow
def test_node_that_fetched_no_page_only_warns(tmp_path: Path, servers: Servers) -> None:
    """Another node may have fetched some."""
    spec = [page("/robots.txt", "User-agent: *\nDisallow: /"), page("/", "x")]
    with MockWeb(spec=spec) as web:
        seeds = [web.url(f"site{number}.test") for number in range(12)]
        crawls = [crawl_at(node, servers, tmp_path, seeds).start() for node in NODES]
        for crawl in crawls:
            warning = "No page was fetched by this node: forbidden by robots.txt: "
            assert warning in crawl.wait().log


@pytest.mark.slow
def test_owner_fetches_the_robots_txt_that_another_nodes_host_leads_to(
    tmp_path: Path, servers: Servers
) -> None:
    """It has no pages itself, and would leave the cluster's page budget to the other node."""
    ours, theirs = site_of("a"), site_of("b")
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
        {"KROWL_CONSUL": None, "KROWL_NODE_ID": None},
        {"KROWL_NODE_ID": "b"},
        {"KROWL_CLUSTER": "another"},
    ],
    ids=["without a register", "as another node", "in another cluster"],
)
def test_job_folder_of_another_place_is_refused(
    tmp_path: Path, servers: Servers, changes: dict[str, Any]
) -> None:
    with MockWeb(spec=[page("^/", "a page")]) as web:
        seeds = [web.url("site.test", "/")]
        delete(servers.register, CLUSTER, "crew/b")
        crawl_at("a", servers, tmp_path, seeds).run()
        again = crawl_at("a", servers, tmp_path, seeds, **changes).run(code=2)
        assert "a new JOBDIR" in again.log
        assert "Traceback" not in again.log


@pytest.mark.slow
def test_bad_meta_is_put_aside_and_good_meta_is_kept(tmp_path: Path, servers: Servers) -> None:
    bad = [
        {"retry_times": "x"},
        {"throttling_times": -1},
        {"retry_times": 1 << 40},
    ]
    with MockWeb(spec=[page("/pushed", "<a href=/further>on</a>"), page("^/", "a page")]) as web:
        with Redis.from_url(servers.redis["a"].url) as client:
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
def test_early_end_of_one_node_ends_the_other(tmp_path: Path, servers: Servers) -> None:
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
def test_message_is_forwarded_at_most_sixteen_times(tmp_path: Path, servers: Servers) -> None:
    with (
        MockWeb(spec=[page("^/", "a page")]) as web,
        Redis.from_url(servers.redis["a"].url) as ours,
        Redis.from_url(servers.redis["b"].url) as theirs,
    ):
        url = web.url(site_of("b"), "/")
        # That which goes no further comes first: it would be there before the others.
        messages = [
            json.dumps({"url": f"{url}{meta.get('krowl_hops', 0)}", "meta": meta})
            for meta in ({"krowl_hops": 16}, {"krowl_hops": 15}, {})
        ]
        seeds = [web.url(site_of(node), "/seed") for node in NODES]
        crawl, other = (
            crawl_at(node, servers, tmp_path, seeds, KROWL_DELAY_MIN=1).start() for node in NODES
        )
        crawl.wait_until(lambda: len(pages(web.log())) == 2)
        other.process.send_signal(signal.SIGSTOP)
        ours.lpush("broad:requests", *messages)
        crawl.wait_until(lambda: theirs.llen("broad:requests") >= 2)
        crawl.interrupt()
        other.kill()
        found = theirs.lrange("broad:requests", 0, -1)
        sent = [json.loads(message) for message in found if not is_mark(message)]
        hops = {message["url"]: message["meta"]["krowl_hops"] for message in sent}
        assert hops == {f"{url}0": 1, f"{url}15": 16}
        assert len(sent) == 2
        assert crawl.stats["krowl/frontier/dropped_count/hops"] == 1


@pytest.mark.slow
def test_pushed_start_url_keeps_depth_priority_and_meta(tmp_path: Path, servers: Servers) -> None:
    delete(servers.register, CLUSTER, "crew/b")
    with MockWeb(spec=[page("^/", "a page")]) as web:
        seed, first, *later = (web.url(site_of("a"), path) for path in ("/", "/first", "/2", "/3"))
        crawl = Crawl(
            tmp_path / "a",
            spider="starting",
            arguments={"urls": seed},
            settings={
                "SPIDER_MODULES": "tests.support.spiders",
                "KROWL_DELAY_MIN": 1,
                **place_of("a", servers),
            },
        ).start()
        crawl.wait_until(lambda: len(pages(web.log())) == 1)
        pushed = [{"url": url, "meta": {"note": [0]}} for url in later]
        pushed.insert(1, {"url": first, "depth": 3, "priority": 5, "meta": {"note": [1]}})
        with Redis.from_url(servers.redis["a"].url) as client:
            client.lpush("starting:start_urls", *map(json.dumps, pushed))
        crawl.wait()
        asked = [entry.url for entry in pages(web.log())]
        assert asked[:2] == [seed, first]
        assert sorted(asked[2:]) == later
        found = {item["url"]: (item["depth"], item["note"]) for item in crawl.items}
        assert found == {seed: (0, None), first: (3, [1]), **dict.fromkeys(later, (0, [0]))}


@pytest.mark.slow
def test_start_requests_are_fetched_once_by_their_owners(tmp_path: Path, servers: Servers) -> None:
    with MockWeb(spec=[page("^/", "a page")]) as web:
        urls = [web.url(f"site{number}.test", "/") for number in range(10)]
        crawls = [
            Crawl(
                tmp_path / node,
                spider="starting",
                arguments={"urls": " ".join(urls)},
                settings={
                    "SPIDER_MODULES": "tests.support.spiders",
                    **place_of(node, servers),
                },
            ).start()
            for node in NODES
        ]
        for crawl in crawls:
            crawl.wait()
        assert sorted(entry.url for entry in pages(web.log())) == sorted(urls)
        assert sorted(item["url"] for crawl in crawls for item in crawl.items) == sorted(urls)
