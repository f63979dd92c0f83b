"""Harmonic centrality, exact or by HyperBall.

The harmonic centrality of a vertex is the sum of 1/d over all vertices from which it can be
reached, where d is their distance to it. For each vertex a counter holds the vertices within
distance t. In round t, the counter of a vertex takes in those of the vertices that link to it.
What it grows by is at distance t.

HyperBall (Boldi and Vigna 2013, "In-core computation of geometric centralities with HyperBall")
has HyperLogLog counters of a fixed size. With m registers the relative standard deviation of a
counter is about 1.04 / sqrt(m). A centrality is a sum of counters with positive weights, 1/t less
1/(t+1), so it has no larger one. Counters that did not change in a round are not looked at in the
next ("systolic"). In small graphs the counters are sets, and the result is exact.
"""

from __future__ import annotations

from math import log2, sqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from krowlspider.graph.adjacency import Flags, Graph, Numbers, Places, Reals

    Rows = NDArray[np.uint8]

# Vertices of a graph whose centralities are exact: their sets take 4 MB.
EXACT_MAX = 4_096
# Bytes for all counters, which are there twice: with a million vertices, 512 registers.
MEMORY = 1 << 30
# Registers of a counter as powers of 2. Common Crawl takes 2**10 to 2**12.
_BITS_MIN, _BITS_MAX = 4, 12
# How often HyperBall looks at the links of a graph, on average. A web has a diameter of tens, and
# in late rounds few counters change; a chain of hosts that somebody made has no end.
LOOKS_MAX = 100
# Bytes of counters that are worked on at once, and vertices that link to one in layers.
_BLOCK = 1 << 24
_LAYERS = 48
# Of the links, 1 in so many: below that, they are gathered from the vertices that changed.
_SPARSE = 16


class Centralities(NamedTuple):
    """The harmonic centrality of each vertex, the number of rounds, which is the largest distance
    that counts, and the relative standard deviation of the values, 0 if they are exact.

    ``is_cut`` is whether vertices farther away do not count, because of LOOKS_MAX.
    """

    values: Reals
    rounds: int
    deviation: float
    is_cut: bool = False


class Counters(Protocol):
    """The kind of the counters, each a row of bytes."""

    deviation: float

    def start(self) -> Rows:
        """Return the counters that hold their own vertex."""

    def add(self, rows: Rows, others: Rows) -> None:
        """Put all that is in ``others`` into ``rows``."""

    def add_up(self, rows: Rows) -> Rows:
        """Return a counter that holds all that is in ``rows``."""

    def sizes(self, rows: Rows) -> Reals:
        """Return the number of vertices in each counter."""


class Sets:
    """A bit for each vertex."""

    deviation = 0.0

    def __init__(self, size: int):
        self._size = size
        # Whole words of 8 bytes.
        self._width = (size + 63) // 64 * 8

    def start(self) -> Rows:
        rows = np.zeros((self._size, self._width), np.uint8)
        own = np.arange(self._size)
        rows[own, own >> 3] = 1 << (own & 7)
        return rows

    def add(self, rows: Rows, others: Rows) -> None:
        np.bitwise_or(rows, others, out=rows)

    def add_up(self, rows: Rows) -> Rows:
        found: Rows = np.bitwise_or.reduce(rows, axis=0)
        return found

    def sizes(self, rows: Rows) -> Reals:
        found: Reals = np.bitwise_count(rows.view(np.uint64)).sum(axis=1, dtype=np.float64)
        return found


