"""The mock web does what it says, its oracle is right, and its audit finds what is planted."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import json
import os
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter, deque
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import can_ada
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego

from tests.mockweb import Entry, Graph, MockWeb
from tests.mockweb.audit import Adaptive, Crowd, by_address, by_last_labels, violations
from tests.mockweb.folder import FolderSite, folder_oracle
from tests.mockweb.graph import DEFAULT_FEATURES, FEATURES
from tests.mockweb.hrefs import FOLLOWED
from tests.mockweb.identity import identity
from tests.mockweb.log import LogWriter, read_log
from tests.mockweb.nodes import node, specials
from tests.mockweb.oracle import Expected, reachable
from tests.mockweb.protocol import Connection, Web
from tests.mockweb.render import GraphSite
from tests.mockweb.reply import Reply
from tests.mockweb.robots import allowed_at, delay_at
from tests.mockweb.spec import SpecSite
from tests.mockweb.traps import SESSION_PAGES, SUBDOMAINS_A_PAGE, TRAPS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.9.8.7"
BOUND_S = 20.0  # of every wait for an event: a failure, not a pace

# --- a browser's half ---------------------------------------------------------------------------


def talk(web: MockWeb, request: str) -> bytes:
    """Sends raw text to the server and reads until it closes."""
    with socket.create_connection((HOST, web.port), BOUND_S) as sock:
        sock.sendall(request.encode())
        return b"".join(iter(lambda: sock.recv(65_536), b""))


def get(web: MockWeb, path: str, *, host: str = HOST, method: str = "GET") -> bytes:
    """The raw bytes of one answer on a connection of its own."""
    lines = f"{method} {path} HTTP/1.1\r\nHost: {host}:{web.port}\r\n"
    return talk(web, f"{lines}User-Agent: test/1\r\nConnection: close\r\n\r\n")


def body(raw: bytes) -> bytes:
    return raw.partition(b"\r\n\r\n")[2]


def status(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


def spec(**rule: Any) -> list[dict[str, Any]]:
    return [{"path": "/x", **rule}]


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


def entry(start: float, end: float, url: str = "http://h/p", **fields: Any) -> Entry:
    parts = urlsplit(url)
    made = Entry(start, end, parts.netloc, parts.path, "GET", 200, 1, "", "", 0, "", False, True, 0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


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


# --- the server -----------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order() -> None:
    """On a connection that is kept alive."""
    rules: list[dict[str, Any]] = [
        {"path": "/slow", "body": "slow", "latency": 0.05},
        {"path": "/fast", "body": "fast"},
    ]
    with MockWeb(spec=rules) as web:
        asked = "".join(
            f"GET {path} HTTP/1.1\r\nHost: a{end}\r\n\r\n"
            for path, end in (("/slow", ""), ("/fast", ""), ("/fast", "\r\nConnection: close"))
        )
        answered = talk(web, asked)
        assert answered.count(b"HTTP/1.1 200 OK\r\n") == 3
        assert answered.index(b"slow") < answered.index(b"fast")
        first, second, third = web.log()
        assert first.conn == second.conn == third.conn
        assert first.end - first.start >= 0.05
        assert second.end >= first.end


def test_framing_chunked_gzip_close_and_head() -> None:
    text = "word " * 1_000
    rules: list[dict[str, Any]] = [
        {"path": "/chunked", "body": text, "chunked": True},
        {"path": "/gzip", "body": text, "gzip": True},
        {"path": "/both", "body": text, "gzip": True, "chunked": True},
        {"path": "/close", "body": text, "close": True},
    ]
    with MockWeb(spec=rules) as web:
        assert b"Transfer-Encoding: chunked\r\n" in get(web, "/chunked")
        assert body(get(web, "/chunked")).startswith(b"3e8\r\nword ")
        assert body(get(web, "/chunked")).endswith(b"\r\n0\r\n\r\n")
        assert gzip.decompress(body(get(web, "/gzip"))).decode() == text
        connection = http.client.HTTPConnection(HOST, web.port, timeout=BOUND_S)
        connection.request("GET", "/both")
        assert gzip.decompress(connection.getresponse().read()).decode() == text
        connection.close()
        closed = talk(web, "GET /close HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"Content-Length" not in closed
        assert body(closed).decode() == text
        head = get(web, "/gzip", method="HEAD")
        assert b"Content-Length: " in head
        assert body(head) == b""


def test_first_rule_that_fits_answers() -> None:
    """By host, path and regular expression."""
    rules: list[dict[str, Any]] = [
        {"host": "a.test", "path": "/x", "body": "a"},
        {"path": "^/x\\?n=[0-9]+$", "body": "number"},
        {"path": "/x", "body": "any"},
    ]
    with MockWeb(spec=rules) as web:
        assert body(get(web, "/x", host="A.test")) == b"a"
        assert body(get(web, "/x", host="b.test")) == b"any"
        assert body(get(web, "/x?n=12")) == b"number"
        assert status(get(web, "/x?n=")) == 404


def test_first_gives_way_to_the_next_rule_for_each_url() -> None:
    rules: list[dict[str, Any]] = [
        {"path": "^/", "status": 503, "retry_after": 7, "first": 2},
        {"path": "^/", "status": 429, "first": 1},
        {"path": "^/", "body": "at last"},
    ]
    with MockWeb(spec=rules) as web:
        assert [status(get(web, "/a")) for _ in range(4)] == [503, 503, 429, 200]
        assert b"\r\nRetry-After: 7\r\n" in get(web, "/b")
        assert [entry.retry_after for entry in web.log()] == [7, 7, 0, 0, 7]


def test_busy_page_refuses_as_often_as_its_number_says() -> None:
    with MockWeb(graph=Graph(1, 1, 0)) as web:
        for path, codes in (
            ("/busy/1", [429, 200, 200]),
            ("/busy/2", [429, 429, 200]),
            ("/sick/1", [503, 200, 200]),
        ):
            answers = [get(web, path, host="127.10.0.1") for _ in codes]
            assert [status(raw) for raw in answers] == codes
            assert b"\r\nRetry-After: 1\r\n" in answers[0]


def test_a_body_may_end_early() -> None:
    with MockWeb(spec=spec(body="0123456789", close_early=4)) as web:
        raw = get(web, "/x")
        assert b"Content-Length: 10\r\n" in raw
        assert body(raw) == b"0123"


def test_raw_bytes_are_sent_as_they_are() -> None:
    raw = b"HTTP/1.0 200\nX: \xff\n\n\x00garbage"
    with MockWeb(spec=spec(raw_base64=base64.b64encode(raw).decode())) as web:
        assert get(web, "/x") == raw


def test_a_huge_body_is_generated() -> None:
    size = 20_000_001
    with MockWeb(spec=spec(size=size)) as web:
        raw = get(web, "/x")
        assert len(body(raw)) == size
        assert web.log()[0].sha1 == hashlib.sha1(raw, usedforsecurity=False).hexdigest()


def test_a_body_may_drip() -> None:
    with MockWeb(spec=spec(body="x" * 40, drip=200)) as web:
        started = time.monotonic()
        assert body(get(web, "/x")) == b"x" * 40
        assert time.monotonic() - started >= 0.15


def test_ports_are_filled_into_bodies_headers_and_redirects(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(b"\xe9 {port}")
    rules: list[dict[str, Any]] = [
        {"path": "/text", "body": "{port} {tls_port}", "headers": {"X-Port": "{port}"}},
        {"path": "/file", "body_file": str(file)},
        {"path": "/to", "redirect": "https://a.test:{tls_port}/"},
    ]
    with MockWeb(spec=rules, tls=True) as web:
        assert body(get(web, "/text")).decode() == f"{web.port} {web.tls_port}"
        assert f"\r\nX-Port: {web.port}\r\n".encode() in get(web, "/text")
        assert body(get(web, "/file")) == b"\xe9 %d" % web.port
        redirect = get(web, "/to")
        assert status(redirect) == 302
        assert f"\r\nLocation: https://a.test:{web.tls_port}/\r\n".encode() in redirect


def test_tls_is_served_under_any_name() -> None:
    with MockWeb(spec=spec(body="secret"), tls=True) as web:
        context = ssl._create_unverified_context()
        with (
            socket.create_connection((HOST, web.tls_port), BOUND_S) as plain,
            context.wrap_socket(plain, server_hostname="whatever.example") as sock,
        ):
            sock.sendall(b"GET /x HTTP/1.1\r\nHost: a.test:1\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: sock.recv(4_096), b"")).endswith(b"secret")
        (logged,) = web.log()
        assert logged.tls
        assert logged.url == "https://a.test:1/x"


def test_without_a_host_header_the_address_decides() -> None:
    with MockWeb(graph=Graph(3, 1, 0)) as web:
        with socket.create_connection(("127.10.0.2", web.port), BOUND_S) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            raw = b"".join(iter(lambda: sock.recv(65_536), b""))
        assert b"<title>/ of 127.10.0.2</title>" in raw
        assert web.log()[0].host == f"127.10.0.2:{web.port}"


def test_garbage_closes_the_connection() -> None:
    with MockWeb(spec=[]) as web:
        assert talk(web, "\x00\x01 not http\r\n\r\n") == b""
        assert status(get(web, "/x")) == 404
        assert web.stderr() == ""


class FakeTransport:
    """A transport that records that the peer is refused."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.aborted = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return (self._peer, 1) if name == "peername" else ("127.0.0.1", 2)

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(("peer", "refused"), [("127.255.0.1", False), ("10.0.0.1", True)])
def test_a_peer_that_is_not_on_loopback_is_refused(peer: str, refused: bool) -> None:
    transport = FakeTransport(peer)
    connection = Connection(Web(SpecSite([], 1, 0), None), tls=False)
    connection.connection_made(transport)  # type: ignore[arg-type]
    assert transport.aborted == refused


