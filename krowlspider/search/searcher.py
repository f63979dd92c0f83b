"""Answers to queries: pages, ranked, with a snippet of each."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.errors import KrowlError, error_text
from krowlspider.search.copies import distinct
from krowlspider.search.marking import Folding, WordMarker
from krowlspider.search.meant import meant
from krowlspider.search.neighbourhood import RANKS_BY, authorities
from krowlspider.search.opened import OpenedIndex, SearchError
from krowlspider.search.ranking import Evidence, by_neighbourhood, factors, score
from krowlspider.search.schema import CapturePlace, page_id
from krowlspider.search.snippets import without_title
from krowlspider.search.texts import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from krowlspider.search.compiling import Compiled
    from krowlspider.search.opened import CommitView
    from krowlspider.search.query import SearchQuery
    from krowlspider.search.snippets import Piece

# Pages that are ranked: the best by their text. Further ones are counted only.
RANKED_MAX = 100
# Where many of them are near copies of others, so many are ranked.
READ_MAX = 500
# Pages of an answer at most.
LIMIT_MAX = 100
# Pages whose anchor texts have the words that are looked at.
_ANCHORED_MAX = 1_000
# Pages that a narrowed query must find; otherwise the whole one is asked.
ENOUGH = 50
# Fewer pages with all words than this: those with some of them follow.
_FEW = 10


@dataclass(frozen=True, slots=True)
class Result:
    """A page that was found. ``snippet`` is from its text, or empty if the archive is gone.

    ``parts`` are the parts of its score, if they were asked for.
    """

    url: str
    title: list[Piece]
    snippet: list[Piece]
    host: str
    lang: str
    mime: str
    size: int
    fetched: datetime | None
    place: CapturePlace | None
    score: float
    parts: tuple[tuple[str, float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The answer to a query. ``total`` pages fit, and more unless ``is_exact``; ``reached`` of them
    can be shown. Of near copies among the best pages one counts.

    ``meant`` is the query that a person may have meant instead, "" for none.
    """

    query: SearchQuery
    results: list[Result]
    total: int
    reached: int
    pages: int
    seconds: float
    meant: str = ""
    notes: tuple[str, ...] = ()
    is_exact: bool = True


@dataclass(slots=True)
class _Page:
    """A page whose text fits; ``has_all``: it has all words of the query. ``stored`` returns the
    value of a field, None if there is none. ``value`` is its score, ``parts`` returns those of it.
    """

    address: Any
    stored: Callable[[str], Any]
    text: float
    has_all: bool = True
    value: float = 0.0
    parts: Callable[[], tuple[tuple[str, float, str], ...]] = tuple

    def first(self, name: str, default: Any = "") -> Any:
        return default if (value := self.stored(name)) is None else value


@dataclass(slots=True)
class _Matches:
    """The best pages by text. ``with_all`` have all words of the query, ``total`` some of them;
    without ``is_exact`` there are more. ``after`` returns the best pages after so many."""

    pages: list[_Page]
    with_all: int = 0
    total: int = 0
    is_exact: bool = True
    after: Callable[[int], list[_Page]] | None = None

    def read_on(self) -> bool:
        """Add further pages, as many of these are near copies; return whether there are any."""
        if self.after is None or len(self.pages) >= READ_MAX:
            return False
        more = self.after(len(self.pages))
        self.pages += more
        return bool(more)


