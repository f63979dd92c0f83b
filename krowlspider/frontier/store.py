"""Ordered key-value stores: the contract, and LevelDB. Its in-memory twin is `MemoryStore`."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from errno import ENOSPC
from functools import partial
from heapq import merge
from itertools import groupby
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

import plyvel

from krowlspider.errors import lacks_room, told
from krowlspider.frontier.disk import (
    cut_logs,
    forget_sizes,
    has_room,
    log_bytes,
    remove_probe,
    sync_logs,
)
from krowlspider.frontier.schema import after_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

# LevelDB's own write buffer and cache. Links go to places all over the key space: each larger buffer is merged fewer
# times. 64 MB against 32: a tenth less for a page, and 0.4 s more for a start after a kill, which reads it back.
WRITE_BUFFER = 64 * 1024 * 1024
BLOCK_CACHE = 64 * 1024 * 1024
# LevelDB maps the first 1,000 tables that it opens and reads the others: so at most 1 GB of them is resident.
TABLE_SIZE = 1024 * 1024
# What is read and checked for each place: with LevelDB's 4 kB a pop takes a tenth longer, and its checks a fifth of it.
BLOCK_SIZE = 1024
# Tables kept open. LevelDB takes a fifth of the files that the process may have open, and opens the rest anew for
# each read.
OPEN_TABLES = 16_384
# Bits per key of the table filters: 10 give 1 % of needless block reads for keys that are not there.
TABLE_FILTER_BITS = 10

# The most that may wait in memory for room on the disk. What is in transit when the disk fills needs some MB, unless
# every page has thousands of new links; seeds that are still being read may need more.
UNWRITTEN_MAX = 256 * 1024 * 1024
# What a waiting change takes beside its bytes: two bytes objects and their places in a dict.
_CHANGE_OVERHEAD = 200
# Room that must be there, beyond the logs and what waits, before the store is opened again. LevelDB writes the logs it
# finds as tables, where a record takes 8 bytes more: 12 MB for a full buffer of the smallest records, of which there
# are two at most. The rest is to go on with; a merge of tables that needs more is a full disk once more.
ROOM = 32 * 1024 * 1024


_AFTER_ALL = b"\xff"


class StoreError(Exception):
    """The store cannot be opened, or nothing more can be written to it."""


class NoRoomError(StoreError):
    """The disk is full: what was to be made durable is kept in memory, in order, until `LevelStore.recover`."""


# What a store's reads and writes may raise.
STORE_ERRORS = (StoreError, plyvel.Error)


class Batch(Protocol):
    """Changes that reach the store all together or not at all."""

    def put(self, key: bytes, value: bytes) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def write(self) -> None: ...


class Reader(Protocol):
    """Values as they were when it was made."""

    def read(self, key: bytes) -> bytes | None: ...
    def read_next(self, key: bytes) -> bytes | None:
        """The value of a key that is likely to be the next one after the last that was read: 1 µs instead of 10."""


class Store(Protocol):
    """An ordered map of bytes to bytes. Batches are atomic, and survive the death of the process once written;
    one made with ``sync=True`` survives a power loss too, and with it every batch written before.

    An iteration that was begun at another number of ``openings`` cannot be gone on with."""

    @property
    def openings(self) -> int: ...
    def get(self, key: bytes) -> bytes | None: ...
    def read(self, keys: Iterable[bytes]) -> list[bytes | None]: ...
    def reader(self) -> AbstractContextManager[Reader]: ...
    def batch(self, *, sync: bool = False) -> Batch: ...
    def items(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...
    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]: ...
    def firsts(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...
    def compact(self, start: bytes, stop: bytes) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def beyond(key: bytes) -> bytes:
    """What is greater than all keys that are the same as this one up to the first zero byte. No key has a zero byte
    followed by another byte there, but for those."""
    return key[: key.index(b"\0")] + b"\1"


def firsts_of(items: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The first of each run of keys, as `Store.firsts` says."""
    for _, run in groupby(items, key=lambda item: item[0].partition(b"\0")[0]):
        yield next(run)


