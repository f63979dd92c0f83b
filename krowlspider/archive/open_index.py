"""The index of WARC files that are being written, kept in memory and read on as they grow.

The process that writes a file has its lines; any other one reads the file.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from contextlib import suppress
from heapq import merge
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from krowlspider.archive.cdxj import WARC, LineMaker, parse
from krowlspider.archive.disk import OPEN, RecordError
from krowlspider.archive.reading import read_member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

# Lines sorted in one call: no other thread runs during a sort.
_SORTED_AT_ONCE = 5000
# Lines of the writer that are taken between two looks whether to rest.
_TAKEN_AT_ONCE = 1000
_NAME = re.compile(r'"filename": "([^"]*)"')


class OpenLines(Protocol):
    """The index lines of open files, which name them with OPEN at the end. Any thread may ask."""

    def read_on(self, go_on: Callable[[], object]) -> dict[str, list[bytes]]:
        """Return the sorted lines of each file, by its final name.

        ``go_on`` is called from time to time, and may raise what ends the reading; the next call
        goes on there. Raises OSError.
        """


class SortedLines:
    """Lines that are sorted when they are asked for."""

    def __init__(self) -> None:
        self._sorted: list[bytes] = []
        self._new: list[bytes] = []

    def add(self, lines: Iterable[str]) -> None:
        self._new += (line.encode() for line in lines)

    def sorted(self) -> list[bytes]:
        """Return all lines. The list is not changed later."""
        if not self._new:
            return self._sorted
        if len(self._new) <= _SORTED_AT_ONCE:
            # Both parts are found sorted, or nearly so: a few milliseconds.
            self._sorted, self._new = sorted([*self._sorted, *sorted(self._new)]), []
        else:
            starts = range(0, len(self._new), _SORTED_AT_ONCE)
            runs = (sorted(self._new[at : at + _SORTED_AT_ONCE]) for at in starts)
            self._sorted, self._new = list(merge(self._sorted, *runs)), []
        return self._sorted


class OpenFiles:
    """The whole records of the open files of a folder.

    A file is read once, and then what has been added to it. Memory: about 350 bytes a capture.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        self._lock = Lock()
        self._files: dict[Path, _OpenFile] = {}

    def read_on(self, go_on: Callable[[], object]) -> dict[str, list[bytes]]:
        with self._lock:
            there = sorted(self._directory.glob(f"*{WARC}{OPEN}"))
            self._files = {path: self._files.get(path) or _OpenFile(path) for path in there}
            found = {}
            for path, file in self._files.items():
                # One that is finished in the meantime has an index of its own.
                with suppress(FileNotFoundError):
                    file.read_on(go_on)
                    found[path.name.removesuffix(OPEN)] = file.lines
            return found


class _OpenFile:
    def __init__(self, path: Path):
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._file_id: tuple[int, int] | None = None
        self._maker = LineMaker(self._path.name)
        self._lines = SortedLines()

    @property
    def lines(self) -> list[bytes]:
        """The sorted lines, with that of the last record."""
        found, last = self._lines.sorted(), self._maker.unfinished
        if last is None:
            return found
        line = last.encode()
        at = bisect_left(found, line)
        return [*found[:at], line, *found[at:]]

    def read_on(self, go_on: Callable[[], object]) -> None:
        with self._path.open("rb") as stream, suppress(RecordError):
            status = os.fstat(stream.fileno())
            file_id = status.st_dev, status.st_ino
            # Another file of this name, or one that was cut back.
            if self._file_id not in {None, file_id} or status.st_size < self._offset:
                self._begin()
            self._file_id = file_id
            while self._offset < status.st_size:
                go_on()
                member = read_member(stream, self._offset)
                self._lines.add(self._maker.take(member))
                self._offset += member.length


class WriterLines:
    """The lines of the file that this process is writing. ``lines`` returns the list of
    `WarcSeries.open_lines`."""

    def __init__(self, lines: Callable[[], list[str]]):
        self._written = lines
        self._lock = Lock()
        self._list: list[str] = []
        self._taken = 0
        self._lines = SortedLines()

    def read_on(self, go_on: Callable[[], object]) -> dict[str, list[bytes]]:
        with self._lock:
            if (written := self._written()) is not self._list:
                self._list, self._taken, self._lines = written, 0, SortedLines()
            while new := written[self._taken : self._taken + _TAKEN_AT_ONCE]:
                go_on()
                self._lines.add(_NAME.sub(rf'"filename": "\1{OPEN}"', line) for line in new)
                self._taken += len(new)
            found = self._lines.sorted()
            return {parse(found[0]).filename.removesuffix(OPEN): found} if found else {}