class Searcher:
    """Searches the index in a folder; any thread may ask."""

    def __init__(self, folder: Path):
        self.opened = OpenedIndex(folder)
        self._texts = Texts()

    def search(
        self,
        query: SearchQuery,
        *,
        limit: int = 10,
        offset: int = 0,
        rank: str = RANKS_BY[0],
        explain: bool = False,
        snippets: bool = True,
    ) -> SearchResults:
        """Return pages ``offset`` to ``offset + limit`` of those for a query. With ``snippets``
        their texts are read from the archive.

        :raises SearchError: the index cannot be read
        """
        begun = time.perf_counter()
        view = self.opened.view()
        notes = [*query.notes]
        with self.opened.asked():
            compiled = view.compiler.compile(query)
            begin, limit = max(0, offset), max(0, min(limit, LIMIT_MAX))
            end = begin + limit
            matches = _matches(view, compiled, query, notes, end)
            ranked = _distinct(self._ranked(view, compiled, matches.pages, rank))
            while len(ranked) < min(end, RANKED_MAX) and matches.read_on():
                ranked = _distinct(self._ranked(view, compiled, matches.pages, rank))
            matches.total -= len(matches.pages) - len(ranked)
            del ranked[RANKED_MAX:]
            marker = WordMarker(view, query, compiled)
            results = [
                self._result(view, page, marker, compiled, explain=explain, snippets=snippets)
                for page in ranked[begin:end]
            ]
            other = ""
            if matches.with_all < _FEW and compiled.is_of_words:
                other = meant(view, query, compiled, matches.with_all)
        seconds = time.perf_counter() - begun
        return SearchResults(
            *(query, results, matches.total, len(ranked), view.page_count, seconds, other),
            notes=tuple(notes),
            is_exact=matches.is_exact,
        )

    def text(self, url: str) -> str | None:
        """Return the beginning of the text of a page in the index; None if there is none.

        :raises SearchError: the index cannot be read
        """
        view = self.opened.view()
        with self.opened.asked():
            found = view.searcher.search(view.compiler.page(page_id(url)), 1, count=False)
            pages = _loaded(view, found.hits)
        for page in pages:
            if (place := _place(page)) is not None:
                return self._texts.read(page.first("url"), place, view.jobdirs)
        return None

    def _ranked(
        self, view: CommitView, compiled: Compiled, pages: list[_Page], rank: str
    ) -> list[_Page]:
        if not compiled.is_of_words:
            return pages
        if rank != RANKS_BY[0]:
            self._rank_by_links(pages, rank)
        else:
            self._rank(view, compiled, pages)
        # Pages with some words follow those with all. Of equal ones the shorter URL is first, so
        # that the order is always the same.
        pages.sort(
            key=lambda page: (
                *(not page.has_all, -page.value),
                *(len(page.first("url")), page.first("url")),
            )
        )
        return pages

    def _rank(self, view: CommitView, compiled: Compiled, pages: list[_Page]) -> None:
        anchors = _anchor_scores(view, compiled)
        fold = Folding(view.compiler.analysers, compiled.spoken)
        words = {code: fold(" ".join(compiled.words), code) for code in ("", *compiled.spoken)}
        name = "".join(compiled.words)
        for page in pages:
            lang = page.first("lang")
            lang = lang if lang in words else ""
            url = page.first("url")
            is_root = url.endswith("/") and url.count("/") == 3
            evidence = Evidence(
                text=page.text,
                title=fold(page.first("title"), lang),
                anchors=anchors.get(_key(page.address), 0.0) if anchors else 0.0,
                linking_hosts=page.first("linking_hosts", 0),
                harmonic=view.ranks.harmonic(page.first("host")) if view.ranks is not None else 0.0,
                name=page.first("domain").partition(".")[0] if is_root else "",
            )
            page.value = page.text * factors(evidence, words[lang], name).product
            page.parts = partial(_parts, evidence, words[lang], name)

    def _rank_by_links(self, pages: list[_Page], rank: str) -> None:
        """Rank by SALSA or HITS over the results and the pages that link to them.

        :raises SearchError: the index has no links
        """
        texts = {page.first("url"): page.text for page in pages}
        sizes = {page.first("url"): page.first("size", 0) for page in pages}
        hosts = {page.first("url"): page.first("host") for page in pages}
        try:
            found = authorities(self.opened.links, hosts, rank)
        except KrowlError as error:
            raise SearchError(f"--rank {rank}: {error_text(error)}") from error
        scores = by_neighbourhood(texts, found, sizes)
        for page in pages:
            given = scores[page.first("url")]
            page.value, page.parts = given.value, partial(tuple, given.parts)

    def _result(
        self,
        view: CommitView,
        page: _Page,
        marker: WordMarker,
        compiled: Compiled,
        *,
        explain: bool,
        snippets: bool,
    ) -> Result:
        url = page.first("url")
        place = _place(page)
        text = None
        if snippets and place is not None:
            text = self._texts.read(url, place, view.jobdirs)
        parts: tuple[tuple[str, float, str], ...] = ()
        if explain:
            parts = page.parts() + _leaf_scores(view, compiled, page)
        return Result(
            url=url,
            title=marker.marked(page.first("title")[:300]),
            snippet=marker.snippet(without_title(text or "", page.first("title"))),
            host=page.first("host"),
            lang=page.first("lang"),
            mime=page.first("mime"),
            size=page.first("size", 0),
            fetched=page.first("fetched", None),
            place=place,
            score=page.value,
            parts=parts,
        )