# --- the log --------------------------------------------------------------------------------------


def test_the_log_has_the_times_the_bytes_and_who_asked() -> None:
    with MockWeb(spec=spec(body="page", latency=0.1)) as web:
        before = time.monotonic()
        raw = get(web, "/x", host="A.test")
        after = time.monotonic()
        (logged,) = web.log()
    assert before <= logged.start <= logged.end <= after
    assert 0.1 <= logged.end - logged.start
    assert (logged.host, logged.path, logged.method) == (f"a.test:{web.port}", "/x", "GET")
    assert (logged.status, logged.bytes, logged.complete) == (200, len(raw), True)
    assert logged.sha1 == hashlib.sha1(raw, usedforsecurity=False).hexdigest()
    assert logged.ua == "test/1"
    assert logged.peer.startswith("127.")


def test_an_aborted_request_is_logged_as_ended_when_it_was_lost() -> None:
    with MockWeb(spec=spec(body="page", latency=60.0)) as web:
        with socket.create_connection((HOST, web.port), BOUND_S) as sock:
            sock.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
            sent = time.monotonic()
            get(web, "/other")
        logged = next(entry for entry in web.log() if entry.path == "/x")
        assert not logged.complete
        assert (logged.status, logged.bytes, logged.sha1) == (0, 0, "")
        assert sent - BOUND_S < logged.start < logged.end < sent + BOUND_S


