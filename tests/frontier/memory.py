"""A store in memory, with the contract of the LevelDB store."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import nullcontext
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from krowlspider.frontier.store.store import Batch, StoreReader


def firsts_of(items: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the first item of each group of keys: see `Store.firsts`."""
    for _, run in groupby(items, key=lambda item: item[0].partition(b"\0")[0]):
        yield next(run)


class _Reader:
    def __init__(self, get: Callable[[bytes], bytes | None]):
        self.read = self.read_next = get


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
    """The contract of `Store` without a disk."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self.get = self._data.get

    def read(self, keys: Iterable[bytes]) -> list[bytes | None]:
        return [self._data.get(key) for key in keys]

    def reader(self) -> AbstractContextManager[StoreReader]:
        return nullcontext(_Reader(self._data.get))

    def apply(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in changes:
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value

    def batch(self, *, sync: bool = False) -> Batch:
        return _MemoryBatch(self)

    def items(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        snapshot = dict(self._data)
        for key in _range(sorted(snapshot), prefix):
            if key > after:
                yield key, snapshot[key]

    def keys(self, prefix: bytes, after: bytes = b"") -> Iterator[bytes]:
        yield from (key for key in _range(sorted(self._data), prefix) if key > after)

    def firsts(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        # Start behind all keys that are equal up to the first zero byte.
        start = after[: after.index(b"\0")] + b"\1" if after else b""
        yield from firsts_of(self.items(prefix, start))

    def size(self, start: bytes, stop: bytes) -> int:
        some = [(key, value) for key, value in self._data.items() if start <= key < stop]
        return sum(len(key) + len(value) for key, value in some)

    def compact(self, start: bytes, stop: bytes) -> None:
        """Do nothing: a dict keeps no deleted keys."""

    def flush(self) -> None:
        """Do nothing: memory needs no flush."""

    def close(self) -> None:
        self._data.clear()


def _range(keys: list[bytes], prefix: bytes) -> Iterator[bytes]:
    for key in keys[bisect_left(keys, prefix) :]:
        if not key.startswith(prefix):
            return
        yield key
