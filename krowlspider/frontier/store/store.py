"""An ordered key-value store: the contract, LevelDB, its durability, owner and host records.

Durability of LevelDB's logs, which LevelDB does not ensure itself. LevelDB syncs only the newest
log, and accepts a log that was cut as if its last batch had not been written to the end. So all
logs are synced, and their sizes recorded.

Read host records and queue entries from a store. They share one range of keys: each host's record
comes right before its entries.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOSPC
from functools import partial
from os import strerror
from shutil import disk_usage
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

import plyvel

from krowlspider.errors import error_text, lacks_room
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import QUEUE, after_all, host_in, host_key, is_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

# The file of the sizes in the store's folder: checksum and JSON, padded.
_SIZES = "synced"
_SIZES_BYTES = 4096


def sync_logs(folder: Path) -> None:
    """Sync all logs of a LevelDB folder and their names, and record their sizes for `cut_logs`.

    :raises OSError: the disk failed or is full. Do not try again: the kernel may have dropped what
        it could not write, and would report success.
    """
    sizes = {log.name: sync(log) for log in _logs(folder)}
    sync(folder)
    text = json.dumps(sizes).encode()
    # If this fails, the earlier sizes stay. They are smaller, and still true.
    with suppress(OSError):
        descriptor = os.open(folder / _SIZES, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, (b"%08x %b" % (crc32(text), text)).ljust(_SIZES_BYTES), 0)
        finally:
            os.close(descriptor)


def cut_logs(folder: Path) -> dict[str, int]:
    """Return by log how many bytes are missing at its end that were durable."""
    try:
        checksum, _, text = (folder / _SIZES).read_bytes().rstrip().partition(b" ")
        durable: dict[str, int] = json.loads(text) if int(checksum, 16) == crc32(text) else {}
    except (FileNotFoundError, ValueError):
        # Never written, or torn by a power loss.
        return {}
    sizes = {log.name: log.stat().st_size for log in _logs(folder)}
    newest = max(map(_number, sizes), default=0)
    # A log that is gone is in a table if LevelDB has begun a newer one.
    return {
        name: size - sizes.get(name, 0)
        for name, size in durable.items()
        if size > sizes.get(name, 0) and (name in sizes or _number(name) > newest)
    }


def forget_sizes(folder: Path) -> None:
    """Remove the recorded sizes: shorter logs no longer count as cut."""
    (folder / _SIZES).unlink(missing_ok=True)


def sync(path: Path) -> int:
    """Sync a file or folder, and return the size that is durable now; 0 if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        # LevelDB deletes a log once its content is in a synced table.
        return 0
    try:
        size = os.fstat(descriptor).st_size
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size


def _logs(folder: Path) -> list[Path]:
    return list(folder.glob("[0-9]*.log"))


def _number(log: str) -> int:
    return int(log.partition(".")[0])


# How tables are written: by a store, and by a repair.
TABLE_OPTIONS = {
    "paranoid_checks": True,
    # Links go to places all over the key space: a larger buffer is merged fewer times.
    "write_buffer_size": 64 * 1024 * 1024,
    "lru_cache_size": 64 * 1024 * 1024,
    # Bits per key: 1 % of the reads of missing keys are needless.
    "bloom_filter_bits": 10,
}
_OPTIONS = {
    **TABLE_OPTIONS,
    # LevelDB maps the first 1,000 tables that it opens: at most 1 GB of them is resident.
    "max_file_size": 1024 * 1024,
    # LevelDB has 4 kB: each read of a single entry checks a whole block.
    "block_size": 1024,
    # LevelDB uses a fifth of the process's limit, and reopens the other tables for each read.
    "max_open_files": 16_384,
    # Reading a single entry from a compressed table takes three times as long.
    "compression": None,
}
_AFTER_ALL = b"\xff"


class StoreError(Exception):
    """The store cannot be opened, or cannot be written any more."""


# What reading and writing a store may raise.
STORE_ERRORS = (StoreError, plyvel.Error)


class Batch(Protocol):
    """Changes that reach the store all together or not at all."""

    def put(self, key: bytes, value: bytes) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def write(self) -> None: ...


class StoreReader(Protocol):
    """Reads the values that the store had when the reader was made."""

    def read(self, key: bytes) -> bytes | None: ...
    def read_next(self, key: bytes) -> bytes | None:
        """Return the value of a key; cheap if it follows the key that was read last."""