def test_a_huge_answer_nobody_reads_is_logged_with_what_was_sent() -> None:
    with MockWeb(spec=spec(size=500_000_000)) as web:
        with socket.create_connection((HOST, web.port), BOUND_S) as sock:
            sock.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
            assert sock.recv(1)
        (logged,) = web.log()
        assert not logged.complete
        assert 0 < logged.bytes < 100_000_000
        assert logged.status == 200


def test_requests_in_the_air_are_logged_when_the_server_stops() -> None:
    with (
        MockWeb(spec=spec(latency=60.0)) as web,
        socket.create_connection((HOST, web.port), BOUND_S) as sock,
    ):
        sock.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
        get(web, "/other")
        web.stop()
    assert [(entry.path, entry.complete) for entry in web.log()] == [
        ("/x", False),
        ("/other", True),
    ]


def test_the_log_of_a_killed_server_can_be_read() -> None:
    with MockWeb(spec=spec(body="page")) as web:
        get(web, "/x")
        assert len(web.log()) == 1
        os.kill(web.pid, signal.SIGKILL)
    assert len(web.log()) == 1


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = LogWriter(path)
    writer.close()
    whole = json.dumps({name: getattr(entry(1, 2), name) for name in Entry.__slots__})
    path.write_text(f"{whole}\n{whole[:20]}")
    assert [(found.start, found.end) for found in read_log(path)] == [(1, 2)]


