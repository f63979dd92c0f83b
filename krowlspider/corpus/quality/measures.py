"""Measures of a text, among them repetition of words and lines.

Measures of a text. Each is computed when a rule asks for it, and at most once. Those of Gopher are
of Rae et al. 2021, table A1; those of C4, and its lists of words, of Raffel et al. 2020, section
2.2; those of FineWeb of Penedo et al. 2024, section 3.6.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from itertools import compress, filterfalse
from math import inf
from operator import itemgetter, methodcaller, mul, ne
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from krowlspider.corpus.text.document import SPACELESS, STOP_WORDS, Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Words in which repetition is measured.
WORDS_MAX = 1000
# A character for each different word, and one for all words that occur once: no sequence with such
# a word occurs again.
_CHARACTERS = [chr(0x100 + number) for number in range(WORDS_MAX)]
_ONCE = " "
# Sequences have 2 to 10 words.
_STRETCHES = {size: re.compile(f"[^{_ONCE}]{{{size},}}") for size in range(2, 11)}

_MARKUP = " \t\r#>*+-|`"
# Lines in each of two generations, of which the older is forgotten when the newer is full.
_LINES = 250_000


class Sequences:
    """The sequences in ``words``, of which there are WORDS_MAX at most."""

    def __init__(self, words: list[str]):
        self._words = words
        self._chars = len("".join(words)) or 1
        self.counts = Counter(words)

    @cached_property
    def top_word(self) -> int:
        """The characters of all occurrences of the word that has the most of them."""
        return max(map(mul, self.counts.values(), map(len, self.counts)), default=0)

    def top_at_most(self, size: int) -> float:
        """Return a share that `top` does not exceed: each of its words occurs as often."""
        return size * self.top_word / self._chars

    def top(self, size: int) -> float:
        """Return the share of characters in the most frequent sequence of ``size`` words."""
        if len(self._words) < 2 * size:
            return 0.0
        counts: Counter[str] = Counter()
        for _, grams in self._grams(size):
            counts.update(grams)
        gram, most = max(counts.items(), key=lambda item: item[1], default=("", 1))
        if most == 1:
            return 0.0
        start = self._text.index(gram)
        return most * len("".join(self._words[start : start + size])) / self._chars

    def covered_at_most(self, size: int) -> float:
        """Return a share that `covered` does not exceed: of stretches of words that come again."""
        words = self._words
        stretches = (match.span() for match in _STRETCHES[size].finditer(self._text))
        return sum(len("".join(words[a:b])) for a, b in stretches) / self._chars

    def covered(self, size: int) -> float:
        """Return the share of characters in sequences of ``size`` words that occurred before."""
        words, covered, chars = self._words, 0, 0
        for start in self._repeated_places(size):
            chars += len("".join(words[max(start, covered) : start + size]))
            covered = start + size
        return chars / self._chars

    def _repeated_places(self, size: int) -> Iterator[int]:
        seen: dict[str, int] = {}
        for start, grams in self._grams(size):
            places = range(start, start + len(grams))
            firsts = map(seen.setdefault, grams, places)
            yield from compress(places, map(ne, firsts, places))

    def _grams(self, size: int) -> Iterator[tuple[int, list[str]]]:
        """Yield (place of its first word, its sequences of ``size`` words) for each stretch of
        words that occur more than once."""
        for match in _STRETCHES[size].finditer(self._text):
            stretch = match[0]
            ends = range(size, len(stretch) + 1)
            yield match.start(), [stretch[end - size : end] for end in ends]

    @cached_property
    def _text(self) -> str:
        characters = zip(_CHARACTERS, self.counts.values(), strict=False)
        shown = [_ONCE if count == 1 else character for character, count in characters]
        return "".join(map(dict(zip(self.counts, shown, strict=True)).__getitem__, self._words))


class HostLines:
    """Counts the lines of each host. A line that ``pages`` of its pages had is repeated.

    At most twice ``most`` lines are remembered, those that came last.
    """

    def __init__(self, pages: int, most: int = _LINES):
        self._pages = pages
        self._most = most
        # The pages of a line, by the hash of host and line. A line that comes again is new again.
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def repeated(self, host: str, text: str) -> set[str]:
        """Count the lines of a text. Return those that the host repeats, as `bare` gives them."""
        lines = dict.fromkeys(map(bare, text.split("\n")))
        return {line for line in lines if line and self._count(host, line) > self._pages}

    def _count(self, host: str, line: str) -> int:
        key = xxh3_64_intdigest(f"{host}\n{line}".encode())
        count = self._new.get(key) or self._old.get(key, 0)
        if len(self._new) >= self._most:
            self._new, self._old = {}, self._new
        self._new[key] = count + 1
        return count + 1


def bare(line: str) -> str:
    """Return a line without what stands around it in Markdown."""
    return line.strip(_MARKUP)


def without(text: str, lines: set[str]) -> str:
    """Return ``text`` without these lines, which are `bare`."""
    if not lines:
        return text
    return "\n".join(line for line in text.split("\n") if bare(line) not in lines)


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
