"""Pure: the hash of a text for exact duplicates, its SimHash and its MinHash for near ones."""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_128_digest

from krowlspider.corpus.minhash import signature

# Words at the beginning of a text that its SimHash and its MinHash are made of.
_WORDS_MAX = 2000
_BITS = 64
# Bits by which the hash of the second word of a pair is rotated, so that "a b" is not "b a".
_ROTATION = 23
# Masks of each 64 bits: those that a shift by _ROTATION keeps inside, and those that wrap round.
_KEPT = int.from_bytes(((1 << _BITS - _ROTATION) - 1).to_bytes(_BITS // 8, "big") * _WORDS_MAX)
_WRAPPED = int.from_bytes(((1 << _ROTATION) - 1).to_bytes(_BITS // 8, "big") * _WORDS_MAX)
# Increase it when a text gets another fingerprint: old and new ones cannot be compared.
VERSION = 2


class Fingerprints(NamedTuple):
    """``exact`` has 16 bytes, equal for texts of the same words in any case and spacing.

    ``simhash`` has 64 bits, of which similar texts differ in few (Charikar 2002). ``minhash`` is
    empty if it was not asked for.
    """

    exact: bytes
    simhash: int
    minhash: bytes = b""


def fingerprints(text: str, *, minhash: bool = False) -> Fingerprints:
    """Return the fingerprints of a text."""
    words = text.lower().encode().split()
    exact = xxh3_128_digest(b" ".join(words))
    if len(text) > 20 * len(words):
        # Written without spaces: its characters take the place of words.
        words = [letter.encode() for letter in text[:_WORDS_MAX]]
    words = words[:_WORDS_MAX]
    hashes = [*map(xxh3_64_digest, words)]
    return Fingerprints(exact, _simhash(hashes), signature(hashes) if minhash else b"")


def _simhash(hashes: list[bytes]) -> int:
    """Return the bits set in more than half of the hashes of words and pairs of neighbouring words.

    ``hashes`` are those of the words, 8 bytes each. The hash of a pair is that of the first word,
    XOR that of the second one rotated left by _ROTATION bits.
    """
    words, pair_count = int.from_bytes(b"".join(hashes)), max(len(hashes) - 1, 0)
    rotated = (words & _KEPT) << _ROTATION | words >> _BITS - _ROTATION & _WRAPPED
    pairs = words >> _BITS ^ rotated & (1 << _BITS * pair_count) - 1
    # Fold the hashes upon each other. Bit n of the numbers in all planes is the count of bit n.
    planes = [words << _BITS * pair_count | pairs]
    size = len(hashes) + pair_count
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
