"""The words of a query in titles and texts, also in other forms of the same stem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.search.query import TermKind
from krowlspider.search.schema import FOLDED, pairs_of, split_spaceless, stemmer_of
from krowlspider.search.snippets import Piece, marked, snippet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krowlspider.search.compiling import Compiled
    from krowlspider.search.opened import CommitView
    from krowlspider.search.query import SearchQuery


class Folding:
    """Makes the same word of all forms of one: its stem where the language has a stemmer."""

    def __init__(self, analysers: Mapping[str, Any], spoken: Sequence[str]):
        self._fold = analysers[FOLDED].analyze
        self._stemmers = {code: analysers[f"stem_{stemmer_of(code)}"].analyze for code in spoken}

    def __call__(self, text: str, code: str) -> list[str]:
        """Return the words of a text in a language, whose code is one of those asked, or ""."""
        found: list[str] = self._fold(text)
        stemmer = self._stemmers.get(code)
        return found if stemmer is None else stemmer(" ".join(found))


class WordMarker:
    """Knows the words of a query in texts."""

    def __init__(self, view: CommitView, query: SearchQuery, compiled: Compiled):
        analysers = view.compiler.analysers
        self._fold = analysers[FOLDED].analyze
        self._stemmers = [analysers[f"stem_{stemmer_of(code)}"].analyze for code in compiled.spoken]
        self._words: set[str] = set()
        self._prefixes: set[str] = set()
        self._stems: set[tuple[int, str]] = set()
        self._begins: set[str] = set()
        for term in query.terms:
            spaced, pairs = split_spaceless(term.text)
            self._begins.update(
                word.lower() for word in spaced.split() if any(map(str.isalnum, word))
            )
            folded = self._fold(spaced)
            (self._prefixes if term.kind is TermKind.PREFIX else self._words).update(folded)
            self._begins.update(folded)
            for number, stemmer in enumerate(self._stemmers):
                stems = stemmer(spaced) if term.kind is TermKind.WORD else []
                self._stems |= {(number, stem) for stem in stems}
                self._begins.update(stems)
            if pairs:
                self._begins.update(each for each in term.text.split() if pairs_of(each))

    def marked(self, title: str) -> list[Piece]:
        return marked(title, [*self._begins], self._is_word)

    def snippet(self, text: str) -> list[Piece]:
        return snippet(text, [*self._begins], self._is_word) if text else []

    def _is_word(self, word: str) -> bool:
        folded = self._fold(word)
        if len(folded) != 1:
            return bool(self._words.intersection(folded))
        if folded[0] in self._words or folded[0].startswith(tuple(self._prefixes)):
            return True
        return any(
            (number, stem) in self._stems
            for number, stemmer in enumerate(self._stemmers)
            for stem in stemmer(word)
        )
