"""An index of payloads in other crawls: built once, then read by any number of crawls at a time.

It is a LevelDB whose tables are never changed. LevelDB lets one process open a folder, so a reader
opens a view: a folder of its own with links to the tables. `_MARK` is written last; it lists the
files, so that one that is missing or cut is found before the first look-up.
"""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Any

import plyvel
import xxhash
from msgspec import Struct

from krowlspider.archive.disk import write_durably
from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.payloads.digests import Original, is_spelt_as_ours, parsed
from krowlspider.errors import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

# Bytes. While an index is built, LevelDB holds two such buffers.
WRITE_BUFFER = 16 * 1024 * 1024
TABLE_SIZE = 16 * 1024 * 1024
BLOCK_CACHE = 2 * 1024 * 1024
FILTER_BITS = 10

_MARK = "krowlspider-dedup.json"
_FORMAT = 1
# Bytes of the raw digest of each algorithm.
_ALGORITHMS = {"sha1": 20, "sha256": 32}
# First byte of a key: the payload is stored plain, in chunks, or it is not known how; or the key is
# of a URL and a validator.
_PLAIN, _CHUNKED, _UNKNOWN, _VALIDATOR = b"p", b"c", b"u", b"v"
_ERRORS = (plyvel.Error, OSError)


class Stored(Struct, frozen=True):
    """A stored response: its labelled ``digest``, and its ``validators``: ETag, Last-Modified.

    ``url`` and ``date`` are WARC-Target-URI and WARC-Date, ``identity`` is the WARC-Record-ID or
    ``""``. ``chunked`` is None if it is not known whether the record has chunk sizes.
    """

    url: str
    date: str
    digest: str
    identity: str = ""
    chunked: bool | None = None
    validators: tuple[str, ...] = ()


