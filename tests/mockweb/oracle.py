"""Compute what a correct crawl of a graph fetches, from the graph and without the crawler."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.mockweb.hrefs import FOLLOWED
from tests.mockweb.identity import identity
from tests.mockweb.nodes import Node, node
from tests.mockweb.robots import allowed, robots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.mockweb.graph import Graph
    from tests.mockweb.log import Entry


@dataclass(slots=True, eq=False)
class Expected:
    """The requests of a correct crawl.

    - `requests`: number of requests by identity; any URL of the identity is right.
    - `statuses`: number of answers by status, without robots.txt.
    - `robots`: requests for robots.txt by `host:port`.
    - `robots_by_redirect`: how many more a host may get because another redirects to it.
    - `refused`: identities that were found and that robots.txt disallows.
    """

    requests: dict[str, int] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    robots: Counter[str] = field(default_factory=Counter)
    robots_by_redirect: Counter[str] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)

    @property
    def identities(self) -> set[str]:
        """All identities to fetch."""
        return set(self.requests)

    def differences(self, entries: Iterable[Entry], *, at_least: bool = False) -> list[str]:
        """Return the differences of a log from this, one line each.

        With `at_least`, more requests than expected for an expected identity are no difference:
        a crawl repeats some after a kill.
        """
        pages: Counter[str] = Counter()
        robots_seen: Counter[str] = Counter()
        for entry in entries:
            if entry.path == "/robots.txt":
                robots_seen[entry.host] += 1
            else:
                pages[identity(entry.url) or entry.url] += 1
        return [
            *_differences("page", pages, Counter(self.requests), Counter(), at_least=at_least),
            *_differences(
                "robots.txt", robots_seen, self.robots, self.robots_by_redirect, at_least=at_least
            ),
        ]


def _differences(
    what: str, seen: Counter[str], least: Counter[str], more: Counter[str], *, at_least: bool
) -> Iterator[str]:
    for name in sorted(seen.keys() | least.keys()):
        low, high = least[name], least[name] + more[name]
        if seen[name] < low or (seen[name] > high and not (at_least and high)):
            yield f"{what} {name}: {seen[name]} requests instead of {low}"


def reachable(
    graph: Graph, seeds: list[str], *, max_depth: int | None = None, same_host: bool = False
) -> Expected:
    """Return what a crawl of the graph from the seeds fetches. The graph has the server's ports.

    `max_depth` is a limit on the depth (None: no limit). Seeds have depth 0, a link has one more
    than its page, a redirect's target the depth of its source. Depths are the least possible: a
    crawler that finds a page by a longer path first may fetch less. With `same_host`, links and
    redirects to another host are not followed.

    :raises ValueError: a seed is not in the graph
    """
    expected = Expected()
    queue = deque((_known(seed), 0) for seed in seeds)
    done: set[str] = set()
    while queue:
        url, depth = queue.popleft()
        if url in done:
            continue
        done.add(url)
        index, target = _place(graph, url)
        _count_robots(graph, index, expected)
        if not allowed(graph, index, target):
            expected.refused.add(url)
            continue
        found = node(graph, index, target)
        _count(found, url, expected)
        # Redirects keep the depth of their page, so they come before the links.
        queue.extendleft((to, depth) for to in _redirect(found) if _stays(url, to, same_host))
        if max_depth is None or depth < max_depth:
            queue.extend((to, depth + 1) for to in _links(found) if _stays(url, to, same_host))
    return expected


def _known(seed: str) -> str:
    url = identity(seed)
    if url is None:
        raise ValueError(f"not an http(s) URL: {seed}")
    return url


def _place(graph: Graph, url: str) -> tuple[int, str]:
    parts = urlsplit(url)
    index = graph.index(parts.hostname or "")
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    if index is None or graph.url(index, target) != url:
        raise ValueError(f"not a URL of this graph: {url}")
    return index, target


def _stays(url: str, to: str, same_host: bool) -> bool:
    return not same_host or urlsplit(url).netloc == urlsplit(to).netloc


def _redirect(found: Node) -> list[str]:
    return [] if found.location is None else [found.location.url]


def _links(found: Node) -> list[str]:
    return [link.url for link in found.links if link.tag in FOLLOWED]


def _count(found: Node, url: str, expected: Expected) -> None:
    expected.requests[url] = found.refusals + 1
    expected.statuses[found.status] += 1
    if found.refusals:
        expected.statuses[found.busy] += found.refusals


def _count_robots(graph: Graph, index: int, expected: Expected) -> None:
    authority = graph.authority(index)
    if authority in expected.robots:
        return
    own = robots(graph, index)
    expected.robots[authority] = own.refusals + 1
    if own.same_as is not None:
        expected.robots_by_redirect[graph.authority(own.same_as)] += 1
