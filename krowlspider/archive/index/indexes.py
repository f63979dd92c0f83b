"""The indexes of a folder of WARC files: make missing ones, merge them, search them."""

from __future__ import annotations

import heapq
import os
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.archive.index.cdxj import (
    INDEX,
    REVISIT,
    WARC,
    index_file,
    index_path,
    key_of,
    parse,
    timestamp,
    write_index,
    written_durably,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from krowlspider.archive.index.cdxj import IndexLine

# Files merged at once, below the 1,024 that a process may have open. More are merged in parts.
MERGED_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of a folder.

    ``there`` are the indexes to use. ``missing`` are finished WARC files without an index, or with
    one older than the file. ``away`` are the names of WARC files that were moved elsewhere and left
    only their index.
    """

    there: list[Path]
    missing: list[Path]
    away: list[str]


def indexes_in(directory: Path) -> Indexes:
    """Return the indexes of a folder, those of files moved to a store included. Raises OSError."""
    found = Indexes([], [], [])
    indexes = map(_warc_of, directory.glob(f"*{INDEX}"))
    for warc in sorted({*directory.glob(f"*{WARC}"), *indexes}):
        written = _written(warc)
        if written is None:
            if _is_of_one_away(index_path(warc), warc.name):
                found.there.append(index_path(warc))
                found.away.append(warc.name)
        elif _is_current(warc, written):
            found.there.append(index_path(warc))
        else:
            found.missing.append(warc)
    return found


def _warc_of(index: Path) -> Path:
    return index.with_name(index.name.removesuffix(INDEX) + WARC)


def _written(warc: Path) -> int | None:
    """Return the time a file was written, in epoch ns; None if the file does not exist."""
    try:
        return warc.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _is_current(warc: Path, written: int) -> bool:
    index = index_path(warc)
    try:
        return index.stat().st_mtime_ns >= written and _belongs(index, warc.name)
    except FileNotFoundError:
        return False


def _is_of_one_away(index: Path, name: str) -> bool:
    try:
        # An empty index does not name its file.
        return index.stat().st_size > 0 and _belongs(index, name)
    except FileNotFoundError:
        return False


def _belongs(index: Path, name: str) -> bool:
    """Return whether an index is that of the file ``name``, by its first line.

    All lines of an index name one file. An empty index may belong to any.
    """
    with index.open("rb") as file:
        first = file.readline()
    try:
        return not first or parse(first).filename == name
    except ValueError:
        return False


def make_indexes(warcs: Iterable[Path], told: Callable[[int], object] | None = None) -> None:
    """Write the index of each finished file; ``told`` is called with each member's length in bytes.

    The lines of one file are in memory, about 300 bytes a capture. A file that was uploaded and
    removed in the meantime is skipped.

    :raises ArchiveError: a file is broken
    :raises OSError: a file cannot be read, or an index cannot be written
    """
    for warc in warcs:
        try:
            lines = sorted(index_file(warc, told))
        except FileNotFoundError:
            continue
        except RecordError as error:
            raise ArchiveError(f"{warc} cannot be indexed, {error}") from error
        write_index(warc, lines)


def merge(indexes: Sequence[Path], out: Path, told: Callable[[int], object] | None = None) -> int:
    """Merge sorted indexes durably into ``out`` and return its number of lines.

    ``told`` is called with the length of each line in bytes. A line and a buffer of MERGED_AT_ONCE
    files are in memory.

    :raises ArchiveError: an index is not sorted
    :raises OSError: an index cannot be read, or ``out`` cannot be written
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
    """Yield the lines of all indexes, sorted, each once; ``scratch`` holds the merged parts.

    :raises ArchiveError: an index is not sorted
    :raises OSError: an index cannot be read, or a part cannot be written
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
            raise ArchiveError(f"{path} is not sorted{_way_out(path)}")
        yield line if line.endswith(b"\n") else line + b"\n"
        last = line


def parsed(index: Path, lines: Iterable[bytes]) -> Iterator[IndexLine]:
    """Yield the parsed lines of an index.

    :raises ArchiveError: a line is broken
    """
    for line in lines:
        try:
            yield parse(line)
        except ValueError as error:
            raise ArchiveError(f"{index} has a line that is broken{_way_out(index)}") from error


def _way_out(index: Path) -> str:
    if _warc_of(index).exists():
        return ": remove it, and scrapy warc index makes it anew"
    return ": remove it, or get it again from where its WARC file is"


def captures_of(indexes: Iterable[Path], url: str) -> list[IndexLine]:
    """Return the captures whose URL has the key of ``url``, oldest first.

    Uses binary search. Raises the errors of `lines_with`.
    """
    key = key_of(url)
    found = (line for index in indexes for line in lines_with(index, f"{key} "))
    return sorted(found, key=lambda line: (line.timestamp, line.filename, line.offset))


def lines_with(index: Path, beginning: str) -> Iterator[IndexLine]:
    """Yield the lines of a sorted index that start with ``beginning``.

    :raises ArchiveError: one of these lines is broken
    :raises OSError: the index cannot be read
    """
    wanted = beginning.encode()
    with index.open("rb") as file:
        file.seek(_first_not_before(file, wanted))
        yield from parsed(index, takewhile(lambda line: line.startswith(wanted), file))


def _first_not_before(file: BinaryIO, wanted: bytes) -> int:
    """Return the offset of the first line that equals ``wanted`` or sorts after it."""
    low, high = 0, os.fstat(file.fileno()).st_size
    while low < high:
        middle = (low + high) // 2
        # Go to the first line that begins at the middle or after it.
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
    """Return the capture that holds a revisit's payload; None if it is not in the indexes.

    ``fields`` are those of the revisit's record. Dates in indexes are in whole seconds, so the
    digest selects among captures of one second. A revisit for an answer 304 names no original. It
    stands for the last response with status 200 not after it, if possible one with a payload: an
    answer to GET, not to HEAD. Raises the errors of `lines_with`.
    """
    target, date = fields.get("WARC-Refers-To-Target-URI"), fields.get("WARC-Refers-To-Date")
    found = [line for line in captures_of(indexes, target or revisit.url) if line.mime != REVISIT]
    if target:
        found = [
            line
            for line in found
            if (not date or line.timestamp == timestamp(date))
            and may_be_same(line.digest, revisit.digest)
        ]
        # Prefer an equal digest to a missing one, then the same URL to another with the same key.
        return max(
            found,
            key=lambda line: (line.digest == revisit.digest, line.url == target),
            default=None,
        )
    before = [
        line
        for line in found
        if (line.url, line.status) == (revisit.url, "200") and line.timestamp <= revisit.timestamp
    ]
    return max(before, key=lambda line: (not line.is_bare, line.timestamp), default=None)


def may_be_same(one: str, other: str) -> bool:
    """Return whether two payloads may be equal, by their digests.

    Only two digests of one algorithm can prove a difference. An empty text means no digest.
    """
    if not one or not other or one.partition(":")[0] != other.partition(":")[0]:
        return True
    return one == other