class DedupWriter:
    """Builds an index in the new folder ``folder``; without `finish` it cannot be read.

    :raises OSError: the folder exists, or cannot be made
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._db = _opened(folder, create_if_missing=True)
        self._payloads = dict.fromkeys(_ALGORITHMS, 0)

    def add(self, stored: Stored) -> bool:
        """Add a response; of equal payloads the newest stays. Return whether its digest is known.

        Raises plyvel.Error and OSError.
        """
        algorithm, raw = parsed(stored.digest)
        if not isinstance(raw, bytes) or len(raw) != _ALGORITHMS.get(algorithm):
            return False
        spelling = "-" if is_spelt_as_ours(stored.digest) else stored.digest
        value = f"{stored.date} {stored.identity or '-'} {spelling} {stored.url}".encode()
        self._put(_payload_key(raw, stored.url, chunked=stored.chunked), value)
        for validator in stored.validators:
            self._put(_validator_key(stored.url, validator), value)
        self._payloads[algorithm] += 1
        return True

    def _put(self, key: bytes, value: bytes) -> None:
        # Dates of one form sort by time.
        if value > self._db.get(key, b""):
            self._db.put(key, value)

    def finish(self) -> None:
        """Make the index durable and close it. Raises plyvel.Error and OSError."""
        self._db.compact_range()
        self._db.close()
        names = {path.name: path.stat().st_size for path in self._folder.iterdir()}
        files = {name: size for name, size in names.items() if name not in {"LOCK", "LOG"}}
        mark = {"format": _FORMAT, "payloads": self._payloads, "files": files}
        with write_durably(self._folder / _MARK) as file:
            file.write(json.dumps(mark).encode())

    def abandon(self) -> None:
        self._db.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class DedupIndex:
    """A view of the index in ``folder``, made in the new folder ``view``.

    :raises ArchiveError: it is no index, damaged, or without digests of ``algorithm``
    """

    def __init__(self, folder: Path, view: Path, algorithm: str) -> None:
        self._folder = folder
        mark = _mark(folder)
        if not mark["payloads"].get(algorithm):
            raise ArchiveError(f"{folder} has no {algorithm} digests, which KROWL_WARC_DIGEST sets")
        try:
            view.mkdir(parents=True)
            for name in mark["files"]:
                if name.endswith(".ldb"):
                    (view / name).symlink_to((folder / name).resolve())
                else:
                    shutil.copyfile(folder / name, view / name)
            self._db = _opened(view)
        except _ERRORS as error:
            raise ArchiveError(f"{folder} cannot be opened: {error_text(error)}") from error

    def __str__(self) -> str:
        return str(self._folder)

    def get(self, key: bytes) -> Original | None:
        """Return the response with a key. Raises plyvel.Error and OSError."""
        value: bytes | None = self._db.get(key, verify_checksums=True)
        if value is None:
            return None
        date, identity, digest, url = value.decode().split(" ", 3)
        return Original(url, date, identity.strip("-"), digest.strip("-"))

    def close(self) -> None:
        self._db.close()


class OtherCrawls:
    """What other crawls have stored, of which nothing older than ``max_age`` seconds is found.

    With a ``max_age`` of 0 everything is found. An index that cannot be read any more is left out
    from then on, and ``warn`` is called with a message. Calls block.
    """

    def __init__(
        self, indexes: Sequence[DedupIndex], max_age: float, warn: Callable[[str], object]
    ) -> None:
        self._indexes = list(indexes)
        self._max_age = max_age
        self._warn = warn

    def find(self, raw: bytes, url: str, started: float, *, chunked: bool) -> Original | None:
        """Return the response whose payload has the digest ``raw``; None if none may stand for it.

        Readers put the head of a revisit before the stored body. So that body must have the same
        transfer coding; where that is not known, only the same ``url`` is taken to have it.
        """
        keys = [_payload_key(raw, url, chunked=each) for each in (chunked, None)]
        return self._first(keys, started)

    def find_unchanged(self, url: str, validator: str, started: float) -> Original | None:
        """Return the response of ``url`` that had this ETag or Last-Modified."""
        return self._first([_validator_key(url, validator)], started)

    def close(self) -> None:
        for index in self._indexes:
            index.close()
        self._indexes = []

    def _first(self, keys: Iterable[bytes], started: float) -> Original | None:
        for key in keys:
            for index in self._indexes.copy():
                try:
                    found = index.get(key)
                except (*_ERRORS, ValueError) as error:
                    self._indexes.remove(index)
                    index.close()
                    self._warn(
                        f"Bodies of other crawls may be archived again: {index} cannot be read:"
                        f" {error_text(error)}"
                    )
                    continue
                if found is not None and self._is_young(found, started):
                    return found
        return None

    def _is_young(self, found: Original, started: float) -> bool:
        if not self._max_age:
            return True
        return started - datetime.fromisoformat(found.date).timestamp() <= self._max_age


def is_dedup_index(folder: Path) -> bool:
    return (folder / _MARK).is_file()


def _mark(folder: Path) -> dict[str, Any]:
    """Return the mark of an index whose files are all there. Raises ArchiveError."""
    try:
        mark: dict[str, Any] = json.loads((folder / _MARK).read_bytes())
        known = mark["format"] == _FORMAT and isinstance(mark["payloads"], dict)
        wrong = [
            name
            for name, size in mark["files"].items()
            if not (folder / name).is_file() or (folder / name).stat().st_size != size
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f"{folder} is damaged: {_MARK} cannot be read; build it again"
        ) from error
    if not known:
        raise ArchiveError(f"{folder} is a dedup index of another version: build it again")
    if wrong:
        raise ArchiveError(f"{folder} is damaged: {wrong[0]} is missing or cut; build it again")
    return mark


def _opened(folder: Path, *, create_if_missing: bool = False) -> plyvel.DB:
    return plyvel.DB(
        str(folder),
        create_if_missing=create_if_missing,
        paranoid_checks=True,
        write_buffer_size=WRITE_BUFFER,
        lru_cache_size=BLOCK_CACHE,
        bloom_filter_bits=FILTER_BITS,
        max_file_size=TABLE_SIZE,
        compression="snappy",
    )


def _payload_key(raw: bytes, url: str, *, chunked: bool | None) -> bytes:
    if chunked is None:
        return _UNKNOWN + raw + xxhash.xxh3_64_digest(url.encode())
    return (_CHUNKED if chunked else _PLAIN) + raw


def _validator_key(url: str, validator: str) -> bytes:
    return _VALIDATOR + xxhash.xxh3_128_digest(f"{url}\n{validator}".encode())
