"""Payloads that other crawls have stored: build their index, and look a payload up in it.

An index is built once by `build`, then read by any number of crawls at a time. It is a LevelDB
whose tables are never changed. LevelDB lets one process open a folder, so a reader opens a view: a
folder of its own with links to the tables. `_MARK` is written last; it lists the files, so that one
that is missing or cut is found before the first look-up.

It is built from the CDXJ indexes of the other crawls. The head of each record tells what an index
line does not: whether the body has chunk sizes, the record id, the exact date, ETag and
Last-Modified. A record in a file that was uploaded is known by its line only.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import plyvel
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from krowlspider.archive.cdxj import INDEX, REVISIT, IndexLine
from krowlspider.archive.disk import ArchiveError, RecordError, write_durably
from krowlspider.archive.indexes import indexes_in, parsed_lines
from krowlspider.archive.payload import (
    Original,
    head_bytes,
    header,
    is_chunked,
    is_spelt_as_ours,
    parsed,
)
from krowlspider.archive.reading import Advance, ignore
from krowlspider.archive.uploads import uploaded
from krowlspider.errors import error_text
from krowlspider.urls.gemini import SCHEME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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


class ArchivedResponse(Struct, frozen=True):
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

    def add(self, stored: ArchivedResponse) -> bool:
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


# Bytes read of a record, compressed, and those of its heads that they may become.
_READ = 16 * 1024
_HEADS_MAX = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS
# WARC files that are open at a time.
_OPEN_MAX = 64
# Fields of records that have part of a payload.
_PARTS = frozenset({"warc-truncated", "warc-segment-number"})
_ID = re.compile("<[!-;=?-~]{1,200}>")
_URL = re.compile("https?://[!-~]{1,16000}")
# WARC 1.1, section 5.4. Python reads more forms, some of which have blanks.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z")


@dataclass(slots=True)
class BuildCounts:
    """Numbers of captures: in the index, and left out.

    ``gone`` are in files that are neither there nor noted as uploaded, ``unreadable`` have a record
    that is damaged, ``unknown`` a digest of an unknown form.
    """

    captures: int = 0
    gone: int = 0
    unreadable: int = 0
    unknown: int = 0

    @property
    def left_out(self) -> str:
        """Return which captures are left out, as text; empty if there are none."""
        counts = {
            "in files that are gone": self.gone,
            "cannot be read": self.unreadable,
            "with an unknown digest": self.unknown,
        }
        return ", ".join(f"{count:,} {why}" for why, count in counts.items() if count)


@dataclass(frozen=True, slots=True)
class DedupSource:
    """The CDXJ ``indexes`` of a crawl. The ``trusted`` names of WARC files need not be there."""

    indexes: tuple[Path, ...]
    trusted: frozenset[str] | None


def source_at(path: Path) -> DedupSource:
    """Return the indexes of a JOBDIR, of a folder of WARC files, or a CDXJ file.

    Files that are still open are not in it, so another process may be crawling.

    :raises ArchiveError: it is none of these, has no index, or lacks some
    """
    if path.is_file():
        return DedupSource((path,), None)
    for folder in (path / "warc", path):
        if not folder.is_dir():
            continue
        found = indexes_in(folder)
        if found.missing:
            raise ArchiveError(
                f"{found.missing[0]} has no index: scrapy warc index {path} makes it"
            )
        if there := found.there or sorted(folder.glob(f"*{INDEX}")):
            return DedupSource(tuple(there), frozenset(uploaded(folder)))
    raise ArchiveError(
        f"{path} is no JOBDIR with finished WARC files, no CDXJ file, no dedup index"
    )


def build(sources: Sequence[DedupSource], out: Path, advance: Advance = ignore) -> BuildCounts:
    """Write the index of the payloads of ``sources`` as the new folder ``out``.

    ``advance`` is called with the length of each index line. Revisits are left out, so that no
    revisit refers to one, and answers to POST, which pywb does not find by their URL.

    :raises ArchiveError: a source is broken
    :raises OSError: a source cannot be read, or ``out`` cannot be written
    """
    built = BuildCounts()
    writer = DedupWriter(out)
    try:
        for source in sources:
            for index in source.indexes:
                with index.open("rb") as file, _Heads(index.parent) as heads:
                    _add_all(writer, _lines(index, file, advance), heads, source, built)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return built


def _lines(index: Path, file: BinaryIO, advance: Advance) -> Iterator[IndexLine]:
    def counted_lines() -> Iterator[bytes]:
        for line in file:
            yield line
            advance(len(line))

    return parsed_lines(index, counted_lines())


def _add_all(
    writer: DedupWriter,
    lines: Iterable[IndexLine],
    heads: _Heads,
    source: DedupSource,
    built: BuildCounts,
) -> None:
    for line in lines:
        if not _may_be_original(line):
            continue
        try:
            stored = heads.stored(line)
        except FileNotFoundError:
            if source.trusted is not None and line.filename not in source.trusted:
                built.gone += 1
                continue
            stored = _by_line(line)
        except RecordError:
            built.unreadable += 1
            continue
        if stored is None:
            continue
        if writer.add(stored):
            built.captures += 1
        else:
            built.unknown += 1


def _may_be_original(line: IndexLine) -> bool:
    is_post = "__wb_method=" in line.key
    known = bool(line.digest) and _URL.fullmatch(line.url) is not None
    return known and line.mime != REVISIT and not is_post


class _Heads:
    """Reads the heads of records in the WARC files of ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}

    def stored(self, line: IndexLine) -> ArchivedResponse | None:
        """Return the response at a line; None if no revisit may refer to it.

        :raises FileNotFoundError: its file is not there
        :raises RecordError: it cannot be read
        """
        # Only the name of the file: an index must not lead out of the folder.
        name = Path(line.filename).name
        file = self._files.get(name)
        if file is None:
            if len(self._files) >= _OPEN_MAX:
                self.__exit__()
            file = self._files[name] = (self._folder / name).open("rb")
        file.seek(line.offset)
        return _by_heads(line, file.read(_READ))


