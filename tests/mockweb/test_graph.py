"""The graph of the mock web is what it says, and its oracle is right."""

from __future__ import annotations

import gzip
import http.client
import ssl
from collections import Counter, deque
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import can_ada
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego

from tests.mockweb import Graph, MockWeb
from tests.mockweb.asking import BOUND_S, entry
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES, FEATURES
from tests.mockweb.hrefs import FOLLOWED
from tests.mockweb.identity import identity
from tests.mockweb.nodes import node, specials
from tests.mockweb.oracle import Expected, reachable
from tests.mockweb.render import GraphSite
from tests.mockweb.robots import allowed_at, delay_at

if TYPE_CHECKING:
    from collections.abc import Iterator


# --- a naive crawler, which shares nothing with the oracle ----------------------------------------


class Links(HTMLParser):
    def __init__(self, url: str, text: str) -> None:
        super().__init__()
        self.base, self.hrefs = url, list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "base":
            self.base = urljoin(self.base, given["href"])
        elif tag in ("a", "area") and "nofollow" not in given.get("rel", "") and "href" in given:
            self.hrefs.append(given["href"])
        elif tag == "iframe":
            self.hrefs.append(given["src"])
        elif tag == "meta" and given.get("http-equiv") == "refresh":
            self.hrefs.append(given["content"].partition("url=")[2])


class Naive:
    """One request at a time, no pause, retries at once."""

    def __init__(self, max_depth: int | None = None, *, same_host: bool = False) -> None:
        self.max_depth, self.same_host = max_depth, same_host
        self.pages, self.statuses = Counter[str](), Counter[int]()
        self.robots: dict[str, Protego] = {}

    def fetch(self, url: str) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(url)
        where = "127.0.0.1" if parts.netloc.startswith("host") else parts.hostname or ""
        port, context = parts.port or 80, ssl._create_unverified_context()
        connection = (
            http.client.HTTPConnection(where, port, timeout=BOUND_S)
            if parts.scheme == "http"
            else http.client.HTTPSConnection(where, port, timeout=BOUND_S, context=context)
        )
        target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        connection.request("GET", target, headers={"Host": parts.netloc, "User-Agent": "naive"})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, data

    def allowed(self, url: str) -> bool:
        start = urljoin(url, "/robots.txt")
        if start not in self.robots:
            code, headers, data = self.fetch(start)
            while code in (302, 500):
                code, headers, data = self.fetch(headers.get("location", start))
            text = data.decode("utf-8-sig") if code == 200 else ""
            self.robots[start] = Protego.parse(text)
        return self.robots[start].can_fetch(url, "krowlspider")

    def crawl(self, seeds: list[str]) -> None:
        queue, seen = deque((self.key(seed), 0) for seed in seeds), set[str]()
        while queue:
            url, depth = queue.popleft()
            if url in seen:
                continue
            seen.add(url)
            if not self.allowed(url):
                continue
            code, headers, data = self.fetch(url)
            while code in (429, 503):
                self.note(url, code)
                code, headers, data = self.fetch(url)
            self.note(url, code)
            if "location" in headers:
                queue.extendleft((to, depth) for to in self.keys(url, url, [headers["location"]]))
            elif headers["content-type"] == "text/html" and code == 200:
                data = gzip.decompress(data) if "content-encoding" in headers else data
                page = Links(url, data.decode())
                if self.max_depth is None or depth < self.max_depth:
                    queue.extend((to, depth + 1) for to in self.keys(url, page.base, page.hrefs))

    def note(self, url: str, code: int) -> None:
        self.pages[url] += 1
        self.statuses[code] += 1

    def keys(self, url: str, base: str, hrefs: list[str]) -> Iterator[str]:
        for href in hrefs:
            if href == "http://":  # urljoin takes it for the base itself
                continue
            to = self.key(urljoin(base, href.strip()))
            stays = urlsplit(to).netloc == urlsplit(url).netloc
            fetchable = urlsplit(to).scheme in ("http", "https") and urlsplit(to).netloc
            if fetchable and (stays or not self.same_host):
                yield to

    def key(self, url: str) -> str:
        parts = urlsplit(url)
        query = sorted(p for p in parse_qsl(parts.query) if not p[0].startswith("utm_"))
        return parts._replace(
            netloc=parts.netloc.lower(), path=parts.path or "/", query=urlencode(query), fragment=""
        ).geturl()


