"""Repetition: sequences of words in a text, and lines that a host has on many of its pages."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from itertools import compress
from operator import mul, ne
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterator

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