def _by_heads(line: IndexLine, member: bytes) -> ArchivedResponse | None:
    try:
        content = zlib.decompressobj(_GZIP).decompress(member, _HEADS_MAX)
    except zlib.error as error:
        raise RecordError(line.offset, f"not a gzip member: {error}") from error
    head, _, block = content.partition(b"\r\n\r\n")
    if not head.startswith(b"WARC/"):
        raise RecordError(line.offset, "not a WARC record")
    fields = {
        name.lower(): value.strip()
        for name, _, value in (
            each.partition(":") for each in head.decode("latin-1").split("\r\n")[1:]
        )
    }
    if fields.get("warc-type") != "response" or not _PARTS.isdisjoint(fields):
        return None
    found = _by_line(line)
    http = head_bytes(block)
    if found is None or fields.get("warc-target-uri") != line.url or not http:
        return found
    date, identity = fields.get("warc-date", ""), fields.get("warc-record-id", "")
    return replace(
        found,
        date=date if _is_date(date) else found.date,
        identity=identity if _ID.fullmatch(identity) else "",
        chunked=is_chunked(http),
        validators=tuple(filter(None, (header(block, "ETag"), header(block, "Last-Modified")))),
    )


def _by_line(line: IndexLine) -> ArchivedResponse | None:
    if line.url.startswith(SCHEME):
        # No revisit of a web page may refer to it, and those of Gemini refer to their own crawl.
        return None
    time = line.timestamp
    date = f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[8:10]}:{time[10:12]}:{time[12:]}Z"
    # Older indexers leave the label of SHA-1 away.
    digest = line.digest if ":" in line.digest else f"sha1:{line.digest}"
    printable = digest.isascii() and digest.isprintable() and " " not in digest
    return ArchivedResponse(line.url, date, digest) if printable and _is_date(date) else None


def _is_date(text: str) -> bool:
    """Return whether a date has a time in UTC that can be computed with."""
    try:
        return _DATE.fullmatch(text) is not None and datetime.fromisoformat(text) is not None
    except ValueError:
        return False
