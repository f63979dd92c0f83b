"""PageRank by the power method."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from krowlspider.graph.adjacency import Graph, Reals

DAMPING = 0.85
# The change of a round, summed over all vertices, at which it ends. The error of the result is at
# most DAMPING / (1 - DAMPING) of it.
TOLERANCE = 1e-9
# 0.85**200 is below 1e-14: more rounds change nothing.
_ROUNDS_MAX = 200
# Links that are added up at once.
_BLOCK = 1 << 22


class PageRanks(NamedTuple):
    """The PageRank of each vertex, which add up to 1, and the number of rounds."""

    values: Reals
    rounds: int


def pagerank(graph: Graph, damping: float = DAMPING, tolerance: float = TOLERANCE) -> PageRanks:
    """Return the PageRank of each vertex of a graph.

    The rank of a vertex without links is spread over all vertices evenly, as the random jumps are.
    """
    if not graph.size:
        return PageRanks(np.zeros(0), 0)
    ranks = np.full(graph.size, 1 / graph.size)
    share = np.divide(1, graph.out, out=np.zeros(graph.size), where=graph.out > 0)
    dangling = graph.out == 0
    rounds, change = 0, 1.0
    while change >= tolerance and rounds < _ROUNDS_MAX:
        rounds += 1
        passed = ranks * share
        after = np.zeros(graph.size)
        for begin in range(0, len(graph.sources), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            weights = passed[graph.sources[part]]
            after += np.bincount(graph.targets[part], weights, minlength=graph.size)
        after *= damping
        after += (1 - damping + damping * ranks[dangling].sum()) / graph.size
        change = float(np.abs(after - ranks).sum())
        ranks = after
    return PageRanks(ranks / ranks.sum(), rounds)
