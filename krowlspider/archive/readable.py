"""Read a damaged file of gzip members: after damage, go on with its next record.

A body may hold whole members that are records: crawled WARC files are stored as they are. The
records of a file name the id of its warcinfo record. It is random, and no server knows it when it
sends a body. So a record that was searched for counts only if it names such an id.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from krowlspider.archive.errors import CutOffError, RecordError
from krowlspider.archive.reading import (
    ALL,
    GZIP,
    PIECE,
    RECORD_END,
    Advance,
    Member,
    ignore,
    read_member,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastwarc.warc import WarcRecord

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

    def next(self, start: int) -> tuple[Member, WarcRecord] | None:
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
) -> Iterator[tuple[Member, WarcRecord]]:
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
        member: Member | None = None
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
