"""Ordered key-value stores: the contract, and LevelDB."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import plyvel

from krowlspider.errors import error_text, lacks_room
from krowlspider.frontier.store.disk import cut_logs, forget_sizes, sync_logs
from krowlspider.frontier.store.schema import after_all

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

_AFTER_ALL = b"\xff"


class StoreError(Exception):
    """The store cannot be opened, or nothing more can be written to it."""


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
    one made with ``sync=True`` survives a power loss too, and with it every batch written before."""

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


def _beyond(key: bytes) -> bytes:
    """What is greater than all keys that are the same as this one up to the first zero byte. No key has a zero byte
    followed by another byte there, but for those."""
    return key[: key.index(b"\0")] + b"\1"


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


class _LevelBatch:
    __slots__ = ("_batch", "_store", "_sync", "delete", "put")

    def __init__(self, store: LevelStore, batch: Any, *, sync: bool):
        self._store = store
        self._batch = batch
        self._sync = sync
        self.put, self.delete = batch.put, batch.delete

    def write(self) -> None:
        if self._sync:
            self._store.apply_durably(self._batch)
        else:
            self._store.apply(self._batch)


class LevelStore:
    """A store in a LevelDB folder, which is made with ``create``.

    The first write that fails is the last, also when the disk is only full: every later one raises StoreError, and
    the next start finds all that was written before. Nothing is ever appended to a log behind a failed write, because
    LevelDB would lose it behind half a record, with all that follows.

    :raises StoreError: the folder is missing, damaged or open in another process
    """

    def __init__(self, folder: Path, *, create: bool = False):
        self.folder = folder
        self.failure: Exception | None = None
        # Held by whoever writes, so that none does between another's failure and its being known. LevelDB lets
        # one write at a time anyway.
        self._lock = Lock()
        if cut := cut_logs(folder):
            raise StoreError(
                f"{folder}: {', '.join(sorted(cut))} was cut: {sum(cut.values()):,} bytes that were on the disk are missing"
            ) from plyvel.CorruptionError(b"a log was cut")
        try:
            self.db = plyvel.DB(
                str(folder),
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
            # All that was in older logs is in tables now. A new note is a new file: a copy may share the old one.
            forget_sizes(folder)
        except (plyvel.Error, OSError) as error:
            if lacks_room(error):
                raise StoreError(
                    f"no room to open it: make some on the disk of {folder}"
                ) from error
            raise StoreError(f"{folder}: {error_text(error)}") from error
        # `paranoid_checks` is for what LevelDB does by itself: what is read is checked when that is asked for.
        self.get: Callable[[bytes], bytes | None] = partial(self.db.get, verify_checksums=True)

    def batch(self, *, sync: bool = False) -> Batch:
        return _LevelBatch(self, self.db.write_batch(), sync=sync)

    # --- writing ---

    def apply(self, batch: Any) -> None:
        """Write changes all together.

        :raises StoreError: the disk is full or failed, now or before
        """
        with self._lock:
            if self.failure is not None:
                raise self._failed(self.failure) from self.failure
            try:
                batch.write()
            except plyvel.Error as error:
                raise self._failed(error) from error

    def apply_durably(self, batch: Any) -> None:
        """Write changes, and make them durable with every one before.

        The sync of LevelDB itself covers its current log only: one that was rotated out in the meantime may still
        sit in the page cache. So every log is synced, before the write too, because an acknowledgement must not
        outlive the links that were written before it.

        :raises StoreError: the disk is full or failed, now or before
        """
        self._sync()
        self.apply(batch)
        self._sync()

    def _sync(self) -> None:
        try:
            sync_logs(self.folder)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreError:
        self.failure = self.failure or error
        if lacks_room(error):
            return StoreError(f"no room: make some on the disk of {self.folder} and start again")
        return StoreError(f"{self.folder}: {error_text(error)}")

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
            yield from iterator

    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]:
        """Keys of a prefix in order, those greater than ``after`` only."""
        with self.db.iterator(
            start=max(prefix, after),
            include_start=prefix > after,
            stop=after_all(prefix),
            include_value=False,
            verify_checksums=True,
        ) as iterator:
            yield from iterator

    def firsts(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Of the keys of a prefix that are the same up to the first zero byte, the first of each, with its value; those
        greater than ``after``, which is one of them, only. What is between is passed, not read."""
        start = _beyond(after) if after else prefix
        with self.db.raw_iterator(verify_checksums=True) as iterator:
            iterator.seek(start)
            while iterator.valid() and (key := iterator.key()).startswith(prefix):
                yield key, iterator.value()
                iterator.seek(_beyond(key))

    def compact(self, start: bytes, stop: bytes) -> None:
        """Drop what was deleted in a range of keys. Blocks for seconds: call it off the event loop."""
        self.db.compact_range(start=start, stop=stop)

    def flush(self) -> None:
        """Write the buffer as a table, which the next start need not read back from the log."""
        if self.failure is None:
            with suppress(plyvel.Error):
                # The range is empty: the buffer is all that LevelDB writes for it.
                self.db.compact_range(start=_AFTER_ALL, stop=_AFTER_ALL)

    def close(self) -> None:
        self.db.close()
