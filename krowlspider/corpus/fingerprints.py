"""Pure: the hash of a text for exact duplicates, and its SimHash for near ones."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_128_digest

# Words at the beginning of a text that its SimHash is made of.
_WORDS_MAX = 2000
_BITS = 64


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
    """Return for each bit of the hashes whether more than half of the features have it."""
    # Fold the hashes upon each other. Bit n of the numbers in all planes is the count of bit n.
    planes = [int.from_bytes(b"".join(map(xxh3_64_digest, features)), "big")]
    size = len(features)
    for step in range((size - 1).bit_length() - 1, -1, -1):
        half = _BITS << step
        mask, carry, folded = (1 << half) - 1, 0, []
        for plane in planes:
            one, other = plane >> half, plane & mask
            either = one ^ other
            folded.append(either ^ carry)
            carry = one & other | carry & either
        planes = [*folded, carry]
    more, equal = 0, (1 << _BITS) - 1
    for place in range(len(planes) - 1, -1, -1):
        if size // 2 >> place & 1:
            equal &= planes[place]
        else:
            more |= equal & planes[place]
            equal &= ~planes[place]
    return more