# --- starting and stopping ------------------------------------------------------------------------


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="sorcery"), MockWeb(spec=[{"sorcery": 1}]):
        pass


def test_a_server_can_come_back_on_its_port() -> None:
    with MockWeb(spec=[]) as web:
        port = web.port
    with MockWeb(spec=[], port=port) as web:
        assert web.port == port
        assert status(get(web, "/")) == 404


ORPHAN = """
import os, signal
from tests.mockweb import MockWeb
web = MockWeb(spec=[]).__enter__()
print(web.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_server_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            server = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        ready, _, _ = select.select([server], [], [], BOUND_S)
        os.close(server)
        assert ready


# --- the audit ------------------------------------------------------------------------------------

ROBOTS = entry(0.0, 0.1, "http://h/robots.txt")


def test_a_polite_log_has_no_violations() -> None:
    log = [ROBOTS, entry(0.4, 0.5), entry(0.75, 0.9), entry(0.0, 0.2, "http://g/robots.txt")]
    assert violations(log, min_delay=0.25) == []
    assert violations([], min_delay=0.25) == []


@pytest.mark.parametrize(
    ("planted", "text"),
    [
        ([ROBOTS, entry(0.5, 0.9), entry(0.7, 0.8)], "overlap of 200.0 ms: http://h/p"),
        ([ROBOTS, entry(0.34, 0.4)], "gap of 0.240 s instead of 0.250 s: http://h/p"),
        ([ROBOTS, entry(0.5, 3.0), entry(3.1, 3.2)], "gap of 0.100 s"),
        ([entry(0.5, 0.6)], "before robots.txt was answered: http://h/p"),
        ([ROBOTS, entry(0.4, 0.5), entry(0.0, 0.5, "http://g/p")], "answered: http://g/p"),
        ([ROBOTS, entry(0.5, 0.6, "http://h/no/1")], "disallowed by robots.txt: http://h/no/1"),
        (
            [ROBOTS, entry(1, 2, status=429, retry_after=5.0), entry(6, 7)],
            "1.000 s before Retry-After is over",
        ),
        ([ROBOTS, entry(0.4, 0.6, complete=False), entry(0.59, 0.7)], "overlap of 10.0 ms"),
    ],
)
def test_the_audit_finds_what_is_planted(planted: list[Entry], text: str) -> None:
    (found,) = violations(planted, min_delay=0.25, allowed=lambda _, path: path != "/no/1")
    assert text in found


def test_a_long_request_is_overlapped_by_all_that_run_beside_it() -> None:
    log = [ROBOTS, entry(1, 9), entry(2, 3), entry(5, 6)]
    assert len(violations(log, min_delay=0.25)) == 2


def test_end_of_an_aborted_request_has_a_tolerance() -> None:
    log = [ROBOTS, entry(0.4, 0.6, complete=False), entry(0.597, 0.7)]
    assert violations(log, min_delay=0.0) == []
    log[1].complete = True
    assert len(violations(log, min_delay=0.0)) == 1


def test_the_delay_may_differ_by_host_and_the_unit_may_be_wider() -> None:
    other = [entry(0.2, 0.3, "http://g/robots.txt"), entry(0.4, 0.5, "http://g/p")]
    log = [ROBOTS, *other]
    assert violations(log, min_delay=lambda host: 0.2 if host == "g" else 9.0) == [
        "gap of 0.100 s instead of 0.200 s: http://g/p, after http://g/robots.txt"
    ]
    assert len(violations(log, min_delay=0.2, by=lambda _: "one domain")) == 2


THROTTLING = {"status": 503}


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ([entry(1, 2, **THROTTLING), entry(2.4, 3)], "gap of 0.400 s instead of 0.500 s"),
        (
            [entry(1, 2, **THROTTLING), entry(3, 4, **THROTTLING), entry(4.9, 5)],
            "gap of 0.900 s instead of 1.000 s",
        ),
        # Halved again by an ordinary answer, not more.
        (
            [entry(1, 2, **THROTTLING), entry(3, 4, **THROTTLING), entry(6, 7), entry(7.4, 8)],
            "gap of 0.400 s instead of 0.500 s",
        ),
        (
            [entry(1, 2, status=429, retry_after=86_400.0), entry(3601, 3602)],
            "1.000 s before Retry-After is over",
        ),
    ],
)
def test_audit_finds_a_crawler_that_does_not_slow_down(later: list[Entry], text: str) -> None:
    (found,) = violations([ROBOTS, *later], min_delay=0.25)
    assert text in found


@pytest.mark.parametrize(
    "later",
    [
        [entry(1, 2, **THROTTLING), entry(2.5, 3), entry(3.25, 4)],
        [entry(1, 2, **THROTTLING), entry(3, 4, **THROTTLING), entry(5, 6), entry(6.5, 7)],
        [entry(1, 2, status=429, retry_after=86_400.0), entry(3602, 3603)],
        [entry(1 + 9e3 * n, 2 + 9e3 * n, **THROTTLING) for n in range(2000)],
    ],
)
def test_the_audit_is_content_with_who_slows_down_as_asked(later: list[Entry]) -> None:
    assert violations([ROBOTS, *later], min_delay=0.25) == []


def test_what_was_learnt_just_before_a_death_may_be_forgotten() -> None:
    log = [ROBOTS, entry(1, 2, **THROTTLING), entry(5, 6, **THROTTLING), entry(6.5, 7)]
    assert len(violations(log, min_delay=0.25)) == 1
    assert violations(log, min_delay=0.25, deaths=[3.0]) == []
    assert len(violations(log, min_delay=0.25, deaths=[9.0])) == 1
    slower = [entry(0, 0.1, "http://h/robots.txt"), entry(0.7, 1.7), entry(2.2, 2.3)]
    assert len(violations(slower, min_delay=0.25, adaptive=Adaptive(5, 30))) == 1
    assert violations(slower, min_delay=0.25, adaptive=Adaptive(5, 30), deaths=[2.0]) == []


def test_the_delay_follows_the_average_latency_up_to_its_limit() -> None:
    log = [entry(0, 0.1, "http://h/robots.txt"), entry(0.6, 1.6), entry(3.44, 4)]
    # 0.1 + 0.3 * (1.0 - 0.1), five times.
    (found,) = violations(log, min_delay=0.25, adaptive=Adaptive(5, 30))
    assert "gap of 1.840 s instead of 1.850 s" in found
    assert violations(log, min_delay=0.25, adaptive=Adaptive(5, 1.5)) == []


def test_no_more_than_so_many_of_a_crowd_are_in_flight() -> None:
    hosts = [f"{name}.site.test" for name in "abc"]
    log = [entry(0, 0.1, f"http://{host}/robots.txt", address="1.2.3.4") for host in hosts]
    by_domain = Crowd("domain", by_last_labels, 2)
    (found,) = violations(log, min_delay=0, crowds=[by_domain])
    assert (
        found == "3 in flight instead of 2 for the domain site.test: http://c.site.test/robots.txt"
    )
    assert violations(log, min_delay=0, crowds=[Crowd("domain", by_last_labels, 3)]) == []
    (found,) = violations(log, min_delay=0, crowds=[Crowd("address", by_address, 2)])
    assert "for the address 1.2.3.4" in found
    # One that ends as another begins makes room for it.
    log[2].start = 0.1
    assert violations(log, min_delay=0, crowds=[by_domain]) == []


def test_address_is_its_own_domain() -> None:
    """Names go by their last labels."""
    names = ("127.1.2.3:80", "a.b.test:8080", "b.test")
    found = [by_last_labels(entry(0, 1, f"http://{name}/")) for name in names]
    assert found == ["127.1.2.3", "b.test", "b.test"]


def test_robots_rules_hold_until_the_next_answer() -> None:
    def stated(answer: Entry) -> Any:
        return (lambda path: path != "/p") if answer.sha1 == "closed" else (lambda path: True)

    again = entry(2, 3, "http://h/robots.txt", sha1="closed")
    log = [ROBOTS, entry(1, 1.5), again, entry(5, 6)]
    assert violations(log, min_delay=0.25, stated=stated) == [
        "disallowed by robots.txt: http://h/p"
    ]
    again.status = 503
    # The last good copy holds while the server fails.
    assert violations(log, min_delay=0.25, stated=stated) == []
    again.status, log[0].sha1 = 200, "closed"
    again.sha1 = ""
    assert violations(log, min_delay=0.25, stated=stated) == [
        "disallowed by robots.txt: http://h/p"
    ]


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_robots_txt_that_fails_is_not_known(status: int) -> None:
    robots = entry(0, 0.1, "http://h/robots.txt", status=status)
    assert violations([robots, entry(9, 10)], min_delay=0.25) == [
        "before robots.txt was answered: http://h/p"
    ]


def test_the_audit_runs_as_a_command(tmp_path: Path) -> None:
    with MockWeb(graph=Graph(1, 2, 0)) as web:
        for path in ("/robots.txt", "/private/1"):
            get(web, path, host="127.10.0.1")
        lines = [json.dumps({n: getattr(e, n) for n in Entry.__slots__}) for e in web.log()]
    log = tmp_path / "log"
    log.write_text("\n".join([*lines, ""]))
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.mockweb.audit",
            str(log),
            "--delay",
            "5",
            "--graph",
            web.graph.text(),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    gap, disallowed, total = sorted(ran.stdout.splitlines(), reverse=True)
    assert gap.startswith("gap of 0.0")
    assert disallowed.startswith("disallowed by robots.txt")
    assert total == "2 violations"
    assert ran.stderr == ""


# --- traps ----------------------------------------------------------------------------------------


def trapped(name: str, target: str, host: str = "a.test", nth: int = 0) -> str:
    return TRAPS[name](host, target, nth, 80).body.decode()


def test_traps_never_end() -> None:
    assert "m=2030-12>" in trapped("calendar", "/month?m=2031-01")
    assert "m=2031-02>" in trapped("calendar", "/month?m=2031-01")
    assert "m=2032-01>" in trapped("calendar", "/month?m=2031-12")
    assert TRAPS["maze"]("a.test", "/7", 0, 80).headers[-1] == ("Location", "/8")
    assert TRAPS["hosts_maze"]("7.a.test", "/", 0, 80).headers[-1] == (
        "Location",
        "http://8.a.test:80/",
    )
    assert "href=/8>" in trapped("chain", "/7")
    hosts = set(re.findall(r"http://([^:]+)", trapped("subdomains", "/", "x.a.test")))
    assert len(hosts) == SUBDOMAINS_A_PAGE
    assert hosts.isdisjoint(re.findall(r"http://([^:]+)", trapped("subdomains", "/", hosts.pop())))
    assert len(re.findall("href", trapped("sessions", "/page0"))) == 2 * SESSION_PAGES
    assert trapped("sessions", "/page0") != trapped("sessions", "/page0", nth=1)


def test_a_rule_may_name_a_trap_and_how_long_it_takes() -> None:
    with MockWeb(spec=[{"host": "^a", "trap": "chain", "latency": 0.2}]) as web:
        assert b"href=/4>" in body(get(web, "/3", host="a.test"))
        assert status(get(web, "/3", host="b.test")) == 404
        first, _ = web.log()
        assert first.end - first.start >= 0.2
        assert first.address == HOST


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("never", 0.0), ("Sun, 06 Nov 1994 08:49:37 GMT", 37.0)]
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value: str, seconds: float) -> None:
    now = 784_111_740.0
    assert Reply(503, [("Retry-After", value)]).retry_after(now) == seconds
    assert Reply(503).retry_after(now) == 0.0


# --- a folder -------------------------------------------------------------------------------------

PAGES = {
    "a.html": b'<p>\xe9<a href=b.html>b</a> <A HREF="sub/c d.html?x=1#part">c</A>'
    b'<img src="x.png"><a href="https://example.org/">out</a><a href="#here">here</a>',
    "b.html": b'<base href="/sub/"><a rel="nofollow" href="lost.html">no</a>'
    b'<meta http-equiv="Refresh" content="3; URL=sub/">',
    "sub/c d.html": b"<a href='../a.html'>a</a><a href=http://[>bad</a><a href='mailto:x@y'>m</a>",
    "sub/index.html": b'<meta name="Robots" content="noindex, NoFollow"><a href="../lost.html">',
    "lost.html": b"",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in PAGES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    return tmp_path


def test_a_folder_is_served_with_its_links_between_hosts(folder: Path) -> None:
    with MockWeb(folder=folder, hosts=3) as web:
        site = FolderSite(folder, 3, web.port)
        (seed,) = web.seeds()
        assert seed == site.urls["/a.html"]
        raw = get(web, "/a.html", host=urlsplit(seed).hostname or "")
        assert b"\r\nContent-Type: text/html\r\n" in raw
        b, c = site.urls["/b.html"], site.urls["/sub/c%20d.html"]
        assert body(raw).decode("latin-1") == (
            f'<p>\xe9<a href="{b}">b</a> <A HREF="{c}#part">c</A>'
            '<img src="#ext"><a href="#ext">out</a><a href="#here">here</a>'
        )
        others = {f"127.10.0.{n}" for n in (1, 2, 3)} - {urlsplit(seed).hostname}
        assert {status(get(web, "/a.html", host=host)) for host in others} == {404}
        assert status(get(web, "/robots.txt", host="127.10.0.1")) == 404


def test_the_folder_oracle_knows_what_is_linked(folder: Path) -> None:
    urls = FolderSite(folder, 3, 8_080).urls
    linked = {url for path, url in urls.items() if path != "/lost.html"}
    assert folder_oracle(folder, 3, 8_080) == linked
    assert len({urlsplit(url).netloc for url in urls.values()}) > 1


def test_a_folder_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no "):
        FolderSite(tmp_path, 1, 80)


# --- replies --------------------------------------------------------------------------------------


def test_only_a_whole_keep_alive_answer_is_made_once() -> None:
    reply = Reply(body=b"x")
    assert reply.wire() is reply.wire() is not None
    assert Reply(body=b"x", close_early=0).wire() is None
    assert Reply(body=b"x", framing="close").wire() is None
    assert Reply(size=1).wire() is None
