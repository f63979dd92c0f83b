"""The indexes of a folder of WARC files: made where they are missing, merged, and searched."""

from __future__ import annotations

import heapq
import os
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.cdxj import (
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
from krowlspider.archive.errors import ArchiveError, RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from krowlspider.archive.cdxj import IndexLine

# Files merged in one go, of the 1,024 that a process may have open; of more, parts are merged first.
MERGED_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of a folder, the finished files in it that have none, or one from before they were written, and the
    names of files that are elsewhere by now, of which only the index is there."""

    there: list[Path]
    missing: list[Path]
    away: list[str]


def indexes_in(directory: Path) -> Indexes:
    """What there is of indexes in a folder. That of a file that is elsewhere by now, in a store, counts too."""
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
    """When a file was written, in nanoseconds; None when it is not there, or went a moment ago."""
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
        # An empty one could be of any.
        return index.stat().st_size > 0 and _belongs(index, name)
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

    The lines of one file are in memory, 300 bytes a capture. One that is gone by then, uploaded and removed, is passed
    over. Raises ArchiveError when one is broken, OSError.
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
            raise ArchiveError(f"{path} is not sorted{_way_out(path)}")
        yield line if line.endswith(b"\n") else line + b"\n"
        last = line


def parsed(index: Path, lines: Iterable[bytes]) -> Iterator[IndexLine]:
    """What lines of an index say. Raises ArchiveError when one of them is none."""
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
    """The captures whose URL has the key of ``url``, oldest first, found by binary search. Raises as `lines_with`."""
    key = key_of(url)
    found = (line for index in indexes for line in lines_with(index, f"{key} "))
    return sorted(found, key=lambda line: (line.timestamp, line.filename, line.offset))


def lines_with(index: Path, beginning: str) -> Iterator[IndexLine]:
    """The lines of a sorted index that begin so. Raises ArchiveError when one is broken, OSError."""
    wanted = beginning.encode()
    with index.open("rb") as file:
        file.seek(_first_not_before(file, wanted))
        yield from parsed(index, takewhile(lambda line: line.startswith(wanted), file))


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

    Dates in indexes are to the second, so of those of one second it is the digest that tells. A revisit that names
    none, for an answer that nothing has changed, stands for the last whole one before it, one to GET if there is one.
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
        # One that is known to be the same, and of those that share a key the very URL, rather than another.
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
    """Whether two payloads may be the same by their digests: those of one algorithm tell, the lack of one does not."""
    if not one or not other or one.partition(":")[0] != other.partition(":")[0]:
        return True
    return one == other