GRAPHS = {
    "by address, all features": Graph(7, 9, 3, features=FEATURES),
    "by name, TLS": Graph(5, 6, 11, by_name=True, tls=True),
    "no trouble": Graph(3, 4, 1, features=frozenset()),
    "one page": Graph(1, 1, 0),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_oracle_agrees_with_a_naive_crawler(graph: Graph) -> None:
    with MockWeb(graph=graph) as web:
        crawler = Naive()
        crawler.crawl(web.seeds())
        expected = reachable(web.graph, web.seeds())
        assert dict(crawler.pages) == expected.requests
        assert crawler.statuses == expected.statuses
        assert expected.differences(web.log()) == []
        assert web.stderr() == ""


@pytest.mark.parametrize(("depth", "same_host"), [(1, False), (0, False), (None, True), (1, True)])
def test_the_oracle_agrees_with_a_naive_crawler_within_a_scope(
    depth: int | None, same_host: bool
) -> None:
    with MockWeb(graph=Graph(6, 12, 5, features=FEATURES - {"slow"})) as web:
        crawler = Naive(depth, same_host=same_host)
        crawler.crawl(web.seeds()[:1])
        expected = reachable(web.graph, web.seeds()[:1], max_depth=depth, same_host=same_host)
        assert dict(crawler.pages) == expected.requests
        assert expected.differences(web.log()) == []
        everything = reachable(web.graph, web.seeds()).identities
        assert expected.identities < everything


def test_the_audit_finds_of_a_naive_crawler_only_that_it_hurries() -> None:
    """It goes one by one, asks robots.txt first and keeps to it; it only never waits."""
    with MockWeb(graph=Graph(9, 5, 3, features=FEATURES)) as web:
        Naive().crawl(web.seeds())
        graph, log = web.graph, web.log()

    def allowed(host: str, path: str) -> bool:
        return allowed_at(graph, host, path)

    def delay(host: str) -> float:
        # Longer than any machine takes for a request.
        return 600.0 * delay_at(graph, host, 0.0)

    found = violations(log, min_delay=0.0, allowed=allowed)
    assert all("before Retry-After" in text for text in found)
    refusing = {entry.host for entry in log if entry.status in (429, 503)}
    assert {host for host in refusing for text in found if host in text} == refusing != set()
    patient = violations(log, min_delay=delay, allowed=allowed)
    gaps = [text for text in patient if "instead of 600.000 s" in text]
    assert len(gaps) == sum(entry.host == graph.authority(5) for entry in log) - 1


# --- the graph ------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_every_link_of_a_graph_means_what_its_text_resolves_to(graph: Graph) -> None:
    graph = replace(graph, port=8_080, tls_port=8_443)
    reached = sorted(reachable(graph, graph.seeds()).identities)
    for url in reached:
        parts = can_ada.parse(url)
        index = graph.index(parts.hostname)
        assert index is not None
        found = node(graph, index, parts.pathname + parts.search)
        links = [link for link in found.links if link.tag in FOLLOWED]
        for link in [*links, *([found.location] if found.location else [])]:
            assert identity(link.href, found.base or url) == link.url


@pytest.mark.parametrize("hosts", [1, 2, 3, 5, 40])
def test_every_kind_of_trouble_is_somewhere_in_a_graph(hosts: int) -> None:
    graph = Graph(hosts, 3, 0, features=FEATURES, port=80)
    paths = {path.split("/")[1] for index in range(hosts) for path in specials(graph, index)}
    kinds = "gone private moved away hidden chain loop busy sick text png slow"
    assert paths == set(kinds.split())


def test_a_graph_reaches_all_its_pages_from_the_first_host() -> None:
    graph = Graph(30, 11, 5, port=8_080)
    reached = reachable(graph, graph.seeds()[:1]).identities
    pages = {graph.url(i, f"/p{n}" if n else "/") for i in range(30) for n in range(11)}
    assert pages < reached


def test_links_are_written_in_many_ways() -> None:
    graph = Graph(20, 10, 2, by_name=True, port=8_080)
    hrefs = [
        link.href for i in range(20) for n in range(10) for link in node(graph, i, f"/p{n}").links
    ]
    for form in ("HTTP://HOST", "//host", "./", "/nowhere/../", "#part", "?utm_source=", "  http:"):
        assert any(href.startswith(form) or form in href for href in hrefs), form
    pages = [node(graph, i, f"/p{n}") for i in range(20) for n in range(1, 10)]
    assert {link.tag for page in pages for link in page.links} == {*FOLLOWED}
    assert {page.coding for page in pages} == {"", "gzip", "chunked", "close"}
    assert any(len(page.links) > len({link.url for link in page.links}) for page in pages)


def test_a_graph_is_the_same_bytes_whoever_makes_it() -> None:
    made = [GraphSite(Graph(9, 9, 4, features=FEATURES, port=80)) for _ in range(2)]
    for path in ("/", "/p8", "/robots.txt", "/busy/1", "/png/1", "/nope"):
        first, second = (site.answer("127.10.0.9", path, 0).wire() for site in made)
        assert first is not None
        assert second is not None
        assert first.data == second.data
    other = GraphSite(Graph(9, 9, 5, port=80)).answer("127.10.0.9", "/", 0)
    assert other.body != made[0].answer("127.10.0.9", "/", 0).body


@given(st.integers(0, 1_000_000), st.booleans())
def test_index_is_the_inverse_of_host(index: int, by_name: bool) -> None:
    graph = Graph(1_000_001, 1, 0, by_name=by_name)
    assert graph.index(graph.host(index)) == index


@pytest.mark.parametrize(
    "host", ["", "127.0.0.1", "127.9.0.1", "127.10.0.0", "127.10.0.4", "host1"]
)
def test_a_host_outside_the_graph_has_no_index(host: str) -> None:
    assert Graph(3, 1, 0).index(host) is None


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_graph_is_read_back_from_its_text(graph: Graph) -> None:
    assert Graph.parse(graph.text()) == graph


def test_a_short_text_is_a_graph_with_defaults() -> None:
    assert Graph.parse("hosts=3,pages=2").features == DEFAULT_FEATURES
    assert Graph.parse("hosts=3,pages=2,features=none").features == frozenset()


@pytest.mark.parametrize(
    "text",
    ["hosts=3,pages=2,size=1", "hosts=0,pages=1", "hosts=3,pages=2,tls=x", "hosts=a,pages=1"],
)
def test_a_wrong_graph_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Graph.parse(text)


def test_an_unknown_feature_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sorcery"):
        Graph(1, 1, 0, features=frozenset({"sorcery"}))


@pytest.mark.parametrize(
    ("url", "base", "expected"),
    [
        ("HTTP://H.test:80/a/../b#f", None, "http://h.test/b"),
        ("http://h/p?b=2&utm_source=x&a=1", None, "http://h/p?a=1&b=2"),
        ("http://h/p?utm_source=x#y", None, "http://h/p"),
        ("../c?d=", "http://h/a/b/", "http://h/a/c?d="),
        ("mailto:x@y", None, None),
        ("http://", None, None),
    ],
)
def test_identity(url: str, base: str | None, expected: str | None) -> None:
    assert identity(url, base) == expected


# --- what the oracle reports ----------------------------------------------------------------------


def test_a_difference_names_the_url_and_both_counts() -> None:
    expected = Expected(requests={"http://h/a": 1, "http://h/b": 2}, robots=Counter(h=1))
    log = [entry(0, 0, f"http://h/{path}") for path in ("robots.txt", "a", "a", "b", "c")]
    assert expected.differences(log) == [
        "page http://h/a: 2 requests instead of 1",
        "page http://h/b: 1 requests instead of 2",
        "page http://h/c: 1 requests instead of 0",
    ]
    assert expected.differences(log, at_least=True) == expected.differences(log)[1:]


def test_robots_by_redirect_may_be_fetched_or_not() -> None:
    expected = Expected(robots=Counter(h=1), robots_by_redirect=Counter(h=1))
    log = [entry(0, 0, "http://h/robots.txt")] * 3
    assert expected.differences(log[:1]) == expected.differences(log[:2]) == []
    assert len(expected.differences(log)) == len(expected.differences([])) == 1


def test_the_target_of_a_redirect_has_the_depth_of_its_source() -> None:
    graph = Graph(2, 8, 3, port=8_080)
    reached = reachable(graph, [graph.url(0, "/moved/0")], max_depth=1).identities
    links = {link.url for link in node(graph, 0, "/p1").links}
    assert reached == {graph.url(0, "/moved/0"), graph.url(0, "/p1"), *links}


def test_a_seed_outside_the_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="elsewhere"):
        reachable(Graph(1, 1, 0, port=80), ["http://elsewhere.test/"])
