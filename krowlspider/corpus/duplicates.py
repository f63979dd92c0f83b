"""The fingerprints of all accepted pages, on disk: memory does not grow with them.

A page and its keys are one batch, and a page that finds itself is no duplicate. So reading a slice
again after a kill gives the same answers, and each page is accepted once.
"""

from __future__ import annotations

from itertools import combinations, islice
from typing import TYPE_CHECKING, NamedTuple

import plyvel

from krowlspider.corpus.minhash import PLACES, bands, differing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.corpus.fingerprints import Fingerprints

# Bits in which near duplicates may differ. Then two of five blocks of bits at least are equal
# (Manku et al. 2007, section 3).
BITS_MAX = 3
_BLOCKS = (13, 13, 13, 13, 12)
_STARTS = (0, 13, 26, 39, 52)
_PAIRS = list(combinations(range(5), 2))
_EXACT = b"x"
# The MinHash of a text by its exact hash, and exact hashes by the bands of their MinHashes.
_SIGNATURE = b"s"
_BAND = b"b"
_MARK = b"m"
# Texts under one key that are compared: a hostile site could make millions.
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
    """The page of which another is a duplicate, and the distance of their fingerprints.

    That is the number of bits in which their SimHashes differ, or of places of their MinHashes.
    """

    place: Place
    distance: int


class DuplicateIndex:
    """Remembers the fingerprints of accepted pages in a LevelDB of its own.

    Near duplicates are pages whose SimHashes differ in ``bits`` bits at most, and pages that share
    ``similarity`` of their sequences of words, by MinHash. With None such pages are not looked for.
    """

    def __init__(self, folder: Path, bits: int | None = None, similarity: float | None = None):
        self._db = plyvel.DB(str(folder), create_if_missing=True, bloom_filter_bits=10)
        self._bits = bits
        self._places = None if similarity is None else round(PLACES * (1 - similarity))

    def take(self, place: Place, fingerprints: Fingerprints) -> Found | None:
        """Return the page that this one repeats. If there is none, remember it and return None."""
        stored = self._db.get(_EXACT + fingerprints.exact)
        if stored is not None:
            first = Place.load(stored)
            return None if first == place else Found(first, 0)
        keys = [] if self._bits is None else _keys(fingerprints.simhash)
        band_keys = [] if self._places is None else bands(fingerprints.minhash)
        found = min(
            (
                each
                for each in (
                    *self._near(keys, fingerprints),
                    *self._similar(band_keys, fingerprints),
                )
                # Pages after this one were remembered before a kill.
                if each.place.file != place.file or each.place[1:] < place[1:]
            ),
            key=lambda each: (each.distance, each.place),
            default=None,
        )
        if found is None:
            value = place.dump()
            with self._db.write_batch() as batch:
                batch.put(_EXACT + fingerprints.exact, value)
                for key in keys:
                    batch.put(
                        key + fingerprints.exact[:4],
                        fingerprints.simhash.to_bytes(8, "big") + value,
                    )
                for key in band_keys:
                    batch.put(_BAND + key + fingerprints.exact[:4], fingerprints.exact)
                if band_keys:
                    batch.put(_SIGNATURE + fingerprints.exact, fingerprints.minhash)
        return found

    def _near(self, keys: list[bytes], fingerprints: Fingerprints) -> Iterator[Found]:
        for key in keys:
            for value in self._under(key):
                distance = (int.from_bytes(value[:8], "big") ^ fingerprints.simhash).bit_count()
                if self._bits is not None and distance <= self._bits:
                    yield Found(Place.load(value[8:]), distance)

    def _similar(self, keys: list[bytes], fingerprints: Fingerprints) -> Iterator[Found]:
        for other in {other for key in keys for other in self._under(_BAND + key)}:
            distance = differing(self._db.get(_SIGNATURE + other), fingerprints.minhash)
            if self._places is not None and distance <= self._places:
                yield Found(Place.load(self._db.get(_EXACT + other)), distance)

    def _under(self, prefix: bytes) -> Iterator[bytes]:
        with self._db.iterator(prefix=prefix, include_key=False) as values:
            yield from islice(values, _COMPARED)

    def sync(self) -> None:
        """Make what is remembered durable."""
        self._db.put(_MARK, b"", sync=True)

    def close(self) -> None:
        self._db.close()


def _keys(simhash: int) -> list[bytes]:
    return [_key(pair, simhash) for pair in range(len(_PAIRS))]


def _key(pair: int, simhash: int) -> bytes:
    """Return the prefix of texts whose two blocks of this pair are the same."""
    bits = 0
    for block in _PAIRS[pair]:
        width = _BLOCKS[block]
        bits = bits << width | (simhash >> (64 - _STARTS[block] - width)) & ((1 << width) - 1)
    return bytes((pair,)) + bits.to_bytes(4, "big")
