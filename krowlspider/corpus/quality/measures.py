"""Measures of a text. Each is computed when a rule asks for it, and at most once.

Those of Gopher are of Rae et al. 2021, table A1; those of C4, and its lists of words, of Raffel et
al. 2020, section 2.2; those of FineWeb of Penedo et al. 2024, section 3.6.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import filterfalse
from math import inf
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING

from krowlspider.corpus.quality.repetition import WORDS_MAX, Sequences
from krowlspider.corpus.text.languages import SPACELESS, STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.corpus.text.document import Document

_WORD = re.compile(r"\w+")

# Lines at the beginning of a text in which repetition is measured.
_LINES_MAX = 1000
_ENDS = frozenset('.!?"”。．！？।॥؟۔።։។')
_SHORT = 30
_SENTENCE_MARKS = ".!?"
_AFTER_SENTENCES = (" ", "\n", '"', "”")
# Full stops that need no space behind them: of Chinese, Hindi, Urdu, Ethiopic, Burmese, Khmer,
# Armenian and Tibetan scripts among others.
_WIDE_MARKS = "。！？．।॥؟۔።፧။។։།"
# Languages without any.
_STOPLESS = frozenset({"th", "lo"})
_LETTER = re.compile(r"[^\W\d_]")
_BULLETS = frozenset("•●*-‣◦–")
_FIRST, _LAST = itemgetter(0), itemgetter(-1)
_HAS_ELLIPSIS = methodcaller("endswith", ("...", "…"))
# The namespaces are those of MediaWiki around its articles.
# Other words count as the last part of a path, or before the last one.
_SPECIAL_PATH = re.compile(
    r"/(?:log-?in|sign-?(?:in|up)|register|cart|basket|checkout)(?:\.\w+)?/?(?:[?#]|$)"
    r"|/(?:search|tags?|404|error)(?:\.\w+|/[^/?#]*)?/?(?:[?#]|$)|[?&](?:s|q|query|search)="
    r"|(?:/|[?&]title=)(?:special|wikipedia|help|template|user|file|talk)(?:_talk)?(?::|%3A)",
    re.IGNORECASE,
)
_SPECIAL_TITLE = re.compile(
    r"^(?:log ?in|sign ?in|sign up|register|search results?\b.*|shopping cart"
    r"|(?:404\W+)?(?:page )?not found(?:\W.*)?|404(?:\W+error)?(?:\s*[|»·–—-].*)?|403 forbidden"
    r"|error \d{3}\b.*|access denied)$",
    re.IGNORECASE,
)
_LOREM_IPSUM = ("lorem ipsum", "Lorem ipsum", "Lorem Ipsum", "LOREM IPSUM")
# Measures of sequences, by their words.
_REPEATED = {f"repeated_{size}grams": size for size in range(5, 11)}
_TOPS = {f"top_{size}gram": size for size in range(2, 5)}
_JAVASCRIPT = re.compile(r"(?:enable|activate|requires?) javascript", re.IGNORECASE)


class BadWords:
    """A list of words and phrases of one language. Case and the signs between words do not count.

    In languages without spaces they count within words too.
    """

    def __init__(self, entries: Iterable[str], language: str):
        entries = [entry.lower() for entry in entries]
        # Without entries, nothing is found.
        self._within = re.compile("|".join(map(re.escape, entries)) or "(?!)")
        self._is_spaceless = language in SPACELESS
        # The rests of the entries, by their first word.
        self._rests: dict[str, set[tuple[str, ...]]] = {}
        for first, *rest in filter(None, map(_WORD.findall, entries)):
            self._rests.setdefault(first, set()).add(tuple(rest))

    def count(self, text: str) -> int:
        """Return how many words of ``text`` begin an entry of the list."""
        if self._is_spaceless:
            return sum(1 for _ in self._within.finditer(text.lower()))
        words, rests = _WORD.findall(text.lower()), self._rests
        if rests.keys().isdisjoint(words):
            return 0
        return sum(
            any(tuple(words[place : place + len(rest)]) == rest for rest in rests[word])
            for place, word in enumerate(words, 1)
            if word in rests
        )


def entries_of(text: str) -> list[str]:
    """Return the entries of a list, one on each line, without empty lines and # comments."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


