"""SALSA and HITS over the links between a query's results and their neighbours. Pure.

Both give each page two scores: as a hub, which links to good pages, and as an authority, to which
good hubs link. The scores of a kind add up to 1. A link counts once, and one to the page itself
does not count.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Links of a neighbourhood: half a second of HITS.
EDGES_MAX = 100_000
# HITS ends when the authorities change by less in a round, or after so many rounds.
_TOLERANCE = 1e-9
_ROUNDS_MAX = 200

# By page, its scores as hub and as authority.
Scores = dict[str, tuple[float, float]]


def salsa(edges: Mapping[str, Iterable[str]]) -> Scores:
    """Return the scores of SALSA (Lempel and Moran 2001), the stochastic approach to hubs and
    authorities, by page of ``edges``: targets by source.

    They are exact. By proposition 6 of the paper, an authority has the share of its links among
    those of its component, times the share of its component among all authorities. So a dense
    community does not take all of the score, as it does with HITS.

    :raises ValueError: there are more than EDGES_MAX links
    """
    pages, links = _read(edges)
    parent = {end: end for link in links for end in _ends(link)}
    for link in links:
        first, second = (_root(parent, end) for end in _ends(link))
        parent[first] = second
    out, into = Counter(source for source, _ in links), Counter(target for _, target in links)
    # Of each component: its links, hubs and authorities.
    size = Counter(_root(parent, (0, source)) for source, _ in links)
    hubs = Counter(_root(parent, (0, page)) for page in out)
    authorities = Counter(_root(parent, (1, page)) for page in into)
    found = {}
    for page in pages:
        hub = authority = 0.0
        if page in out:
            part = _root(parent, (0, page))
            hub = out[page] / size[part] * hubs[part] / len(out)
        if page in into:
            part = _root(parent, (1, page))
            authority = into[page] / size[part] * authorities[part] / len(into)
        found[page] = (hub, authority)
    return found


def hits(edges: Mapping[str, Iterable[str]]) -> Scores:
    """Return the scores of HITS (Kleinberg 1999) by page of ``edges``: targets by source.

    They are found by rounds from equal scores, so equal communities keep equal scores.

    :raises ValueError: there are more than EDGES_MAX links
    """
    pages, links = _read(edges)
    hubs = dict.fromkeys(pages, 1.0)
    authorities = dict.fromkeys(pages, 0.0)
    for _ in range(_ROUNDS_MAX if links else 0):
        before, authorities = authorities, dict.fromkeys(pages, 0.0)
        for source, target in links:
            authorities[target] += hubs[source]
        _scale(authorities)
        hubs = dict.fromkeys(pages, 0.0)
        for source, target in links:
            hubs[source] += authorities[target]
        _scale(hubs)
        if sum(abs(authorities[page] - before[page]) for page in pages) < _TOLERANCE:
            break
    return {page: (hubs[page] if links else 0.0, authorities[page]) for page in pages}


def _read(edges: Mapping[str, Iterable[str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the pages, and the links between different ones, each once."""
    pages: dict[str, None] = {}
    links: dict[tuple[str, str], None] = {}
    for source, targets in edges.items():
        pages[source] = None
        for target in targets:
            pages[target] = None
            if source != target:
                links[source, target] = None
            if len(links) > EDGES_MAX or len(pages) > EDGES_MAX:
                raise ValueError(f"a neighbourhood has at most {EDGES_MAX:,} links")
    return list(pages), list(links)


def _ends(link: tuple[str, str]) -> tuple[tuple[int, str], tuple[int, str]]:
    """Return the two sides of a link: a page is one node as a hub, another as an authority."""
    return (0, link[0]), (1, link[1])


def _root(parent: dict[tuple[int, str], tuple[int, str]], node: tuple[int, str]) -> tuple[int, str]:
    while (above := parent[node]) != node:
        parent[node] = parent[above]
        node = above
    return node


def _scale(scores: dict[str, float]) -> None:
    total = sum(scores.values())
    for page in scores:
        scores[page] /= total