class AnyReader:
    """A reader by a function for one key."""

    def __init__(self, get: Callable[[bytes], bytes | None]):
        self.read = self.read_next = get


class _LevelReader:
    __slots__ = ("_key", "_next", "_seek", "_valid", "_value")

    def __init__(self, iterator: Any):
        self._seek, self._next = iterator.seek, iterator.next
        self._valid, self._key, self._value = iterator.valid, iterator.key, iterator.value

    def read(self, key: bytes) -> bytes | None:
        self._seek(key)
        return self._value() if self._valid() and self._key() == key else None

    def read_next(self, key: bytes) -> bytes | None:
        if self._valid():
            self._next()
            if self._valid() and self._key() == key:
                return self._value()  # type: ignore[no-any-return]
        return self.read(key)


def _checked_get(db: plyvel.DB) -> Callable[[bytes], bytes | None]:
    # `paranoid_checks` is for what LevelDB does by itself: what is read is checked when that is asked for.
    return partial(db.get, verify_checksums=True)


class _LevelBatch:
    """Changes of a batch: a key is put or deleted, as the last call for it says.

    They stand in Python's own containers so that they can be kept and looked up when they cannot be written.
    """

    __slots__ = ("_store", "_sync", "deletes", "put", "puts")

    def __init__(self, store: LevelStore, *, sync: bool):
        self._store = store
        self._sync = sync
        self.puts: dict[bytes, bytes] = {}
        # A key that is put after it was deleted stands in both.
        self.deletes: list[bytes] = []
        self.put = self.puts.__setitem__

    def delete(self, key: bytes) -> None:
        self.puts.pop(key, None)
        self.deletes.append(key)

    def write(self) -> None:
        if self._sync:
            self._store.apply_durably(self)
        else:
            self._store.apply(self)


