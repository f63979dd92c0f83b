"""The indexes of a folder of WARC files: list them, make missing ones, merge them."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from krowlspider.archive.disk import OPEN, write_durably
from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.archive.index.cdxj import (
    INDEX,
    WARC,
    index_path,
    index_readable,
    index_whole_records,
    parse,
    write_index,
)
from krowlspider.archive.reading import Advance, ignore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from krowlspider.archive.index.cdxj import IndexLine

# Called with a damaged file and the error of a stretch of it.
FileDamage = Callable[[Path, RecordError], object]
# Nanoseconds by which the index of a damaged file is older than that.
_OF_DAMAGED = 1_000_000_000
# Files merged at a time, below the 1,024 that a process may have open. More are merged in parts.
MERGED_AT_ONCE = 200


class Indexes(Struct, frozen=True):
    """The indexes of a folder.

    ``there`` are the indexes to use. ``missing`` are finished WARC files without an index, or with
    one older than the file. ``damaged`` are those whose index has only what can be read of them.
    ``away`` are the names of WARC files that were moved elsewhere and left only their index.
    """

    there: list[Path]
    missing: list[Path]
    damaged: list[Path]
    away: list[str]


def indexes_in(directory: Path, newest: int = 0) -> Indexes:
    """Return the indexes of a folder, those of files moved to a store included. Raises OSError.

    With ``newest``, look only at so many files, those that were begun last.
    """
    found = Indexes([], [], [], [])
    # Making a path of each name takes several times as long.
    there = os.listdir(directory) if directory.is_dir() else []  # noqa: PTH208
    names = {name for name in there if name.endswith(WARC)}
    names |= {name.removesuffix(INDEX) + WARC for name in there if name.endswith(INDEX)}
    # The names of a crawl's files have the time at which they were begun.
    for warc in (directory / name for name in sorted(names)[-newest:]):
        index = index_path(warc)
        written, indexed = _modified(warc), _modified(index)
        # All lines of an index name one file. An empty index may belong to any file that is there.
        named = None if indexed is None else _file_named_in(index)
        if written is None:
            if named == warc.name:
                found.there.append(index)
                found.away.append(warc.name)
        elif indexed is None or named not in {warc.name, ""}:
            found.missing.append(warc)
        elif indexed >= written:
            found.there.append(index)
        elif indexed == written - _OF_DAMAGED:
            found.there.append(index)
            found.damaged.append(warc)
        else:
            found.missing.append(warc)
    return found


def files_gone(directory: Path) -> list[str]:
    """Return the names of the WARC files of which only the index is in a folder, sorted.

    A link to a file that is missing counts as gone. Raises OSError.
    """
    if not directory.is_dir():
        return []
    with os.scandir(directory) as entries:
        names = {each.name for each in entries if not each.is_symlink() or each.is_file()}
    warcs = (name.removesuffix(INDEX) + WARC for name in names if name.endswith(INDEX))
    return sorted(name for name in warcs if not names & {name, name + OPEN})


def _modified(path: Path) -> int | None:
    """Return the time a file was written, in epoch ns; None if the file does not exist."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _file_named_in(index: Path) -> str | None:
    """Return the file that an index names, empty without lines, None if it is broken or missing."""
    try:
        with index.open("rb") as file:
            first = file.readline()
        return parse(first).filename if first else ""
    except (ValueError, FileNotFoundError):
        return None


def make_indexes(warcs: Iterable[Path], damage: FileDamage, advance: Advance = ignore) -> None:
    """Write the index of each finished file; call ``advance`` with each member's length in bytes.

    The lines of one file are in memory, about 300 bytes a capture. A file that was uploaded and
    removed in the meantime is skipped. Of a damaged file the readable records are indexed, and
    ``damage`` is called with each damaged stretch; `indexes_in` lists it as damaged, so that the
    next call can name the damage again. Raises OSError.
    """
    for warc in warcs:
        errors: list[RecordError] = []
        try:
            modified = warc.stat().st_mtime_ns
            lines = sorted(index_readable(warc, errors.append, advance))
        except FileNotFoundError:
            continue
        write_index(warc, lines)
        if errors:
            os.utime(index_path(warc), ns=(modified - _OF_DAMAGED, modified - _OF_DAMAGED))
        for error in errors:
            damage(warc, error)


def index_open_files(directory: Path, scratch: Path, advance: Advance = ignore) -> list[Path]:
    """Index the whole records of all open files into ``scratch``, and return these indexes.

    The indexes name the files as they are named now, with OPEN at the end. A file that is finished
    in the meantime is skipped. Raises OSError.
    """
    made = []
    for warc in sorted(directory.glob(f"*{WARC}{OPEN}")):
        index = scratch / f"{warc.name}{INDEX}"
        with suppress(FileNotFoundError):
            index.write_text("".join(sorted(index_whole_records(warc, advance))), encoding="ascii")
            made.append(index)
    return made


def merge(indexes: Sequence[Path], out: Path, advance: Advance = ignore) -> int:
    """Merge sorted indexes durably into ``out`` and return its number of lines.

    ``advance`` is called with the length of each line. Raises the errors of `merged`.
    """
    count = 0
    with (
        TemporaryDirectory(prefix=".merging-", dir=out.parent) as scratch,
        write_durably(out) as file,
    ):
        for line in merged(indexes, Path(scratch)):
            file.write(line)
            count += 1
            advance(len(line))
    return count


def merged(indexes: Sequence[Path], scratch: Path) -> Iterator[bytes]:
    """Yield the lines of all indexes, sorted, each once; ``scratch`` holds merged parts.

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
    """Yield the parsed lines of an index. Raises ArchiveError for a broken one."""
    for line in lines:
        try:
            yield parse(line)
        except ValueError as error:
            raise ArchiveError(f"{index} has a line that is broken{_way_out(index)}") from error


def _way_out(index: Path) -> str:
    if index.with_name(index.name.removesuffix(INDEX) + WARC).exists():
        return ": remove it, and scrapy warc index makes it anew"
    return ": remove it, or copy it again with its WARC file"
