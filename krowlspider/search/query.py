"""The language of queries: words, phrases, prefixes, filters.

Any text is a query: what makes no sense as a filter is left out, with a note for the person.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from krowlspider.search.filters import read_filter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.search.filters import Filter

# Characters of a query, words and filters of it, and characters of one word; the rest is left out.
LENGTH_MAX = 500
CLAUSES_MAX = 24
WORD_MAX = 100
# Fewest characters of a prefix: a shorter one would match a great part of all words.
PREFIX_MIN = 2
_TOKEN = re.compile(
    r"""\s*(?P<no>-(?=[^\s-]))?
    (?:(?P<name>[A-Za-z_]{2,16}):)?
    (?: ["“”„](?P<phrase>[^"“”„]*)["“”„]? | (?P<word>[^\s"“”„]+) )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f()]+")
# Names of filters, and how else they are called: by TLGS domain and content_type.
_NAMES = {
    "site": "site",
    "domain": "site",
    "host": "host",
    "type": "type",
    "content_type": "type",
    "mime": "type",
    "size": "size",
    "date": "date",
    "since": "since",
    "until": "until",
    "lang": "lang",
    "language": "lang",
    "scheme": "scheme",
}
_FIELDS = {"intitle": "title", "title": "title"}


class TermKind(Enum):
    WORD = "word"
    PHRASE = "phrase"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """A word, the words of a phrase, or the beginning of a word. ``place`` is where its text stands
    in the query: begin and end."""

    text: str
    kind: TermKind
    field: str = ""
    place: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A query. A page must have one term of each of ``clauses``, and none of ``excluded``; all
    sizes and dates of ``filters``, one value of each other name, and none of the negative ones.

    ``notes`` tell a person what was left out of the text.
    """

    text: str
    clauses: tuple[tuple[SearchTerm, ...], ...] = ()
    excluded: tuple[SearchTerm, ...] = ()
    filters: tuple[Filter, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def terms(self) -> Iterator[SearchTerm]:
        """The terms that a page may have."""
        return (term for clause in self.clauses for term in clause)

    @property
    def is_empty(self) -> bool:
        return not (self.clauses or self.filters)

    def with_filters(self, *more: Filter) -> SearchQuery:
        return replace(self, filters=(*self.filters, *more))


def parse(text: str) -> SearchQuery:
    """Return the query of a text, whatever it is."""
    notes = []
    # Lone surrogates stand in no index, and cannot be sent.
    text = text.encode("utf-8", "replace").decode()
    if len(text) > LENGTH_MAX:
        notes.append(f"a query has {LENGTH_MAX} characters at most: the rest is left out")
        text = text[:LENGTH_MAX]
    reader = _Reader(notes)
    plain = _SPACE.sub(lambda found: " " * len(found[0]), text)
    for number, found in enumerate(_TOKEN.finditer(plain)):
        if number >= CLAUSES_MAX:
            notes.append(f"a query has {CLAUSES_MAX} words at most: the rest is left out")
            break
        reader.take(found)
    return reader.query(text)


class _Reader:
    """Collects what the tokens of a query mean, from left to right."""

    def __init__(self, notes: list[str]):
        self._notes = notes
        self._clauses: list[list[SearchTerm]] = []
        self._excluded: list[SearchTerm] = []
        self._filters: list[Filter] = []
        # Words that wait for what comes next.
        self._not: re.Match[str] | None = None
        self._or: re.Match[str] | None = None
        # Whether an alternative may be added to the last clause; whether a filter came last.
        self._is_open = False
        self._is_behind_filter = False

    def query(self, text: str) -> SearchQuery:
        self._or = None
        if self._not is not None:
            self._add(self._term(self._not), is_negative=False)
        if self._excluded and not (self._clauses or self._filters):
            self._notes.append(
                "a query that only excludes finds nothing: give a word that pages must have"
            )
        clauses = tuple(tuple(each) for each in self._clauses)
        return SearchQuery(
            text, clauses, tuple(self._excluded), tuple(self._filters), tuple(self._notes)
        )

    def take(self, found: re.Match[str]) -> None:
        word = found["word"]
        is_behind_filter, self._is_behind_filter = self._is_behind_filter, False
        if not (found["no"] or found["name"]):
            if word == "OR" and is_behind_filter:
                # Values of one filter are alternatives anyway.
                return
            if word == "OR" and self._is_open and self._or is None:
                self._or = found
                return
            if word in ("NOT", "not") and self._not is None:
                self._not = found
                return
        is_negative = bool(found["no"])
        name = (found["name"] or "").lower()
        if name in _NAMES:
            negated = is_negative or self._not is not None
            self._not = self._or = None
            self._is_open = False
            self._is_behind_filter = True
            self._add_filter(found, _NAMES[name], is_negative=negated)
            return
        if self._not is not None:
            # As in TLGS, a lower-case "not" is a word, but before a filter.
            if self._not["word"] == "NOT":
                is_negative = True
            else:
                self._add(self._term(self._not), is_negative=False)
            self._not = None
        self._add(self._term(found), is_negative=is_negative)

    def _term(self, found: re.Match[str]) -> SearchTerm | None:
        """Return the term of a token; None for one without letters or digits."""
        name = (found["name"] or "").lower()
        phrase, word = found["phrase"], found["word"]
        begin, end = found.span("phrase" if word is None else "word")
        if found["name"] and name not in _FIELDS:
            # A colon in a text, such as that of a URL.
            begin = found.start("name")
            phrase = f"{found['name']} {phrase if word is None else word}"
            kind, text = TermKind.PHRASE, phrase
        elif word is None:
            kind, text = TermKind.PHRASE, phrase
        elif word.endswith("*") and len(word.rstrip("*")) >= PREFIX_MIN:
            kind, text = TermKind.PREFIX, word.rstrip("*")
        else:
            kind, text = TermKind.WORD, word
        if not any(map(str.isalnum, text)):
            return None
        if kind is not TermKind.PHRASE and len(text) > WORD_MAX:
            self._notes.append(f"a word has {WORD_MAX} characters at most: the rest is left out")
            text = text[:WORD_MAX]
        return SearchTerm(text.strip(), kind, _FIELDS.get(name, ""), (begin, end))

    def _add(self, term: SearchTerm | None, *, is_negative: bool) -> None:
        if term is None:
            return
        if is_negative:
            self._excluded.append(term)
        elif self._or is not None:
            self._clauses[-1].append(term)
        else:
            self._clauses.append([term])
        self._or = None
        self._is_open = not is_negative

    def _add_filter(self, found: re.Match[str], name: str, *, is_negative: bool) -> None:
        given = found["phrase"] if found["word"] is None else found["word"]
        try:
            made = read_filter(name, given)
        except ValueError as error:
            self._notes.append(str(error))
            return
        self._filters.append(replace(made, is_negative=is_negative))
