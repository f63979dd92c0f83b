"""Read WARC files: gzip members that hold one record each, one at a time.

The standard library's zlib decodes them. Unlike isal it refuses the header flags that RFC 1952
reserves, as ``gzip -t`` does.
"""

from __future__ import annotations

import os
import re
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
# More bytes than any record has.
ALL = 2**62
# The names of fields as the standard spells them, by those in lower case. fastwarc knows them only
# so, but their case has no meaning (WARC 1.1, section 4).
_SPELT = {
    name.lower(): name
    for name in (
        *("Content-Length", "Content-Type", "WARC-Block-Digest", "WARC-Concurrent-To", "WARC-Date"),
        *("WARC-Filename", "WARC-IP-Address", "WARC-Identified-Payload-Type"),
        *("WARC-Payload-Digest", "WARC-Profile", "WARC-Record-ID", "WARC-Refers-To"),
        *("WARC-Refers-To-Date", "WARC-Refers-To-Target-URI", "WARC-Segment-Number"),
        *("WARC-Segment-Origin-ID", "WARC-Segment-Total-Length", "WARC-Target-URI"),
        *("WARC-Truncated", "WARC-Type", "WARC-Warcinfo-ID"),
    )
}
_NAME = re.compile(rb"(?<=\n)([^\s:]+)[ \t]*:")
_LENGTH, _TYPE = b"\nContent-Length:", b"\nWARC-Type:"


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
    """A gzip member: its first byte in the file, its compressed length, its decoded content.

    ``dropped`` is the number of bytes that the content lacks at its end.
    """

    offset: int
    length: int
    content: bytes
    dropped: int = 0

    def record(self) -> WarcRecord:
        """Return the one record in the member; its block is not read yet.

        fastwarc accepts any bytes after a block, so they are checked here.

        :raises RecordError: the member is not exactly one record
        """
        content = _spelt(self.content)
        try:
            record = next(iter(ArchiveIterator(BytesIO(content), parse_http=False)), None)
        except OSError as error:
            raise RecordError(self.offset, f"not a WARC record: {error}") from error
        if record is None:
            raise RecordError(self.offset, "the member is empty")
        length = record.content_length
        end = content.find(RECORD_END) + len(RECORD_END) + length
        if self.dropped:
            is_fit = end + len(RECORD_END) == len(content) + self.dropped
        else:
            is_fit = content[end:] == RECORD_END
        if not is_fit:
            raise RecordError(self.offset, f"Content-Length {length} does not fit the block")
        return record


def _spelt(content: bytes) -> bytes:
    """Return a record whose fields are spelt as fastwarc needs them."""
    end = content.find(RECORD_END)
    if content.find(_LENGTH, 0, end) != -1 and content.find(_TYPE, 0, end) != -1:
        return content
    head = content[: max(end, 0)]
    return _NAME.sub(_standard, head) + content[len(head) :]


def _standard(found: re.Match[bytes]) -> bytes:
    return standard(found[1].decode("latin-1")).encode("latin-1") + b":"


def standard(name: str) -> str:
    """Return the name of a field as the standard spells it; an unknown one as it is."""
    return _SPELT.get(name.lower(), name)


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


def read_member(stream: BinaryIO, offset: int, most: int = ALL) -> Member:
    """Return the member at ``offset``; of a larger one about ``most`` bytes. Raises OSError.

    :raises CutOffError: the file ends within the member
    :raises RecordError: no whole member with the right checksum and size begins there
    """
    decoder = zlib.decompressobj(GZIP)
    content: list[bytes] = []
    fed = kept = dropped = 0
    stream.seek(offset)
    while not decoder.eof:
        piece = stream.read(PIECE)
        if not piece:
            raise CutOffError(offset)
        fed += len(piece)
        try:
            decoded = decoder.decompress(piece)
        except zlib.error as error:
            raise RecordError(offset, f"not a gzip member: {error}") from error
        if kept < most:
            content.append(decoded)
            kept += len(decoded)
        else:
            dropped += len(decoded)
    return Member(offset, fed - len(decoder.unused_data), b"".join(content), dropped)


def read_record(path: Path, offset: int, most: int = ALL) -> tuple[dict[str, str], bytes]:
    """Return the WARC fields and the block of the record at ``offset``; of a larger record about
    ``most`` bytes. The names of the fields are spelt as in the standard."""
    with path.open("rb") as stream:
        record = read_member(stream, offset, most).record()
    fields = {standard(name): value for name, value in record.headers.to_dict().items()}
    return fields, record.reader.read()
