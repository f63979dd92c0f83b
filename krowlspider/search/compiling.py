"""Queries of the index: what tantivy is asked for a query of a person."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from krowlspider.search.filters import Filter, Span
from krowlspider.search.query import Kind, Query, Term
from krowlspider.search.schema import (
    CJK,
    FOLDED,
    PAIRS,
    STEMMERS,
    split_spaceless,
    stemmed_field,
    tantivy,
)
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# How much a term counts in each field.
BOOSTS = {"title": 0.7, "headings": 0.3, "anchors": 0.2, "body": 1.0}
# In the stems of a language: less than the word itself, which is counted besides.
STEMMED = 0.2
CJK_BOOST = 1.0
# What words count that stand one behind the other, in the order of the query.
PHRASE_BOOSTS = {"title": 0.7}
# Words of the index that a prefix stands for, at most: the most frequent of those that are read.
PREFIXED_MAX = 64
PREFIXES_READ = 2000
# Other forms of a word in titles.
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

    ``leaves`` are the parts of the score, with their names. ``words`` are the folded words of the
    query, in its order, ``spoken`` the languages whose stems are asked.
    """

    every: Any
    some: Any = None
    anchors: Any = None
    leaves: Sequence[tuple[str, Any]] = ()
    words: Sequence[str] = ()
    spoken: Sequence[str] = ()
    is_of_words: bool = True


