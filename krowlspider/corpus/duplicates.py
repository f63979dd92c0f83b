"""The fingerprints of all accepted pages, on disk: memory does not grow with them.

A page and its keys are one batch, and a page that finds itself is no duplicate. So reading a slice
again after a kill gives the same answers, and each page is accepted once. All texts under one key
are one value: most keys are of one text, and LevelDB's filters tell without a read that a key is
not there. A search for keys that begin alike would read a block of each level.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import plyvel

from krowlspider.corpus.minhash import PLACES, bands, differing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
# Bytes that LevelDB collects in memory, at most twice. A page has keys all over the index, so each
# buffer is merged with all of it.
_BUFFER = 64 * 1024 * 1024
# Bytes of an exact hash, and of a SimHash with one.
_HASH, _NEAR = 16, 24


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
    """Remembers the fingerprints of accepted pages in a LevelDB, ``db``.

    Near duplicates are pages whose SimHashes differ in ``bits`` bits at most, and pages that share
    ``similarity`` of their sequences of words, by MinHash. With None such pages are not looked for.
    """

    def __init__(self, folder: Path, bits: int | None = None, similarity: float | None = None):
        self.db = plyvel.DB(
            str(folder), create_if_missing=True, bloom_filter_bits=10, write_buffer_size=_BUFFER
        )
        self._bits = bits
        self._places = None if similarity is None else round(PLACES * (1 - similarity))

    def take(self, place: Place, fingerprints: Fingerprints) -> Found | None:
        """Return the page that this one repeats. If there is none, remember it and return None."""

        def came_before(other: Place) -> bool:
            # Pages after this one were remembered before a kill.
            return other.file != place.file or other[1:] < place[1:]

        found = self.find(fingerprints, came_before)
        if found is None:
            with self.db.write_batch() as batch:
                self.remember(batch, place, fingerprints)
        return None if found is None or found.place == place else found

    def find(
        self, fingerprints: Fingerprints, counts: Callable[[Place], bool] = lambda _: True
    ) -> Found | None:
        """Return the remembered page that a page repeats: the same text, or else the nearest.

        Near duplicates must be in a place that ``counts``.
        """
        stored = self.db.get(_EXACT + fingerprints.exact)
        if stored is not None:
            return Found(Place.load(stored), 0)
        found = (*self._near(fingerprints), *self._similar(fingerprints))
        return min(
            (each for each in found if counts(each.place)),
            key=lambda each: (each.distance, each.place),
            default=None,
        )

    def remember(self, batch: Any, place: Place, fingerprints: Fingerprints) -> None:
        """Add a page, which repeats no other, with a batch of ``db``."""
        exact, value = fingerprints.exact, place.dump()
        batch.put(_EXACT + exact, value)
        near = fingerprints.simhash.to_bytes(8, "big") + exact
        for key in self._keys(fingerprints):
            self._append(batch, key, near)
        band_keys = self._band_keys(fingerprints)
        for key in band_keys:
            self._append(batch, key, exact)
        if band_keys:
            batch.put(_SIGNATURE + exact, fingerprints.minhash)

    def _append(self, batch: Any, key: bytes, entry: bytes) -> None:
        known = self.db.get(key, b"")
        if len(known) < _COMPARED * len(entry):
            batch.put(key, known + entry)

    def _keys(self, fingerprints: Fingerprints) -> list[bytes]:
        return [] if self._bits is None else _keys(fingerprints.simhash)

    def _band_keys(self, fingerprints: Fingerprints) -> list[bytes]:
        if self._places is None:
            return []
        return [_BAND + key for key in bands(fingerprints.minhash)]

    def _near(self, fingerprints: Fingerprints) -> Iterator[Found]:
        for key in self._keys(fingerprints):
            for entry in _entries(self.db.get(key, b""), _NEAR):
                distance = (int.from_bytes(entry[:8], "big") ^ fingerprints.simhash).bit_count()
                if self._bits is not None and distance <= self._bits:
                    yield Found(self._place(entry[8:]), distance)

    def _similar(self, fingerprints: Fingerprints) -> Iterator[Found]:
        lists = map(self.db.get, self._band_keys(fingerprints))
        for other in {other for each in lists for other in _entries(each or b"", _HASH)}:
            distance = differing(self.db.get(_SIGNATURE + other), fingerprints.minhash)
            if self._places is not None and distance <= self._places:
                yield Found(self._place(other), distance)

    def _place(self, exact: bytes) -> Place:
        return Place.load(self.db.get(_EXACT + exact))

    def sync(self) -> None:
        """Make what is remembered durable."""
        self.db.put(_MARK, b"", sync=True)

    def close(self) -> None:
        self.db.close()


# A page is looked up first, and then remembered.
@lru_cache(maxsize=1)
def _keys(simhash: int) -> list[bytes]:
    return [_key(pair, simhash) for pair in range(len(_PAIRS))]


def _entries(value: bytes, size: int) -> Iterator[bytes]:
    return (value[start : start + size] for start in range(0, len(value), size))


def _key(pair: int, simhash: int) -> bytes:
    """Return the key of texts whose two blocks of this pair are the same."""
    bits = 0
    for block in _PAIRS[pair]:
        width = _BLOCKS[block]
        bits = bits << width | (simhash >> (64 - _STARTS[block] - width)) & ((1 << width) - 1)
    return bytes((pair,)) + bits.to_bytes(4, "big")
