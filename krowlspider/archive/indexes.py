"""The indexes of a folder of WARC files: list, make and merge them, and find captures in them."""

from __future__ import annotations

import heapq
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from krowlspider.archive.cdxj import (
    INDEX,
    REVISIT,
    WARC,
    IndexLine,
    index_path,
    index_readable,
    index_whole_records,
    key_of,
    parse,
    timestamp,
    write_index,
)
from krowlspider.archive.disk import OPEN, ArchiveError, RecordError, write_durably
from krowlspider.archive.payload import are_equal
from krowlspider.archive.reading import Advance, ignore
from krowlspider.urls.gemini import SCHEME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fastwarc.warc import HeaderMap

# Called with a damaged file and the error of a stretch of it.
FileDamage = Callable[[Path, RecordError], object]
# Nanoseconds by which the index of a damaged file is older than that.
_OF_DAMAGED = 1_000_000_000
# Files merged at a time, below the 1,024 that a process may have open. More are merged in parts.
MERGED_AT_ONCE = 200
# Bytes of an index that are read at a time.
LINES_AT_ONCE = 64 * 1024
# Bytes that are read in one step of a search: about two lines.
_STEP = 1024


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


def parsed_lines(index: Path, lines: Iterable[bytes]) -> Iterator[IndexLine]:
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


# Sorts after every line, because lines are ASCII.
_AFTER_ALL = b"\xff"


def captures_of(
    indexes: Iterable[Path], url: str, others: Callable[[str], Iterable[str]] = lambda _: ()
) -> list[IndexLine]:
    """Return the captures whose URL has the key of ``url``, oldest first.

    ``others`` returns the index lines that start with a text and are not in ``indexes``.
    """
    beginning = f"{key_of(url)} "
    found = [line for index in indexes for line in lines_with(index, beginning)]
    found += [parse(line.encode()) for line in others(beginning)]
    return sorted(found, key=lambda line: (line.timestamp, line.filename, line.offset))


def lines_with(index: Path, beginning: str) -> Iterator[IndexLine]:
    """Yield the lines of a sorted index that start with ``beginning``, found by binary search.

    :raises ArchiveError: one of these lines is broken
    :raises OSError: the index cannot be read
    """
    wanted = beginning.encode()
    yield from parsed_lines(index, lines_between(index, wanted, wanted + _AFTER_ALL))


def lines_between(
    index: Path, begin: bytes, end: bytes, at_once: int = LINES_AT_ONCE
) -> Iterator[bytes]:
    """Yield the lines of a sorted index from ``begin`` to before ``end``, by their bytes.

    About ``at_once`` bytes are read at a time, and the index is closed in between: very many can be
    read side by side. Raises OSError.
    """
    offset = None
    while True:
        with index.open("rb") as file:
            if offset is None:
                offset = _offset_in(file, begin)
            file.seek(offset)
            lines = file.readlines(at_once)
        for line in lines:
            if line >= end:
                return
            yield line
        if not lines:
            return
        offset += sum(map(len, lines))


def count_gemini(index: Path) -> int:
    """Return the number of lines of a sorted index that are of Gemini. Raises OSError."""
    begin = SCHEME.encode()
    return sum(1 for _ in lines_between(index, begin, begin + _AFTER_ALL))


def offset_of(index: Path, begin: bytes) -> int:
    """Return where the first line of a sorted index begins that is not before ``begin``; the size
    of the index without one. Raises OSError."""
    with index.open("rb") as file:
        return _offset_in(file, begin)


def line_at(index: Path, offset: int) -> bytes:
    """Return the first line that begins at ``offset`` or after it; empty without one."""
    with index.open("rb") as file:
        return _line_from(file.fileno(), offset)[1]


def _offset_in(file: BinaryIO, begin: bytes) -> int:
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size

    def line(offset: int) -> bytes:
        return _line_from(descriptor, offset)[1] or _AFTER_ALL

    return _line_from(descriptor, bisect_left(range(size), begin, key=line))[0]


def _line_from(descriptor: int, offset: int) -> tuple[int, bytes]:
    """Return where the first line begins that begins at ``offset`` or after it, and that line;
    the size of the file and nothing without one."""
    start = max(offset - 1, 0)
    content = b""
    while True:
        more = os.pread(descriptor, _STEP, start + len(content))
        content += more
        begin = content.find(b"\n") + 1 if offset else 0
        end = content.find(b"\n", begin)
        if more and (end == -1 or (offset and not begin)):
            continue
        if offset and not begin:
            return start + len(content), b""
        return start + begin, content[begin : end + 1] if end != -1 else content[begin:]


def original_of(
    indexes: Iterable[Path], revisit: IndexLine, fields: Mapping[str, str]
) -> IndexLine | None:
    """Return the capture that holds a revisit's payload; None if it is not in the indexes.

    ``fields`` are those of the revisit's record. Dates in indexes are in whole seconds, so the
    digest selects among captures of one second. A revisit for an answer 304 names no original. It
    stands for the last response with status 200 not after it, if possible one with a payload: an
    answer to GET, not to HEAD.
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
            key=lambda line: (are_equal(line.digest, revisit.digest), line.url == target),
            default=None,
        )
    before = [
        line
        for line in found
        if (line.url, line.status) == (revisit.url, "200") and line.timestamp <= revisit.timestamp
    ]
    return max(before, key=lambda line: (not line.is_bare, line.timestamp), default=None)


def place_of_original(revisit: HeaderMap, url: str | None = None) -> tuple[str, str] | None:
    """Return key and timestamp of the capture that a revisit refers to; None if it names none.

    ``url`` is that of the capture if the revisit names only its date.
    """
    url = revisit.get("WARC-Refers-To-Target-URI") or url
    date = revisit.get("WARC-Refers-To-Date")
    return (key_of(url), timestamp(date)) if url and date else None


class SoughtOriginals:
    """The originals of revisits that are not found yet, those that no revisit names included."""

    def __init__(self) -> None:
        # The digest of each revisit, by the place of its original.
        self._digests: defaultdict[tuple[str, str] | None, list[str]] = defaultdict(list)

    def add(self, revisit: HeaderMap, digest: str, url: str | None = None) -> None:
        self._digests[place_of_original(revisit, url)].append(digest)

    def found(self, line: IndexLine) -> int:
        """Return of how many revisits a capture is the original, which is sought no more."""
        digests = self._digests.get((line.key, line.timestamp))
        if not digests or line.mime == REVISIT:
            return 0
        left = [digest for digest in digests if not may_be_same(line.digest, digest)]
        self._digests[line.key, line.timestamp] = left
        return len(digests) - len(left)

    def __len__(self) -> int:
        return sum(map(len, self._digests.values()))


def may_be_same(one: str, other: str) -> bool:
    """Return whether two payloads may be equal: only digests of one algorithm disprove it."""
    if not one or not other or one.partition(":")[0] != other.partition(":")[0]:
        return True
    return are_equal(one, other)
