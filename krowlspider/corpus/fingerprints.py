"""Pure: the hash of a text for exact duplicates, its SimHash and its MinHash for near ones."""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_128_digest

from krowlspider.corpus.minhash import signature

# Words at the beginning of a text that its SimHash and its MinHash are made of.
_WORDS_MAX = 2000
_BITS = 64
# Bits by which the hash of the second word of a pair is turned, so that "a b" is not "b a".
_TURN = 23
# Of each 64 bits, those that stay in place when all are moved up by _TURN, and those behind them.
_MOVED = int.from_bytes(((1 << _BITS - _TURN) - 1).to_bytes(_BITS // 8, "big") * _WORDS_MAX, "big")
_WRAPPED = int.from_bytes(((1 << _TURN) - 1).to_bytes(_BITS // 8, "big") * _WORDS_MAX, "big")
# Grows when texts get other fingerprints than before: they cannot be compared.
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
    """Return the bits that more than half of the hashes have, those of words and their pairs.

    The hash of a pair is that of the first word, with the turned one of the second word by XOR.
    """
    words, before = int.from_bytes(b"".join(hashes), "big"), max(len(hashes) - 1, 0)
    turned = (words & _MOVED) << _TURN | words >> _BITS - _TURN & _WRAPPED
    pairs = words >> _BITS ^ turned & (1 << _BITS * before) - 1
    # Fold the hashes upon each other. Bit n of the numbers in all planes is the count of bit n.
    planes = [words << _BITS * before | pairs]
    size = len(hashes) + before
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
