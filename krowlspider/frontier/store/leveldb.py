"""The files of a LevelDB folder: its manifest, damage of its logs, and a copy of an open one.

Remove damaged records from LevelDB's logs before a repair. LevelDB's repair ignores the checksums
of logs, so a damaged record would come back as URLs that nobody found. The format is LevelDB's
doc/log_format.md: blocks of 32 KiB hold records, each with a checksum, a length and a type.

Read which tables a LevelDB folder has, from its manifest. A manifest is a log of edits of the set
of tables. The format is that of LevelDB's doc/log_format.md and db/version_edit.cc, version 1.22.
What is cut at the end is not read, as by LevelDB itself.

Copy a LevelDB folder that is open, as it is at one moment. A table never changes once it is in the
manifest, and one that is not may be half written: LevelDB writes it anew if it dies. Manifest and
logs only grow, so their first bytes are what they were. While no batch is written, the files belong
together if the manifest has not grown meanwhile: LevelDB's own thread, which merges tables, notes
there first what it deletes.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.frontier.store.store import LevelStore, StoreError, sync, sync_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BLOCK = 32 * 1024
_HEADER = Struct("<IHB")
_TYPES = range(1, 5)
# LevelDB skips a record of an unknown type, with the batch that it belongs to.
_NO_TYPE = 0xFF
# CRC-32C (RFC 3720, appendix B.4), reflected.
_POLYNOMIAL = 0x82F63B78
# LevelDB masks the checksums that it stores: util/crc32c.h.
_MASK_DELTA = 0xA282EAD8


def _checksum_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_checksum_of(byte) for byte in range(256)]


def crc32c(data: bytes | bytearray) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def without_damage(log: bytes) -> tuple[bytes, int]:
    """Return the log with its damaged records disabled, and their size in bytes.

    A record that is cut off at the end of the log is damaged.
    """
    data = bytearray(log)
    damaged = 0
    for start in range(0, len(data), BLOCK):
        damaged += _clean_block(data, start, min(start + BLOCK, len(data)))
    return bytes(data), damaged


def _clean_block(data: bytearray, at: int, end: int) -> int:
    damaged = 0
    while end - at >= _HEADER.size:
        after = _end_of(data, at)
        if not any(data[at : at + _HEADER.size]):
            # Zeros fill what was allocated and not written.
            break
        if _is_whole(data, at, end):
            at = after
        elif 0 <= end - after < _HEADER.size or _is_whole(data, after, end):
            # The length is right: the block ends behind the record, or another one follows.
            data[at + _HEADER.size - 1] = _NO_TYPE
            damaged += after - at
            at = after
        else:
            damaged += end - at
            data[at:end] = bytes(end - at)
            break
    return damaged


def _end_of(data: bytearray, at: int) -> int:
    return at + _HEADER.size + int(_HEADER.unpack_from(data, at)[1])


def _is_whole(data: bytearray, at: int, end: int) -> bool:
    if end - at < _HEADER.size:
        return False
    after = _end_of(data, at)
    stored, _, kind = _HEADER.unpack_from(data, at)
    if after > end or kind not in _TYPES:
        return False
    crc = crc32c(data[at + _HEADER.size - 1 : after])
    return bool(stored == ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


_BLOCK = 32_768
# Checksum, length and type of a fragment of an edit.
_MANIFEST_HEADER = Struct("<IHB")
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
        if left < _MANIFEST_HEADER.size:
            position += left
        if position + _MANIFEST_HEADER.size > len(data):
            return
        _, length, kind = _MANIFEST_HEADER.unpack_from(data, position)
        start = position + _MANIFEST_HEADER.size
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


_CURRENT = "CURRENT"
# LevelDB changes the manifest some times a second at most, and a try takes milliseconds.
_TRIES = 100


class LevelCopy:
    """A copy of the folder of a store in ``target``, which is made.

    ``take`` links or copies a file that never changes; ``link`` links it, and returns False where
    that cannot be. ``copy`` copies the first bytes of an open file, None for all.

    :raises OSError: a file cannot be copied
    :raises StoreError: the manifest is of an unknown format
    """

    def __init__(
        self,
        store: LevelStore,
        target: Path,
        take: Callable[[Path, Path], None],
        link: Callable[[Path, Path], bool],
        copy: Callable[[BinaryIO, Path, int | None], None],
    ):
        self._store = store
        self._source = store.folder
        self._target = target
        self._take = take
        self._link = link
        self._copy = copy
        self._files = ExitStack()
        name = (self._source / _CURRENT).read_text().strip()
        self._manifest = Manifest(self._files.enter_context((self._source / name).open("rb")))
        self._manifest_name = name
        # Tables by number that were taken, and those that `fix` could only open.
        self._taken: set[int] = set()
        self._opened: dict[int, BinaryIO] = {}
        # The logs, with the sizes that they had when no batch was written.
        self._logs: list[tuple[BinaryIO, str, int]] = []
        target.mkdir()

    def gather(self) -> None:
        """Take the tables that there are. Writes go on."""
        for number in self._new_tables():
            try:
                self._take(self._table(number), self._target / self._table(number).name)
            except FileNotFoundError:
                # Merged meanwhile.
                continue
            self._taken.add(number)

    def fix(self) -> None:
        """Take what is left. Writes wait meanwhile, for some milliseconds: files that cannot be
        linked are opened, and copied by `complete`.

        :raises StoreError: the store has failed
        """
        for _ in range(_TRIES):
            self.gather()
            with self._store.at_rest():
                if self._fix():
                    return
            self._close_fixed()
        raise StoreError(f"LevelDB in {self._source} never stops merging tables: try again later")

    def complete(self) -> int:
        """Copy what `fix` has opened, as it was then, and make the copy durable. Return how many
        tables were among it."""
        late = len(self._opened)
        for number, file in self._opened.items():
            self._copy(file, self._target / self._table(number).name, None)
        for file, name, size in self._logs:
            self._copy(file, self._target / name, size)
        with (self._source / self._manifest_name).open("rb") as file:
            self._copy(file, self._target / self._manifest_name, self._manifest.size)
        for number in self._taken - self._manifest.tables:
            (self._target / self._table(number).name).unlink()
        self.close()
        (self._target / _CURRENT).write_text(f"{self._manifest_name}\n")
        sync(self._target / _CURRENT)
        sync_logs(self._target)
        return late

    def close(self) -> None:
        self._close_fixed()
        self._files.close()

    def _close_fixed(self) -> None:
        for file in (*self._opened.values(), *(file for file, *_ in self._logs)):
            file.close()
        self._opened = {}
        self._logs = []

    def _fix(self) -> bool:
        new = self._new_tables()
        before = self._manifest.size
        try:
            for number in new:
                path = self._table(number)
                if self._link(path, self._target / path.name):
                    self._taken.add(number)
                else:
                    self._opened[number] = path.open("rb")
            for path in self._source.glob("[0-9]*.log"):
                file = path.open("rb")
                self._logs.append((file, path.name, os.fstat(file.fileno()).st_size))
        except FileNotFoundError:
            # Merged meanwhile: the manifest has grown.
            return False
        return (self._source / self._manifest_name).stat().st_size == before

    def _new_tables(self) -> set[int]:
        try:
            self._manifest.read()
        except (ValueError, IndexError) as error:
            raise StoreError(f"{self._source / self._manifest_name}: {error}") from error
        return self._manifest.tables - self._taken

    def _table(self, number: int) -> Path:
        return self._source / f"{number:06d}.ldb"