@dataclass
class Compiler:
    """Compiles queries for an index.

    ``prefixed`` returns words of a field with a prefix, each with the number of its pages, at most
    so many; ``languages`` are those of the pages, the most frequent first.
    """

    schema: Any
    analysers: Mapping[str, Any]
    prefixed: Callable[[str, str, int], Iterable[tuple[str, int]]]
    languages: Sequence[str] = ()
    _module: Any = field(default_factory=tantivy)

    def compile(self, query: Query) -> Compiled:
        given = [
            str(each.value)
            for each in query.filters
            if each.name == "lang" and not each.is_negative
        ]
        spoken = [each for each in given or self.languages if stemmed_field(each)][:LANGUAGES_MAX]
        leaves: list[tuple[str, Any]] = []
        words: list[str] = []
        clauses = []
        for clause in query.clauses:
            found = [self._term(term, spoken, leaves, words) for term in clause]
            # A clause of letters that are no words, such as "++", asks nothing.
            if found := [each for each in found if each is not None]:
                clauses.append(self._any(found))
        limits = self._limits(query.filters)
        limits += [
            (self._not, made)
            for term in query.excluded
            if (made := self._term(term, spoken, [], [])) is not None
        ]
        if not clauses:
            every = self._all([(self._must, self._module.Query.all_query()), *limits])
            return Compiled(every, words=(), spoken=spoken, is_of_words=False)
        more = self._phrases(words, leaves)
        anchors = [self._one("anchors", each) for each in words]
        return Compiled(
            self._all([*((self._must, each) for each in clauses), *more, *limits]),
            self._all([(self._must, self._any(clauses)), *more, *limits]),
            self._all([(self._must, self._any(anchors)), *limits]) if anchors else None,
            leaves,
            words,
            spoken,
        )

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

    def _term(
        self, term: Term, spoken: Sequence[str], leaves: list[tuple[str, Any]], words: list[str]
    ) -> Any | None:
        """Return what asks for a term in all fields; None if it has no word. Its parts are added to
        ``leaves``, its words to ``words``."""
        spaced, pairs = split_spaceless(term.text)
        folded = self.analysers[FOLDED].analyze(spaced)[:TERMS_MAX]
        parts: list[tuple[str, Any]] = []
        if term.kind is Kind.PREFIX and folded and not pairs:
            parts += self._prefix(term, folded)
        elif folded:
            words += folded
            names = [term.field] if term.field else [*BOOSTS]
            parts += [(name, self._boost(self._run(name, folded), BOOSTS[name])) for name in names]
            if term.kind is Kind.WORD and len(folded) == 1:
                parts += self._titles(folded[0], spoken)
                parts += [] if term.field else self._stems(folded[0], spaced, spoken)
        found = [self._sum(term, parts, leaves)] if parts else []
        if pairs:
            run = self._boost(self._pairs(pairs, term.field), CJK_BOOST)
            leaves.append((f"{term.text} in body_cjk", run))
            found.append(run)
        if not found:
            return None
        # A word of both kinds of script has both parts.
        return found[0] if len(found) == 1 else self._all([(self._must, each) for each in found])

    def _pairs(self, pairs: str, name: str) -> Any:
        found = self.analysers[PAIRS].analyze(pairs)[:TERMS_MAX]
        if len(found) == 1 and len(found[0]) == 1:
            # A single character stands in pairs, but where it stands alone.
            known = [word for word, _ in self.prefixed(CJK, found[0], PREFIXED_MAX)]
            return self._module.Query.term_set_query(self.schema, CJK, [*known, found[0]])
        return self._run(CJK, found)

    def _sum(self, term: Term, parts: list[tuple[str, Any]], leaves: list[tuple[str, Any]]) -> Any:
        leaves += [(f"{term.text} in {name}", each) for name, each in parts]
        return self._any([each for _, each in parts])

    def _stems(self, word: str, text: str, spoken: Sequence[str]) -> list[tuple[str, Any]]:
        """Return what asks for the stems of a word, which is ``text`` before it was folded. Where a
        stem is a word of a page, it is in the body alone."""
        stems = self.stems(text, spoken)
        found = [(name, self._one_of_key(name, stem)) for name, stem in stems]
        as_words = [self.analysers[FOLDED].analyze(stem) for _, stem in stems]
        words = dict.fromkeys(each[0] for each in as_words if len(each) == 1 and each[0] != word)
        found += [(f"body as {each}", self._one("body", each)) for each in words]
        return [(name, self._boost(made, STEMMED)) for name, made in found]

    def _titles(self, word: str, spoken: Sequence[str]) -> list[tuple[str, Any]]:
        """Return what asks for other forms of a word in titles, which have no field of stems."""
        forms: set[str] = set()
        for name, stem in self.stems(word, spoken):
            stemmer = self.analysers[name.replace("body", "stem")].analyze
            begin = self.analysers[FOLDED].analyze(stem)[:1] if word.startswith(stem) else []
            for prefix in begin:
                known = self.prefixed("title", prefix, PREFIXES_READ)
                forms |= {each for each, _ in known if stemmer(each) == [stem]}
        forms.discard(word)
        boost = BOOSTS["title"] / 2
        return [
            (f"title as {form}", self._boost(self._one("title", form), boost))
            for form in sorted(forms)[:FORMS_MAX]
        ]

    def stems(self, word: str, spoken: Iterable[str]) -> list[tuple[str, str]]:
        """Return the stems of a word in languages, each with its field."""
        found = []
        for code in spoken:
            name = stemmed_field(code)
            stemmer = (name or "").removeprefix("body_")
            if name is None or not re.search(_SCRIPTS.get(stemmer, _LATIN), word):
                continue
            if len(stems := self.analysers[f"stem_{stemmer}"].analyze(word)) == 1:
                found.append((name, stems[0]))
        return found

    def page(self, key: str) -> Any:
        """Return what asks for the page with an id."""
        return self._one_of_key("id", key)

    def like(self, name: str, word: str) -> Any:
        """Return what asks for the words of a field that are two mistakes away from this one."""
        return self._module.Query.fuzzy_term_query(self.schema, name, word, 2)

    def _prefix(self, term: Term, folded: list[str]) -> list[tuple[str, Any]]:
        *before, prefix = folded
        found = []
        for name in [term.field] if term.field else ["title", "body"]:
            known = sorted(self.prefixed(name, prefix, PREFIXES_READ), key=lambda each: -each[1])
            chosen = [word for word, _ in known[:PREFIXED_MAX]]
            if not chosen:
                continue
            made = self._module.Query.term_set_query(self.schema, name, chosen)
            if before:
                made = self._all([(self._must, made), (self._must, self._run(name, before))])
            found.append((name, self._boost(made, BOOSTS[name])))
        return found or [("body", self._module.Query.empty_query())]

    def _phrases(self, words: list[str], leaves: list[tuple[str, Any]]) -> list[tuple[Any, Any]]:
        if len(words) < 2 or len(words) > TERMS_MAX:
            return []
        found = []
        for name, boost in PHRASE_BOOSTS.items():
            made = self._boost(self._run(name, words), boost)
            leaves.append((f"all words in a row in {name}", made))
            found.append((self._should, made))
        return found

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


def _plain(end: int | datetime | None) -> int | datetime | None:
    return end.astimezone(UTC) if isinstance(end, datetime) else end


def languages_of(counts: Iterable[tuple[str, int]]) -> list[str]:
    """Return the languages with a stemmer among those of pages, the most frequent first."""
    known = [(code, count) for code, count in counts if stemmed_field(code)]
    return [code for code, _ in sorted(known, key=lambda each: -each[1])][: len(STEMMERS)]
