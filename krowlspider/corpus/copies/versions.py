"""The versions of a URL in the corpus: which texts it had, which came before which, which is last.

Keys are in the LevelDB of the fingerprints. As there, a page that finds itself was read again after
a kill.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from xxhash import xxh3_128_digest

from krowlspider.archive.payload import parsed
from krowlspider.corpus.copies.place import PagePlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.corpus.record import Line

# What is read for a URL: each version, or only the one that it had last.
ALL, LAST = "all", "last"
VERSIONS = (ALL, LAST)
# Keys behind which the digest of a URL stands: alone, for the place of its only version, or nothing
# if it has several; with a text that it had; with time and place of a version; with time and place
# of a fetch; alone, for its last version.
_URL, _TEXT, _VERSION, _FETCH, _LAST = b"u", b"t", b"v", b"f", b"w"
# In the place of the digest of a URL.
NO_URL = bytes(16)
# Digits of a date down to nanoseconds; pages without a date come last.
_DIGITS = 23
_NO_DIGIT = re.compile(r"[^0-9]")

_pack = msgspec.msgpack.Encoder().encode


class Version(NamedTuple):
    """A page as a version of its URL: digest of the URL, the date as digits, and the record's id.

    ``core`` is the fingerprint by which versions are told apart.
    """

    url: bytes
    date: bytes
    record_id: str
    core: bytes


class _Fetch(NamedTuple):
    """A fetch of a URL; ``core`` is empty for a revisit, and for a page that refuses the corpus."""

    payload: bytes
    core: bytes
    is_revisit: bool


class Last(NamedTuple):
    """The version that a URL had last: where it was fetched first, and its text."""

    place: PagePlace
    core: bytes


_fetch = msgspec.msgpack.Decoder(_Fetch).decode
_last = msgspec.msgpack.Decoder(Last).decode


def version_of(line: Line) -> Version:
    """Return the version that an accepted page is."""
    fetch = line.fetch
    assert fetch is not None
    return Version(
        url_digest(fetch.resource or line.url), date_digits(fetch.date), fetch.record_id, line.core
    )


def url_digest(url: str) -> bytes:
    return xxh3_128_digest(url.encode(errors="replace"))


def date_digits(date: str) -> bytes:
    """Return the digits of a date, so that dates sort as bytes do."""
    digits = _NO_DIGIT.sub("", date)[:_DIGITS]
    return (digits.ljust(_DIGITS, "0") if digits else "9" * _DIGITS).encode()


class Versions:
    """Knows the versions of each URL."""

    def __init__(self, db: Any):
        self._db = db

    def known(self, version: Version) -> PagePlace | None:
        """Return the place where the URL had this text first; None if it is new."""
        stored = self._db.get(_TEXT + version.url + version.core)
        return None if stored is None else PagePlace.load(stored)

    def remember(self, batch: Any, place: PagePlace, version: Version) -> None:
        """Add a version with a batch."""
        url = version.url
        is_first = self._db.get(_URL + url) is None
        batch.put(_URL + url, place.dump() if is_first else b"")
        batch.put(_TEXT + url + version.core, place.dump())
        batch.put(_VERSION + url + version.date + place.sortable(), version.record_id.encode())

    def previous(
        self, place: PagePlace, version: Version, counts: Callable[[PagePlace], bool]
    ) -> str | None:
        """Return the id of the record of the version before this one in time; None without one.

        Its place must be one that ``counts``.
        """
        # Most URLs have one version: they need no search.
        if self._db.get(_URL + version.url) == place.dump():
            return None
        start = _VERSION + version.url
        stop = start + version.date + place.sortable()
        with self._db.iterator(start=start, stop=stop, reverse=True) as versions:
            for key, record_id in versions:
                if counts(PagePlace.of_sortable(key[len(start) + _DIGITS :])):
                    found: str = record_id.decode()
                    return found
        return None

    def add_fetch(self, batch: Any, place: PagePlace, line: Line) -> None:
        """Note a fetch, from which `last` is found: a page, or a revisit."""
        fetch = line.fetch
        assert fetch is not None
        algorithm, raw = parsed(fetch.digest)
        payload = xxh3_128_digest(f"{algorithm}:".encode() + _bytes(raw)) if raw else b""
        core = b"" if line.refusal is not None else line.core
        url = fetch.resource or line.url
        key = _FETCH + url_digest(url) + date_digits(fetch.date) + place.sortable()
        batch.put(key, _pack(_Fetch(payload, core, fetch.is_revisit)))

    def last(self, url: bytes) -> Last | None:
        """Return the version that a URL had last, once all fetches are noted.

        A revisit counts for the version of the same URL with its payload, if there is one. If the
        last version refuses the corpus, its text is empty.
        """
        known = self._db.get(_LAST + url)
        if known is None:
            known = _pack(self._found_last(url))
            self._db.put(_LAST + url, known)
        return msgspec.msgpack.decode(known, type=Last | None)

    def _found_last(self, url: bytes) -> Last | None:
        again: dict[bytes, bytes] = {}
        best: tuple[bytes, Last] | None = None
        start = _FETCH + url
        # From the latest fetch on, so that each payload has the time at which it was found last.
        with self._db.iterator(prefix=start, reverse=True) as fetches:
            for key, value in fetches:
                rest, fetch = key[len(start) :], _fetch(value)
                if fetch.is_revisit:
                    if fetch.payload:
                        again.setdefault(fetch.payload, rest)
                    continue
                when = again.get(fetch.payload, rest)
                place = PagePlace.of_sortable(rest[_DIGITS:])
                if best is None or when > best[0]:
                    best = when, Last(place, fetch.core)
                elif fetch.core and fetch.core == best[1].core:
                    # An earlier fetch of the same text.
                    best = best[0], Last(place, fetch.core)
        return None if best is None else best[1]


def _bytes(raw: bytes | str) -> bytes:
    return raw if isinstance(raw, bytes) else raw.encode(errors="replace")
