"""Mend files that a dead process left open: keep the whole records, cut off an incomplete one."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import OPEN, finish, finish_name, sync_directory
from krowlspider.archive.errors import RecordError
from krowlspider.archive.index.cdxj import index_record, remove_drafts, write_index
from krowlspider.archive.index.lookup import parse_record
from krowlspider.archive.members import read_member
from krowlspider.errors import lacks_room

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The first bytes of a gzip member (RFC 1952, 2.3), and the bytes searched for one after damage.
_MEMBER = b"\x1f\x8b\x08"
_SEARCHED = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mended:
    """The result for one open file; ``final`` is None if it held no whole record and was removed.

    ``bytes_cut`` are the bytes after the last whole record. ``damaged`` is the copy of these bytes,
    if they hold more than the record that a killed process was writing.
    """

    final: Path | None
    records: int
    bytes_cut: int
    damaged: Path | None = None


@dataclass(frozen=True, slots=True)
class MendReport:
    """The counts of `mend_folder`: files kept, files removed, records kept, bytes cut off.

    ``damaged`` are the copies of damaged bytes.
    """

    files: int
    removed: int
    records: int
    bytes_cut: int
    damaged: list[Path] = field(default_factory=list)


def mend_folder(directory: Path, told: Callable[[int], object] | None = None) -> MendReport:
    """Mend every open file in ``directory`` and return the counts.

    No open file may belong to a living process. ``told`` is called with the length in bytes of each
    whole member. Raises the errors of `mend`.
    """
    remove_drafts(directory)
    mended = [mend(path, told) for path in sorted(directory.glob(f"*.warc.gz{OPEN}"))]
    return MendReport(
        files=sum(each.final is not None for each in mended),
        removed=sum(each.final is None for each in mended),
        records=sum(each.records for each in mended),
        bytes_cut=sum(each.bytes_cut for each in mended),
        damaged=[each.damaged for each in mended if each.damaged is not None],
    )


def mend(path: Path, told: Callable[[int], object] | None = None) -> Mended:
    """Cut an open file back to its last whole record, rename it durably, and write its index.

    A response without its request is kept, because a WARC file need not hold pairs. If the process
    is killed, the next call does the same again. After the rename only the index can be missing; it
    can be made from the file at any time. The index is also omitted when a whole member is no
    record, or when the disk is full.

    :raises ValueError: ``path`` is not the name of an open file
    :raises FileExistsError: the final name is taken; the records are kept
    :raises OSError: the disk failed; the records are kept
    :raises ArchiveError: the file has its final name, but the name may not be durable
    """
    name = finish_name(path).name
    with path.open("r+b") as stream:
        found = _whole_records(stream, name, told)
        size = os.fstat(stream.fileno()).st_size
        bytes_cut = size - found.end
        damaged = (
            _put_aside(stream, found.end, path) if _holds_records(stream, found.end, size) else None
        )
        if found.records:
            stream.truncate(found.end)
            os.fsync(stream.fileno())
    if found.records:
        final = finish(path)
        _index(final, found)
        return Mended(final, found.records, bytes_cut, damaged)
    path.unlink()
    sync_directory(path.parent)
    return Mended(None, 0, bytes_cut, damaged)


@dataclass(slots=True)
class _Whole:
    """The whole members at the start of a file.

    ``records`` is their number, ``end`` the offset after the last. ``lines`` are their index lines,
    None if a member is no record.
    """

    records: int
    end: int
    lines: list[str] | None


def _whole_records(stream: BinaryIO, name: str, told: Callable[[int], object] | None) -> _Whole:
    found = _Whole(0, 0, [])
    size = os.fstat(stream.fileno()).st_size
    while found.end < size:
        content = BytesIO()
        try:
            length = read_member(stream, found.end, content.write)
        except RecordError:
            break
        _note_line(found, content, length, name)
        found.end += length
        found.records += 1
        if told is not None:
            told(length)
    return found


def _note_line(found: _Whole, content: BytesIO, length: int, name: str) -> None:
    if found.lines is None:
        return
    try:
        record = parse_record(content.getvalue(), found.end)
    except RecordError:
        found.lines = None
        return
    line = index_record(record, record.reader.read(), found.end, length, name)
    if line is not None:
        found.lines.append(line)


def _index(final: Path, found: _Whole) -> None:
    """Write the index of a mended file.

    A full disk raises nothing, because the crawl itself waits for room.

    :raises OSError: any other failure of the disk
    """
    if found.lines is None:
        return
    try:
        write_index(final, sorted(found.lines))
    except OSError as error:
        if not lacks_room(error):
            raise


def _holds_records(stream: BinaryIO, end: int, size: int) -> bool:
    """Return whether the bytes from ``end`` on are damage, not the record of a killed process.

    They are damage if a whole member follows the broken one. They also are if they are more than a
    killed process can have been writing.
    """
    if size - end > _SEARCHED:
        return True
    stream.seek(end)
    tail = stream.read(_SEARCHED)
    place = tail.find(_MEMBER, 1)
    while place != -1:
        try:
            read_member(stream, end + place, _discard)
        except RecordError:
            place = tail.find(_MEMBER, place + 1)
        else:
            return True
    return False


def _put_aside(stream: BinaryIO, end: int, path: Path) -> Path:
    """Copy everything from the damage on to a file for a person to inspect; return its path."""
    damaged = path.with_name(f"{path.name}.damaged")
    stream.seek(end)
    with damaged.open("wb") as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        os.fsync(copy.fileno())
    # Durable before the open file is cut, because then this is the only copy.
    sync_directory(path.parent)
    return damaged


def _discard(piece: bytes) -> None:
    """Ignore the content: only whether the member is whole matters."""
