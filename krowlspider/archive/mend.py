"""Bring what a dead process left open to an end: whole records are kept, a cut one is cut away."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import OPEN, finish, finish_name, sync_directory
from krowlspider.archive.errors import RecordError
from krowlspider.archive.members import read_member

if TYPE_CHECKING:
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


def mend_folder(directory: Path) -> MendReport:
    """Mend every open file in ``directory``, none of which may belong to a living process."""
    mended = [mend(path) for path in sorted(directory.glob(f"*.warc.gz{OPEN}"))]
    return MendReport(
        files=sum(each.final is not None for each in mended),
        removed=sum(each.final is None for each in mended),
        records=sum(each.records for each in mended),
        bytes_cut=sum(each.bytes_cut for each in mended),
        damaged=[each.damaged for each in mended if each.damaged is not None],
    )


def mend(path: Path) -> Mended:
    """Cut an open file back to its last whole record and give it its final name, durably.

    A response without its request is kept: a WARC file need not hold pairs. Killed anywhere, it
    does the same again. Raises ValueError when the name is not an open file's, FileExistsError
    when the final name is taken, OSError when the disk fails; then the records are still there.
    """
    finish_name(path)
    with path.open("r+b") as stream:
        records, end = _whole_records(stream)
        size = os.fstat(stream.fileno()).st_size
        bytes_cut = size - end
        damaged = _put_aside(stream, end, path) if _holds_records(stream, end, size) else None
        if records:
            stream.truncate(end)
            os.fsync(stream.fileno())
    if records:
        return Mended(finish(path), records, bytes_cut, damaged)
    path.unlink()
    sync_directory(path.parent)
    return Mended(None, 0, bytes_cut, damaged)


def _whole_records(stream: BinaryIO) -> tuple[int, int]:
    """How many whole members the file begins with, and where the last of them ends."""
    records = end = 0
    size = os.fstat(stream.fileno()).st_size
    while end < size:
        try:
            end += read_member(stream, end, _discard)
        except RecordError:
            break
        records += 1
    return records, end


def _holds_records(stream: BinaryIO, end: int, size: int) -> bool:
    """Whether whole records follow what is broken: then it is damage, not the cut of a killed process."""
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
    return damaged


def _discard(piece: bytes) -> None:
    """Only whether the member is whole matters, not what it says."""
