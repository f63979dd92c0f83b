"""Mend files that a dead process left open: keep the whole records, cut off an incomplete one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.cdxj import INDEX, WARC, LineMaker, index_path, write_index
from krowlspider.archive.disk import (
    DAMAGED,
    OPEN,
    CutOffError,
    RecordError,
    finish,
    remove_drafts,
    sync_directory,
    write_durably,
)
from krowlspider.archive.reading import (
    Advance,
    GzipMember,
    Synced,
    ignore,
    ignore_damage,
    read_members,
    read_readable,
)
from krowlspider.errors import lacks_room

if TYPE_CHECKING:
    from pathlib import Path


_SALVAGED = "-salvaged"
# The bytes searched for a record after one that is not whole: a killed
# process was not writing more.
_SEARCHED = 64 * 1024 * 1024


@dataclass(slots=True)
class MendReport:
    """The counts of `mend_folder`: files kept, files removed, records kept, bytes cut off.

    ``damaged`` are the files that were put aside, ``salvaged`` the files that were made of their
    whole records, with the number of those.
    """

    files: int = 0
    removed: int = 0
    records: int = 0
    bytes_cut: int = 0
    damaged: list[Path] = field(default_factory=list)
    salvaged: list[tuple[Path, int]] = field(default_factory=list)


def mend_folder(
    directory: Path, advance: Advance = ignore, *, synced: Synced | None = None
) -> MendReport:
    """Mend every open file in ``directory`` and return the counts; no living process may have one.

    Each file is cut back to its last whole record, renamed durably, and indexed. A file without a
    whole record is removed. A response without its request is kept, because a WARC file need not
    hold pairs. The index is omitted when a whole member is no record, or when the disk is full.

    A damaged file is kept as it is, with the suffix DAMAGED; its whole records are copied into a
    file of their own. It is damaged if it lacks bytes that were ``synced``, or holds more than a
    killed process leaves.

    A killed call can be repeated. ``advance`` is called with the length of each whole member.

    :raises FileExistsError: the final name of a file is taken; the records are kept
    :raises OSError: the disk failed; the records are kept
    :raises ArchiveError: a file has its final name, but the name may not be durable
    """
    remove_drafts(directory, INDEX)
    remove_drafts(directory, WARC)
    report = MendReport()
    for path in sorted(directory.glob(f"*{WARC}{OPEN}")):
        name = path.name.removesuffix(OPEN)
        _mend(path, report, advance, synced.size if synced and synced.file == name else None)
    for path in sorted(directory.glob(f"*{WARC}{OPEN}{DAMAGED}")):
        _salvage(path, report, advance)
    return report


def salvaged_path(warc: Path) -> Path:
    """Return the path of the file with the records salvaged from the damaged file ``warc``."""
    return warc.with_name(warc.name.removesuffix(WARC) + _SALVAGED + WARC)


def salvaged_from(damaged: Path) -> Path | None:
    """Return the path of the file with the whole records of a file with the suffix DAMAGED.

    None if they are not salvaged. That file may be moved since: then its index stands there.
    """
    out = salvaged_path(damaged.with_name(damaged.name.removesuffix(OPEN + DAMAGED)))
    return out if out.exists() or index_path(out).exists() else None


def damaged_path(warc: Path) -> Path:
    """Return the path under which ``warc`` is kept if it was damaged while it was open."""
    return warc.with_name(warc.name + OPEN + DAMAGED)


def _mend(path: Path, report: MendReport, advance: Advance, synced: int | None) -> None:
    with path.open("r+b") as stream:
        whole = _whole_records(stream, path.name.removesuffix(OPEN), advance)
        size = os.fstat(stream.fileno()).st_size
        if _is_damaged(stream, whole, size, synced):
            report.damaged.append(_put_aside(path))
            return
        report.records += whole.records
        report.bytes_cut += size - whole.end
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

    ``records`` is their number, ``last`` the offset of the last, ``end`` the offset after it.
    ``lines`` are their index lines, None if a member is no record; ``maker`` makes them.
    ``cut_off`` says that the rest is the start of a member.
    """

    maker: LineMaker
    records: int = 0
    last: int = 0
    end: int = 0
    lines: list[str] | None = field(default_factory=list)
    cut_off: bool = False


def _whole_records(stream: BinaryIO, name: str, advance: Advance) -> _Whole:
    whole = _Whole(LineMaker(name))
    try:
        for member in read_members(stream, advance):
            _add(whole, member)
    except CutOffError:
        whole.cut_off = True
    except RecordError:
        pass
    return whole


def _add(whole: _Whole, member: GzipMember) -> None:
    """Count a member that follows, and add its index line."""
    whole.records += 1
    whole.last = member.offset
    whole.end = member.offset + member.length
    try:
        lines = whole.maker.take(member)
    except RecordError:
        whole.lines = None
        return
    if whole.lines is not None:
        whole.lines += lines


def _index(final: Path, whole: _Whole) -> None:
    """Write the index of a mended file.

    A full disk raises nothing, because the crawl itself waits for room.

    :raises OSError: any other failure of the disk
    """
    if whole.lines is None:
        return
    try:
        write_index(final, sorted(whole.lines + whole.maker.end()))
    except OSError as error:
        if not lacks_room(error):
            raise


def _is_damaged(stream: BinaryIO, whole: _Whole, size: int, synced: int | None) -> bool:
    """Return whether the bytes behind the whole records are more than a killed process leaves.

    With what was ``synced`` it is known that all of it must be whole. What follows may be anything:
    a loss of power leaves zeros there, or half of what was written. A file without that knowledge
    must begin with a record, or with the start of one.
    """
    if whole.end < (synced or 0) or size - whole.end > _SEARCHED:
        return True
    if synced is not None:
        return False
    if not whole.records and size and not whole.cut_off:
        return True
    readable = read_readable(stream, ignore_damage, start=whole.last)
    return any(member.offset >= whole.end for member, _ in readable)


def _put_aside(path: Path) -> Path:
    """Keep a damaged file durably under another name; return that."""
    damaged = path.with_name(path.name + DAMAGED)
    path.rename(damaged)
    sync_directory(path.parent)
    return damaged


def _salvage(path: Path, report: MendReport, advance: Advance) -> None:
    """Copy the whole records of a damaged file into a finished file, unless that was done."""
    if salvaged_from(path) is not None:
        return
    out = salvaged_path(path.with_name(path.name.removesuffix(OPEN + DAMAGED)))
    whole = _Whole(LineMaker(out.name))
    with path.open("rb") as stream:
        members = (member for member, _ in read_readable(stream, ignore_damage, advance))
        member = next(members, None)
        if member is None:
            return
        with write_durably(out) as file:
            while member is not None:
                stream.seek(member.offset)
                file.write(stream.read(member.length))
                _add(whole, replace(member, offset=whole.end))
                member = next(members, None)
    report.salvaged.append((out, whole.records))
    _index(out, whole)
