"""Pure: the MinHash of a text, and the keys under which similar texts are found.

Each sequence of five words is hashed once; its hash decides for which place of the signature it
counts (one permutation hashing, Li et al. 2012). An empty place takes the number of another that
hashing chooses, so that short texts can be compared too (Shrivastava 2017).
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import repeat
from operator import eq, rshift

from xxhash import xxh3_64_digest, xxh3_64_intdigest

PLACES = 128
_BANDS = 16
# Words of a sequence, and bits of a hash that choose the place.
_WORDS = 5
_CHOOSING = 7
_LANE = 64
_SHIFT = 12
_LOW = (1 << 16) - 1
_FORM = struct.Struct(f"<{PLACES}H")


def signature(hashes: list[bytes]) -> bytes:
    """Return the signature of words, given their hashes of 8 bytes; none for fewer than five."""
    count = len(hashes) - _WORDS + 1
    if count < 1:
        return b""
    words = int.from_bytes(b"".join(hashes), "little")
    # Each sequence takes 64 bits of each word and the next, at another place for each word.
    mixed = words
    for place in range(1, _WORDS - 1):
        mixed ^= words >> (_LANE + _SHIFT) * place
    data = mixed.to_bytes(_LANE // 8 * len(hashes), "little")
    found = sorted(struct.unpack_from(f"<{count}Q", data), reverse=True)
    # The least of each place comes last, and stays.
    least = dict(zip(map(rshift, found, repeat(_LANE - _CHOOSING)), found, strict=True))
    places = (place if place in least else _other(place, least) for place in range(PLACES))
    return _FORM.pack(*(least[place] & _LOW for place in places))


def _other(place: int, filled: dict[int, int]) -> int:
    return next(other for other in _others(place) if other in filled)


@cache
def _others(place: int) -> list[int]:
    """Return where an empty place looks for a number, in this order."""
    chosen = [xxh3_64_intdigest(bytes((place, turn))) % PLACES for turn in range(PLACES)]
    return [*chosen, *range(PLACES)]


def bands(signature: bytes) -> list[bytes]:
    """Return keys, of which two texts that are 80 % alike share one with a probability of 0.95."""
    size = len(signature) // _BANDS
    return [
        bytes((band,)) + xxh3_64_digest(signature[band * size : (band + 1) * size])
        for band in range(_BANDS)
        if signature
    ]


def differing(one: bytes, other: bytes) -> int:
    """Return in how many places two signatures differ."""
    equal: int = sum(map(eq, _FORM.unpack(one), _FORM.unpack(other)))
    return PLACES - equal
