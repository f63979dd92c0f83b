"""Read WARC files of any writer: members of gzip or Zstandard, or uncompressed records."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from typing import TYPE_CHECKING, BinaryIO
from zipfile import BadZipFile, ZipFile

from backports.zstd import ZstdDecompressor, ZstdDict, ZstdError

from krowlspider.archive.errors import RecordError
from krowlspider.archive.reading import Advance, Member, ignore, read_members
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
    for name, entry in warcs_in(wacz).items():
        try:
            with (
                ZipFile(wacz) as archive,
                archive.open(entry) as packed,
                (folder / name).open("wb") as file,
            ):
                shutil.copyfileobj(packed, file, _PIECE)
        except (BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError) as error:
            raise KrowlError(f"{wacz}: {entry} cannot be read: {error}") from error


def read_records(stream: BinaryIO, advance: Advance = ignore) -> Iterator[Member]:
    """Yield each record as it is stored, then call ``advance`` with its length. Raises OSError.

    :raises RecordError: the file is damaged from there on, or is no WARC file
    """
    magic = stream.read(4)
    stream.seek(0)
    if magic in {_ZSTD_MAGIC, _DICTIONARY}:
        yield from _zstd_frames(stream, advance)
    elif magic == b"WARC":
        yield from _plain_records(stream, advance)
    else:
        yield from read_members(stream, advance)


def records_of(
    path: Path, advance: Advance, damaged: list[tuple[str, int, str]]
) -> Iterator[tuple[Member, WarcRecord]]:
    """Yield the records of a file, up to its damage: name, place and reason go to ``damaged``.

    Raises OSError.
    """
    try:
        with path.open("rb") as stream:
            for member in read_records(stream, advance):
                yield member, member.record()
    except RecordError as error:
        damaged.append((path.name, error.offset, error.reason))


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


def _plain_records(stream: BinaryIO, advance: Advance) -> Iterator[Member]:
    offset, size = 0, os.fstat(stream.fileno()).st_size
    while offset < size:
        stream.seek(offset)
        head, end, _ = stream.read(_HEAD_MAX).partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if not head.startswith(b"WARC/") or not end or length is None:
            raise RecordError(offset, "not a WARC record")
        whole = len(head) + len(end) + int(length[1]) + len(b"\r\n\r\n")
        if offset + whole > size:
            raise RecordError(offset, "the record is cut off")
        stream.seek(offset)
        yield Member(offset, whole, stream.read(whole))
        offset += whole
        advance(whole)


def _zstd_frames(stream: BinaryIO, advance: Advance) -> Iterator[Member]:
    size = os.fstat(stream.fileno()).st_size
    dictionary, offset = _dictionary(stream)
    advance(offset)
    while offset < size:
        frame = _zstd_frame(stream, offset, dictionary)
        yield frame
        offset += frame.length
        advance(frame.length)


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


def _zstd_frame(stream: BinaryIO, offset: int, dictionary: ZstdDict | None) -> Member:
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
    return Member(offset, fed - len(decoder.unused_data), b"".join(content))