class Store(Protocol):
    """An ordered map of bytes to bytes.

    A batch is atomic, and survives the death of the process once it is written. One made with
    ``sync=True`` survives a power loss too, with every batch written before it.
    """

    def get(self, key: bytes) -> bytes | None: ...
    def read(self, keys: Iterable[bytes]) -> list[bytes | None]: ...
    def reader(self) -> AbstractContextManager[StoreReader]: ...
    def batch(self, *, sync: bool = False) -> Batch: ...
    def items(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...
    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]: ...
    def firsts(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...
    def size(self, start: bytes, stop: bytes) -> int: ...
    def compact(self, start: bytes, stop: bytes) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def put(store: Store, key: bytes, value: bytes) -> None:
    """Write one value in a batch of its own."""
    batch = store.batch()
    batch.put(key, value)
    batch.write()


def delete(store: Store, keys: Iterable[bytes]) -> None:
    """Delete keys in a batch of their own."""
    batch = store.batch()
    for key in keys:
        batch.delete(key)
    batch.write()


def check_room(folder: Path) -> None:
    """Check that all files of a store fit on its disk once more.

    :raises StoreError: they do not
    """
    needed = sum(path.stat().st_size for path in folder.iterdir())
    if needed > disk_usage(folder).free:
        raise StoreError(
            f"{folder} is left as it is: to repair it, {needed // 1_000_000 + 1:,} MB must be free"
            " on its disk"
        ) from OSError(ENOSPC, strerror(ENOSPC))


def _behind_group(key: bytes) -> bytes:
    """Return a key behind all keys that equal this one up to its first zero byte."""
    return key[: key.index(b"\0")] + b"\1"


class _LevelReader:
    def __init__(self, iterator: Any):
        self._iterator = iterator

    def read(self, key: bytes) -> bytes | None:
        self._iterator.seek(key)
        return self._value_of(key)

    def read_next(self, key: bytes) -> bytes | None:
        if self._iterator.valid():
            self._iterator.next()
            if (value := self._value_of(key)) is not None:
                return value
        return self.read(key)

    def _value_of(self, key: bytes) -> bytes | None:
        iterator = self._iterator
        return iterator.value() if iterator.valid() and iterator.key() == key else None


class _LevelBatch:
    __slots__ = ("_batch", "_store", "_sync", "delete", "put")

    def __init__(self, store: LevelStore, batch: Any, *, sync: bool):
        self._store, self._batch, self._sync = store, batch, sync
        self.put, self.delete = batch.put, batch.delete

    def write(self) -> None:
        self._store.apply(self._batch, sync=self._sync)


class LevelStore:
    """A store in a LevelDB folder, which is made with ``create``.

    ``on_write`` is called with the seconds of each write of a batch, without its syncs.

    The first write that fails is the last one, even if the disk was only full: each later write
    raises StoreError. After half a record, LevelDB would lose all that follows in the log.

    :raises StoreError: the folder is missing, damaged or open in another process
    """

    def __init__(
        self,
        folder: Path,
        *,
        create: bool = False,
        on_write: Callable[[float], None] | None = None,
    ):
        self.folder = folder
        self._on_write = on_write
        self.failure: Exception | None = None
        # Held by each writer, so that no write comes between another's failure and its record.
        self._lock = Lock()
        if cut := cut_logs(folder):
            raise StoreError(
                f"{folder}: {', '.join(sorted(cut))} was cut: {sum(cut.values()):,} bytes that were"
                " on the disk are missing"
            ) from plyvel.CorruptionError(b"a log was cut")
        try:
            with ExitStack() as undo:
                self._db = plyvel.DB(str(folder), create_if_missing=create, **_OPTIONS)
                undo.callback(self._db.close)
                # The older logs are in tables now. The file is replaced later, not overwritten: a
                # copy of the folder by hard links may share it.
                forget_sizes(folder)
                undo.pop_all()
        except (plyvel.Error, OSError) as error:
            no_room = f"no room to open it: make some on the disk of {folder}"
            raise StoreError(
                no_room if lacks_room(error) else f"{folder}: {error_text(error)}"
            ) from error
        # `paranoid_checks` covers only LevelDB's own work: each read must ask for checks.
        self.get: Callable[[bytes], bytes | None] = partial(self._db.get, verify_checksums=True)

    # --- writing ---

    def batch(self, *, sync: bool = False) -> Batch:
        return _LevelBatch(self, self._db.write_batch(), sync=sync)

    def apply(self, batch: Any, *, sync: bool) -> None:
        """Write the changes of a batch; with ``sync``, make them and all earlier ones durable.

        LevelDB's own sync covers the newest log only. All logs are synced before the write too:
        an acknowledgement must not outlive links that were written before it.

        :raises StoreError: the disk is full or failed, now or before
        """
        if sync:
            self._sync()
        with self._lock:
            begun = 0.0 if self._on_write is None else perf_counter()
            if self.failure is not None:
                raise self._failed(self.failure) from self.failure
            try:
                batch.write()
            except plyvel.Error as error:
                raise self._failed(error) from error
            if self._on_write is not None:
                self._on_write(perf_counter() - begun)
        if sync:
            self._sync()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Let all writes wait. LevelDB's own thread goes on merging tables.

        :raises StoreError: the store has failed
        """
        with self._lock:
            if self.failure is not None:
                raise self._failed(self.failure) from self.failure
            yield

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
        """Return the values of keys in ascending order, read by `reader`."""
        with self.reader() as reader:
            return [reader.read(key) for key in keys]

    @contextmanager
    def reader(self) -> Iterator[StoreReader]:
        """Return a reader of places that no cache holds. Write nothing while it is open.

        LevelDB counts each `get` that passes a table. After a hundred it merges that table with all
        below it, so gets all over a large frontier rewrite the disk. Iterators are not counted.
        They are slower, and a missing key takes the time of all deleted keys behind it.
        """
        with self._db.raw_iterator(verify_checksums=True) as iterator:
            yield _LevelReader(iterator)

    def items(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys of a prefix that are greater than ``after``, in order, with values."""
        return self._range(prefix, after)

    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]:
        """Yield the keys of a prefix that are greater than ``after``, in order."""
        return self._range(prefix, after, include_value=False)

    def _range(self, prefix: bytes, after: bytes, **options: bool) -> Iterator[Any]:
        with self._db.iterator(
            start=max(prefix, after),
            include_start=prefix > after,
            stop=after_all(prefix) if prefix else None,
            verify_checksums=True,
            **options,
        ) as iterator:
            yield from iterator

    def firsts(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the first key, and its value, of each group of a prefix, in order.

        Keys that are equal up to the first zero byte are one group; what lies between the first
        keys is not read. The groups up to that of ``after`` are left out.
        """
        start = _behind_group(after) if after else prefix
        with self._db.raw_iterator(verify_checksums=True) as iterator:
            iterator.seek(start)
            while iterator.valid() and (key := iterator.key()).startswith(prefix):
                yield key, iterator.value()
                iterator.seek(_behind_group(key))

    def size(self, start: bytes, stop: bytes) -> int:
        """Return about how many bytes of the disk a range takes; not what the log alone has."""
        found: int = self._db.approximate_size(start, stop)
        return found

    def compact(self, start: bytes, stop: bytes) -> None:
        """Drop deleted keys from a range. This may block for seconds."""
        self._db.compact_range(start=start, stop=stop)

    def flush(self) -> None:
        """Write the buffer as a table, so that the next start need not read it from the log."""
        if self.failure is None:
            with suppress(plyvel.Error):
                # LevelDB writes its buffer, and the range is empty.
                self._db.compact_range(start=_AFTER_ALL, stop=_AFTER_ALL)

    def property(self, name: str) -> str:
        """Return a property of LevelDB; empty for an unknown name, or once it is closed."""
        if self._db.closed:
            return ""
        found: bytes | None = self._db.get_property(f"leveldb.{name}".encode())
        return (found or b"").decode()

    def close(self) -> None:
        self._db.close()


def check_owner(store: Store, seed: int, ring: str) -> None:
    """Check that a store belongs to a job, given the job's ``seed`` and ``ring`` as in `JobHead`.

    :raises StoreError: the store belongs to another job, or is not a frontier
    """
    owner = store.get(schema.OWNER)
    if owner not in {None, _owner(seed, ring)}:
        raise StoreError(
            "its frontier/ is of another job, with other identities:"
            " put back the frontier that belongs to it"
        )
    kinds = (schema.OWNER, schema.COUNTERS, schema.QUEUE, schema.JOINED)
    if _has(store, b"") and not any(_has(store, kind) for kind in kinds):
        raise StoreError(
            "its frontier/ is a LevelDB folder of another program:"
            " put the frontier back, or give another JOBDIR"
        )


def put_owner(store: Store, seed: int, ring: str) -> None:
    """Write the job into a store that names none."""
    if store.get(schema.OWNER) is None:
        put(store, schema.OWNER, _owner(seed, ring))


def identity_seed(store: Store) -> int | None:
    """Return the seed of the identities of a store's job; None if it names none."""
    owner = store.get(schema.OWNER)
    return None if owner is None else int.from_bytes(owner[:8], "big")


def _owner(seed: int, ring: str) -> bytes:
    return seed.to_bytes(8, "big") + ring.encode()


def _has(store: Store, prefix: bytes) -> bool:
    return next(store.items(prefix), None) is not None


def records(store: Store, after: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield name and record of each host in order, from the first host greater than ``after``."""
    for key, record in store.firsts(QUEUE, host_key(after) if after else b""):
        # A damaged store may have entries without a record.
        if is_record(key):
            yield host_in(key), record


def entries(store: Store, host: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each entry in a host's queue, in order."""
    prefix = host_key(host)
    return store.items(prefix, after=prefix)


def entry_keys(store: Store, host: str) -> Iterator[bytes]:
    """Yield the keys of a host's queue, in order."""
    prefix = host_key(host)
    return store.keys(prefix, after=prefix)


def all_entries(store: Store) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each entry of all queues, by host."""
    return (item for item in store.items(QUEUE) if not is_record(item[0]))
