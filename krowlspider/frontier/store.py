"""Ordered key-value stores: LevelDB, and its in-memory twin held to the same contract."""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

import plyvel

from krowlspider.frontier.schema import after_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# LevelDB's own write buffer and cache: a larger buffer means fewer, larger table files while links pour in.
WRITE_BUFFER = 32 * 1024 * 1024
BLOCK_CACHE = 64 * 1024 * 1024
# Bits per key of the table filters: 10 give 1 % of needless block reads for keys that are not there.
TABLE_FILTER_BITS = 10


class StoreError(Exception):
    """The store cannot be opened, or nothing more can be written to it."""


# What a store's reads and writes may raise.
STORE_ERRORS = (StoreError, plyvel.Error)


class Batch(Protocol):
    """Changes that reach the store all together or not at all."""

    def put(self, key: bytes, value: bytes) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def write(self) -> None: ...


class Store(Protocol):
    """An ordered map of bytes to bytes. Batches are atomic, and survive the death of the process once written;
    one made with ``sync=True`` survives a power loss too, and with it every batch written before."""

    def get(self, key: bytes) -> bytes | None: ...
    def batch(self, *, sync: bool = False) -> Batch: ...
    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...
    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]: ...
    def compact(self, start: bytes, stop: bytes) -> None: ...
    def close(self) -> None: ...


class _LevelBatch:
    """A LevelDB batch. With ``sync`` its write also makes durable every batch before it.

    LevelDB's own sync covers the current log file only: a log that was rotated out in the meantime may still
    sit in the page cache. Syncing every log first closes that gap, so an acknowledgement never outlives the
    links that were written before it.
    """

    def __init__(self, store: LevelStore, *, sync: bool):
        self._store = store
        self._sync = sync
        self._batch: Batch = store.db.write_batch(sync=sync)
        self.put = self._batch.put
        self.delete = self._batch.delete

    def write(self) -> None:
        store = self._store
        if store.failure is not None:
            raise StoreError(str(store.failure)) from store.failure
        try:
            if self._sync:
                for log in store.folder.glob("*.log"):
                    _fsync(log)
                _fsync(store.folder)
            self._batch.write()
        except (plyvel.Error, OSError) as error:
            store.failure = error
            raise StoreError(f"{store.folder}: {error}") from error


def _fsync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        # A log that LevelDB has deleted since: its content is in a synced table.
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LevelStore:
    """A store in a LevelDB folder, which is made with ``create``.

    The first write that fails is the last: LevelDB would append the next one behind half a record, and lose it
    with all that follows. Every later write raises StoreError, and the next start finds what was written before.

    :raises StoreError: the folder is missing, damaged or open in another process
    """

    def __init__(self, folder: Path, *, create: bool = False):
        self.folder = folder
        self.failure: Exception | None = None
        try:
            self.db = plyvel.DB(
                str(folder),
                create_if_missing=create,
                paranoid_checks=True,
                write_buffer_size=WRITE_BUFFER,
                lru_cache_size=BLOCK_CACHE,
                bloom_filter_bits=TABLE_FILTER_BITS,
            )
        except (plyvel.Error, OSError) as error:
            raise StoreError(f"{folder}: {error}") from error
        self.get = self.db.get

    def batch(self, *, sync: bool = False) -> Batch:
        return _LevelBatch(self, sync=sync)

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self.db.iterator(prefix=prefix, verify_checksums=True) as iterator:
            yield from iterator

    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]:
        """Keys of a prefix in order, those greater than ``after`` only."""
        with self.db.iterator(
            start=max(prefix, after),
            include_start=prefix > after,
            stop=after_all(prefix),
            include_value=False,
        ) as iterator:
            yield from iterator

    def compact(self, start: bytes, stop: bytes) -> None:
        """Drop what was deleted in a range of keys. Blocks for seconds: call it off the event loop."""
        self.db.compact_range(start=start, stop=stop)

    def close(self) -> None:
        self.db.close()


class _MemoryBatch:
    def __init__(self, store: MemoryStore):
        self._store = store
        self._changes: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._changes.append((key, value))

    def delete(self, key: bytes) -> None:
        self._changes.append((key, None))

    def write(self) -> None:
        self._store.apply(self._changes)
        self._changes = []


class MemoryStore:
    """The same contract without a disk, for tests and models."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self.get = self._data.get

    def apply(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in changes:
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value

    def batch(self, *, sync: bool = False) -> Batch:
        return _MemoryBatch(self)

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        snapshot = dict(self._data)
        for key in _range(sorted(snapshot), prefix):
            yield key, snapshot[key]

    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]:
        yield from (key for key in _range(sorted(self._data), prefix) if key > after)

    def compact(self, start: bytes, stop: bytes) -> None:
        """Nothing to drop: a dict keeps no deleted keys."""

    def close(self) -> None:
        self._data.clear()


def _range(keys: list[bytes], prefix: bytes) -> Iterator[bytes]:
    for key in keys[bisect_left(keys, prefix) :]:
        if not key.startswith(prefix):
            return
        yield key
