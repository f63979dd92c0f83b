"""Which record holds a payload, by its digest, so that the same payload need not be stored again.

A cache: an entry that is lost costs one whole record more. So nothing here is fsynced, and no failure of
its disk reaches the caller.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import plyvel

from krowlspider.errors import lacks_room, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

# LevelDB has two buffers while it writes one out. With the filters and indexes of its tables a full index of 10 M
# payloads holds 20 MB; the tables themselves are mapped files.
WRITE_BUFFER = 4 * 1024 * 1024
BLOCK_CACHE = 2 * 1024 * 1024
# Most payloads are new: with 10 bits a key 99 of 100 look-ups for those read no table. An iterator would read a block
# of every level. LevelDB merges tables that look-ups pass in vain, yet all that is written for a payload, that
# included, stays under 1 kB at 9 M.
FILTER_BITS = 10
# LevelDB has one thread to merge tables, for the frontier's as well; the smaller they are, the shorter it is held.
TABLE_SIZE = 2 * 1024 * 1024

# Generations by name, so that their order is that of their names.
_NAME = re.compile(r"[0-9]{8}")
# Says of which folder's records the entries are.
_PLACE = "of"
_UPLOADED = "uploaded.jsonl"
# No digest has so few bytes.
_COUNT = b"count"
_ERRORS = (plyvel.Error, OSError)


@dataclass(frozen=True, slots=True)
class Original:
    """The response record that holds a payload: its WARC-Target-URI and WARC-Date, as they stand there."""

    url: str
    date: str


class _Generation:
    """Entries that are forgotten together: a LevelDB of its own, which goes with its folder.

    ``count`` is written with the entries. A digest that is put again counts again, so there may be fewer
    entries, never more.

    Raises plyvel.Error or OSError.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        # Without `create` a folder that has lost its CURRENT is an error, and no empty one.
        self._db = plyvel.DB(
            str(folder),
            create_if_missing=create,
            paranoid_checks=True,
            write_buffer_size=WRITE_BUFFER,
            lru_cache_size=BLOCK_CACHE,
            bloom_filter_bits=FILTER_BITS,
            max_file_size=TABLE_SIZE,
            # A quarter less disk and half the bytes written; a hit takes 10 µs more.
            compression="snappy",
        )
        self.count = int(self._db.get(_COUNT, b"0", verify_checksums=True))

    def get(self, digest: bytes) -> Original | None:
        value: bytes | None = self._db.get(digest, verify_checksums=True)
        if value is None:
            return None
        date, _, url = value.decode().partition(" ")
        return Original(url, date)

    def put(self, entries: list[tuple[bytes, Original]]) -> None:
        """Write entries all together."""
        count = self.count + len(entries)
        batch = self._db.write_batch()
        for digest, original in entries:
            batch.put(digest, f"{original.date} {original.url}".encode())
        batch.put(_COUNT, b"%d" % count)
        batch.write()
        self.count = count

    def close(self) -> None:
        self._db.close()

    def destroy(self) -> None:
        self.close()
        _remove(self.folder)


