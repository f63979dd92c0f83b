"""A graph in memory: vertices are numbers from 0, and its links arrays of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int32]
    Places = NDArray[np.int64]
    Reals = NDArray[np.float64]
    Flags = NDArray[np.bool_]


class Graph:
    """``size`` vertices, and links between different ones, each once.

    ``sources`` and ``targets`` are sorted by source, then by target. So each vertex has a stretch
    of the links that lead from it. By `into` they are sorted by target.
    """

    def __init__(self, size: int, sources: Numbers, targets: Numbers):
        self.size = size
        self.sources = sources
        self.targets = targets
        self.out = np.bincount(sources, minlength=size)
        # Where the links of each vertex begin.
        self.begins: Places = np.concatenate(([0], np.cumsum(self.out)))

    @classmethod
    def of(cls, size: int, links: list[tuple[int, int]]) -> Graph:
        """Return the graph of these links, in any order, without repeats and links to itself."""
        pairs = sorted({(source, target) for source, target in links if source != target})
        ends = np.array(pairs, np.int32).reshape(-1, 2)
        return cls(size, ends[:, 0].copy(), ends[:, 1].copy())

    def into(self) -> tuple[Numbers, Numbers]:
        """Return the sources and the targets of all links, sorted by target."""
        order = np.argsort(self.targets, kind="stable")
        return self.sources[order], self.targets[order]

    def links_from(self, vertices: Places) -> tuple[Numbers, Numbers]:
        """Return the sources and targets of the links of some vertices, sorted by target."""
        counts = self.out[vertices]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0)
        places += np.repeat(self.begins[vertices] - ends + counts, counts)
        targets = self.targets[places]
        order = np.argsort(targets, kind="stable")
        return self.sources[places[order]], targets[order]
