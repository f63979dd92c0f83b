"""The query that a person may have meant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from krowlspider.search.query import TermKind, parse
from krowlspider.search.schema import FOLDED
from krowlspider.search.snippets import plain
from krowlspider.search.spelling import corrected

if TYPE_CHECKING:
    from krowlspider.search.compiling import Compiled
    from krowlspider.search.opened import CommitView
    from krowlspider.search.query import SearchQuery

# Titles in which words like an unknown one are looked for.
_TITLES = 40
# Words of a query that are looked at.
_WORDS_MAX = 6
# The other query is told if it finds so many times as many pages.
_MORE = 5


def meant(view: CommitView, query: SearchQuery, compiled: Compiled, found: int) -> str:
    """Return the query with its unknown words replaced by known ones; "" if none is, or if that
    does not find clearly more pages than ``found``."""
    searcher, fold = view.searcher, view.compiler.analysers[FOLDED].analyze
    asked = ""

    def frequency(word: str) -> int:
        names = [("body", word), ("title", word)]
        if word == asked:
            # Another form of it is no mistake.
            names += [("body", each) for each in view.compiler.forms_of(word, compiled.spoken)]
        return max(int(searcher.doc_freq(name, each)) for name, each in names)

    def near(word: str) -> list[str]:
        """Return the words of titles that have one like it."""
        found = searcher.search(view.compiler.like("title", word), _TITLES, count=False)
        titles = (searcher.doc(address).get_first("title") or "" for _, address in found.hits)
        return list(dict.fromkeys(each for title in titles for each in fold(title)))

    text, shift = query.text, 0
    for term in sorted(query.terms, key=lambda each: each.place)[:_WORDS_MAX]:
        folded = fold(term.text)
        if term.kind is not TermKind.WORD or len(folded) != 1:
            continue
        asked = folded[0]
        if (better := corrected(asked, frequency, near)) is None:
            continue
        begin, end = (at + shift for at in term.place)
        text = text[:begin] + better + text[end:]
        shift += len(better) - (end - begin)
    if text == query.text:
        return ""
    other = view.compiler.compile(replace(parse(text), filters=query.filters))
    queries = [each for each in (other.narrow, other.every) if each is not None]
    least = max(1, _MORE * found)
    return plain(text) if any(searcher.search(each, 1).count >= least for each in queries) else ""
