"""Hubs and authorities of small graphs, against networkx, the definitions and TLGS."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networkx.algorithms.link_analysis.hits_alg import _hits_python

from krowlspider.graph import salsa as module
from krowlspider.graph.salsa import hits, salsa

_PAGE = st.sampled_from("abcdefgh")
GRAPHS = st.dictionaries(_PAGE, st.lists(_PAGE, max_size=8), max_size=8)
# Graphs of hubs and authorities only, with the scores that TLGS's own hitsRank and salsaRank give
# them (commit 3f00f7d, compiled). They end at a change of 0.005 and 0.01.
TLGS = [
    (
        "06 08 09 0a 18 1a 26 27 2a 38 39 3a 46 47 49 56 58 5a",
        [0.2241, 0.0888, 0.2337, 0.1707, 0.2826],
        [0.1117, 0.0564, 0.1101, 0.0835, 0.1383],
    ),
    (
        "07 0a 0b 0c 19 1a 1b 1c 27 2c 38 3a 3b 3c 47 57 58 59 5a 5b 67 68",
        [0.1670, 0.1287, 0.1065, 0.2104, 0.2104, 0.1770],
        [0.1130, 0.0681, 0.0456, 0.0911, 0.0911, 0.0909],
    ),
    (
        "08 0a 0c 1a 29 2a 2b 2c 2d 38 3b 3c 48 4a 4b 5a 5c 5d 5e 6b 6d 6e 79 7a 7c 7d",
        [0.0928, 0.1008, 0.2232, 0.1381, 0.2076, 0.1692, 0.0684],
        [0.0572, 0.0385, 0.1151, 0.0769, 0.0960, 0.0774, 0.0388],
    ),
]


def of(links: str) -> dict[str, list[str]]:
    """Return the links "ab cd" as targets by source."""
    edges: dict[str, list[str]] = {}
    for source, target in links.split():
        edges.setdefault(source, []).append(target)
    return edges


@pytest.mark.parametrize(("links", "by_hits", "by_salsa"), TLGS)
def test_tlgs_gives_the_same_authorities(links: str, by_hits: list[float], by_salsa: list[float]):
    edges = of(links)
    for ranks, theirs in ((hits(edges), by_hits), (salsa(edges), by_salsa)):
        ours = [
            ranks[page][1] for page in sorted({page for each in edges.values() for page in each})
        ]
        # Theirs have no fixed sum, and end early.
        assert ours == pytest.approx([each / sum(theirs) for each in theirs], abs=0.012)


def test_a_dense_community_takes_all_of_hits_but_not_of_salsa():
    # "Tightly knit community" of Lempel and Moran, section 3: 3 hubs by 3 authorities, and 6 hubs
    # of one other page.
    edges = of("ad ae af bd be bf cd ce cf gx hx ix jx kx lx")
    assert hits(edges)["x"][1] == pytest.approx(0, abs=1e-6)
    assert salsa(edges)["x"][1] == pytest.approx(1 / 4)
    assert salsa(edges)["d"][1] == pytest.approx(3 / 4 / 3)


@given(GRAPHS)
def test_salsa_is_the_stationary_state_of_its_walk(edges: dict[str, list[str]]):
    scores = salsa(edges)
    links = {(a, b) for a, targets in edges.items() for b in targets if a != b}
    out = {page: [b for a, b in links if a == page] for page in scores}
    into = {page: [a for a, b in links if b == page] for page in scores}
    for page, (hub, authority) in scores.items():
        back = sum(
            scores[other][1] / len(into[other]) / len(out[source])
            for source in into[page]
            for other in out[source]
        )
        forth = sum(
            scores[other][0] / len(out[other]) / len(into[target])
            for target in out[page]
            for other in into[target]
        )
        assert (hub, authority) == pytest.approx((forth, back))
    assert sum(hub for hub, _ in scores.values()) == pytest.approx(1 if links else 0)
    assert sum(score for _, score in scores.values()) == pytest.approx(1 if links else 0)


def test_hits_is_that_of_networkx():
    # Zachary's karate club, which networkx ships, each tie once: from the lower number.
    ties = nx.DiGraph((str(a), str(b)) for a, b in nx.karate_club_graph().edges)
    # Its public function needs SciPy.
    hubs, authorities = _hits_python(ties, max_iter=1000, tol=1e-12)
    found = hits({page: list(ties[page]) for page in ties})
    assert {page: hub for page, (hub, _) in found.items()} == pytest.approx(hubs, abs=1e-6)
    assert {page: score for page, (_, score) in found.items()} == pytest.approx(
        authorities, abs=1e-6
    )


@given(GRAPHS)
def test_scores_of_hits_add_up_to_one(edges: dict[str, list[str]]):
    scores = hits(edges)
    total = 1 if any(a != b for a, targets in edges.items() for b in targets) else 0
    assert sum(hub for hub, _ in scores.values()) == pytest.approx(total)
    assert sum(score for _, score in scores.values()) == pytest.approx(total)


@pytest.mark.parametrize("rank", [salsa, hits])
def test_repeats_and_links_to_itself_do_not_count(rank):
    assert rank(of("ab ab ab aa cb cd")) == rank(of("ab cb cd"))
    assert rank({"a": []}) == {"a": (0.0, 0.0)}
    assert rank({}) == {}


@pytest.mark.parametrize("rank", [salsa, hits])
def test_a_neighbourhood_is_bounded(rank, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "EDGES_MAX", 3)
    with pytest.raises(ValueError, match="at most 3 links"):
        rank(of("ab ac ad ae"))
