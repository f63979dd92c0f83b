"""The fingerprints of all accepted pages, on disk: memory does not grow with them.

A page and its keys are one batch, and a page that finds itself is no duplicate. So reading a slice
again after a kill gives the same answers, and each page is accepted once. All texts under one key
are one value: most keys are of one text, and LevelDB's filters tell without a read that a key is
not there. A search for keys that begin alike would read a block of each level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import plyvel

from krowlspider.corpus.copies.fingerprints import PLACES, bands, bits_apart, overlap, sketch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from krowlspider.corpus.copies.fingerprints import Fingerprints

# By the exact hash of a text its MinHash and its place; by each band of a MinHash the texts that
# have it, with their sketches.
_EXACT = b"x"
_BAND = b"b"
_MARK = b"m"
# Texts under one key that are compared: a hostile site could make millions.
_COMPARED = 1000
# Bytes that LevelDB collects in memory, at most twice. A page has keys all over the index, so each
# buffer is merged with all of it.
_BUFFER = 64 * 1024 * 1024
# Bytes of a sketch, and of one with an exact hash.
_SKETCH, _ENTRY = 8, 24
_NONE = bytes(PLACES)


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
    """The page of which another is a duplicate.

    ``overlap`` is the share of their sequences of words that both have; None if the texts are the
    same.
    """

    place: Place
    overlap: float | None


class DuplicateIndex:
    """Remembers the fingerprints of accepted pages in a LevelDB, ``db``.

    Near duplicates are pages that share ``similarity`` of their sequences of words, as estimated by
    MinHash. With None such pages are not looked for.
    """

    def __init__(self, folder: Path, similarity: float | None = None):
        self.db = plyvel.DB(
            str(folder), create_if_missing=True, bloom_filter_bits=10, write_buffer_size=_BUFFER
        )
        self._similarity = similarity
        self._apart = 0 if similarity is None else bits_apart(similarity)

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
        """Return the remembered page that a page repeats: the same text, or else the most similar.

        Near duplicates must be in a place that ``counts``.
        """
        stored = self.db.get(_EXACT + fingerprints.exact)
        if stored is not None:
            return Found(Place.load(stored[PLACES:]), None)
        return min(
            (each for each in self._similar(fingerprints) if counts(each.place)),
            key=lambda each: (-(each.overlap or 0), each.place),
            default=None,
        )

    def remember(self, batch: Any, place: Place, fingerprints: Fingerprints) -> None:
        """Add a page, which repeats no other, with a batch of ``db``."""
        exact, minhash = fingerprints.exact, fingerprints.minhash
        batch.put(_EXACT + exact, (minhash or _NONE) + place.dump())
        keys = self._keys(minhash)
        if keys:
            entry = sketch(minhash).to_bytes(_SKETCH, "big") + exact
        for key in keys:
            known = self.db.get(key, b"")
            if len(known) < _COMPARED * _ENTRY:
                batch.put(key, known + entry)

    def _keys(self, minhash: bytes) -> list[bytes]:
        return [] if self._similarity is None else [_BAND + key for key in bands(minhash)]

    def _similar(self, fingerprints: Fingerprints) -> Iterator[Found]:
        """Yield the pages under the keys of a page that have enough in common with it."""
        minhash, most = fingerprints.minhash, self._apart
        lists = [known for key in self._keys(minhash) if (known := self.db.get(key))]
        if not lists or self._similarity is None:
            return
        ours, near = sketch(minhash), set()
        for known in lists:
            for start in range(0, len(known), _ENTRY):
                theirs = int.from_bytes(known[start : start + _SKETCH], "big")
                if (ours ^ theirs).bit_count() <= most:
                    near.add(known[start + _SKETCH : start + _ENTRY])
        for exact in near:
            stored = self.db.get(_EXACT + exact)
            share = overlap(stored[:PLACES], minhash)
            if share >= self._similarity:
                yield Found(Place.load(stored[PLACES:]), round(share, 3))

    def sync(self) -> None:
        """Make what is remembered durable."""
        self.db.put(_MARK, b"", sync=True)

    def close(self) -> None:
        self.db.close()