class LevelStore:
    """A store in a LevelDB folder, which is made with ``create``. ``room`` is how many bytes beyond its own the disk
    must take before the store goes on after a full one.

    **When the disk is full** (no space, a quota, a limit to the size of files) the store is ``stalled``: what cannot
    be written is kept in memory, `get`, `items` and `keys` show it, and writes raise nothing, except that one with
    ``sync`` raises NoRoomError because it is not durable. `recover` writes all of it in one batch.

    Any other failed write is the last: every later one raises StoreError, and the next start finds what was
    written before. Nothing is ever appended to a log behind a failed write, because LevelDB would lose it behind
    half a record, with all that follows.

    :raises StoreError: the folder is missing, damaged or open in another process
    """

    def __init__(self, folder: Path, *, create: bool = False, room: int = ROOM):
        self.folder = folder
        self._room = room
        self.failure: Exception | None = None
        self.stalled = False
        # No iterator outlives an opening.
        self.openings = 1
        # Kept while stalled; None is a deletion.
        self._unwritten: dict[bytes, bytes | None] = {}
        self._unwritten_size = 0
        # Held by whoever writes, so that none does between another's failure and its being known. LevelDB lets
        # one write at a time anyway. Re-entrant, as an iteration may write.
        self._lock = RLock()
        if cut := cut_logs(folder):
            raise StoreError(
                f"{folder}: {', '.join(sorted(cut))} was cut: {sum(cut.values()):,} bytes that were on the disk are missing"
            ) from plyvel.CorruptionError(b"a log was cut")
        try:
            remove_probe(folder)
            self.db = self._opened(create=create)
            # All that was in older logs is in tables now. A new note is a new file: a copy may share the old one.
            forget_sizes(folder)
        except (plyvel.Error, OSError) as error:
            if lacks_room(error):
                raise StoreError(
                    f"no room to open it: make some on the disk of {folder}"
                ) from error
            raise StoreError(f"{folder}: {told(error)}") from error
        self.get = _checked_get(self.db)

    def _opened(self, *, create: bool = False) -> plyvel.DB:
        return plyvel.DB(
            str(self.folder),
            create_if_missing=create,
            paranoid_checks=True,
            write_buffer_size=WRITE_BUFFER,
            lru_cache_size=BLOCK_CACHE,
            bloom_filter_bits=TABLE_FILTER_BITS,
            max_file_size=TABLE_SIZE,
            block_size=BLOCK_SIZE,
            max_open_files=OPEN_TABLES,
            # A place that no cache has: 5 µs from tables as they stand, 17 µs from compressed ones.
            compression=None,
        )

    def batch(self, *, sync: bool = False) -> Batch:
        return _LevelBatch(self, sync=sync)

    # --- writing ---

    def apply(self, batch: _LevelBatch) -> None:
        """Write changes all together. While stalled they are kept.

        :raises StoreError: the disk failed, or too much waits for room on it
        """
        with self._lock:
            if self.failure is not None:
                raise StoreError(told(self.failure)) from self.failure
            if not self.stalled:
                try:
                    self._write(batch.deletes, batch.puts)
                except plyvel.Error as error:
                    if not lacks_room(error):
                        raise self._failed(error) from error
                    self.stalled = True
                    self.get = self._get_while_stalled
            if self.stalled:
                self._keep(batch)

    def apply_durably(self, batch: _LevelBatch) -> None:
        """Write changes, and make them durable with every one before.

        The sync of LevelDB itself covers its current log only: one that was rotated out in the meantime may still
        sit in the page cache. So every log is synced, before the write too, because an acknowledgement must not
        outlive the links that were written before it. A sync of its own is also known as one when it fails: it is
        final, where a write for which there is no room is not.

        :raises NoRoomError: they are kept, and not durable
        :raises StoreError: the disk failed, or too much waits for room on it
        """
        if not self.stalled:
            self._sync()
        self.apply(batch)
        if not self.stalled:
            self._sync()
        if self.stalled:
            raise NoRoomError(f"{self.folder}: no room")

    def _write(self, deletes: Iterable[bytes], puts: dict[bytes, bytes]) -> None:
        batch = self.db.write_batch()
        for key in deletes:
            batch.delete(key)
        put = batch.put
        for key, value in puts.items():
            put(key, value)
        batch.write()

    def _sync(self) -> None:
        try:
            sync_logs(self.folder)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreError:
        self.failure = self.failure or error
        return StoreError(f"{self.folder}: {told(error)}")

    # --- a full disk ---

    def _keep(self, batch: _LevelBatch) -> None:
        self._unwritten.update(dict.fromkeys(batch.deletes))
        self._unwritten.update(batch.puts)
        self._unwritten_size += sum(map(len, batch.puts)) + sum(map(len, batch.puts.values()))
        self._unwritten_size += sum(map(len, batch.deletes))
        self._unwritten_size += _CHANGE_OVERHEAD * (len(batch.puts) + len(batch.deletes))
        if self._unwritten_size > UNWRITTEN_MAX:
            error = OSError(ENOSPC, "no room, and too much waits for it in memory")
            raise self._failed(error)

    def _get_while_stalled(self, key: bytes) -> bytes | None:
        with self._lock:
            if key in self._unwritten:
                return self._unwritten[key]
            if self.db.closed:
                raise StoreError(f"{self.folder}: no room to open it again")
            value: bytes | None = self.db.get(key, verify_checksums=True)
            return value

    def _kept(self) -> tuple[list[bytes], dict[bytes, bytes]]:
        """The keys deleted and the values put that are not written."""
        kept = self._unwritten.copy()
        deletes = [key for key, value in kept.items() if value is None]
        return deletes, {key: value for key, value in kept.items() if value is not None}

    @property
    def needed(self) -> int:
        """The bytes for which `recover` looks for room."""
        return log_bytes(self.folder) + self._unwritten_size + self._room

    def recover(self) -> bool:
        """Open the store again and write what was kept, durably; False when there is still no room for it.

        Blocks; call it off the event loop. What others read and write meanwhile waits for it. Nobody may be
        iterating, or write with ``sync``.

        The failed write may have left half a record at the end of the log, and a background merge that failed
        makes LevelDB refuse all writes: opening it again mends both. Room is looked for before, because a store
        that is closed and cannot be opened has no answer for `get`.

        :raises StoreError: the disk failed in another way
        """
        if not self.stalled:
            return True
        try:
            if not has_room(self.folder, self.needed):
                return False
        except OSError as error:
            raise self._failed(error) from error
        with self._lock:
            # What LevelDB reads back from its logs must be what was written.
            self._sync()
            try:
                self.db.close()
                self.db = self._opened()
                self.openings += 1
                self._write(*self._kept())
            except plyvel.Error as error:
                if lacks_room(error):
                    return False
                raise self._failed(error) from error
            self._sync()
            self._unwritten = {}
            self._unwritten_size = 0
            self.stalled = False
            self.get = _checked_get(self.db)
            return True

    # --- reading ---

    def read(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The values of keys in ascending order, like `get` for each, in the way for places that no cache has: by `reader`."""
        with self.reader() as reader:
            return [reader.read(key) for key in keys]

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """Reads values as they are now, until it is left; nothing is to be written before.

        LevelDB counts each `get` that has to pass a table, and moves the table down after a hundred, with all tables
        that lie below it: with ten million URLs queued that was 80 kB rewritten for each page. An iterator is not
        counted. It takes 8 µs where `get` takes 4, and a key that is not there the time of all deleted ones
        that follow it: 0.3 s for a million.
        """
        if self.stalled:
            yield AnyReader(self._get_while_stalled)
            return
        with self.db.raw_iterator(verify_checksums=True) as iterator:
            yield _LevelReader(iterator)

    def items(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys of a prefix in order with their values, those greater than ``after`` only."""
        with self.db.iterator(
            start=max(prefix, after),
            include_start=prefix > after,
            stop=after_all(prefix) if prefix else None,
            verify_checksums=True,
        ) as iterator:
            if not self.stalled:
                yield from iterator
                return
            kept = self._unwritten.copy()
            _, puts = self._kept()
            ours = sorted(
                pair for pair in puts.items() if pair[0].startswith(prefix) and pair[0] > after
            )
            yield from merge((pair for pair in iterator if pair[0] not in kept), ours)

    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]:
        """Keys of a prefix in order, those greater than ``after`` only."""
        with self.db.iterator(
            start=max(prefix, after),
            include_start=prefix > after,
            stop=after_all(prefix),
            include_value=False,
            verify_checksums=True,
        ) as iterator:
            if not self.stalled:
                yield from iterator
                return
            kept = self._unwritten.copy()
            _, puts = self._kept()
            ours = sorted(key for key in puts if key.startswith(prefix) and key > after)
            yield from merge((key for key in iterator if key not in kept), ours)

    def firsts(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Of the keys of a prefix that are the same up to the first zero byte, the first of each, with its value; those
        greater than ``after``, which is one of them, only. What is between is passed, not read."""
        start = beyond(after) if after else prefix
        if self.stalled:
            yield from firsts_of(self.items(prefix, start))
            return
        with self.db.raw_iterator(verify_checksums=True) as iterator:
            iterator.seek(start)
            while iterator.valid() and (key := iterator.key()).startswith(prefix):
                yield key, iterator.value()
                iterator.seek(beyond(key))

    def compact(self, start: bytes, stop: bytes) -> None:
        """Drop what was deleted in a range of keys. Blocks for seconds: call it off the event loop."""
        self.db.compact_range(start=start, stop=stop)

    def flush(self) -> None:
        """Write the buffer as a table, which the next start need not read back from the log."""
        if not (self.stalled or self.failure):
            with suppress(plyvel.Error):
                # The range is empty: the buffer is all that LevelDB writes for it.
                self.db.compact_range(start=_AFTER_ALL, stop=_AFTER_ALL)

    def close(self) -> None:
        """Close LevelDB. What is still kept for want of room is lost, as in a crash."""
        self.db.close()