class PayloadIndex:
    """At most ``most`` payloads, 2 or more, in ``folder``, which one process at a time may use, and in it
    one thread at a time. Digests, or what goes for them, have 8 bytes or more. Calls block.

    There are two generations. Entries are put into the newer one; when that holds half of ``most``, the
    older is destroyed and another begun. What is found in the older is put into the newer too, so
    payloads that come again and again are not forgotten. A ``most`` that is lower than the last time
    holds when the generations of then are gone.

    What fails is counted in ``failed_count``, and told to ``warn`` the first time. A generation that is
    damaged is destroyed. When the disk is full, or no generation can be begun, nothing is found and what is
    added is lost, until a `sync` at which the disk takes it.
    """

    def __init__(self, folder: Path, *, most: int, warn: Callable[[str], object]) -> None:
        self._folder = folder
        self._half = most // 2
        self._warn = warn
        self.failed_count = 0
        self._added: dict[bytes, Original] = {}
        # The newest first.
        self._generations: list[_Generation] = []
        # Whether the generations are closed for want of room, or none can be begun.
        self._stalled = False
        self._open()

    def find(self, digest: bytes) -> Original | None:
        """The record that holds the payload with this digest; None when it is not known."""
        original = self._added.get(digest)
        if original is not None:
            return original
        for generation in self._generations.copy():
            try:
                original = generation.get(digest)
            except _ERRORS as error:
                self._lose(generation, error)
                continue
            if original is not None:
                if generation is not self._generations[0]:
                    self._added[digest] = original
                return original
        return None

    def add(self, digest: bytes, original: Original) -> None:
        """Know a payload from now on. It is kept in memory until `sync`."""
        self._added[digest] = original

    def sync(self) -> None:
        """Write what was added; it outlives the process then.

        To be called when the records that the entries speak of are durable: an entry must not outlive
        its record.
        """
        if self._stalled:
            self._open()
        entries = list(self._added.items())
        self._added = {}
        while entries and not self._stalled:
            room = self._half - self._generations[0].count if self._generations else 0
            if room > 0:
                self._put(entries[:room])
                entries = entries[room:]
            else:
                self._begin()

    def clear(self) -> None:
        """Forget all."""
        self._added = {}
        while self._generations:
            self._generations.pop().destroy()

    def close(self) -> None:
        """Close the files; what was added after the last `sync` is not written."""
        for generation in self._generations:
            generation.close()
        self._generations = []

    def _put(self, entries: list[tuple[bytes, Original]]) -> None:
        newest = self._generations[0]
        try:
            newest.put(entries)
        except _ERRORS as error:
            # LevelDB would write behind half a record: nothing more before it is opened again.
            if lacks_room(error):
                self._stall(newest.folder, error)
            else:
                self._lose(newest, error)

    def _begin(self) -> None:
        """Begin a generation, the oldest of two being destroyed first."""
        while len(self._generations) > 1:
            self._generations.pop().destroy()
        try:
            taken = [int(path.name) for path in _paths(self._folder)]
            folder = self._folder / f"{max(taken, default=0) + 1:08}"
            folder.mkdir(parents=True)
            self._generations.insert(0, _Generation(folder, create=True))
        except _ERRORS as error:
            # What there is of it is removed as a damaged one.
            self._stall(self._folder, error)

    def _open(self) -> None:
        """Open the two newest generations; a kill may have left an older one, which is removed."""
        self._stalled = False
        try:
            paths = _paths(self._folder)
        except OSError as error:
            self._stall(self._folder, error)
            return
        for folder in reversed(paths):
            if len(self._generations) == 2:
                _remove(folder)
                continue
            try:
                self._generations.append(_Generation(folder))
            except _ERRORS as error:
                # LevelDB writes the log that it finds as a table.
                if lacks_room(error):
                    self._stall(folder, error)
                    return
                self._tell(folder, error)
                _remove(folder)

    def _stall(self, folder: Path, error: Exception) -> None:
        self._tell(folder, error)
        self.close()
        self._stalled = True

    def _lose(self, generation: _Generation, error: Exception) -> None:
        self._tell(generation.folder, error)
        self._generations.remove(generation)
        generation.destroy()

    def _tell(self, folder: Path, error: Exception) -> None:
        self.failed_count += 1
        if self.failed_count == 1:
            self._warn(f"Payloads seen before may be archived whole again: {folder}: {told(error)}")


def forget_others(folder: Path, archive: Path) -> None:
    """Empty an index, closed, unless its records are in the folder ``archive`` or were uploaded from there: what was
    removed by hand, or is in another folder since, is not to be referred to."""
    there = any(True for _ in archive.glob("*.warc.gz*")) or (archive / _UPLOADED).exists()
    try:
        known = (folder / _PLACE).read_text()
    except OSError:
        known = ""
    if not there or known != _identity(archive):
        _remove(folder)


def note_place(folder: Path, archive: Path) -> None:
    """Remember in which folder the records of an index are. Where that cannot be written it is begun anew at the next
    start."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _PLACE).write_text(_identity(archive))


def _identity(archive: Path) -> str:
    found = archive.stat()
    return f"{found.st_dev} {found.st_ino}\n"


def _paths(folder: Path) -> list[Path]:
    """What has the name of a generation, the oldest first. Raises OSError."""
    entries: Iterable[Path] = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in entries if _NAME.fullmatch(path.name))


def _remove(folder: Path) -> None:
    # What cannot be removed now is in nobody's way, and is tried again at the next start.
    shutil.rmtree(folder, ignore_errors=True)
