"""Read WARC files: gzip members that hold one record each, one at a time.

The standard library's zlib decodes them. Unlike isal it refuses the header flags that RFC 1952
reserves, as ``gzip -t`` does.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from fastwarc.warc import ArchiveIterator

from krowlspider.archive.errors import CutOffError, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

# Called with the number of bytes done since its last call.
Advance = Callable[[int], object]

PIECE = 16 * 1024
GZIP = 16 + zlib.MAX_WBITS
RECORD_END = b"\r\n\r\n"


class Location(NamedTuple):
    """Where a record lies: the final name of its file, its first byte, its compressed length."""

    file: str
    offset: int
    length: int


class Synced(NamedTuple):
    """The durable part of an open file: the file's final name, its bytes and its records."""

    file: str
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class Member:
    """A gzip member: its first byte in the file, its compressed length, its decoded content."""

    offset: int
    length: int
    content: bytes

    def record(self) -> WarcRecord:
        """Return the one record in the member; its block is not read yet.

        fastwarc accepts any bytes after a block, so they are checked here.

        :raises RecordError: the member is not exactly one record
        """
        try:
            record = next(iter(ArchiveIterator(BytesIO(self.content), parse_http=False)), None)
        except OSError as error:
            raise RecordError(self.offset, f"not a WARC record: {error}") from error
        if record is None:
            raise RecordError(self.offset, "the member is empty")
        length = record.content_length
        block = self.content.find(RECORD_END) + len(RECORD_END)
        if self.content[block + length :] != RECORD_END:
            raise RecordError(self.offset, f"Content-Length {length} does not fit the block")
        return record


def ignore(size: int) -> None:
    """Report no progress."""


def read_members(stream: BinaryIO, advance: Advance = ignore) -> Iterator[Member]:
    """Yield each member of a file, then call ``advance`` with its length."""
    offset, size = 0, os.fstat(stream.fileno()).st_size
    while offset < size:
        member = read_member(stream, offset)
        yield member
        offset += member.length
        advance(member.length)


def read_member(stream: BinaryIO, offset: int) -> Member:
    """Return the member at ``offset``. Raises OSError.

    :raises CutOffError: the file ends within the member
    :raises RecordError: no whole member with the right checksum and size begins there
    """
    decoder = zlib.decompressobj(GZIP)
    content: list[bytes] = []
    fed = 0
    stream.seek(offset)
    while not decoder.eof:
        piece = stream.read(PIECE)
        if not piece:
            raise CutOffError(offset)
        fed += len(piece)
        try:
            content.append(decoder.decompress(piece))
        except zlib.error as error:
            raise RecordError(offset, f"not a gzip member: {error}") from error
    return Member(offset, fed - len(decoder.unused_data), b"".join(content))


def read_record(path: Path, offset: int) -> tuple[dict[str, str], bytes]:
    """Return the WARC fields, spelt as in the record, and the block of the record at ``offset``."""
    with path.open("rb") as stream:
        record = read_member(stream, offset).record()
    return record.headers.to_dict(), record.reader.read()
