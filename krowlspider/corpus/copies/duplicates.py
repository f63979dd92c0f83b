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
from krowlspider.corpus.copies.place import Place
from krowlspider.corpus.copies.versions import NO_URL, Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from krowlspider.corpus.copies.fingerprints import Fingerprints
    from krowlspider.corpus.copies.versions import Version

# The rules for pages that repeat another, and for versions of a URL that are left out. The value is
# the place of the other page.
DUPLICATE, NEAR_DUPLICATE = "duplicate", "near_duplicate"
KNOWN_VERSION, OLDER_VERSION = "known_version", "older_version"
# By the exact hash of a text its MinHash, the digest of its URL and its place; by each band of a
# MinHash the texts that have it, with their sketches.
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
# Bytes of a MinHash and the digest of a URL.
_HEAD = PLACES + len(NO_URL)


class Found(NamedTuple):
    """The page for which another is left out, and the rule.

    ``overlap`` is the share of their sequences of words that near duplicates have in common.
    """

    place: Place
    rule: str
    overlap: float | None = None


class _Near(NamedTuple):
    """A page that has enough in common with another, and whether both are of one URL."""

    place: Place
    overlap: float
    is_version: bool


class DuplicateIndex:
    """Remembers the fingerprints of accepted pages in a LevelDB, ``db``.

    Near duplicates are pages that share ``similarity`` of their sequences of words, as estimated by
    MinHash. With None such pages are not looked for.
    """

    def __init__(self, folder: Path, similarity: float | None = None):
        self.db = plyvel.DB(
            str(folder), create_if_missing=True, bloom_filter_bits=10, write_buffer_size=_BUFFER
        )
        self.versions = Versions(self.db)
        self._similarity = similarity
        self._apart = 0 if similarity is None else bits_apart(similarity)

    def take(
        self, place: Place, fingerprints: Fingerprints, version: Version | None = None
    ) -> Found | None:
        """Return the page that this one repeats. If there is none, remember it and return None.

        Without a ``version``, the page is one of no URL.
        """
        found = self.find(fingerprints, version, place.is_behind)
        if found is None:
            with self.db.write_batch() as batch:
                self.remember(batch, place, fingerprints, version)
        return None if found is None or found.place == place else found

    def find(
        self,
        fingerprints: Fingerprints,
        version: Version | None,
        counts: Callable[[Place], bool] = lambda _: True,
    ) -> Found | None:
        """Return the remembered page that a page repeats: the same text, or else the most similar.

        If that is another version of its URL, the page is a new version, and repeats none. Near
        duplicates and versions must be in a place that ``counts``.
        """
        if version is not None:
            known = self.versions.known(version)
            if known is not None and counts(known):
                return Found(known, KNOWN_VERSION)
        stored = self.db.get(_EXACT + fingerprints.exact)
        if stored is not None:
            return Found(Place.load(stored[_HEAD:]), DUPLICATE)
        near = min(
            (each for each in self._similar(fingerprints, _url(version)) if counts(each.place)),
            key=lambda each: (-each.overlap, not each.is_version, each.place),
            default=None,
        )
        if near is None or near.is_version:
            return None
        return Found(near.place, NEAR_DUPLICATE, near.overlap)

    def remember(
        self, batch: Any, place: Place, fingerprints: Fingerprints, version: Version | None
    ) -> None:
        """Add a page, which repeats no other, with a batch of ``db``."""
        exact, minhash = fingerprints.exact, fingerprints.minhash
        batch.put(_EXACT + exact, (minhash or _NONE) + _url(version) + place.dump())
        if version is not None:
            self.versions.remember(batch, place, version)
        keys = self._keys(minhash)
        if keys:
            entry = sketch(minhash).to_bytes(_SKETCH, "big") + exact
        for key in keys:
            known = self.db.get(key, b"")
            if len(known) < _COMPARED * _ENTRY:
                batch.put(key, known + entry)

    def _keys(self, minhash: bytes) -> list[bytes]:
        return [] if self._similarity is None else [_BAND + key for key in bands(minhash)]

    def _similar(self, fingerprints: Fingerprints, url: bytes) -> Iterator[_Near]:
        """Yield the pages under the keys of a page of a URL that have enough in common with it."""
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
                is_version = stored[PLACES:_HEAD] == url != NO_URL
                yield _Near(Place.load(stored[_HEAD:]), round(share, 3), is_version)

    def sync(self) -> None:
        """Make what is remembered durable."""
        self.db.put(_MARK, b"", sync=True)

    def close(self) -> None:
        self.db.close()


def _url(version: Version | None) -> bytes:
    return NO_URL if version is None else version.url