def _matches(
    view: CommitView, compiled: Compiled, query: SearchQuery, notes: list[str], wanted: int
) -> _Matches:
    """Return the best pages by text, and how many there are; ``wanted`` of them are asked for."""
    searcher = view.searcher
    if query.is_empty or not (compiled.is_of_words or query.filters):
        return _Matches([])
    if not compiled.is_of_words:
        return _matched(view, partial(searcher.search, compiled.every, order_by_field="fetched"))
    if compiled.narrow is not None:
        narrow = _matched(view, partial(searcher.search, compiled.narrow), is_exact=False)
        if narrow.total >= max(ENOUGH, min(wanted, RANKED_MAX)):
            return narrow
    matches = _matched(view, partial(searcher.search, compiled.every))
    if matches.total < _FEW and len(query.clauses) > 1:
        _add_some(view, compiled, matches, notes)
    return matches


def _matched(view: CommitView, search: Callable[..., Any], *, is_exact: bool = True) -> _Matches:
    """Return the pages that a search finds."""

    def after(count: int) -> list[_Page]:
        return _loaded(view, search(RANKED_MAX, count=False, offset=count).hits)

    found = search(RANKED_MAX)
    return _Matches(_loaded(view, found.hits), found.count, found.count, is_exact, after)


def _add_some(view: CommitView, compiled: Compiled, matches: _Matches, notes: list[str]) -> None:
    """Add pages that have some of the words."""
    some, is_exact = None, False
    if compiled.narrow_some is not None:
        some = view.searcher.search(compiled.narrow_some, RANKED_MAX)
    if some is None or some.count < ENOUGH:
        some, is_exact = view.searcher.search(compiled.some, RANKED_MAX), True
    if some.count <= matches.total:
        return
    known = {_key(page.address) for page in matches.pages}
    for page in _loaded(view, (hit for hit in some.hits if _key(hit[1]) not in known)):
        page.has_all = False
        matches.pages.append(page)
    del matches.pages[RANKED_MAX:]
    if not matches.total:
        notes.append("no page has all these words: these have some of them")
    matches.total, matches.is_exact, matches.after = some.count, is_exact, None


def _distinct(pages: list[_Page]) -> list[_Page]:
    """Return pages without near copies of those before them."""
    return [pages[place] for place in distinct(page.first("fingerprint", b"") for page in pages)]


def _loaded(view: CommitView, hits: Iterable[tuple[float, Any]]) -> list[_Page]:
    doc = view.searcher.doc
    return [_Page(address, doc(address).get_first, text) for text, address in hits]


def _key(address: Any) -> tuple[int, int]:
    return address.segment_ord, address.doc


def _anchor_scores(view: CommitView, compiled: Compiled) -> dict[tuple[int, int], float]:
    if compiled.anchors is None:
        return {}
    found = view.searcher.search(compiled.anchors, _ANCHORED_MAX, count=False)
    return {_key(address): text for text, address in found.hits}


def _parts(page: Evidence, words: Sequence[str], name: str) -> tuple[tuple[str, float, str], ...]:
    return score(page, words, name).parts


def _place(page: _Page) -> CapturePlace | None:
    try:
        return CapturePlace.load(bytes(page.first("place", b"")))
    except msgspec.DecodeError:
        return None


def _leaf_scores(
    view: CommitView, compiled: Compiled, page: _Page
) -> tuple[tuple[str, float, str], ...]:
    """Return what each word adds to the text's score in each field."""
    found = []
    for leaf in compiled.leaves:
        try:
            told = json.loads(leaf.made.explain(view.searcher, page.address).to_json())
        except ValueError:
            # The page does not have it.
            continue
        found.append((f"  {leaf.name}", float(told["value"]), "BM25"))
    return tuple(found)
