"""Bring what a dead process left open to an end: whole records are kept, a cut one is cut away."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import OPEN, finish, finish_name, sync_directory
from krowlspider.archive.errors import RecordError
from krowlspider.archive.members import read_member

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mended:
    """One open file mended: ``final`` is None when it held no whole record and was removed."""

    final: Path | None
    records: int
    bytes_cut: int


@dataclass(frozen=True, slots=True)
class MendReport:
    """What mending a folder did: files kept, files removed, records kept, bytes cut away."""

    files: int
    removed: int
    records: int
    bytes_cut: int


def mend_folder(directory: Path) -> MendReport:
    """Mend every open file in ``directory``, none of which may belong to a living process."""
    mended = [mend(path) for path in sorted(directory.glob(f"*.warc.gz{OPEN}"))]
    return MendReport(
        files=sum(each.final is not None for each in mended),
        removed=sum(each.final is None for each in mended),
        records=sum(each.records for each in mended),
        bytes_cut=sum(each.bytes_cut for each in mended),
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
        bytes_cut = os.fstat(stream.fileno()).st_size - end
        if records:
            stream.truncate(end)
            os.fsync(stream.fileno())
    if records:
        return Mended(finish(path), records, bytes_cut)
    path.unlink()
    sync_directory(path.parent)
    return Mended(None, 0, bytes_cut)


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


def _discard(piece: bytes) -> None:
    """Only whether the member is whole matters, not what it says."""
