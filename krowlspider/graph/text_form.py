"""The graph as text, in the form of Common Crawl's releases.

- ``vertices.txt.gz``: number, reversed host, for domains also their number of hosts
- ``edges.txt.gz``: number of the source, number of the target
- ``ranks.txt.gz``: place and value by harmonic centrality, place and value by PageRank, reversed
  host, for domains also their number of hosts; a header line begins with "#"

Columns have a tab between. Vertices are sorted by name as bytes and numbered from 0, edges sorted
by number, ranks by harmonic centrality.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

import numpy as np
from isal import igzip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.graph.adjacency import Graph, Places, Reals

VERTICES, EDGES, RANKS = "vertices.txt.gz", "edges.txt.gz", "ranks.txt.gz"
HEADER = "#harmonicc_pos\t#harmonicc_val\t#pr_pos\t#pr_val\t#host_rev"
HOSTS_HEADER = "\t#n_hosts"
# Lines that are made at once, and the level of igzip.
_LINES = 1 << 17
_LEVEL = 2


class Names:
    """Names by number, in one text that has a newline after each."""

    def __init__(self, text: bytes):
        self._text = text
        self._ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        begin = int(self._ends[number - 1]) + 1 if number else 0
        return self._text[begin : int(self._ends[number])].decode()

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))


class Ranks(NamedTuple):
    """The values of all vertices, by number."""

    harmonic: Reals
    pagerank: Reals

    def order(self) -> Places:
        """Return the vertices by harmonic centrality; equal ones keep their order."""
        return np.argsort(-self.harmonic, kind="stable")


def write_vertices(path: Path, names: Names, hosts: Places | None = None) -> None:
    with _compressed(path) as file:
        for begin in range(0, len(names), _LINES):
            numbers = range(begin, min(begin + _LINES, len(names)))
            if hosts is None:
                lines = [f"{number}\t{names[number]}\n" for number in numbers]
            else:
                lines = [f"{number}\t{names[number]}\t{hosts[number]}\n" for number in numbers]
            file.write("".join(lines).encode())


def write_edges(path: Path, graph: Graph) -> None:
    with _compressed(path) as file:
        for begin in range(0, len(graph.sources), _LINES):
            part = slice(begin, begin + _LINES)
            ends = np.stack((graph.sources[part], graph.targets[part]), axis=1)
            file.write(b"%d\t%d\n" * len(ends) % tuple(ends.ravel().tolist()))


def write_ranks(path: Path, names: Names, ranks: Ranks, hosts: Places | None = None) -> None:
    order = ranks.order()
    places = np.empty(len(order), np.int64)
    places[np.argsort(-ranks.pagerank, kind="stable")] = np.arange(1, len(order) + 1)
    with _compressed(path) as file:
        file.write(f"{HEADER}{'' if hosts is None else HOSTS_HEADER}\n".encode())
        for begin in range(0, len(order), _LINES):
            lines = []
            for place, vertex in enumerate(order[begin : begin + _LINES].tolist(), begin + 1):
                tail = "" if hosts is None else f"\t{hosts[vertex]}"
                lines.append(
                    f"{place}\t{ranks.harmonic[vertex]:.8g}\t{places[vertex]}"
                    f"\t{ranks.pagerank[vertex]:.12g}\t{names[vertex]}{tail}\n"
                )
            file.write("".join(lines).encode())


@contextmanager
def _compressed(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that is compressed; on exit it is durable. The same text gives the same
    bytes."""
    with path.open("xb") as file:
        # Without the name of the file and the time.
        opened = igzip.IGzipFile("", "wb", _LEVEL, file, mtime=0)  # type: ignore[no-untyped-call]
        with opened as stream:
            yield cast("BinaryIO", stream)
        file.flush()
        os.fsync(file.fileno())
