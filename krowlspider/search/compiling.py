"""Queries of the index: what tantivy is asked for a query of a person."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.search.filters import Filter, Span
from krowlspider.search.narrowing import Bounds, Leaf, Narrowing, leaf_of
from krowlspider.search.query import SearchQuery, SearchTerm, TermKind
from krowlspider.search.schema import (
    CJK,
    FOLDED,
    PAIRS,
    STEMMERS,
    split_spaceless,
    stemmer_of,
    tantivy,
)
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# How much a term counts in each field.
BOOSTS = {"title": 0.7, "headings": 0.3, "anchors": 0.2, "body": 1.0}
# Of a word in another form: less than the word itself, which is counted besides.
STEMMED = 0.2
CJK_BOOST = 1.0
# What words count that stand one behind the other, in the order of the query.
PHRASE_BOOSTS = {"title": 0.7}
# Words that a prefix stands for, at most: the most frequent of titles, or of texts if titles have
# few; and the pages that have them, after which no further word is taken.
PREFIXED_MAX = 64
PREFIXED_FEW = 16
PREFIXED_PAGES = 500_000
# Other forms of a word that are asked for in a field, the most frequent ones.
FORMS_MAX = 6
# Languages whose stems are asked, and terms of a query, at most.
LANGUAGES_MAX = 3
TERMS_MAX = 60
# The scripts of languages with a stemmer; the others are written in Latin letters.
_SCRIPTS = {
    "ar": "[\u0600-\u06ff]", "el": "[\u0370-\u03ff]", "ru": "[\u0400-\u04ff]",
    "ta": "[\u0b80-\u0bff]",
}  # fmt: skip
_LATIN = "[A-Za-z\u00c0-\u024f]"
# What people call media types.
_TYPES = {
    "html": ("text/html", "application/xhtml+xml"),
    "gemini": ("text/gemini",), "gemtext": ("text/gemini",), "gmi": ("text/gemini",),
    "text": ("text/plain",), "plain": ("text/plain",), "txt": ("text/plain",),
    "markdown": ("text/markdown",), "md": ("text/markdown",), "pdf": ("application/pdf",),
    "xml": ("application/xml", "text/xml"),
}  # fmt: skip
_PORT = re.compile(":[0-9]+$")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What is asked for a query: ``every`` finds the pages that have all its words, ``some`` those
    that have one; ``anchors`` finds pages by what links say of them. ``some`` and ``anchors`` are
    None where there are no words.

    ``narrow`` and ``narrow_some`` find the best pages of ``every`` and ``some`` at less cost; None
    where these cost little. ``leaves`` are the parts of the score. ``words`` are the folded words
    of the query, in its order, ``spoken`` the languages whose stems are asked.
    """

    every: Any
    some: Any = None
    anchors: Any = None
    narrow: Any = None
    narrow_some: Any = None
    leaves: Sequence[Leaf] = ()
    words: Sequence[str] = ()
    spoken: Sequence[str] = ()
    is_of_words: bool = True


class _Asked(NamedTuple):
    """What asks for a term. ``is_sum``: for any of its leaves, and for no more."""

    query: Any
    leaves: list[Leaf]
    is_sum: bool = True


