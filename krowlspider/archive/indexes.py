"""The indexes of a folder of WARC files: made where they are missing, merged, and searched."""

from __future__ import annotations

import heapq
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.cdxj import (
    INDEX,
    REVISIT,
    WARC,
    index_file,
    index_path,
    parse,
    timestamp,
    write_index,
    written_durably,
)
from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.archive.surt import surt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from krowlspider.archive.cdxj import IndexLine

# Files merged in one go, of the 1,024 that a process may have open; of more, parts are merged first.
MERGED_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of a folder, and the finished files in it that have none, or one from before they were written."""

    there: list[Path]
    missing: list[Path]


def indexes_in(directory: Path) -> Indexes:
    """What there is of indexes in a folder. That of a file that is elsewhere by now, in a store, counts too."""
    warcs = sorted(directory.glob(f"*{WARC}"))
    missing = [warc for warc in warcs if not _is_current(warc)]
    orphans = [
        index
        for index in directory.glob(f"*{INDEX}")
        if not (warc := _warc_of(index)).exists() and _belongs(index, warc.name)
    ]
    there = [index_path(warc) for warc in sorted(set(warcs) - set(missing))]
    return Indexes(sorted(there + orphans), missing)


def _warc_of(index: Path) -> Path:
    return index.with_name(index.name.removesuffix(INDEX) + WARC)


def _is_current(warc: Path) -> bool:
    index = index_path(warc)
    try:
        return index.stat().st_mtime_ns >= warc.stat().st_mtime_ns and _belongs(index, warc.name)
    except FileNotFoundError:
        return False


def _belongs(index: Path, name: str) -> bool:
    """Whether an index, whose lines are all of one file, is of the file ``name``."""
    with index.open("rb") as file:
        first = file.readline()
    try:
        return not first or parse(first).filename == name
    except ValueError:
        return False


def make_indexes(warcs: Iterable[Path], told: Callable[[int], object] | None = None) -> None:
    """Index finished files; ``told`` of each member's length.

    The lines of one file are in memory, 300 bytes a capture. Raises ArchiveError when one is broken, OSError.
    """
    for warc in warcs:
        try:
            lines = sorted(index_file(warc, told))
        except RecordError as error:
            raise ArchiveError(f"{warc} cannot be indexed, {error}") from error
        write_index(warc, lines)


def merge(indexes: Sequence[Path], out: Path, told: Callable[[int], object] | None = None) -> int:
    """Write one index of all, sorted, to ``out``, durably; how many lines it has. ``told`` of the length of each.

    In memory are a line and a buffer of MERGED_AT_ONCE files. Raises ArchiveError when one is not sorted, OSError.
    """
    count = 0
    with (
        TemporaryDirectory(prefix=".merging-", dir=out.parent) as scratch,
        written_durably(out) as file,
    ):
        for line in merged(indexes, Path(scratch)):
            file.write(line)
            count += 1
            if told is not None:
                told(len(line))
    return count


def merged(indexes: Sequence[Path], scratch: Path) -> Iterator[bytes]:
    """The lines of all indexes, sorted, each once; ``scratch`` is for what is merged in parts.

    Raises ArchiveError when one is not sorted, OSError.
    """
    rounds = 0
    while len(indexes) > MERGED_AT_ONCE:
        parts = []
        for start in range(0, len(indexes), MERGED_AT_ONCE):
            part = scratch / f"{rounds}-{start}"
            with part.open("wb") as file:
                file.writelines(_merged(indexes[start : start + MERGED_AT_ONCE]))
            parts.append(part)
        indexes, rounds = parts, rounds + 1
    yield from _merged(indexes)


def _merged(indexes: Sequence[Path]) -> Iterator[bytes]:
    with ExitStack() as stack:
        files = [(path, stack.enter_context(path.open("rb"))) for path in indexes]
        last = b""
        for line in heapq.merge(*(_sorted_lines(path, file) for path, file in files)):
            if line != last:
                yield line
            last = line


def _sorted_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    last = b""
    for line in file:
        if line < last:
            raise ArchiveError(f"{path} is not sorted: remove it, and it is made anew")
        yield line if line.endswith(b"\n") else line + b"\n"
        last = line


def captures_of(indexes: Iterable[Path], url: str) -> list[IndexLine]:
    """The captures whose URL has the key of ``url``, oldest first, found by binary search."""
    key = surt(url)
    found = (line for index in indexes for line in lines_with(index, f"{key} "))
    return sorted(found, key=lambda line: (line.timestamp, line.filename, line.offset))


def lines_with(index: Path, beginning: str) -> Iterator[IndexLine]:
    """The lines of a sorted index that begin so."""
    wanted = beginning.encode()
    with index.open("rb") as file:
        file.seek(_first_not_before(file, wanted))
        for line in file:
            if not line.startswith(wanted):
                return
            yield parse(line)


def _first_not_before(file: BinaryIO, wanted: bytes) -> int:
    """Where the first line begins that is ``wanted`` or sorts behind it."""
    low, high = 0, os.fstat(file.fileno()).st_size
    while low < high:
        middle = (low + high) // 2
        # To where a line begins: at the middle itself when one ends before it.
        file.seek(max(middle - 1, 0))
        if middle:
            file.readline()
        begins = file.tell()
        line = file.readline()
        if line and line < wanted:
            low = begins + len(line)
        else:
            high = middle
    return low


def original_of(
    indexes: Iterable[Path], revisit: IndexLine, fields: Mapping[str, str]
) -> IndexLine | None:
    """The capture whose payload a revisit stands for, by the fields of its record; None when it is not there.

    A revisit that names none, for an answer that nothing has changed, stands for the last whole one before it.
    """
    target, date = fields.get("WARC-Refers-To-Target-URI"), fields.get("WARC-Refers-To-Date")
    found = [line for line in captures_of(indexes, target or revisit.url) if line.mime != REVISIT]
    if target:
        found = [line for line in found if not date or line.timestamp == timestamp(date)]
        # Of those that share a key, of one second, the very URL rather than another.
        return max(found, key=lambda line: line.url == target, default=None)
    before = [
        line
        for line in found
        if (line.url, line.status) == (revisit.url, "200") and line.timestamp <= revisit.timestamp
    ]
    return before[-1] if before else None
