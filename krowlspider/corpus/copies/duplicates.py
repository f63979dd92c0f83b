"""The fingerprints of all accepted pages on disk, and which copy of a page is kept.

The fingerprints of all accepted pages, on disk: memory does not grow with them. A page and its keys
are one batch, and a page that finds itself is no duplicate. So reading a slice again after a kill
gives the same answers, and each page is accepted once. All texts under one key are one value: most
keys are of one text, and LevelDB's filters tell without a read that a key is not there. A search
for keys that begin alike would read a block of each level.

Which copy of a page is kept: the one that is read first, or the best by a rule. A rule puts all
pages into one order. They are compared in this order, and a page that repeats one before it is
dropped. So no page is kept beside a better copy, whatever the order of WARC files.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import plyvel
from xxhash import xxh3_128_digest

from krowlspider.corpus.copies.fingerprints import (
    PLACES,
    Fingerprints,
    bands,
    bits_apart,
    overlap,
    sketch,
)
from krowlspider.corpus.copies.place import PagePlace
from krowlspider.corpus.copies.versions import (
    LAST,
    NO_URL,
    Version,
    Versions,
    date_digits,
    url_digest,
    version_of,
)
from krowlspider.corpus.folder import LINES, Slice, read_lines
from krowlspider.corpus.record import Line
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


class DuplicateMatch(NamedTuple):
    """The page for which another is left out, and the rule.

    ``overlap`` is the share of their sequences of words that near duplicates have in common.
    """

    place: PagePlace
    rule: str
    overlap: float | None = None


class _Near(NamedTuple):
    """A page that has enough in common with another, and whether both are of one URL."""

    place: PagePlace
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
        self, place: PagePlace, fingerprints: Fingerprints, version: Version | None = None
    ) -> DuplicateMatch | None:
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
        counts: Callable[[PagePlace], bool] = lambda _: True,
    ) -> DuplicateMatch | None:
        """Return the remembered page that a page repeats: the same text, or else the most similar.

        If that is another version of its URL, the page is a new version, and repeats none. Near
        duplicates and versions must be in a place that ``counts``.
        """
        if version is not None:
            known = self.versions.known(version)
            if known is not None and counts(known):
                return DuplicateMatch(known, KNOWN_VERSION)
        stored = self.db.get(_EXACT + fingerprints.exact)
        if stored is not None:
            return DuplicateMatch(PagePlace.load(stored[_HEAD:]), DUPLICATE)
        near = min(
            (each for each in self._similar(fingerprints, _url(version)) if counts(each.place)),
            key=lambda each: (-each.overlap, not each.is_version, each.place),
            default=None,
        )
        if near is None or near.is_version:
            return None
        return DuplicateMatch(near.place, NEAR_DUPLICATE, near.overlap)

    def remember(
        self, batch: Any, place: PagePlace, fingerprints: Fingerprints, version: Version | None
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
                yield _Near(PagePlace.load(stored[_HEAD:]), round(share, 3), is_version)

    def sync(self) -> None:
        """Make what is remembered durable."""
        self.db.put(_MARK, b"", sync=True)

    def close(self) -> None:
        self.db.close()


def _url(version: Version | None) -> bytes:
    return NO_URL if version is None else version.url


FIRST = "first"
# Keys in the LevelDB of the index, of which no other begins like these; those of ranks end before
# `_RANK_END`.
_ADDED, _LOST, _NAMED, _POSITION, _RANK = b"a", b"l", b"n", b"p", b"r"
_RANK_END = b"s"
# A page that others name as canonical, one that names none, and one that names another.
_CANONICAL, _UNNAMED, _OTHER = b"\0", b"\1", b"\2"
# Pages that are read from the index at once.
_PART = 10_000


class RecordFacts(msgspec.Struct):
    """What rules need to know of a record."""

    url: str
    date: str
    canonical: str | None = None


class _Page(NamedTuple):
    """``name`` is the digest of its URL in normal form."""

    place: PagePlace
    fingerprints: Fingerprints
    name: bytes
    version: Version


def _shortest(about: RecordFacts) -> bytes:
    return len(about.url).to_bytes(4, "big")


def _canonical(about: RecordFacts) -> bytes:
    if not about.canonical:
        return _UNNAMED
    return _CANONICAL if about.canonical == _normal(about.url) else _OTHER


def _normal(url: str) -> str:
    return normalise(url) or url


_RANKS: dict[str, Callable[[RecordFacts], bytes]] = {
    FIRST: lambda _: b"",
    "oldest": lambda _: b"",
    "canonical": _canonical,
    "shortest": _shortest,
}
KEEP = tuple(_RANKS)

_line = msgspec.json.Decoder(Line).decode
_about = msgspec.json.Decoder(RecordFacts).decode
_pack = msgspec.msgpack.Encoder().encode
_page = msgspec.msgpack.Decoder(_Page).decode
_found = msgspec.msgpack.Decoder(DuplicateMatch).decode


class Copies(Protocol):
    """Says of each page which one it repeats."""

    def repeated_by(self, place: PagePlace, line: Line) -> DuplicateMatch | None:
        """Return the page that is kept in the place of this one; None if this one is kept."""

    def previous(self, place: PagePlace, line: Line) -> str | None:
        """Return the record id of the version before a page that is kept; None if it is the first
        version of its URL."""

    def sync(self) -> None:
        """Make durable what `repeated_by` decided."""


class FirstCopies:
    """Keeps the copy that is read first. With ``exact``, texts of the same words are copies."""

    def __init__(self, index: DuplicateIndex, *, exact: bool):
        self._index = index
        self._exact = exact

    def repeated_by(self, place: PagePlace, line: Line) -> DuplicateMatch | None:
        prints = _fingerprints(place, line, exact=self._exact)
        return self._index.take(place, prints, version_of(line))

    def previous(self, place: PagePlace, line: Line) -> str | None:
        return self._index.versions.previous(place, version_of(line), place.is_behind)

    def sync(self) -> None:
        self._index.sync()


class RankedCopies:
    """Keeps the copy that comes first by a rule, a name in KEEP, of the ``versions`` of each URL.

    All pages are added, then the copies are chosen, and only then `repeated_by` knows them. The
    decision on a page and the position behind it are one batch, so a kill repeats none.
    """

    def __init__(self, index: DuplicateIndex, rule: str, versions: str, *, exact: bool):
        self._index = index
        self._versions = index.versions
        self._db = index.db
        self._rank = _RANKS[rule]
        # Otherwise the date decides between equal ranks.
        self._is_by_place = rule == FIRST
        self._is_last_alone = versions == LAST
        self._exact = exact

    @property
    def is_closed(self) -> bool:
        """Return whether copies are being chosen, or were: then no slice can be added."""
        return self._db.get(_POSITION) is not None

    def has(self, part: Slice) -> bool:
        """Return whether the pages of a slice were added."""
        return self._db.get(_ADDED + part.name.encode()) is not None

    def admits(self, part: Slice) -> bool:
        """Return whether a slice has been added, or can be: not once copies are being chosen."""
        return not self.is_closed or self.has(part)

    def add(self, part: Slice, work: Path) -> None:
        """Add the pages of a slice, whose lines are in the folder ``work``. Raises OSError."""
        with self._db.write_batch(transaction=True) as batch:
            for line in map(_line, read_lines(work / (part.name + LINES))):
                place = PagePlace(part.file, line.offset, line.number)
                if self._is_last_alone and line.fetch is not None:
                    self._versions.add_fetch(batch, place, line)
                if line.refusal is not None or line.is_revisit:
                    continue
                about = _about(line.record)
                prints = _fingerprints(place, line, exact=self._exact)
                page = _Page(place, prints, url_digest(_normal(about.url)), version_of(line))
                batch.put(self._key(about, place), _pack(page))
                if about.canonical:
                    batch.put(_NAMED + url_digest(about.canonical), b"")
            batch.put(_ADDED + part.name.encode(), b"")

    def _key(self, about: RecordFacts, place: PagePlace) -> bytes:
        """Return a key by whose order pages are compared: equal ranks by date, then by place."""
        date = b"" if self._is_by_place else date_digits(about.date)
        return _RANK + self._rank(about) + date + place.sortable()

    def choose(self) -> Iterator[None]:
        """Decide which copies are kept; yield after each page. A second call goes on."""
        if self._rank is _canonical and not self.is_closed:
            self._raise_named()
        while part := list(islice(self._left(), _PART)):
            for key, value in part:
                self._decide(key, _page(value))
                yield
        self._index.sync()

    def _raise_named(self) -> None:
        """Put pages that name no page, but that another names, among the canonical ones."""
        start, stop = _RANK + _UNNAMED, _RANK + _OTHER
        for key, value in self._db.iterator(start=start, stop=stop):
            if self._db.get(_NAMED + _page(value).name) is not None:
                with self._db.write_batch(transaction=True) as batch:
                    batch.delete(key)
                    batch.put(_RANK + _CANONICAL + key[len(start) :], value)

    def _left(self) -> Iterator[tuple[bytes, bytes]]:
        start = self._db.get(_POSITION) or _RANK
        with self._db.iterator(start=start, stop=_RANK_END, include_start=False) as pages:
            yield from pages

    def _decide(self, key: bytes, page: _Page) -> None:
        found = self._left_out(page) if self._is_last_alone else None
        found = found or self._index.find(page.fingerprints, page.version)
        with self._db.write_batch(transaction=True) as batch:
            if found is None:
                self._index.remember(batch, page.place, page.fingerprints, page.version)
            else:
                batch.put(_LOST + page.place.dump(), _pack(found))
            batch.put(_POSITION, key)

    def _left_out(self, page: _Page) -> DuplicateMatch | None:
        """Return the last version of a page's URL, if the page is another."""
        last = self._versions.last(page.version.url)
        if last is None or last.place == page.place:
            return None
        is_same = last.core == page.version.core
        return DuplicateMatch(last.place, KNOWN_VERSION if is_same else OLDER_VERSION)

    def previous(self, place: PagePlace, line: Line) -> str | None:
        return self._versions.previous(place, version_of(line), lambda _: True)

    def repeated_by(self, place: PagePlace, line: Line) -> DuplicateMatch | None:
        value = self._db.get(_LOST + place.dump())
        return None if value is None else _found(value)

    def sync(self) -> None:
        """Do nothing: `choose` made its decisions durable."""


def _fingerprints(place: PagePlace, line: Line, *, exact: bool) -> Fingerprints:
    prints = Fingerprints(line.exact, line.minhash, line.core)
    return prints if exact else prints._replace(exact=xxh3_128_digest(place.dump()))
