"""Read which tables a LevelDB folder has, from its manifest.

A manifest is a log of edits of the set of tables. The format is that of LevelDB's doc/log_format.md
and db/version_edit.cc, version 1.22. What is cut at the end is not read, as by LevelDB itself.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 32_768
# Checksum, length and type of a fragment of an edit.
_HEADER = Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# The fields of an edit, each with the kinds of its values: a varint, or bytes behind their length.
_DELETED, _ADDED = 6, 7
_NUMBER, _BYTES = "n", "b"
_FIELDS = {
    1: _BYTES,  # comparator
    2: _NUMBER,  # log number
    3: _NUMBER,  # next file number
    4: _NUMBER,  # last sequence
    5: _NUMBER + _BYTES,  # compaction pointer of a level
    _DELETED: _NUMBER * 2,  # level and table
    _ADDED: _NUMBER * 3 + _BYTES * 2,  # level, table, size, smallest and largest key
    9: _NUMBER,  # previous log number
}


class Manifest:
    """The tables by the first ``size`` bytes of an open manifest, which `read` reads on from."""

    def __init__(self, file: BinaryIO):
        self.tables: set[int] = set()
        self.size = 0
        self._file = file
        # What was read of the edit that is not complete; bytes that were read of the next fragment.
        self._edit = b""
        self._rest = b""

    def read(self) -> None:
        """Read what has come since the last time.

        :raises ValueError: it is no manifest that is known
        """
        at = self.size - len(self._rest)
        size = os.fstat(self._file.fileno()).st_size
        data = self._rest + os.pread(self._file.fileno(), size - self.size, self.size)
        self.size = at + len(data)
        done = 0
        for kind, fragment, end in _fragments(data, at):
            done = end
            self._edit = fragment if kind in (_FULL, _FIRST) else self._edit + fragment
            if kind in (_FULL, _LAST):
                self._apply(self._edit)
        self._rest = data[done:]

    def _apply(self, edit: bytes) -> None:
        added, deleted = set(), set()
        for field, values in _values(edit):
            if field == _ADDED:
                added.add(values[1])
            elif field == _DELETED:
                deleted.add(values[1])
        # An edit may move a table to another level.
        self.tables = (self.tables - deleted) | added


def _fragments(data: bytes, at: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield type, content and end of each whole fragment in the data, which begins at ``at``."""
    position = 0
    while True:
        left = _BLOCK - (at + position) % _BLOCK
        if left < _HEADER.size:
            position += left
        if position + _HEADER.size > len(data):
            return
        _, length, kind = _HEADER.unpack_from(data, position)
        start = position + _HEADER.size
        if start + length > len(data):
            return
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
            raise ValueError(f"a manifest with a fragment of type {kind}")
        position = start + length
        yield kind, data[start:position], position


def _values(edit: bytes) -> Iterator[tuple[int, list[int]]]:
    """Yield each field of an edit, with its numbers."""
    at = 0
    while at < len(edit):
        field, at = _varint(edit, at)
        numbers = []
        if field not in _FIELDS:
            raise ValueError(f"a manifest with a field {field}")
        for kind in _FIELDS[field]:
            number, at = _varint(edit, at)
            if kind == _BYTES:
                at += number
            else:
                numbers.append(number)
        yield field, numbers


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
