"""The index lines of the WARC files of several folders, those of open files included."""

from __future__ import annotations

import time
from bisect import bisect_left
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive.cdxj import INDEX, WARC
from krowlspider.archive.disk import OPEN
from krowlspider.archive.indexes import LINES_AT_ONCE, indexes_in, line_at, lines_between, offset_of
from krowlspider.archive.open_index import OpenFiles, OpenLines
from krowlspider.cdx.capture import is_broken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from krowlspider.cdx.pace import ClientWork
    from krowlspider.cdx.ranges import Range

# Bytes of indexes that one answer has read ahead, and the least of one index.
_AHEAD = 4 * 1024 * 1024
_LEAST = 4096
# Lines after which the work rests, or ends: an expression takes milliseconds on a long one.
_LOOK_AFTER = 8
# Nanoseconds after a change of a folder in which another one may have the same time.
_SAME_TIME = 1_000_000_000


class IndexPart(NamedTuple):
    """A part of an index: its first line, the file, and where it lies there."""

    line: bytes
    file: str
    offset: int
    length: int


class Archives:
    """The folders of WARC files that are asked. They are looked at for each query.

    ``open_lines`` returns the index of the open files of a folder.
    """

    def __init__(
        self, folders: Sequence[Path], open_lines: Callable[[Path], OpenLines] = OpenFiles
    ):
        self._folders = [_Folder(each, open_lines(each)) for each in folders]

    @property
    def folders(self) -> list[Path]:
        return [each.path for each in self._folders]

    def look(self, work: ClientWork) -> IndexView:
        """Return what is there now. Raises OSError and ClientGone."""
        view = IndexView(work)
        for folder in self._folders:
            folder.add_to(view)
        return view


class _Folder:
    def __init__(self, path: Path, open_lines: OpenLines):
        self.path = path
        self._open = open_lines
        # When the folder was changed last, and the indexes that were there.
        self._changed: int | None = None
        self._indexes: list[Path] = []

    def add_to(self, view: IndexView) -> None:
        # First the open files: one that is finished in the meantime is seen twice, never missed.
        open_files = self._open.read_on(view.work.go_on)
        finished = self._finished()
        names = {path.name for path in finished}
        view.indexes += finished
        for name, lines in open_files.items():
            if name.removesuffix(WARC) + INDEX not in names:
                view.of_open_files[name + OPEN] = lines

    def _finished(self) -> list[Path]:
        """Return the indexes; looking at each of thousands takes a tenth of a second."""
        try:
            changed = self.path.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        if changed != self._changed:
            self._indexes = indexes_in(self.path).there
            is_settled = time.time_ns() - changed > _SAME_TIME
            self._changed = changed if is_settled else None
        return self._indexes


class IndexView:
    """The indexes of one moment: finished ones, and the sorted lines of open files by name."""

    def __init__(self, work: ClientWork):
        self.work = work
        self.indexes: list[Path] = []
        self.of_open_files: dict[str, list[bytes]] = {}

    def lines(self, ranges: Sequence[Range]) -> Iterator[bytes]:
        """Yield the lines of ``ranges``, sorted, each once. Raises OSError and ClientGone."""
        for begin, end in ranges:
            ahead = max(_LEAST, min(LINES_AT_ONCE, _AHEAD // (len(self.indexes) or 1)))
            sources = [lines_between(index, begin, end, ahead) for index in self.indexes]
            sources += [_between(lines, begin, end) for lines in self.of_open_files.values()]
            last = b""
            for number, line in enumerate(merge(*sources)):
                if number % _LOOK_AFTER == 0:
                    self.work.go_on()
                if line != last:
                    yield line if line.endswith(b"\n") else line + b"\n"
                last = line

    def broken_line(self, ranges: Sequence[Range]) -> str:
        """Return where the first line of ``ranges`` is that is broken, as "FILE line 3"; "" if
        there is none. Raises OSError and ClientGone."""
        for index in self.indexes:
            with index.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if number % _LOOK_AFTER == 0:
                        self.work.go_on()
                    if any(begin <= line < end for begin, end in ranges) and is_broken(line):
                        return f"{index.name} line {number}"
        return ""

    def parts(self, within: Range, size: int) -> list[IndexPart]:
        """Return the parts of each index in a range, of ``size`` bytes or less, sorted."""
        found = []
        for index in self.indexes:
            end = offset_of(index, within.end)
            for offset in range(offset_of(index, within.begin), end, size):
                self.work.go_on()
                if (line := line_at(index, offset)) and line < within.end:
                    found.append(IndexPart(line, index.name, offset, min(size, end - offset)))
        for name, lines in self.of_open_files.items():
            offset = begun = 0
            for line in _between(lines, *within):
                if begun <= offset:
                    found.append(IndexPart(line, name, offset, 0))
                    begun = offset + size
                offset += len(line)
                found[-1] = found[-1]._replace(length=offset - found[-1].offset)
        return sorted(found)


def _between(lines: list[bytes], begin: bytes, end: bytes) -> Iterator[bytes]:
    return (lines[at] for at in range(bisect_left(lines, begin), bisect_left(lines, end)))
