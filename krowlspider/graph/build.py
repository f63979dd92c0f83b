"""Build the graph of a crawl from its finished WARC files.

``GRAPH/links`` has a file of links for each WARC file, written once. From all of them, the graph is
made again on each run: as ``GRAPH/host`` and ``GRAPH/domain``, each replaced as a whole.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from fastwarc.warc import WarcRecordType

from krowlspider.archive.cdxj import WARC
from krowlspider.archive.disk import (
    ArchiveError,
    lock_directory,
    make_directory,
    remove_drafts,
    sync_directory,
)
from krowlspider.corpus.warc_pages import records
from krowlspider.errors import KrowlError, counted
from krowlspider.graph import hyperball, link_files, text_form
from krowlspider.graph.adjacency import Graph
from krowlspider.graph.domains import domain_in_reverse, fold
from krowlspider.graph.hosts import reverse
from krowlspider.graph.hyperball import Centralities, harmonic
from krowlspider.graph.pagerank import PageRanks, pagerank
from krowlspider.graph.references import linked_by
from krowlspider.graph.text_form import Names, Ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from krowlspider.graph.adjacency import Places
    from krowlspider.graph.link_files import Keys, LinkFile

HOST, DOMAIN = "host", "domain"
LEVELS = (HOST, DOMAIN)
LINKS = "links"
_WORK = "_work"
_OLD, _NEW = ".old", ".new"
_KINDS = WarcRecordType.response | WarcRecordType.revisit
# Faults of a WARC file that are named.
_FAULTS_MAX = 20
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class RankedGraph(NamedTuple):
    """A graph with its ranks. ``hosts`` are the numbers of hosts of domains."""

    level: str
    graph: Graph
    names: Names
    centralities: Centralities
    pageranks: PageRanks
    hosts: Places | None = None

    @property
    def ranks(self) -> Ranks:
        return Ranks(self.centralities.values, self.pageranks.values)


class GraphFolder:
    """The folder ``GRAPH``; one process has it, by a lock.

    :raises KrowlError: there is something else, or another process has it
    :raises OSError: it cannot be made
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._links = folder / LINKS
        self._work = folder / _WORK
        if os.path.lexists(folder) and not folder.is_dir():
            raise KrowlError(f"{folder} is a file: give a folder with -o")
        if folder.is_dir() and not self._links.is_dir() and any(folder.iterdir()):
            raise KrowlError(f"{folder} exists and is no graph: give a new folder with -o")
        make_directory(self._links)
        try:
            self._lock = lock_directory(folder)
        except ArchiveError as error:
            raise KrowlError(f"another scrapy graph writes to {folder}") from error
        remove_drafts(self._links, "")
        for left in self._links.glob(f"*{link_files.DRAFT}"):
            left.unlink()
        for level in LEVELS:
            self._settle(level)

    def close(self) -> None:
        os.close(self._lock)

    def has(self, warc: Path) -> bool:
        """Return whether the links of a WARC file are there.

        :raises KrowlError: they are of another file of that name, or damaged
        """
        path = self._path(warc)
        if not path.exists():
            return False
        if link_files.LinkFile(path).size != warc.stat().st_size:
            raise KrowlError(
                f"{warc} has another size than the file of that name that is in the graph: give"
                " the graph of each crawl its own folder with -o"
            )
        return True

    def _path(self, warc: Path) -> Path:
        return self._links / f"{warc.name.removesuffix(WARC)}{link_files.SUFFIX}"

    def take(self, warc: Path, fault: Callable[[str], object]) -> LinkFile:
        """Write the links of a WARC file durably. ``fault`` is called with each damaged place.

        Raises OSError.
        """
        faults: list[str] = []

        def damage(offset: int, reason: str) -> None:
            faults.append(f"{warc.name} at byte {offset}: {reason}")

        with warc.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            with link_files.Gathered(self._path(warc), size) as gathered:
                for _, record in records(stream, 0, damage, _KINDS):
                    if (found := linked_by(record)) is not None:
                        gathered.add(found.source, found.targets)
                part = gathered.finish()
        for each in faults[:_FAULTS_MAX]:
            fault(each)
        if more := len(faults[_FAULTS_MAX:]):
            fault(f"{warc.name}: {counted(more, 'more damaged place')}")
        return part

    def merge(self) -> tuple[Graph, Names]:
        """Return the graph of hosts that all files of links make.

        :raises KrowlError: one of them is damaged, or there are too many hosts
        """
        made = sorted(self._links.glob(f"*{link_files.SUFFIX}"))
        shutil.rmtree(self._work, ignore_errors=True)
        make_directory(self._work)
        try:
            whole = link_files.merge(
                [link_files.LinkFile(path) for path in made], self._work / "merged"
            )
            return _graph_of(whole.names, whole.keys()), Names(whole.text())
        finally:
            shutil.rmtree(self._work)

    def write(self, built: RankedGraph) -> None:
        """Replace the folder of a level by this graph, as a whole."""
        new = self._folder / f"{built.level}{_NEW}"
        new.mkdir()
        text_form.write_vertices(new / text_form.VERTICES, built.names, built.hosts)
        text_form.write_edges(new / text_form.EDGES, built.graph)
        text_form.write_ranks(new / text_form.RANKS, built.names, built.ranks, built.hosts)
        sync_directory(new)
        final, old = self._folder / built.level, self._folder / f"{built.level}{_OLD}"
        if final.exists():
            final.rename(old)
        new.rename(final)
        sync_directory(self._folder)
        shutil.rmtree(old, ignore_errors=True)

    def _settle(self, level: str) -> None:
        """Undo what a process that died within `write` left."""
        final, old = self._folder / level, self._folder / f"{level}{_OLD}"
        with suppress(FileNotFoundError):
            shutil.rmtree(self._folder / f"{level}{_NEW}")
        if old.exists() and not final.exists():
            old.rename(final)
        shutil.rmtree(old, ignore_errors=True)


def _graph_of(size: int, keys: Keys) -> Graph:
    sources = np.empty(len(keys), np.int32)
    targets = np.empty(len(keys), np.int32)
    for begin in range(0, len(keys), link_files.LINKS_AT_ONCE):
        part = slice(begin, begin + link_files.LINKS_AT_ONCE)
        sources[part] = keys[part] >> _HALF
        targets[part] = keys[part] & _LOW
    return Graph(size, sources, targets)


def built(level: str, graph: Graph, names: Names, memory: int = hyperball.MEMORY) -> RankedGraph:
    """Return a graph of hosts, or that of their domains, with its ranks."""
    hosts = None
    if level == DOMAIN:
        graph, names, hosts = fold(graph, names)
    return RankedGraph(level, graph, names, harmonic(graph, memory), pagerank(graph), hosts)


def search_ranks(hosts: RankedGraph, domains: RankedGraph) -> Iterator[tuple[str, float, float]]:
    """Yield the ranks of hosts for a search: name, harmonic centrality and PageRank.

    A host has at most the ranks of its domain, which links within the domain do not raise. The
    PageRank of a domain counts as a multiple of the mean, as there are fewer domains than hosts.
    """
    scale = domains.graph.size / max(hosts.graph.size, 1)
    ranked = zip(domains.names, *domains.ranks, strict=True)
    of_domains = {name: (near, rank * scale) for name, near, rank in ranked}
    for name, near, rank in zip(hosts.names, *hosts.ranks, strict=True):
        # A public suffix belongs to no domain.
        limits = of_domains.get(domain_in_reverse(name) or "", (near, rank))
        yield reverse(name), float(min(near, limits[0])), float(min(rank, limits[1]))
