"""Bring what a dead process left open to an end: whole records are kept, a cut one is cut away."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.cdxj import index_record, remove_drafts, write_index
from krowlspider.archive.disk import OPEN, finish, finish_name, sync_directory
from krowlspider.archive.errors import RecordError
from krowlspider.archive.lookup import parse_record
from krowlspider.archive.members import read_member
from krowlspider.errors import lacks_room

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# How a member begins (RFC 1952, 2.3), and how far after a broken one another is looked for.
_MEMBER = b"\x1f\x8b\x08"
_SEARCHED = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mended:
    """One open file mended: ``final`` is None when it held no whole record and was removed.

    ``damaged`` holds what was cut off, where that is more than the record a killed process was at.
    """

    final: Path | None
    records: int
    bytes_cut: int
    damaged: Path | None = None


@dataclass(frozen=True, slots=True)
class MendReport:
    """What mending a folder did: files kept, files removed, records kept, bytes cut away, and the
    files that damage was put aside in."""

    files: int
    removed: int
    records: int
    bytes_cut: int
    damaged: list[Path] = field(default_factory=list)


def mend_folder(directory: Path, told: Callable[[int], object] | None = None) -> MendReport:
    """Mend every open file in ``directory``, none of which may belong to a living process; ``told`` of the length of
    each whole member."""
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
    """Cut an open file back to its last whole record, give it its final name, durably, and write its index.

    A response without its request is kept: a WARC file need not hold pairs. Killed anywhere, it
    does the same again; between name and index, only the index is not there, which can be made from the file at any
    time. It is left out too when a whole member is no record, and for want of room on the disk. Raises
    ValueError when the name is not an open file's, FileExistsError when the final name is taken, OSError when the
    disk fails; then the records are still there.
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
    """The members that a file begins with: how many, where the last ends, and the lines of their index, None when
    one of them is no record."""

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
    """Write the index of a mended file. Raises OSError, but not for want of room: the crawl waits for that."""
    if found.lines is None:
        return
    try:
        write_index(final, sorted(found.lines))
    except OSError as error:
        if not lacks_room(error):
            raise


def _holds_records(stream: BinaryIO, end: int, size: int) -> bool:
    """Whether whole records follow what is broken: then it is damage, not the cut of a killed process, as it is when
    more follows than a killed process can have been at."""
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
    """Keep everything from the damage on, for a person to look into."""
    damaged = path.with_name(f"{path.name}.damaged")
    stream.seek(end)
    with damaged.open("wb") as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        os.fsync(copy.fileno())
    # Before the open file is cut: then this is the only copy.
    sync_directory(path.parent)
    return damaged


def _discard(piece: bytes) -> None:
    """Only whether the member is whole matters, not what it says."""
