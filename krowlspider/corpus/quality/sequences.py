"""Repeated sequences of words. Each is kept as a number: five words fit into 64 bits."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cached_property
from itertools import compress, count, islice
from operator import mul, ne
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Words in which repetition is measured. The number of a word has ten bits.
WORDS_MAX = 1000
_BITS = 10
_LANE = 64
_NUMBERS = [number.to_bytes(_LANE // 8, sys.byteorder) for number in range(WORDS_MAX)]


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
        grams = self._grams(size)
        counts = Counter(grams)
        most = max(counts.values())
        if most == 1:
            return 0.0
        gram = next(islice(counts, list(counts.values()).index(most), None))
        start = grams.index(gram)
        return most * len("".join(self._words[start : start + size])) / self._chars

    def covered(self, size: int) -> float:
        """Return the share of characters in sequences of 5 to 10 words that occurred before."""
        words, covered, chars = self._words, 0, 0
        for start in self._repeated_places(size):
            chars += len("".join(words[max(start, covered) : start + size]))
            covered = start + size
        return chars / self._chars

    @cached_property
    def _fives(self) -> list[int]:
        return _firsts(self._grams(5))

    @cached_property
    def _repeated_fives(self) -> list[int]:
        return _repeated(self._fives)

    def _repeated_places(self, size: int) -> list[int]:
        # Ten words that occurred before are six sequences of five in a row; fewer words, fewer.
        repeated, firsts, more = self._repeated_fives, self._fives, size - 5
        if not more:
            return repeated
        ends = zip(repeated, repeated[more:], strict=False)
        if not any(last - first == more for first, last in ends):
            return []
        pairs = zip(firsts, firsts[more:], strict=False)
        return _repeated(_firsts(first << _BITS | second for first, second in pairs))

    def _grams(self, size: int) -> list[int]:
        """Return the numbers of all sequences of ``size`` words; equal ones have the same."""
        found = self._lanes
        for place in range(1, size):
            # Each lane takes the next word of its sequence, above the words that it has.
            found |= self._lanes >> (_LANE - _BITS) * place
        data = found.to_bytes(_LANE // 8 * len(self._words), sys.byteorder)
        return memoryview(data).cast("Q").tolist()[: max(len(self._words) - size + 1, 0)]

    @cached_property
    def _lanes(self) -> int:
        """The numbers of the words, each in 64 bits."""
        numbers = dict(zip(self.counts, _NUMBERS, strict=False))
        return int.from_bytes(b"".join(map(numbers.__getitem__, self._words)), sys.byteorder)


def _firsts(grams: Iterable[int]) -> list[int]:
    """Return for each place where its sequence occurs first; nothing if none occurs again."""
    seen: dict[int, int] = {}
    firsts = list(map(seen.setdefault, grams, count()))
    return firsts if len(seen) < len(firsts) else []


def _repeated(firsts: list[int]) -> list[int]:
    """Return the places of sequences that occurred before."""
    return list(compress(count(), map(ne, firsts, count())))
