"""The node behind each URL of a graph: a pure function of the graph, the host and the path.

Every host has pages `/`, `/p1`, `/p2` ..., in a tree that reaches them all, with random links
across it. A few special paths per host, linked from its `/`, make the trouble that crawlers meet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tests.mockweb.hrefs import Link, Tag, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mockweb.graph import Graph

SLOW_S = 0.3
"""Latency of a slow page: far over that of the others, far under any timeout."""

Coding = Literal["", "gzip", "chunked", "close"]


@dataclass(frozen=True, slots=True)
class Node:
    """One URL: its status is `busy` for the first `refusals` requests, then `status`."""

    status: int = 200
    links: tuple[Link, ...] = ()
    location: Link | None = None
    base: str = ""
    busy: int = 0
    refusals: int = 0
    mime: str = "text/html"
    coding: Coding = ""
    latency: float = 0.0
    traps: tuple[Link, ...] = ()


GONE = Node(status=404)

_SPECIALS = (
    ("errors", "/gone/1"),
    ("errors", "/gone/2"),
    ("robots", "/private/1"),
    ("robots", "/private/open/1"),
    ("redirects", "/moved/0"),
    ("redirects", "/moved/1"),
    ("redirects", "/moved/2"),
    ("redirects", "/away/3"),
    ("redirects", "/hidden/1"),
    ("redirects", "/chain/3"),
    ("redirects", "/loop/1"),
    ("busy", "/busy/1"),
    ("busy", "/busy/2"),
    ("busy", "/sick/1"),
    ("types", "/text/1"),
    ("types", "/png/1"),
    ("slow", "/slow/1"),
)
_LEAST_SPECIALS = 4
"""Least special paths per host. A small graph has more, so that it has every kind."""

_MOVED = (301, 302, 307, 303, 308)


def page_path(number: int) -> str:
    """Return the path of a host's page: `/`, `/p1`, `/p2` ..."""
    return f"/p{number}" if number else "/"


def specials(graph: Graph, index: int) -> list[str]:
    """Return the special paths that the host's `/` links to."""
    there = [path for feature, path in _SPECIALS if feature in graph.features]
    count = min(len(there), max(_LEAST_SPECIALS, -(-len(there) // graph.hosts)))
    return [there[(index * count + step) % len(there)] for step in range(count)]


def node(graph: Graph, index: int, target: str) -> Node:
    """Return the node of `target` (path and query) on a host; GONE if the path does not exist."""
    path = target.partition("?")[0]
    if match := re.fullmatch(r"/(?:p([1-9]\d*))?", path):
        number = int(match[1] or 0)
        return _page(graph, index, number) if number < graph.pages else GONE
    match = re.fullmatch(r"/([a-z/]+?)(?:/(\d+))?", path)
    if match is None or match[1] not in _KINDS:
        return GONE
    return _KINDS[match[1]](graph, index, int(match[2] or 0))


def _page(graph: Graph, index: int, number: int) -> Node:
    rng = graph.rng(index, number)
    base = "/deep/dir/" if number % 7 == 6 else ""
    links = [
        write(graph, rng, index, to, target, based=bool(base))
        for to, target in _targets(graph, index, number)
    ]
    links = [replace(link, tag=_tag(place)) for place, link in enumerate(links)]
    if number % 5 == 4:
        links[-1] = replace(links[-1], tag="refresh")
    coding = _CODINGS.get(number % 11, "") if "codings" in graph.features else ""
    return Node(
        links=tuple(links),
        traps=_traps(graph, index, number),
        base=graph.url(index, base) if base else "",
        coding=coding,
    )


_TAGS: dict[int, Tag] = {5: "area", 7: "iframe"}
_CODINGS: dict[int, Coding] = {2: "gzip", 4: "chunked", 7: "close"}


def _tag(place: int) -> Tag:
    return _TAGS.get(place, "a")


def _targets(graph: Graph, index: int, number: int) -> list[tuple[int, str]]:
    rng = graph.rng(index, number, "targets")
    tree = [(index, page_path(c)) for c in (2 * number + 1, 2 * number + 2) if c < graph.pages]
    if number == 0:
        tree += [(c, "/") for c in (2 * index + 1, 2 * index + 2) if c < graph.hosts]
        tree += [(index, path) for path in specials(graph, index)]
        tree += [(index, "/q?page=1&sort=up"), (index, "/q?page=2&sort=up")]
    for _ in range(rng.randint(4, 10)):
        to = index if rng.random() < 0.6 else rng.randrange(graph.hosts)
        tree.append((to, page_path(rng.randrange(graph.pages))))
    return [*tree, rng.choice(tree), rng.choice(tree)]


def _traps(graph: Graph, index: int, number: int) -> tuple[Link, ...]:
    """Make links that no crawler may follow. Each is the only link to its page."""
    tags: tuple[Tag, ...] = ("nofollow", "comment", "script")
    urls = [graph.url(index, f"/trap/{number * len(tags) + step}") for step in range(len(tags))]
    traps = [Link(url, url, tag) for url, tag in zip(urls, tags, strict=True)]
    hrefs = ("mailto:x@example.org", "javascript:void(0)", "ftp://example.org/f", "http://")
    return (*traps, *(Link("", href, "other") for href in hrefs))


def _leaf(graph: Graph, index: int, _number: int) -> Node:
    return Node(links=(Link(graph.url(index), "/"),))


def _question(graph: Graph, index: int, _number: int) -> Node:
    """A page with links to itself by other orders of its parameters: the same identity."""
    url = graph.url(index, "/q?page=1&sort=up")
    return Node(links=(Link(url, "/q?sort=up&page=1"), Link(url, "?sort=up&utm_source=x&page=1")))


def _to(graph: Graph, index: int, target: str, status: int = 302, href: str = "") -> Node:
    url = graph.url(index, target)
    return Node(status=status, location=Link(url, href or url))


def _chain(graph: Graph, index: int, number: int) -> Node:
    target = f"/chain/{number - 1}" if number > 1 else page_path(graph.pages - 1)
    return _to(graph, index, target, 301, href=target)


def _busy(status: int) -> Callable[[Graph, int, int], Node]:
    return lambda graph, index, number: replace(
        _leaf(graph, index, number), busy=status, refusals=min(number, 2)
    )


_KINDS: dict[str, Callable[[Graph, int, int], Node]] = {
    "q": _question,
    "private": _leaf,
    "private/open": _leaf,
    "trap": _leaf,
    "text": lambda *_: Node(mime="text/plain"),
    "png": lambda *_: Node(mime="image/png"),
    "slow": lambda g, i, n: replace(_leaf(g, i, n), latency=SLOW_S),
    "busy": _busy(429),
    "sick": _busy(503),
    "moved": lambda g, i, n: _to(g, i, page_path((n + 1) % g.pages), _MOVED[n % len(_MOVED)]),
    "away": lambda g, i, n: _to(g, (i + 1) % g.hosts, page_path(n % g.pages)),
    "hidden": lambda g, i, _: _to(g, i, "/private/2", 307, href="../private/2#part"),
    "chain": _chain,
    "loop": lambda g, i, n: _to(g, i, f"/loop/{3 - n}"),
}