@dataclass
class Compiler:
    """Compiles queries for an index.

    ``prefixed`` returns words of a field with a prefix, each with the number of its pages, at most
    so many; ``frequency`` the number of pages with a word in a field; ``forms`` the words that
    differ from a stem, given its language. ``languages`` are those of the pages, the most frequent
    first, ``documents`` is their number.
    ``bounds`` are those of the cost of a query.
    """

    schema: Any
    analysers: Mapping[str, Any]
    prefixed: Callable[[str, str, int], Sequence[tuple[str, int]]]
    frequency: Callable[[str, str], int]
    forms: Callable[[str, str], Iterable[str]]
    languages: Sequence[str] = ()
    documents: int = 0
    bounds: Bounds = field(default_factory=Bounds)
    _module: Any = field(default_factory=tantivy)

    def compile(self, query: SearchQuery) -> Compiled:
        given = [
            str(each.value)
            for each in query.filters
            if each.name == "lang" and not each.is_negative
        ]
        spoken = [each for each in given or self.languages if stemmer_of(each)][:LANGUAGES_MAX]
        words: list[str] = []
        found = [[self._term(term, spoken, words) for term in clause] for clause in query.clauses]
        # A clause of letters that are no words, such as "++", asks nothing.
        clauses = [clause for clause in (list(filter(None, each)) for each in found) if clause]
        limits = self._limits(query.filters)
        limits += [
            (self._not, made.query)
            for term in query.excluded
            if (made := self._term(term, spoken, [])) is not None
        ]
        if not clauses:
            every = self._all([(self._must, self._module.Query.all_query()), *limits])
            return Compiled(every, words=(), spoken=spoken, is_of_words=False)
        more = self._phrases(words)
        asked = [self._any([term.query for term in clause]) for clause in clauses]
        anchors = [self._one("anchors", each) for each in words]
        narrow, narrow_some = self._narrowed(clauses)
        besides = [*((self._should, leaf.made) for leaf in more), *limits]
        return Compiled(
            self._all([*((self._must, each) for each in asked), *besides]),
            self._all([(self._must, self._any(asked)), *besides]),
            self._all([(self._must, self._any(anchors)), *limits]) if anchors else None,
            narrow and self._all([(self._must, narrow), *besides]),
            narrow_some and self._all([(self._must, narrow_some), *besides]),
            [leaf for clause in clauses for term in clause for leaf in term.leaves] + more,
            words,
            spoken,
        )

    def _narrowed(self, clauses: Sequence[Sequence[_Asked]]) -> tuple[Any, Any]:
        """Return what finds the best pages of all clauses, and of some, at less cost; None where
        the whole query costs little."""
        is_sum = all(term.is_sum for clause in clauses for term in clause)
        if not (self._is_large and is_sum):
            return None, None
        made = Narrowing(self._module, self.documents, self.bounds)
        leaves = [_leaves_of(clause) for clause in clauses]
        some = made.of_any([leaf for clause in leaves for leaf in clause])
        return made.of_all(leaves), some

    @property
    def _is_large(self) -> bool:
        return self.documents > self.bounds.whole

    @property
    def _must(self) -> Any:
        return self._module.Occur.Must

    @property
    def _should(self) -> Any:
        return self._module.Occur.Should

    @property
    def _not(self) -> Any:
        return self._module.Occur.MustNot

    def _all(self, parts: Sequence[tuple[Any, Any]]) -> Any:
        return self._module.Query.boolean_query(parts)

    def _any(self, queries: Sequence[Any]) -> Any:
        if len(queries) == 1:
            return queries[0]
        return self._all([(self._should, each) for each in queries])

    def _boost(self, query: Any, boost: float) -> Any:
        return query if boost == 1.0 else self._module.Query.boost_query(query, boost)

    def _one(self, name: str, word: str) -> Any:
        return self._module.Query.term_query(self.schema, name, word, "freq")

    def _run(self, name: str, words: list[str]) -> Any:
        """Return what asks for words one behind the other, or for one."""
        if len(words) == 1:
            return self._one(name, words[0])
        return self._module.Query.phrase_query(self.schema, name, words)

    def _leaf(
        self, name: str, field: str, words: Sequence[str], boost: float, made: Any = None
    ) -> Leaf:
        """Return the part of a score that words in a row have in a field."""
        made = self._boost(self._run(field, [*words]) if made is None else made, boost)
        if not self._is_large:
            return Leaf(name, made)
        counts = [self.frequency(field, each) for each in words]
        return leaf_of(name, made, counts, boost, self.documents)

    def _term(self, term: SearchTerm, spoken: Sequence[str], words: list[str]) -> _Asked | None:
        """Return what asks for a term in all fields; None if it has no word. Its words are added to
        ``words``."""
        spaced, pairs = split_spaceless(term.text)
        folded = self.analysers[FOLDED].analyze(spaced)[:TERMS_MAX]
        leaves: list[Leaf] = []
        if term.kind is TermKind.PREFIX and folded and not pairs:
            leaves += self._prefix(term, folded)
        elif folded:
            words += folded
            names = [term.field] if term.field else [*BOOSTS]
            own = (
                self._leaf(f"{term.text} in {name}", name, folded, BOOSTS[name]) for name in names
            )
            leaves += [each._replace(is_own=True) for each in own]
            if term.kind is TermKind.WORD and len(folded) == 1:
                leaves += self._forms(term, folded[0], self.forms_of(spaced, spoken))
        found = [self._any([each.made for each in leaves])] if leaves else []
        if pairs:
            leaves.append(self._pairs(term, pairs)._replace(is_own=True))
            found.append(leaves[-1].made)
        if not found:
            return None
        if len(found) == 1:
            return _Asked(found[0], leaves)
        # A word of both kinds of script has both parts.
        return _Asked(self._all([(self._must, each) for each in found]), leaves, is_sum=False)

    def _pairs(self, term: SearchTerm, pairs: str) -> Leaf:
        name, found = f"{term.text} in body_cjk", self.analysers[PAIRS].analyze(pairs)[:TERMS_MAX]
        if len(found) == 1 and len(found[0]) == 1:
            # A single character stands in pairs, but where it stands alone.
            known = [word for word, _ in self.prefixed(CJK, found[0], PREFIXED_MAX)]
            made = self._module.Query.term_set_query(self.schema, CJK, [*known, found[0]])
            return self._leaf(name, CJK, found, CJK_BOOST, made)
        return self._leaf(name, CJK, found, CJK_BOOST)

    def _forms(self, term: SearchTerm, word: str, forms: Iterable[str]) -> list[Leaf]:
        """Return what asks for the most frequent other forms of a word, in titles and texts."""
        found = []
        for name, boost in (("title", BOOSTS["title"] / 2), ("body", STEMMED)):
            if term.field and term.field != name:
                continue
            counts = {form: self.frequency(name, form) for form in forms if form != word}
            known = sorted(filter(counts.get, counts), key=lambda form: (-counts[form], form))
            found += [
                self._leaf(f"{term.text} in {name} as {form}", name, [form], boost)
                for form in known[:FORMS_MAX]
            ]
        return found

    def forms_of(self, word: str, spoken: Iterable[str]) -> list[str]:
        """Return the words of an index with the stem of a word in one of the languages."""
        found: dict[str, None] = {}
        for code, stem in self._stems(word, spoken):
            # A stem may be a word itself.
            own = self.analysers[FOLDED].analyze(stem)
            found.update(dict.fromkeys([*own[:1], *self.forms(code, stem)]))
        return [*found]

    def _stems(self, word: str, spoken: Iterable[str]) -> list[tuple[str, str]]:
        """Return the stems of a word in languages, each after its language."""
        found = []
        for code in map(stemmer_of, spoken):
            if code is None or not re.search(_SCRIPTS.get(code, _LATIN), word):
                continue
            if len(stems := self.analysers[f"stem_{code}"].analyze(word)) == 1:
                found.append((code, stems[0]))
        return found

    def page(self, key: str) -> Any:
        """Return what asks for the page with an id."""
        return self._one_of_key("id", key)

    def like(self, name: str, word: str) -> Any:
        """Return what asks for the words of a field that are two mistakes away from this one."""
        return self._module.Query.fuzzy_term_query(self.schema, name, word, 2)

    def _prefix(self, term: SearchTerm, folded: list[str]) -> list[Leaf]:
        *before, prefix = folded
        found = []
        # Titles have fewer words, and mostly enough of them. Looking at all of texts takes long.
        known = self.prefixed("title", prefix, PREFIXED_MAX)
        for name in [term.field] if term.field else ["title", "body"]:
            if name == "body" and len(known) < PREFIXED_FEW:
                known = self.prefixed(name, prefix, PREFIXED_MAX)
            chosen, pages = [], 0
            for word, _ in known:
                chosen.append(word)
                pages += self.frequency(name, word)
                if pages >= PREFIXED_PAGES:
                    break
            if not chosen:
                continue
            made = self._module.Query.term_set_query(self.schema, name, chosen)
            if before:
                made = self._all([(self._must, made), (self._must, self._run(name, before))])
            boost = BOOSTS[name]
            leaf = Leaf(f"{term.text} in {name}", self._boost(made, boost), pages, pages, boost)
            found.append(leaf)
        return found or [Leaf(f"{term.text} in body", self._module.Query.empty_query())]

    def _phrases(self, words: list[str]) -> list[Leaf]:
        if len(words) < 2 or len(words) > TERMS_MAX:
            return []
        return [
            self._leaf(f"all words in a row in {name}", name, words, boost)
            for name, boost in PHRASE_BOOSTS.items()
        ]

    def _limits(self, filters: Iterable[Filter]) -> list[tuple[Any, Any]]:
        """Return what filters ask: one value of each name, all spans, no negative one."""
        found: list[tuple[Any, Any]] = []
        wanted: dict[str, list[Any]] = {}
        for each in filters:
            made = self._filter(each)
            if each.is_negative:
                found.append((self._not, made))
            elif isinstance(each.value, Span):
                found.append((self._must, self._silent(made)))
            else:
                wanted.setdefault("where" if each.name in ("site", "host") else each.name, [])
                wanted["where" if each.name in ("site", "host") else each.name].append(made)
        found += [(self._must, self._silent(self._any(each))) for each in wanted.values()]
        return found

    def _silent(self, query: Any) -> Any:
        """Return a query whose matches count nothing."""
        return self._module.Query.const_score_query(query, 0.0)

    def _filter(self, each: Filter) -> Any:
        if isinstance(each.value, Span):
            return self._span("fetched" if each.name == "date" else each.name, each.value)
        if each.name == "site":
            return self._site(each.value)
        if each.name == "host":
            return self._host(each.value)
        if each.name == "type":
            return self._type(each.value)
        return self._set(each.name, [each.value])

    def _set(self, name: str, values: Iterable[str]) -> Any:
        return self._any([self._one_of_key(name, value) for value in values])

    def _one_of_key(self, name: str, value: str) -> Any:
        return self._module.Query.term_query(self.schema, name, value, "basic")

    def _host(self, value: str) -> Any:
        """Return what asks for a host: on any port, unless one is given."""
        if _PORT.search(value):
            return self._set("host", [value])
        return self._module.Query.regex_query(self.schema, "host", re.escape(value) + "(:[0-9]+)?")

    def _site(self, value: str) -> Any:
        """Return what asks for a host and all below it."""
        name = value.partition(":")[0]
        if value == name and domain_of(name) == name:
            return self._set("domain", [name])
        exact = self._host(value)
        if value != name or value.startswith("["):
            return exact
        below = self._module.Query.regex_query(
            self.schema, "host", rf"[^/]+\.{re.escape(name)}(:[0-9]+)?"
        )
        return self._any([exact, below])

    def _type(self, value: str) -> Any:
        if "/" not in value:
            return self._set("mime", _TYPES.get(value, (value,)))
        if value.endswith("/"):
            return self._module.Query.regex_query(self.schema, "mime", re.escape(value) + ".*")
        return self._set("mime", [value])

    def _span(self, name: str, span: Span) -> Any:
        module = self._module
        is_date = name == "fetched"
        low, high = span.low, span.high
        return module.Query.range_query(
            self.schema,
            name,
            module.FieldType.Date if is_date else module.FieldType.Unsigned,
            _plain(low),
            _plain(high),
            include_upper=high is None,
        )


def _leaves_of(clause: Sequence[_Asked]) -> list[Leaf]:
    """Return the leaves of a clause. Of alternatives none is what nearly all its pages have."""
    leaves = [leaf for term in clause for leaf in term.leaves]
    return leaves if len(clause) == 1 else [each._replace(is_own=False) for each in leaves]


def _plain(end: int | datetime | None) -> int | datetime | None:
    return end.astimezone(UTC) if isinstance(end, datetime) else end


def languages_of(counts: Iterable[tuple[str, int]]) -> list[str]:
    """Return the languages with a stemmer among those of pages, the most frequent first."""
    known = [(code, count) for code, count in counts if stemmer_of(code)]
    return [code for code, _ in sorted(known, key=lambda each: -each[1])][: len(STEMMERS)]
