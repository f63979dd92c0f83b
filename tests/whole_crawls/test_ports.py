"""The limits on the ports of links, in a whole crawl."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from krowlspider.fetch.guard import PORTS_MAX
from tests.cluster.register_nodes import put, supervisor_register
from tests.cluster.servers import redis_server
from tests.support.crawling import Crawl, frontier_view, write_seeds
from tests.support.crawls import AT_ONCE
from tests.support.rawweb import Raw, RawWeb
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PORT = "krowl/frontier/dropped_count/port"


def answer(body: str, head: str = "200 OK\r\nContent-Type: text/html") -> Raw:
    return Raw(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


def moved(target: str) -> Raw:
    return answer("", f"301 Moved\r\nLocation: {target}")


def page_of(links: Iterable[str]) -> Raw:
    return answer("".join(f"<a href={link}>x</a>" for link in links))


@pytest.fixture
def webs() -> Iterator[list[RawWeb]]:
    """Return servers at different ports of one machine."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(SimulatedRawWeb({"/": page_of(())})) for _ in range(PORTS_MAX + 4)
        ]


def crawled(
    folder: Path, seeds: list[str], kind: type[Crawl] = SimulatedCrawl, **settings: object
) -> Crawl:
    arguments = {"seeds": write_seeds(folder / "seeds.txt", seeds)}
    return kind(folder / "job", arguments=arguments, settings={**AT_ONCE, **settings}).run()


def asked(webs: Iterable[RawWeb]) -> list[int]:
    """Return the ports of the servers that got requests."""
    return [web.port for web in webs if web.requests]


def test_links_lead_to_one_port_of_a_name_and_to_none_blocked(
    tmp_path: Path, webs: list[RawWeb]
) -> None:
    """For links, redirects and sitemaps."""
    one, two, *_ = webs
    sitemap = f"<urlset><url><loc>http://site.test:{two.port}/</loc></url>"
    sitemap += "<url><loc>http://site.test:25/</loc></url></urlset>"
    answers = {
        "/": page_of([one.url("v.test"), two.url("v.test"), "http://v.test:22/", "/to", "/away"]),
        "/to": moved("http://v.test:6667/"),
        "/away": moved(two.url("v.test", "/x")),
        "/robots.txt": answer(""),
        "/sitemap.xml": answer(sitemap, "200 OK\r\nContent-Type: application/xml"),
    }
    with SimulatedRawWeb(answers) as site:
        crawl = crawled(tmp_path, [site.url("site.test")], KROWL_SITEMAPS=1)
    assert asked(webs) == [one.port, two.port]
    # The name of the site has one such port, besides that of its seed.
    hosts = {data.split(b"Host: ")[1].split(b"\r\n")[0] for _, data in two.requests}
    assert hosts == {b"site.test:%d" % two.port}
    assert crawl.stats[PORT] == 5
    assert crawl.complaints == []


def test_wildcard_names_lead_to_few_ports_of_a_machine(tmp_path: Path, webs: list[RawWeb]) -> None:
    """The others stay queued, as with addresses that are not public, and the log names them. A
    restart requests no more."""
    links = [web.url(f"n{number}.test") for number, web in enumerate(webs)]
    with SimulatedRawWeb({"/": page_of(links), "/robots.txt": answer("")}) as site:
        crawl = crawled(tmp_path, [site.url("site.test")])
        found = asked(webs)
        assert len(found) == PORTS_MAX
        assert crawl.stats["krowl/fetch/failed_count/port"] == len(webs) - PORTS_MAX
        assert f"links have led to {PORTS_MAX} ports of 127.0.0.1" in crawl.log
        assert frontier_view(tmp_path / "job")["queued"] == len(webs) - PORTS_MAX


def test_a_person_may_give_any_ports_but_blocked_ones(tmp_path: Path, webs: list[RawWeb]) -> None:
    seeds = [web.url("many.test") for web in webs]
    crawl = crawled(tmp_path, [*seeds, "http://many.test:22/"], KROWL_PORTS="")
    assert asked(webs) == [web.port for web in webs]
    assert "seeds.txt line 13 skipped: port 22 is of another protocol, and never asked" in crawl.log
    assert PORT not in crawl.stats


def test_links_on_a_seed_with_a_port_lead_on_there(tmp_path: Path) -> None:
    answers = {"/": page_of(["/a"]), "/a": page_of(["/b"]), "/robots.txt": answer("")}
    with SimulatedRawWeb(answers) as site:
        crawl = crawled(tmp_path, [site.url("site.test")], KROWL_PORTS="80")
        assert site.asked == ["/robots.txt", "/", "/a", "/b"]
    assert PORT not in crawl.stats


def test_redirect_of_an_ordinary_spider_keeps_to_link_ports(
    tmp_path: Path, webs: list[RawWeb]
) -> None:
    """The spider's own requests may have any port."""
    one, two, *_ = webs
    answers = {"/": moved(one.url("v.test")), "/moved": moved(two.url("v.test"))}
    answers |= {"/robots.txt": answer("")}
    with SimulatedRawWeb(answers) as site:
        arguments = {"root": site.url("shop.test", "")}
        settings = {**AT_ONCE, "SPIDER_MODULES": "tests.support.spiders", "KROWL_PORTS": "80"}
        crawl = SimulatedCrawl(
            tmp_path / "job", spider="ordinary", arguments=arguments, settings=settings
        ).run()
        assert site.asked.count("/") == 1
    assert asked(webs) == []
    assert crawl.stats[PORT] == 1


@pytest.mark.slow
def test_messages_of_redis_lift_no_limit_of_ports(
    tmp_path: Path,
) -> None:
    """A user's start URLs may have any port, links found by other nodes may not."""
    answers = {"/big": answer("x" * 5000), "/small": answer("x"), "/robots.txt": answer("")}
    with ExitStack() as stack:
        site, one, two, three, four = (
            stack.enter_context(RawWeb(each)) for each in (answers, *[{"/": page_of(())}] * 4)
        )
        server = stack.enter_context(redis_server(tmp_path / "redis"))
        register = stack.enter_context(supervisor_register(tmp_path))
        put(register, "krowlspider", "founded", "1")
        lifting = {"download_maxsize": 0, "download_timeout": 1e9, "proxy": "http://v.test:1/"}
        starts = [
            {"url": site.url("site.test", "/big"), "meta": lifting},
            {"url": site.url("site.test", "/small"), "meta": lifting},
            {"url": one.url("v.test")},
            {"url": two.url("v.test")},
            {"url": "http://v.test:22/"},
        ]
        links = [web.url("w.test") for web in (three, four)]
        found = [{"url": url, "meta": {"depth": 3}} for url in [*links, "http://w.test:25/"]]
        with Redis.from_url(server.url) as client:
            client.lpush("broad:start_urls", *map(json.dumps, starts))
            client.lpush("broad:requests", *map(json.dumps, found))
        settings = {
            "KROWL_CONSUL": register.url,
            "REDIS_URL": server.url,
            "KROWL_NODE_ID": "a",
            "DOWNLOAD_MAXSIZE": 1000,
        }
        seeds = [site.url("site.test", "/small")]
        crawl = crawled(tmp_path, seeds, kind=Crawl, **settings)
        assert sorted(site.asked) == ["/big", "/robots.txt", "/small"]
    assert asked([one, two, three, four]) == [one.port, two.port, three.port]
    assert crawl.stats["krowl/frontier/dropped_count/too_large"] == 1
    assert crawl.stats[PORT] == 2
    assert crawl.stats["krowl/cluster/dead_count"] == 1
