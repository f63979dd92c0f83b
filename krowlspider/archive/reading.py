"""Read WARC files record by record, damaged ones too.

A file consists of gzip members that hold one record each. The standard library's zlib decodes them,
one at a time. Unlike isal it refuses the header flags that RFC 1952 reserves, as ``gzip -t`` does.

After damage, reading goes on with the next record. But a body may hold whole members that are
records: crawled WARC files are stored as they are. The records of a file name the id of its
warcinfo record. It is random, and no server knows it when it sends a body. So a record that was
searched for counts only if it names such an id.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from fastwarc.warc import ArchiveIterator

from krowlspider.archive.disk import CutOffError, RecordError

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
class GzipMember:
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


def read_members(stream: BinaryIO, advance: Advance = ignore) -> Iterator[GzipMember]:
    """Yield each member of a file, then call ``advance`` with its length."""
    offset, size = 0, os.fstat(stream.fileno()).st_size
    while offset < size:
        member = read_member(stream, offset)
        yield member
        offset += member.length
        advance(member.length)


def read_member(stream: BinaryIO, offset: int, most: int = ALL) -> GzipMember:
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
    return GzipMember(offset, fed - len(decoder.unused_data), b"".join(content), dropped)


def read_record(path: Path, offset: int, most: int = ALL) -> tuple[dict[str, str], bytes]:
    """Return the WARC fields and the block of the record at ``offset``; of a larger record about
    ``most`` bytes. The names of the fields are spelt as in the standard."""
    with path.open("rb") as stream:
        record = read_member(stream, offset, most).record()
    fields = {standard(name): value for name, value in record.headers.to_dict().items()}
    return fields, record.reader.read()


# Called with the error of each damaged stretch.
Damage = Callable[[RecordError], object]

_SEARCHED_AT_ONCE = 1024 * 1024
# The first bytes of a gzip member (RFC 1952, 2.3).
_MAGIC = re.compile(rb"\x1f\x8b\x08")
# fastwarc reads no longer head.
_HEAD_MAX = 32 * 1024
# Bytes behind a record that are looked at.
_FOLLOWING = 64
# Decoded at a time: what was decoded before damage is lost only within one step.
_STEP = 256
_FIELD = re.compile(
    rb"^(WARC-Type|WARC-Record-ID|WARC-Warcinfo-ID|Content-Length):[ \t]*(\S+)",
    re.IGNORECASE | re.MULTILINE,
)


def ignore_damage(error: RecordError) -> None:
    """Report no damage."""


class RecordSearch:
    """Finds the next record of a gzip file behind damage, not those in the bodies of its records.

    If no record of the file names a warcinfo record, as some tools write them, it finds any record.
    """

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        # The ids of the file's warcinfo records that are known.
        self._infos: set[bytes] = set()
        # Whether its records name them; None if that is not known yet.
        self._is_named: bool | None = None

    def add(self, record: WarcRecord) -> None:
        """Note a record that lies in no other."""
        fields = record.headers
        is_info = fields.get("WARC-Type") == "warcinfo"
        info = fields.get_bytes(b"WARC-Record-ID" if is_info else b"WARC-Warcinfo-ID")
        if info:
            self._infos.add(info)

    def _add(self, head: _Head | None) -> None:
        if head is not None and head.info:
            self._infos.add(head.info)

    def next(self, start: int) -> tuple[GzipMember, WarcRecord] | None:
        """Return the first record from ``start`` on, which is behind damage; None without one.

        Raises OSError.
        """
        if self._is_named is None:
            self._is_named = self._learn()
        for head in _heads(self._stream, start):
            if head.info in self._infos or not self._is_named:
                with suppress(RecordError):
                    member = read_member(self._stream, head.offset)
                    return member, member.record()
        return None

    def behind(self, start: int) -> int | None:
        """Return the offset of the first record behind damage, which follows the record at
        ``start`` or is within it; None without one. Raises OSError.

        Behind a whole member that is no record, the next member is that record.
        """
        offset, size = start, os.fstat(self._stream.fileno()).st_size
        try:
            while offset < size:
                head, is_fit, end = _skip(self._stream, offset)
                if not is_fit:
                    return end if end < size else None
                self._add(head)
                offset = end
        except RecordError:
            start = offset
        found = self.next(start + 1)
        return None if found is None else found[0].offset

    def misfit(self, start: int) -> tuple[int, int] | None:
        """Return the offset and the end of a whole member that is no record: that at ``start``, or
        the next one. None without one. Raises OSError.
        """
        size = os.fstat(self._stream.fileno()).st_size
        with suppress(RecordError):
            for _ in range(2):
                if start >= size:
                    break
                _, is_fit, end = _skip(self._stream, start)
                if not is_fit:
                    return start, end
                start = end
        return None

    def _learn(self) -> bool:
        """Return whether the records of the file name a warcinfo record, and note its id."""
        first = next(_heads(self._stream, 0), None)
        if first is not None and first.offset == 0:
            self._add(first)
        if any(head.info in self._infos for head in _members(self._stream)):
            return True
        # The warcinfo record is lost, or has a damaged head. It holds no records of others, so the
        # first head behind it is of the file itself.
        head = next(_members(self._stream), None)
        self._add(head)
        return head is not None and bool(head.info)


def read_readable(
    stream: BinaryIO,
    damage: Damage,
    advance: Advance = ignore,
    start: int = 0,
    most: int = ALL,
) -> Iterator[tuple[GzipMember, WarcRecord]]:
    """Yield each member from ``start`` on that is a WARC record, with that; after damage, go on
    with the next.

    A whole member that is no record hides none: the next one begins where it ends. ``damage`` is
    called once for each stretch between two records. ``advance`` is called with the bytes up to the
    end of each record. Of a record larger than ``most``, about so many bytes are kept. Raises
    OSError.
    """
    search = RecordSearch(stream)
    offset, size = start, os.fstat(stream.fileno()).st_size
    while offset < size:
        member: GzipMember | None = None
        try:
            member = read_member(stream, offset, most)
            record = member.record()
        except RecordError as error:
            damage(error)
            if member is not None:
                advance(member.length)
                offset += member.length
                continue
            found = search.next(offset + 1)
            if found is None:
                return
            member, record = found
        search.add(record)
        yield member, record
        advance(member.offset + member.length - offset)
        offset = member.offset + member.length


class _Head(NamedTuple):
    """The head of a record that may be damaged behind it.

    ``info`` is the id of the warcinfo record that it names or is, empty without one. ``whole`` is
    the length of the whole record, decoded.
    """

    offset: int
    is_info: bool
    info: bytes
    whole: int


def _members(stream: BinaryIO) -> Iterator[_Head]:
    """Yield all heads but those of warcinfo records."""
    return (head for head in _heads(stream, 0) if not head.is_info)


def _heads(stream: BinaryIO, start: int) -> Iterator[_Head]:
    """Yield each head of a record that can be read from ``start`` on, those in bodies too."""
    while True:
        stream.seek(start)
        piece = stream.read(_SEARCHED_AT_ONCE)
        for found in _MAGIC.finditer(piece):
            head = _head_at(stream, start + found.start())
            if head is not None:
                yield head
        if len(piece) < _SEARCHED_AT_ONCE:
            return
        # A member may begin in this piece and the next one.
        start += len(piece) - 2


def _head_at(stream: BinaryIO, offset: int) -> _Head | None:
    """Return the head of the record that begins at ``offset``; None without one."""
    decoder = zlib.decompressobj(GZIP)
    stream.seek(offset)
    left, content = stream.read(PIECE), b""
    with suppress(zlib.error):
        while RECORD_END not in content and len(content) < _HEAD_MAX:
            more = decoder.decompress(left, _STEP)
            left = decoder.unconsumed_tail
            content += more
            if not more or not content.startswith(b"WARC/"):
                return None
    return _parsed(offset, content)


def _parsed(offset: int, content: bytes) -> _Head | None:
    """Return the head at the beginning of ``content``; None if it has no whole one."""
    head, end, _ = content.partition(RECORD_END)
    if not end:
        return None
    # The first field of a name counts, as in fastwarc.
    fields = {name.lower(): value for name, value in reversed(_FIELD.findall(head))}
    is_info = fields.get(b"warc-type") == b"warcinfo"
    info = fields.get(b"warc-record-id" if is_info else b"warc-warcinfo-id", b"")
    length = fields.get(b"content-length", b"")
    block = int(length) if length.isdigit() else 0
    return _Head(offset, is_info, info, len(head) + len(end) + block + len(RECORD_END))


def _skip(stream: BinaryIO, offset: int) -> tuple[_Head | None, bool, int]:
    """Return the head of the record at ``offset``, whether records alone fill its member, and the
    offset behind that, in bounded memory. Without a head, the member is no record.

    Some tools put several records into one member, or more empty lines behind one.

    :raises RecordError: no whole member begins there
    """
    head = _head_at(stream, offset)
    decoder = zlib.decompressobj(GZIP)
    whole, end = 0, offset
    following = left = b""
    stream.seek(offset)
    while not decoder.eof:
        if not left:
            left = stream.read(PIECE)
            end += len(left)
            if not left:
                raise CutOffError(offset)
        try:
            piece = decoder.decompress(left, _SEARCHED_AT_ONCE)
        except zlib.error as error:
            raise RecordError(offset, f"not a gzip member: {error}") from error
        if head is not None and len(following) < _FOLLOWING:
            following += piece[max(head.whole - whole, 0) :][:_FOLLOWING]
        whole += len(piece)
        left = decoder.unconsumed_tail
    end -= len(decoder.unused_data)
    following = following.lstrip(b"\r\n")
    is_fit = head is not None and whole >= head.whole and following[:5] in {b"", b"WARC/"}
    return head, is_fit, end
