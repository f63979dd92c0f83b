"""Mend files that a dead process left open: keep the whole records, cut off an incomplete one."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import OPEN, finish, remove_drafts, sync_directory
from krowlspider.archive.errors import RecordError
from krowlspider.archive.index.cdxj import INDEX, WARC, member_line, write_index
from krowlspider.archive.reading import Advance, ignore, read_member, read_members
from krowlspider.errors import lacks_room

if TYPE_CHECKING:
    from pathlib import Path

# The first bytes of a gzip member (RFC 1952, 2.3), and the bytes searched for one after damage.
_MEMBER = b"\x1f\x8b\x08"
_SEARCHED = 64 * 1024 * 1024


@dataclass(slots=True)
class MendReport:
    """The counts of `mend_folder`: files kept, files removed, records kept, bytes cut off.

    ``damaged`` are copies of the bytes cut off that hold more than the record that a killed process
    was writing.
    """

    files: int = 0
    removed: int = 0
    records: int = 0
    bytes_cut: int = 0
    damaged: list[Path] = field(default_factory=list)


def mend_folder(directory: Path, advance: Advance = ignore) -> MendReport:
    """Mend every open file in ``directory`` and return the counts; no living process may have one.

    Each file is cut back to its last whole record, renamed durably, and indexed. A file without a
    whole record is removed. A response without its request is kept, because a WARC file need not
    hold pairs. The index is omitted when a whole member is no record, or when the disk is full.

    A killed call can be repeated. ``advance`` is called with the length of each whole member.

    :raises FileExistsError: the final name of a file is taken; the records are kept
    :raises OSError: the disk failed; the records are kept
    :raises ArchiveError: a file has its final name, but the name may not be durable
    """
    remove_drafts(directory, INDEX)
    report = MendReport()
    for path in sorted(directory.glob(f"*{WARC}{OPEN}")):
        _mend(path, report, advance)
    return report


def _mend(path: Path, report: MendReport, advance: Advance) -> None:
    with path.open("r+b") as stream:
        whole = _whole_records(stream, path.name.removesuffix(OPEN), advance)
        size = os.fstat(stream.fileno()).st_size
        report.records += whole.records
        report.bytes_cut += size - whole.end
        if _holds_records(stream, whole.end, size):
            report.damaged.append(_put_aside(stream, whole.end, path))
        if whole.records:
            stream.truncate(whole.end)
            os.fsync(stream.fileno())
    if whole.records:
        report.files += 1
        _index(finish(path), whole)
    else:
        report.removed += 1
        path.unlink()
        sync_directory(path.parent)


@dataclass(slots=True)
class _Whole:
    """The whole members at the start of a file.

    ``records`` is their number, ``end`` the offset after the last. ``lines`` are their index lines,
    None if a member is no record.
    """

    records: int
    end: int
    lines: list[str] | None


def _whole_records(stream: BinaryIO, name: str, advance: Advance) -> _Whole:
    whole = _Whole(0, 0, [])
    with suppress(RecordError):
        for member in read_members(stream, advance):
            whole.records += 1
            whole.end = member.offset + member.length
            try:
                line = member_line(member, name)
            except RecordError:
                whole.lines = None
                continue
            if whole.lines is not None and line is not None:
                whole.lines.append(line)
    return whole


def _index(final: Path, whole: _Whole) -> None:
    """Write the index of a mended file.

    A full disk raises nothing, because the crawl itself waits for room.

    :raises OSError: any other failure of the disk
    """
    if whole.lines is None:
        return
    try:
        write_index(final, sorted(whole.lines))
    except OSError as error:
        if not lacks_room(error):
            raise


def _holds_records(stream: BinaryIO, end: int, size: int) -> bool:
    """Return whether the bytes from ``end`` on are damage, not the record of a killed process.

    They are damage if a whole member follows the broken one, or if they are more than a killed
    process can have been writing.
    """
    if size - end > _SEARCHED:
        return True
    stream.seek(end)
    tail = stream.read(_SEARCHED)
    place = tail.find(_MEMBER, 1)
    while place != -1:
        with suppress(RecordError):
            read_member(stream, end + place)
            return True
        place = tail.find(_MEMBER, place + 1)
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
