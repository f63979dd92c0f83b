"""Read WARC files of any writer, and count what they hold."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit
from zipfile import BadZipFile, ZipFile

from backports.zstd import ZstdDecompressor, ZstdDict, ZstdError

from krowlspider.archive import cdxj, gemini
from krowlspider.archive.disk import RecordError
from krowlspider.archive.payload import Decode, header, media_type
from krowlspider.archive.reading import ALL, Advance, Damage, GzipMember, ignore, read_readable
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

# The ends of the names of finished files.
SUFFIXES = (".warc.gz", ".warc", ".warc.zst")
# The folder of a WACZ that has its WARC files.
_ARCHIVED = "archive/"
_PIECE = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS
# Places of damage that are kept: those of a broken disk would fill the memory.
_DAMAGE_KEPT = 1000
# The empty lines behind a record, and how many bytes of such lines some tools write.
_RECORD_END = b"\r\n\r\n"
_LINES_MAX = 64
# Bytes of a head: fastwarc reads no longer one.
_HEAD_MAX = 32 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A skippable frame that holds the dictionary (WARC with Zstandard, section 3).
_DICTIONARY = b"\x5d\x2a\x4d\x18"
_DICTIONARY_MAX = 16 * 1024 * 1024


def files_in(source: Path) -> list[Path]:
    """Return the finished WARC files of a folder, sorted; a single WARC file is its own folder."""
    if source.is_file():
        return [source]
    return sorted(path for path in source.iterdir() if path.name.endswith(SUFFIXES))


def refuse_names(paths: Iterable[Path]) -> None:
    """:raises KrowlError: the name of a file is not in UTF-8, so no JSON can hold it"""
    for path in paths:
        try:
            path.name.encode()
        except UnicodeEncodeError as error:
            raise KrowlError(f"{path.name!r} has a name that is not in UTF-8: rename it") from error


def refuse_same(names: Iterable[tuple[str, str]], how: str = "") -> None:
    """:raises KrowlError: two files have the same name; ``names`` are pairs of that and the path

    ``how`` ends the message: where they are, or how they are compared.
    """
    known: dict[str, str] = {}
    for name, path in names:
        if name in known:
            raise KrowlError(f"{known[name]} and {path} have the same name{how}: rename one")
        known[name] = path


def warcs_in(wacz: Path) -> dict[str, str]:
    """Return the WARC files of a WACZ: the name of each, and of its entry. Raises OSError.

    :raises KrowlError: the WACZ cannot be read, has none, or has two of the same name
    """
    try:
        with ZipFile(wacz) as archive:
            entries = archive.namelist()
    except (BadZipFile, NotImplementedError) as error:
        raise KrowlError(f"{wacz} cannot be read: {error}") from error
    found = [
        (entry.rpartition("/")[2], entry)
        for entry in entries
        if entry.startswith(_ARCHIVED) and entry.endswith(SUFFIXES)
    ]
    if not found:
        raise KrowlError(f"{wacz} has no WARC file in {_ARCHIVED}")
    refuse_same(found, f" in {wacz}")
    return dict(found)


def unpack(wacz: Path, folder: Path) -> None:
    """Write the WARC files of a WACZ into ``folder``. Raises OSError.

    :raises KrowlError: the WACZ cannot be read
    """
    files = warcs_in(wacz)
    with ZipFile(wacz) as archive:
        for name, entry in files.items():
            try:
                with archive.open(entry) as packed, (folder / name).open("wb") as file:
                    shutil.copyfileobj(packed, file, _PIECE)
            except (BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError) as error:
                raise KrowlError(f"{wacz}: {entry} cannot be read: {error}") from error


def read_records(
    stream: BinaryIO,
    damage: Damage,
    advance: Advance = ignore,
    start: int = 0,
    most: int = ALL,
) -> Iterator[tuple[GzipMember, WarcRecord]]:
    """Yield each record from ``start`` on, as it is stored and as it is read.

    Damage is passed over as by `read_readable`, whose arguments these are. Behind bytes that are
    no member, or no record of an uncompressed file, only a file of gzip members is read on. Raises
    OSError.
    """
    stream.seek(0)
    magic = stream.read(4)
    stream.seek(0)
    if magic in {_ZSTD_MAGIC, _DICTIONARY}:
        yield from _fitting(_zstd_frames(stream, start), damage, advance)
    elif magic == b"WARC":
        yield from _fitting(_plain_records(stream, start, most), damage, advance)
    else:
        yield from read_readable(stream, damage, advance, start, most)


def _fitting(
    members: Iterator[GzipMember], damage: Damage, advance: Advance
) -> Iterator[tuple[GzipMember, WarcRecord]]:
    """Yield the members that are one record each, up to damage between them."""
    try:
        for member in members:
            try:
                yield member, member.record()
            except RecordError as error:
                damage(error)
            advance(member.length)
    except RecordError as error:
        damage(error)


def records_of(
    path: Path, advance: Advance, damaged: list[tuple[str, int, str]]
) -> Iterator[tuple[GzipMember, WarcRecord]]:
    """Yield the records of a file as `read_records`. Raises OSError.

    The first thousand places of damage go to ``damaged``: name of the file, offset, reason.
    """

    def damage(error: RecordError) -> None:
        if len(damaged) < _DAMAGE_KEPT:
            damaged.append((path.name, error.offset, error.reason))

    with path.open("rb") as stream:
        yield from read_records(stream, damage, advance)


def cut_record(stream: BinaryIO, start: int) -> int | None:
    """Return the offset of the record, or gzip member, within which a file ends; None if it ends
    behind one.

    One begins at ``start``. Bytes that are no record end the search. Zstandard is not read. Raises
    OSError.
    """
    stream.seek(start)
    magic = stream.read(4)
    stream.seek(start)
    if magic.startswith(_GZIP_MAGIC):
        return _cut_member(stream)
    return _cut_plain(stream) if magic == b"WARC" else None


def _cut_member(stream: BinaryIO) -> int | None:
    start, piece = stream.tell(), stream.read(_PIECE)
    while piece:
        decoder = zlib.decompressobj(_GZIP)
        try:
            while not decoder.eof:
                if not piece:
                    return start
                decoder.decompress(piece)
                piece = decoder.unused_data or stream.read(_PIECE)
        except zlib.error:
            return None
        start = stream.tell() - len(piece)
    return None


def _cut_plain(stream: BinaryIO) -> int | None:
    start, size = stream.tell(), os.fstat(stream.fileno()).st_size
    while start < size:
        stream.seek(start)
        text = stream.read(_HEAD_MAX)
        # Some tools end a record with more or fewer empty lines than the standard.
        start += len(text) - len(text.lstrip(b"\r\n"))
        head, end, _ = text.lstrip(b"\r\n").partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if not end and head and len(text) < _HEAD_MAX:
            return start
        if length is None:
            return None
        following = start + len(head) + len(end) + int(length[1])
        if following > size:
            return start
        start = following
    return None


def _plain_records(stream: BinaryIO, start: int, most: int) -> Iterator[GzipMember]:
    """Yield each record with the empty lines behind it."""
    offset, size = start, os.fstat(stream.fileno()).st_size
    while offset < size:
        stream.seek(offset)
        head, end, _ = stream.read(_HEAD_MAX).partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if not head.startswith(b"WARC/") or not end or length is None:
            raise RecordError(offset, "not a WARC record")
        block = len(head) + len(end) + int(length[1])
        if offset + block > size:
            raise RecordError(offset, "the record is cut off")
        stream.seek(offset + block)
        behind = stream.read(_LINES_MAX)
        lines = len(behind) - len(behind.lstrip(b"\r\n"))
        if lines < len(_RECORD_END) and lines == len(behind):
            raise RecordError(offset, "the record is cut off")
        whole = block + lines
        stream.seek(offset)
        content = stream.read(min(whole, most))
        yield GzipMember(offset, whole, content, whole - len(content))
        offset += whole


def _zstd_frames(stream: BinaryIO, start: int) -> Iterator[GzipMember]:
    size = os.fstat(stream.fileno()).st_size
    dictionary, first = _dictionary(stream)
    offset = max(first, start)
    while offset < size:
        frame = _zstd_frame(stream, offset, dictionary)
        yield frame
        offset += frame.length


def _dictionary(stream: BinaryIO) -> tuple[ZstdDict | None, int]:
    """Return the dictionary of a file and the offset of its first record. Raises RecordError."""
    if stream.read(4) != _DICTIONARY:
        return None, 0
    length = int.from_bytes(stream.read(4), "little")
    if length > _DICTIONARY_MAX:
        raise RecordError(0, f"a dictionary of {length:,} bytes")
    try:
        content = stream.read(length)
        if content.startswith(_ZSTD_MAGIC):
            content = ZstdDecompressor().decompress(content, _DICTIONARY_MAX)
        return ZstdDict(content), 8 + length
    except (ZstdError, ValueError) as error:
        raise RecordError(0, f"not a dictionary: {error}") from error


def _zstd_frame(stream: BinaryIO, offset: int, dictionary: ZstdDict | None) -> GzipMember:
    decoder, fed = ZstdDecompressor(dictionary), 0
    content: list[bytes] = []
    stream.seek(offset)
    while not decoder.eof:
        piece = stream.read(_PIECE)
        if not piece:
            raise RecordError(offset, "the Zstandard frame is cut off")
        fed += len(piece)
        try:
            content.append(decoder.decompress(piece))
        except ZstdError as error:
            raise RecordError(offset, f"not a Zstandard frame: {error}") from error
    return GzipMember(offset, fed - len(decoder.unused_data), b"".join(content))


# Different hosts, or media types, that are counted by name.
NAMES_MAX = 100_000
OTHERS = "(others)"
_CAPTURES = frozenset({"response", "revisit"})


@dataclass
class WarcStats:
    """The counts of some files.

    ``records`` are by type. ``hosts``, ``media_types`` and ``statuses`` are of responses and
    revisits. ``stored_bytes`` are those of the files, ``bytes`` those of the records uncompressed.
    ``saved_bytes`` are the bodies that revisits left out, by their Content-Length;
    ``unsized_revisits`` have none. ``damaged`` are files with the place and reason where reading
    stopped.
    """

    files: int = 0
    records: Counter[str] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    media_types: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    stored_bytes: int = 0
    bytes: int = 0
    saved_bytes: int = 0
    unsized_revisits: int = 0
    damaged: list[tuple[str, int, str]] = field(default_factory=list)


def count_files(paths: Iterable[Path], decode: Decode, advance: Advance = ignore) -> WarcStats:
    """Return the counts of finished files; a damaged one is read up to the damage. Raises OSError.

    ``decode`` undoes content codings, where a media type shows in a body alone. ``advance`` is
    called with each member's length in bytes. A file that was uploaded and removed in the meantime
    is skipped.
    """
    stats = WarcStats()
    for path in paths:
        with suppress(FileNotFoundError):
            for member, record in records_of(path, advance, stats.damaged):
                _count(stats, member, record, path.name, decode)
            stats.files += 1
    return stats


def _count(
    stats: WarcStats, member: GzipMember, record: WarcRecord, file: str, decode: Decode
) -> None:
    kind = record.headers.get("WARC-Type") or ""
    stats.records[kind] += 1
    stats.stored_bytes += member.length
    stats.bytes += len(member.content)
    if kind not in _CAPTURES:
        return
    block = record.reader.read()
    line = cdxj.capture_of(record, block, member, file)
    if line is None:
        return
    _add(stats.hosts, _host(line.url))
    _add(stats.statuses, line.status or "-")
    is_gemini = gemini.is_gemini(record.headers.get("Content-Type"))
    found = gemini.read(block).type.essence if is_gemini else media_type(block, decode)
    _add(stats.media_types, found or "-")
    if kind == "revisit" and line.status != "304":
        length = header(block, "Content-Length")
        if length.isdecimal() and len(length) < 16:
            stats.saved_bytes += int(length)
        else:
            stats.unsized_revisits += 1


def _add(counts: Counter[str], name: str) -> None:
    counts[name if name in counts or len(counts) < NAMES_MAX else OTHERS] += 1


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "-"
    except ValueError:
        return "-"
