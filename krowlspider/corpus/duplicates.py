"""The fingerprints of all accepted pages, on disk: memory does not grow with them.

A page and its keys are one batch, and a page that finds itself is no duplicate. So reading a slice
again after a kill gives the same answers, and each page is accepted once.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import plyvel

if TYPE_CHECKING:
    from pathlib import Path

# Bits in which near duplicates may differ. Then two of five blocks of bits at least are equal
# (Manku et al. 2007, section 3).
BITS_MAX = 3
_BLOCKS = (13, 13, 13, 13, 12)
_STARTS = (0, 13, 26, 39, 52)
_PAIRS = list(combinations(range(5), 2))
_EXACT = b"x"
_MARK = b"m"
# Texts under one pair of blocks that are compared: a hostile site could make millions.
_COMPARED = 1000


class Place(NamedTuple):
    """Where a page is: WARC file, offset, and number among the responses of its slice."""

    file: str
    offset: int
    number: int

    def dump(self) -> bytes:
        return f"{self.offset}\t{self.number}\t{self.file}".encode()

    @classmethod
    def load(cls, data: bytes) -> Place:
        offset, number, file = data.decode().split("\t", 2)
        return cls(file, int(offset), int(number))


class Found(NamedTuple):
    """The page of which another is a duplicate, and in how many bits their SimHashes differ."""

    place: Place
    distance: int


class DuplicateIndex:
    """Remembers the fingerprints of accepted pages in a LevelDB of its own."""

    def __init__(self, folder: Path):
        self._db = plyvel.DB(str(folder), create_if_missing=True, bloom_filter_bits=10)

    def take(self, place: Place, exact: bytes, simhash: int, near: int | None) -> Found | None:
        """Return the page that this one repeats. If there is none, remember it and return None."""
        stored = self._db.get(_EXACT + exact)
        if stored is not None:
            first = Place.load(stored)
            return None if first == place else Found(first, 0)
        keys = [_key(pair, simhash) for pair in range(len(_PAIRS))] if near is not None else []
        found = self._near(keys, simhash, near, place) if near is not None else None
        if found is None:
            value = place.dump()
            with self._db.write_batch() as batch:
                batch.put(_EXACT + exact, value)
                for key in keys:
                    batch.put(key + exact[:4], simhash.to_bytes(8, "big") + value)
        return found

    def _near(self, keys: list[bytes], simhash: int, near: int, place: Place) -> Found | None:
        best: Found | None = None
        for key in keys:
            with self._db.iterator(prefix=key, include_key=False) as values:
                for value, _ in zip(values, range(_COMPARED), strict=False):
                    distance = (int.from_bytes(value[:8], "big") ^ simhash).bit_count()
                    if distance > near:
                        continue
                    other = Place.load(value[8:])
                    # Pages after this one were remembered before a kill.
                    if other.file == place.file and other[1:] >= place[1:]:
                        continue
                    if best is None or (distance, other) < (best.distance, best.place):
                        best = Found(other, distance)
        return best

    def sync(self) -> None:
        """Make what is remembered durable."""
        self._db.put(_MARK, b"", sync=True)

    def close(self) -> None:
        self._db.close()


def _key(pair: int, simhash: int) -> bytes:
    """Return the prefix of texts whose two blocks of this pair are the same."""
    bits = 0
    for block in _PAIRS[pair]:
        width = _BLOCKS[block]
        bits = bits << width | (simhash >> (64 - _STARTS[block] - width)) & ((1 << width) - 1)
    return bytes((pair,)) + bits.to_bytes(4, "big")