class LogLogs:
    """HyperLogLog counters of 2**bits registers (Flajolet and others 2007)."""

    def __init__(self, size: int, bits: int):
        self._size = size
        self._bits = bits
        self._registers = 1 << bits
        self.deviation = 1.04 / sqrt(self._registers)
        small = {4: 0.673, 5: 0.697, 6: 0.709}
        alpha = small.get(bits, 0.7213 / (1 + 1.079 / self._registers))
        self._scale = alpha * self._registers**2
        # The estimate of a counter by its registers that are zero.
        zeros = np.arange(1, self._registers + 1)
        self._linear = np.concatenate(([0], self._registers * np.log(self._registers / zeros)))

    def start(self) -> Rows:
        rows = np.zeros((self._size, self._registers), np.uint8)
        own = np.arange(self._size)
        hashed = _mixed(own.astype(np.uint64))
        rest = hashed >> np.uint64(self._bits) | np.uint64(1 << (64 - self._bits))
        lowest = rest & (~rest + np.uint64(1))
        ranks = np.bitwise_count(lowest - np.uint64(1)) + 1
        rows[own, hashed & np.uint64(self._registers - 1)] = ranks
        return rows

    def add(self, rows: Rows, others: Rows) -> None:
        np.maximum(rows, others, out=rows)

    def add_up(self, rows: Rows) -> Rows:
        found: Rows = np.maximum.reduce(rows, axis=0)
        return found

    def sizes(self, rows: Rows) -> Reals:
        found = np.empty(len(rows))
        # Temporary arrays that fit into the processor's cache.
        step = max((1 << 17) // self._registers, 1)
        for begin in range(0, len(rows), step):
            part = rows[begin : begin + step]
            # 2.0**-register, by the exponent of a number of 32 bits.
            powers = ((127 - part).astype(np.uint32) << np.uint32(23)).view(np.float32)
            raw = self._scale / powers.sum(axis=1, dtype=np.float32).astype(np.float64)
            is_zero = (part == 0).view(np.uint64)
            zeros = np.bitwise_count(is_zero).sum(axis=1, dtype=np.int64)
            is_small = (raw <= 2.5 * self._registers) & (zeros > 0)
            found[begin : begin + step] = np.where(is_small, self._linear[zeros], raw)
        return found


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of 64 bits for each number: splitmix64 (Steele and others 2014)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def harmonic(graph: Graph, memory: int = MEMORY, exact_max: int = EXACT_MAX) -> Centralities:
    """Return the harmonic centralities of a graph, exact if it has at most ``exact_max`` vertices.

    ``memory`` bounds the bytes of HyperBall's counters, as far as 16 registers fit.
    """
    if graph.size <= exact_max:
        return _Ball(graph, Sets(graph.size)).run(None)
    bits = int(log2(max(memory // (2 * graph.size), 1)))
    counters = LogLogs(graph.size, min(max(bits, _BITS_MIN), _BITS_MAX))
    return _Ball(graph, counters).run(LOOKS_MAX)


class _Ball:
    """Counters that grow in rounds."""

    def __init__(self, graph: Graph, counters: Counters):
        self._graph = graph
        self._counters = counters
        self._rows = counters.start()
        # What the counters are after the round; where none changed, it is the same.
        self._next = self._rows.copy()
        self._sizes = np.ones(graph.size)
        self._values = np.zeros(graph.size)
        self._block = max(_BLOCK // self._rows.shape[1], 1) if graph.size else 1

    def run(self, looks: int | None) -> Centralities:
        """Run until nothing changes; with ``looks``, until so many of each link are used up."""
        changed = np.ones(self._graph.size, np.bool_)
        by_target = self._graph.into()
        left = None if looks is None else looks * len(by_target[0])
        rounds = 0
        while True:
            sources, targets = self._links(changed, by_target)
            if not len(sources):
                return Centralities(self._values, rounds, self._counters.deviation)
            if left is not None and (left := left - len(sources)) < 0:
                return Centralities(self._values, rounds, self._counters.deviation, is_cut=True)
            rounds += 1
            for begin in range(0, len(sources), self._block):
                end = begin + self._block
                self._take_in(sources[begin:end], targets[begin:end])
            changed = self._turn(targets[_starts(targets)], rounds)

    def _links(self, changed: Flags, by_target: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        """Return the links of the vertices that changed, sorted by target."""
        vertices = np.flatnonzero(changed)
        if self._graph.out[vertices].sum() * _SPARSE < len(by_target[0]):
            return self._graph.links_from(vertices)
        if len(vertices) == self._graph.size:
            return by_target
        places = np.flatnonzero(changed[by_target[0]])
        return by_target[0][places], by_target[1][places]

    def _take_in(self, sources: Numbers, targets: Numbers) -> None:
        """Put the counters of the sources into those of the targets, which are sorted.

        The first sources of all targets are taken at once, then the second ones, and so on. With
        the targets sorted by their number of sources, each layer is a slice.
        """
        starts = _starts(targets)
        counts = np.diff(starts, append=len(targets))
        order = np.argsort(-counts, kind="stable")
        starts, counts = starts[order], counts[order]
        to = targets[starts]
        rows = np.take(self._next, to, axis=0)
        for layer in range(min(int(counts[0]), _LAYERS)):
            have = len(counts) - int(np.searchsorted(counts[::-1], layer, side="right"))
            taken = np.take(self._rows, sources[starts[:have] + layer], axis=0)
            self._counters.add(rows[:have], taken)
        many = len(counts) - int(np.searchsorted(counts[::-1], _LAYERS, side="right"))
        for place in range(many):
            rest = sources[starts[place] + _LAYERS : starts[place] + counts[place]]
            taken = np.take(self._rows, rest, axis=0)
            self._counters.add(rows[place], self._counters.add_up(taken))
        self._next[to] = rows

    def _turn(self, touched: Numbers, distance: int) -> Flags:
        """End a round: count what is new in the counters, and return which have changed."""
        changed = np.zeros(self._graph.size, np.bool_)
        for part in _parts(touched, self._block):
            after = np.take(self._next, part, axis=0)
            before = np.take(self._rows, part, axis=0)
            is_new = (after.view(np.uint64) != before.view(np.uint64)).any(axis=1)
            grown, after = part[is_new], after[is_new]
            sizes = self._counters.sizes(after)
            # The estimate of a counter never falls, save where its formula changes.
            self._values[grown] += np.maximum(sizes - self._sizes[grown], 0) / distance
            self._sizes[grown] = np.maximum(sizes, self._sizes[grown])
            self._rows[grown] = after
            changed[grown] = True
        return changed


def _starts(targets: Numbers) -> Places:
    """Return where each of the sorted targets begins."""
    return np.flatnonzero(np.concatenate(([True], targets[1:] != targets[:-1])))


def _parts(numbers: Numbers, size: int) -> Iterator[Numbers]:
    return (numbers[begin : begin + size] for begin in range(0, len(numbers), size))
