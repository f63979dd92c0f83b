"""Pure: the hash of a text for exact duplicates, and its SimHash for near ones."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_128_digest

# Words at the beginning of a text that its SimHash is made of.
_WORDS_MAX = 2000


class Fingerprints(NamedTuple):
    """``exact`` has 16 bytes, equal for texts of the same words in any case and spacing.

    ``simhash`` has 64 bits, of which similar texts differ in few (Charikar 2002).
    """

    exact: bytes
    simhash: int


def fingerprints(text: str) -> Fingerprints:
    """Return the fingerprints of a text."""
    words = text.lower().encode().split()
    return Fingerprints(xxh3_128_digest(b" ".join(words)), _simhash(_features(text, words)))


def _features(text: str, words: list[bytes]) -> list[bytes]:
    """Return words and pairs of words; of text without spaces, characters and pairs of these."""
    if len(text) > 20 * len(words):
        words = [letter.encode() for letter in text[:_WORDS_MAX]]
    words = words[:_WORDS_MAX]
    return [*words, *map(b" ".join, pairwise(words))]


def _simhash(features: list[bytes]) -> int:
    hashes = b"".join(map(xxh3_64_digest, features))
    size = len(features)
    ones, found = int.from_bytes(b"\1" * size, "big"), 0
    for place in range(8):
        column = int.from_bytes(hashes[place::8], "big")
        for bit in range(7, -1, -1):
            found = found << 1 | ((column >> bit & ones).bit_count() > size // 2)
    return found
