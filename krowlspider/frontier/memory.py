"""The in-memory twin of the LevelDB store, held to the same contract."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import nullcontext
from typing import TYPE_CHECKING

from krowlspider.frontier.store import AnyReader, beyond, firsts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from krowlspider.frontier.store import Batch, Reader


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

    openings = 1

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self.get = self._data.get

    def read(self, keys: Iterable[bytes]) -> list[bytes | None]:
        return [self._data.get(key) for key in keys]

    def reader(self) -> AbstractContextManager[Reader]:
        return nullcontext(AnyReader(self._data.get))

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
        yield from firsts_of(self.items(prefix, beyond(after) if after else b""))

    def compact(self, start: bytes, stop: bytes) -> None:
        """Nothing to drop: a dict keeps no deleted keys."""

    def flush(self) -> None:
        """Nothing is read back at a start."""

    def close(self) -> None:
        self._data.clear()


def _range(keys: list[bytes], prefix: bytes) -> Iterator[bytes]:
    for key in keys[bisect_left(keys, prefix) :]:
        if not key.startswith(prefix):
            return
        yield key
