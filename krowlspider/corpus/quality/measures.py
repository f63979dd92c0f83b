"""Measures of a text. Each is computed when a rule asks for it, and at most once.

Those of Gopher are of Rae et al. 2021, table A1; those of C4 of Raffel et al. 2020, section 2.2.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.corpus.quality.words import SPACELESS, STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.corpus.document import Document

# Words and lines at the beginning of a text in which repetition is measured.
_REPEATED_IN = 1000
_ENDS = (".", "!", "?", '"', "”", "。", "！", "？", "।", "؟")
_SENTENCE_ENDS = (
    *(f"{mark}{after}" for mark in ".!?" for after in (" ", "\n", '"', "”")),
    *"。！？।؟",
)
_LETTER = re.compile(r"[^\W\d_]")
_BULLETS = ("•", "●", "*", "-", "‣", "◦", "–")
_SPECIAL_PATH = re.compile(
    r"/(?:log-?in|sign-?(?:in|up)|register|search|tags?|cart|basket|checkout|404|error)"
    r"(?:[/?.]|$)|[?&](?:s|q|query|search)=",
    re.IGNORECASE,
)
_SPECIAL_TITLE = re.compile(
    r"^(?:log ?in|sign ?in|sign up|register|search results?\b.*|shopping cart|page not found\b.*"
    r"|404\b.*|403 forbidden|error \d{3}\b.*|access denied)$",
    re.IGNORECASE,
)
_LOREM_IPSUM = ("lorem ipsum", "Lorem ipsum", "Lorem Ipsum", "LOREM IPSUM")
_JAVASCRIPT = re.compile(r"(?:enable|activate|requires?) javascript", re.IGNORECASE)


class Measures:
    """The measures of one page. Those of words are None for languages without spaces."""

    def __init__(self, document: Document, url: str):
        self._document = document
        self._url = url
        self._text = document.text
        self._spaced = document.language not in SPACELESS

    @cached_property
    def _words(self) -> list[str]:
        return self._text.split() if self._spaced else []

    @cached_property
    def _beginning(self) -> list[str]:
        return self._words[:_REPEATED_IN]

    @cached_property
    def _lines(self) -> list[str]:
        return [line for each in self._text.split("\n") if (line := each.strip())]

    @cached_property
    def _paragraphs(self) -> list[str]:
        return [part for each in self._text.split("\n\n") if (part := each.strip())]

    def chars(self) -> float:
        return len(self._text)

    def words(self) -> float | None:
        return len(self._words) if self._spaced else None

    def text_ratio(self) -> float:
        return len(self._text) / (self._document.html_chars or 1)

    def link_ratio(self) -> float:
        """Return the characters of all links of the page to those of the main text."""
        return self._document.link_chars / (len(self._text) or 1)

    def broken_chars(self) -> float:
        return self._text.count("\ufffd") / (len(self._text) or 1)

    def special(self) -> float:
        title = str(self._document.fields.get("title", ""))
        return float(bool(_SPECIAL_PATH.search(self._url) or _SPECIAL_TITLE.match(title)))

    def rank(self) -> float:
        return self._document.rank

    def word_length(self) -> float | None:
        words = self._words
        return sum(map(len, words)) / len(words) if words else None

    def symbols(self) -> float | None:
        """Return hashes and ellipses to words."""
        text = self._text
        count = text.count("#") + text.count("...") + text.count("…")
        return count / len(self._words) if self._words else None

    def bullet_lines(self) -> float:
        return _share(self._lines, lambda line: line.startswith(_BULLETS))

    def ellipsis_lines(self) -> float:
        return _share(self._lines, lambda line: line.endswith(("...", "…")))

    def letter_words(self) -> float | None:
        """Return the share of words with a letter."""
        words = self._beginning
        others = [word for word in words if not word.isalpha()]
        without = sum(_LETTER.search(word) is None for word in others)
        return 1 - without / len(words) if words else None

    def stop_words(self) -> float | None:
        """Return how many different stop words of the language occur."""
        known = STOP_WORDS.get(self._document.language)
        return len(known.intersection(map(str.lower, self._beginning))) if known else None

    def sentences(self) -> float:
        text = f"{self._text}\n"
        return sum(map(text.count, _SENTENCE_ENDS))

    def sentence_lines(self) -> float:
        """Return the share of lines that end like a sentence."""
        return _share(self._lines, lambda line: line.endswith(_ENDS))

    def lorem_ipsum(self) -> float:
        return float(any(each in self._text for each in _LOREM_IPSUM))

    def javascript(self) -> float:
        return float(len(self._text) < 2000 and bool(_JAVASCRIPT.search(self._text)))

    def braces(self) -> float:
        return self._text.count("{")

    def repeated_lines(self) -> float:
        return _repeated(self._lines[:_REPEATED_IN])[0]

    def repeated_line_chars(self) -> float:
        return _repeated(self._lines[:_REPEATED_IN])[1]

    def repeated_paragraphs(self) -> float:
        return _repeated(self._paragraphs[:_REPEATED_IN])[0]

    def repeated_paragraph_chars(self) -> float:
        return _repeated(self._paragraphs[:_REPEATED_IN])[1]

    def top_2gram(self) -> float:
        return self._top(2)

    def top_3gram(self) -> float:
        return self._top(3)

    def top_4gram(self) -> float:
        return self._top(4)

    def repeated_5grams(self) -> float:
        return self._covered(5, self._fives)

    def repeated_10grams(self) -> float:
        # Ten words that occurred before are six sequences of five in a row.
        runs = zip(self._fives, self._fives[5:], strict=False)
        if not any(last - first == 5 for first, last in runs):
            return 0.0
        return self._covered(10, self._repeats(10))

    @cached_property
    def _beginning_chars(self) -> int:
        return sum(map(len, self._beginning)) or 1

    def _top(self, size: int) -> float:
        """Return the share of characters in the most frequent sequence of ``size`` words."""
        words = self._beginning
        if len(words) < 2 * size:
            return 0.0
        gram, count = Counter(_grams(words, size)).most_common(1)[0]
        return count * sum(map(len, gram)) / self._beginning_chars if count > 1 else 0.0

    def _covered(self, size: int, repeats: list[int]) -> float:
        """Return the share of characters in sequences of ``size`` words that occurred before."""
        words, covered, chars = self._beginning, 0, 0
        for start in repeats:
            chars += sum(map(len, words[max(start, covered) : start + size]))
            covered = start + size
        return chars / self._beginning_chars

    def _repeats(self, size: int) -> list[int]:
        """Return where sequences of ``size`` words begin that occurred before."""
        grams = list(_grams(self._beginning, size))
        last = len(grams) - 1
        first = dict(zip(reversed(grams), range(last, -1, -1), strict=True))
        if len(first) == len(grams):
            return []
        return [place for place, gram in enumerate(grams) if first[gram] != place]

    @cached_property
    def _fives(self) -> list[int]:
        return self._repeats(5)


def _grams(words: list[str], size: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(size)), strict=False)


def _share(parts: list[str], fits: Callable[[str], bool]) -> float:
    return sum(map(fits, parts)) / len(parts) if parts else 0.0


def _repeated(parts: list[str]) -> tuple[float, float]:
    """Return the share of parts that occurred before, and of their characters."""
    different = dict.fromkeys(parts)
    if len(different) == len(parts):
        return 0.0, 0.0
    chars = sum(map(len, parts))
    return 1 - len(different) / len(parts), 1 - sum(map(len, different)) / chars