class Measures:
    """The measures of one page. Those of words are None for languages without spaces."""

    def __init__(self, document: Document, url: str, bad_words: dict[str, BadWords]):
        self._document = document
        self._bad_words = bad_words
        self._url = url
        self._text = document.text
        self._spaced = document.language not in SPACELESS

    @cached_property
    def _words(self) -> list[str]:
        return self._text.split() if self._spaced else []

    @cached_property
    def _sequences(self) -> Sequences:
        return Sequences(self._words[:WORDS_MAX])

    @cached_property
    def _fives(self) -> float:
        return self._sequences.covered(5)

    @cached_property
    def _ellipses(self) -> int:
        return self._text.count("...") + self._text.count("…")

    @cached_property
    def _lines(self) -> list[str]:
        return list(filter(None, map(str.strip, self._text.split("\n"))))

    @cached_property
    def _paragraphs(self) -> list[str]:
        return list(filter(None, map(str.strip, self._text.split("\n\n"))))

    def _line_share(self, fits: Iterable[bool]) -> float:
        """Return the share of lines that fit; ``fits`` has a truth value for each line."""
        return sum(fits) / len(self._lines) if self._lines else 0.0

    def bounds(self, name: str) -> tuple[float, float]:
        """Return the least and the most that a measure can be, where this is cheaper to know."""
        if name in _TOPS:
            return 0, self._sequences.top_at_most(_TOPS[name])
        if size := _REPEATED.get(name):
            # The words of a longer sequence that occurred before are in such ones of five.
            return 0, self._fives if size > 5 else self._sequences.covered_at_most(size)
        if name == "ellipsis_lines" and not self._ellipses:
            return 0, 0
        return (self._text.count(". "), inf) if name == "sentences" else (-inf, inf)

    def value(self, name: str) -> float | None:
        """Return the measure of this name."""
        if name in _TOPS:
            return self._sequences.top(_TOPS[name])
        if name in _REPEATED:
            size = _REPEATED[name]
            return self._fives if size == 5 else self._sequences.covered(size)
        found: float | None = getattr(self, name)()
        return found

    def chars(self) -> float:
        return len(self._text)

    def words(self) -> float | None:
        return len(self._words) if self._spaced else None

    def broken_chars(self) -> float:
        return self._text.count("\ufffd") / (len(self._text) or 1)

    def special(self) -> float:
        title = str(self._document.fields.get("title", ""))
        return float(bool(_SPECIAL_PATH.search(self._url) or _SPECIAL_TITLE.match(title)))

    def confidence(self) -> float:
        return self._document.confidence

    def word_length(self) -> float | None:
        words = self._words
        return len("".join(words)) / len(words) if words else None

    def symbols(self) -> float | None:
        """Return hashes and ellipses to words."""
        count = self._text.count("#") + self._ellipses
        return count / len(self._words) if self._words else None

    def bullet_lines(self) -> float:
        return self._line_share(map(_BULLETS.__contains__, map(_FIRST, self._lines)))

    def ellipsis_lines(self) -> float:
        return self._line_share(map(_HAS_ELLIPSIS, self._lines))

    def letter_words(self) -> float | None:
        """Return the share of words with a letter."""
        counts = self._sequences.counts
        # A word in lower case has a letter; the search takes longer.
        others = filterfalse(str.isalpha, filterfalse(str.islower, counts))
        without = sum(counts[word] for word in others if _LETTER.search(word) is None)
        return 1 - without / sum(counts.values()) if counts else None

    def stop_words(self) -> float | None:
        """Return how many different stop words of the language occur."""
        known = STOP_WORDS.get(self._document.language)
        return len(known.intersection(map(str.lower, self._sequences.counts))) if known else None

    def bad_words(self) -> float | None:
        """Return how many bad words there are, where the language has a list."""
        known = self._bad_words.get(self._document.language)
        return known.count(self._text) if known else None

    def sentences(self) -> float | None:
        if self._document.language in _STOPLESS:
            return None
        text = f"{self._text}\n"
        after = [each for each in _AFTER_SENTENCES if each in text]
        ends = [mark + each for mark in _SENTENCE_MARKS if mark in text for each in after]
        return sum(map(text.count, [*ends, *_WIDE_MARKS]))

    def sentence_lines(self) -> float:
        """Return the share of lines that end like a sentence."""
        return self._line_share(map(_ENDS.__contains__, map(_LAST, self._lines)))

    def short_lines(self) -> float:
        """Return the share of lines of 30 characters at most."""
        return self._line_share(map(_SHORT.__ge__, map(len, self._lines)))

    def line_breaks(self) -> float | None:
        """Return line breaks to words."""
        return self._text.count("\n") / len(self._words) if self._words else None

    def lorem_ipsum(self) -> float:
        # Two searches instead of four for nearly all texts.
        text = self._text
        is_likely = "psum" in text or "PSUM" in text
        return float(is_likely and any(each in text for each in _LOREM_IPSUM))

    def javascript(self) -> float:
        return float(len(self._text) < 2000 and bool(_JAVASCRIPT.search(self._text)))

    def braces(self) -> float:
        return self._text.count("{")

    def repeated_lines(self) -> float:
        return _repeated(self._lines[:_LINES_MAX])[0]

    def repeated_line_chars(self) -> float:
        return _repeated(self._lines[:_LINES_MAX])[1]

    def repeated_paragraphs(self) -> float:
        return _repeated(self._paragraphs[:_LINES_MAX])[0]

    def repeated_paragraph_chars(self) -> float:
        return _repeated(self._paragraphs[:_LINES_MAX])[1]


def _repeated(parts: list[str]) -> tuple[float, float]:
    """Return the share of parts that occurred before, and of their characters."""
    different = dict.fromkeys(parts)
    if len(different) == len(parts):
        return 0.0, 0.0
    chars = sum(map(len, parts))
    return 1 - len(different) / len(parts), 1 - sum(map(len, different)) / chars
