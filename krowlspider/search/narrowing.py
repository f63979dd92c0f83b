"""Cheaper queries in the place of those whose words are on very many pages.

tantivy scores each page that fits, so a query costs what its words have entries. Where all of them
are frequent, the best pages have one of them where it is rare and counts much: in the title, in a
heading, in the texts of links. A narrowed query finds these pages, with nearly the scores that they
have in the whole one.
"""

from __future__ import annotations

from math import log, prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Entries that cost as much as looking for a word of words in a row, and as comparing their places.
_RUN_COST, _PLACES_COST = 3, 20
# Of words in a row, so much of the cost of the whole query may go into finding pages.
_RUN_PART = 8
# A rarest word with one page in so many is looked up quickly enough.
_SPARSE = 1_000
# What a part adds at least by which pages are found, or that is looked up for them.
_ADDED_MIN = 0.05
# BM25 adds at most so many times the weight of a word: k1 + 1.
_MOST = 2.2


class Bounds(NamedTuple):
    """The costs of a query, in entries of a word: some 10 to 20 ns each.

    One of more than ``whole`` is narrowed. Then pages are found by ``chosen`` entries at most, or
    by those of the one field that counts most, at most ``first``; and of other parts of the score,
    ``looked_up`` are looked up, all pages together.
    """

    whole: int = 400_000
    chosen: int = 150_000
    first: int = 300_000
    looked_up: int = 800_000


class Leaf(NamedTuple):
    """A part of a score: ``made`` asks for it.

    ``pages`` have it at most; finding them costs as much as ``cost`` entries of one word. ``added``
    is what it adds to a score at most. ``is_run``: it is of words in a row. ``is_own``: it is of a
    term as it was typed, without which a page has only other forms or other terms.
    """

    name: str
    made: Any
    pages: int = 0
    cost: int = 0
    added: float = 0.0
    is_run: bool = False
    is_own: bool = False


def leaf_of(name: str, made: Any, counts: Sequence[int], boost: float, documents: int) -> Leaf:
    """Return the leaf of words in a row, each of which so many of the documents have."""
    pages = cost = min(counts)
    if len(counts) > 1:
        both = documents * prod(each / documents for each in sorted(counts)[:2])
        cost = int(pages * _RUN_COST + both * _PLACES_COST)
    added = boost * sum(_weight(each, documents) for each in counts)
    return Leaf(name, made, pages, cost, added, is_run=len(counts) > 1)


def _weight(count: int, documents: int) -> float:
    """Return the most that tantivy's BM25 gives for a word that so many documents have."""
    return _MOST * log(1.0 + (documents - count + 0.5) / (count + 0.5))


def _is_useful(leaf: Leaf) -> bool:
    return leaf.pages > 0 and leaf.added >= _ADDED_MIN


class Narrowing:
    """Makes narrowed queries for an index of so many documents."""

    def __init__(self, module: Any, documents: int, bounds: Bounds):
        self._query, self._occur = module.Query, module.Occur
        self._documents = documents
        self._bounds = bounds

    def of_all(self, clauses: Sequence[Sequence[Leaf]]) -> Any | None:
        """Return what asks for pages with a leaf of each clause; None if that costs little, or
        cannot be had for less."""
        if len(clauses) == 1:
            return self.of_any(clauses[0])
        if sum(leaf.cost for clause in clauses for leaf in clause) <= self._bounds.whole:
            return None
        covers = [cover for each in clauses if (cover := self._cover(each)) is not None]
        whole = [each for each in clauses if self._cover(each) is None]
        # The rarest clause leads, and the covers of others are looked up for its pages.
        leading = min((sum(leaf.cost for leaf in each) for each in whole), default=self._documents)
        if not covers or leading < self._documents // _SPARSE:
            return None
        leaves = [leaf for clause in clauses for leaf in clause]
        chosen: list[Leaf] = []
        if leading > self._bounds.chosen:
            chosen = self._chosen(leaves, self._bounds.looked_up // (len(covers) + 4))
            if not chosen:
                return None
            leading = sum(leaf.pages for leaf in chosen)
        # A leaf of a whole clause has its score from there.
        scored = {id(leaf) for clause in whole for leaf in clause}
        parts = [self._silent(each.made) if id(each) in scored else each.made for each in chosen]
        musts = [
            *(self._any(leaf.made for leaf in clause) for clause in whole),
            *(cover.made for cover in covers),
            *([self._any(parts)] if parts else []),
        ]
        scored.update(map(id, (*chosen, *covers)))
        rest = [leaf for leaf in leaves if id(leaf) not in scored]
        return self._with(self._all(musts), rest, self._looked_up(leading) - len(covers))

    def of_any(self, leaves: Sequence[Leaf]) -> Any | None:
        """Return what asks for pages with one of the leaves; None as above."""
        if sum(leaf.cost for leaf in leaves) <= self._bounds.whole:
            return None
        if not (chosen := self._chosen(leaves, self._bounds.chosen)):
            return None
        rest = [leaf for leaf in leaves if leaf not in chosen]
        looked_up = self._looked_up(sum(leaf.pages for leaf in chosen))
        return self._with(self._any(leaf.made for leaf in chosen), rest, looked_up)

    def _chosen(self, leaves: Sequence[Leaf], most: int) -> list[Leaf]:
        """Return the leaves that add most, as far as they cost little."""
        run = sum(leaf.cost for leaf in leaves if leaf.is_run) // _RUN_PART
        useful = sorted(filter(_is_useful, leaves), key=lambda leaf: -leaf.added)
        bounds = {False: most, True: max(most, run)}
        costs = {False: 0, True: 0}
        chosen: list[Leaf] = []
        for leaf in useful:
            bound = bounds[leaf.is_run]
            if leaf.cost > max(bound, self._bounds.first):
                continue
            costs[leaf.is_run] += leaf.cost
            if chosen and costs[leaf.is_run] > bound:
                break
            chosen.append(leaf)
        return chosen

    def _cover(self, clause: Sequence[Leaf]) -> Leaf | None:
        """Return the leaf that nearly all pages of a clause have; None if there is none."""
        own = [leaf for leaf in clause if leaf.is_own]
        most = max(own, key=lambda leaf: leaf.cost, default=None)
        if most is None:
            return None
        return most if most.is_run or most.pages >= self._documents / 2 else None

    def _looked_up(self, pages: int) -> int:
        """Return how many leaves may be looked up for each of so many pages."""
        return self._bounds.looked_up // max(1, pages)

    def _with(self, query: Any, leaves: Iterable[Leaf], most: int) -> Any:
        """Return a query whose pages have their scores for so many leaves too, the best of these.

        One leaf in each query: tantivy looks a single one up for each page, and reads all entries
        of several.
        """
        useful = sorted(filter(_is_useful, leaves), key=lambda leaf: -leaf.added)
        for leaf in useful[: max(0, most)]:
            pair = [(self._occur.Must, query), (self._occur.Should, leaf.made)]
            query = self._query.boolean_query(pair)
        return query

    def _any(self, queries: Iterable[Any]) -> Any:
        return self._query.boolean_query([(self._occur.Should, each) for each in queries])

    def _all(self, queries: Iterable[Any]) -> Any:
        return self._query.boolean_query([(self._occur.Must, each) for each in queries])

    def _silent(self, query: Any) -> Any:
        return self._query.const_score_query(query, 0.0)
