"""Repeated sequences are those of the plain way to count them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from krowlspider.corpus.quality.repetition import WORDS_MAX, Sequences


def plain_top(words: list[str], size: int) -> float:
    grams = [tuple(words[n : n + size]) for n in range(len(words) - size + 1)]
    if len(words) < 2 * size:
        return 0.0
    gram, count = Counter(grams).most_common(1)[0]
    return count * len("".join(gram)) / len("".join(words)) if count > 1 else 0.0


def plain_covered(words: list[str], size: int) -> float:
    seen: set[tuple[str, ...]] = set()
    covered: set[int] = set()
    for start in range(len(words) - size + 1):
        gram = tuple(words[start : start + size])
        if gram in seen:
            covered.update(range(start, start + size))
        seen.add(gram)
    return sum(len(words[n]) for n in covered) / (len("".join(words)) or 1)


@pytest.mark.parametrize("known", [1, 3, 40, 2000])
def test_sequences_agree_with_plain_counts(known: int) -> None:
    chance = random.Random(known)
    for length in (0, 1, 4, 9, 10, 57, 300, WORDS_MAX):
        words = [f"w{chance.randrange(known):x}" for _ in range(length)]
        # A stretch that occurs again, so that ten words repeat where few words are known.
        words = (words[: length // 2] + words[5:25] + words)[:length]
        found = Sequences(words)
        for size in (2, 3, 4):
            assert found.top(size) == plain_top(words, size)
            assert found.top(size) <= found.top_at_most(size)
        for size in range(5, 11):
            assert found.covered(size) == plain_covered(words, size)
            assert found.covered(size) <= found.covered(5)
            assert found.covered(size) <= found.covered_at_most(size)
