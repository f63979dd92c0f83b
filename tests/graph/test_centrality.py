"""Harmonic centrality and PageRank, against networkx."""

from __future__ import annotations

import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from krowlspider.graph import hyperball
from krowlspider.graph.adjacency import Graph
from krowlspider.graph.hyperball import harmonic
from krowlspider.graph.pagerank import pagerank

# Links of any graph of 1 to 12 vertices: with cycles, vertices without links, links to itself.
GRAPHS = st.integers(1, 12).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=40),
    )
)


def as_networkx(size: int, links: list[tuple[int, int]]) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from((source, target) for source, target in links if source != target)
    return graph


def of_chance(size: int, links: int, seed: int) -> list[tuple[int, int]]:
    """Return links of which many lead to few vertices, among four parts without links between."""
    chance, part = random.Random(seed), size // 4
    found = []
    for _ in range(links):
        low = part * chance.randrange(4)
        target = low + int(part * chance.random() ** 4)
        found.append((low + chance.randrange(part), target))
    return found


@given(GRAPHS)
def test_small_graphs_have_the_exact_centralities(given: tuple[int, list[tuple[int, int]]]):
    found = harmonic(Graph.of(*given))
    expected = nx.harmonic_centrality(as_networkx(*given))
    assert found.values.tolist() == pytest.approx([expected[each] for each in range(given[0])])
    assert found.deviation == 0


@given(GRAPHS)
def test_pagerank_is_that_of_networkx(given: tuple[int, list[tuple[int, int]]]):
    found = pagerank(Graph.of(*given)).values
    # Its public function needs SciPy.
    expected = _pagerank_python(as_networkx(*given), max_iter=500, tol=1e-12)
    assert found.tolist() == pytest.approx([expected[each] for each in range(given[0])], abs=1e-8)
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["karate_club_graph", "davis_southern_women_graph"])
def test_published_graphs_are_exact_too(name: str):
    # Zachary 1977, and Davis, Gardner and Gardner 1941, which networkx ships.
    ties = nx.convert_node_labels_to_integers(getattr(nx, name)()).to_directed()
    graph = Graph.of(len(ties), list(ties.edges))
    expected = nx.harmonic_centrality(ties)
    assert harmonic(graph).values.tolist() == pytest.approx(list(expected.values()))
    assert pagerank(graph).values.tolist() == pytest.approx(
        list(_pagerank_python(ties, weight=None, max_iter=500, tol=1e-12).values()), abs=1e-8
    )


def test_an_exact_graph_of_thousands_is_that_of_networkx():
    links = of_chance(1_500, 6_000, 7)
    found = harmonic(Graph.of(1_500, links)).values
    expected = nx.harmonic_centrality(as_networkx(1_500, links))
    assert found.tolist() == pytest.approx([expected[each] for each in range(1_500)])


@pytest.mark.parametrize(("registers", "deviation"), [(64, 0.13), (1024, 0.0325)])
def test_hyperball_keeps_to_its_deviation(registers: int, deviation: float):
    size = 2_000
    graph = Graph.of(size, of_chance(size, 10_000, 3))
    exact = harmonic(graph).values
    found = harmonic(graph, memory=2 * size * registers, exact_max=0)
    assert found.deviation == pytest.approx(deviation)
    assert not found.is_cut
    errors = (found.values - exact)[exact > 0] / exact[exact > 0]
    # Of all values, which depend on the same counters, the share that chance allows.
    assert np.sqrt(np.mean(errors**2)) < 1.5 * deviation
    assert np.mean(np.abs(errors) < 3 * deviation) > 0.97
    assert not found.values[exact == 0].any()


def test_hyperball_orders_hubs_as_they_are():
    # Each of the first ten vertices has a thousand more that link to it than the next one has.
    links = [(10 + number, hub) for hub in range(10) for number in range(10_000 - 1_000 * hub)]
    found = harmonic(Graph.of(10_010, links), memory=1 << 25)
    assert found.deviation > 0
    assert np.argsort(-found.values)[:10].tolist() == list(range(10))


def test_a_chain_ends_hyperball_early(monkeypatch: pytest.MonkeyPatch):
    size = 400
    graph = Graph.of(size, [(number, number + 1) for number in range(size - 1)])
    sums = np.concatenate(([0], np.cumsum(1 / np.arange(1, size))))
    found = harmonic(graph)
    assert found.values == pytest.approx(sums)
    assert (found.rounds, found.is_cut) == (size - 1, False)
    monkeypatch.setattr(hyperball, "LOOKS_MAX", 50)
    found = harmonic(graph, memory=1 << 20, exact_max=0)
    assert found.is_cut
    assert 50 <= found.rounds < 60
    assert found.values[-1] == pytest.approx(sums[found.rounds], rel=0.1)


@pytest.mark.parametrize("exact_max", [0, 10])
def test_graphs_without_links_have_no_centralities(exact_max: int):
    assert harmonic(Graph.of(3, []), exact_max=exact_max).values.tolist() == [0, 0, 0]
    assert harmonic(Graph.of(0, []), exact_max=10).values.tolist() == []
    assert pagerank(Graph.of(3, [])).values.tolist() == pytest.approx([1 / 3] * 3)
    assert pagerank(Graph.of(0, [])).values.tolist() == []
