"""The index of WARC files that are being written, kept in memory and read on as they grow."""

from __future__ import annotations

import os
from bisect import bisect_left
from contextlib import suppress
from heapq import merge
from threading import Lock
from typing import TYPE_CHECKING

from krowlspider.archive.cdxj import WARC, LineMaker
from krowlspider.archive.disk import OPEN, RecordError
from krowlspider.archive.reading import read_member

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Lines sorted in one call: no other thread runs during a sort.
_SORTED_AT_ONCE = 5000


class OpenFiles:
    """The whole records of the open files of a folder. Any thread may ask.

    A file is read once, and then what has been added to it; its lines name it with OPEN at the end.
    Memory: the lines, about 350 bytes a capture.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        self._lock = Lock()
        self._files: dict[Path, _OpenFile] = {}

    def read_on(self, go_on: Callable[[], object]) -> dict[str, list[bytes]]:
        """Read what has been added since; return the sorted lines of each file, by its final name.

        ``go_on`` is called before each record, and may raise what ends the reading; the next call
        goes on there. Raises OSError.
        """
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
        self._sorted: list[bytes] = []
        self._new: list[bytes] = []

    @property
    def lines(self) -> list[bytes]:
        """The sorted lines, with that of the last record."""
        if self._new:
            starts = range(0, len(self._new), _SORTED_AT_ONCE)
            runs = (sorted(self._new[at : at + _SORTED_AT_ONCE]) for at in starts)
            # Another thread may be reading the list of before.
            self._sorted, self._new = list(merge(self._sorted, *runs)), []
        if (last := self._maker.unfinished) is None:
            return self._sorted
        line = last.encode()
        at = bisect_left(self._sorted, line)
        return [*self._sorted[:at], line, *self._sorted[at:]]

    def read_on(self, go_on: Callable[[], object]) -> None:
        with self._path.open("rb") as stream, suppress(RecordError):
            status = os.fstat(stream.fileno())
            # Another file of this name, or one that was cut back.
            if self._file_id not in {None, (status.st_dev, status.st_ino)} or (
                status.st_size < self._offset
            ):
                self._begin()
            self._file_id = status.st_dev, status.st_ino
            while self._offset < status.st_size:
                go_on()
                member = read_member(stream, self._offset)
                self._new += (line.encode() for line in self._maker.take(member))
                self._offset += member.length
