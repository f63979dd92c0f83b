"""The seen set: which identities of which hosts are known, by a filter and marks on disk.

A Bloom filter that grows by layers. After Almeida et al., "Scalable Bloom Filters" (2007): each
layer holds four times as many keys as the one before, up to a limit, at half its rate of false
positives. So the whole filter stays below `FALSE_POSITIVES` however far it grows.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from itertools import chain, islice
from operator import index
from struct import Struct as Layout
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct
from rbloom import Bloom
from xxhash import xxh3_64_digest

from krowlspider.frontier.store.schema import (
    GONE,
    JOINED,
    KEY_SIZE,
    NEW_KEYS,
    SAVED,
    SEEN,
    gone_key,
    marked_by,
    new_keys_key,
    seen_prefix,
    split_keys,
    split_new_keys_key,
)
from krowlspider.frontier.store.store import Batch, Store, delete, put, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

_VERSION = 2


class FilterState(Struct, frozen=True, eq=False):
    """The state of a seen filter at one moment.

    - ``sequence``: that of the last batch of new keys in it.
    - ``capacity``: keys of the first layer. ``count``: keys in all layers. ``room``: keys that the
      newest layer can still take.
    - ``full``: the older layers, oldest first. ``newest``: the bytes of the newest layer.
      `operator.index` is their hash function: the keys are seeded digests.
    """

    sequence: int
    capacity: int
    count: int
    room: int
    full: list[Bloom]
    newest: bytes


class FilterFile:
    """A file that holds one snapshot.

    The first line has a checksum and a JSON object, in which are the sizes and checksums of the
    layers that follow. A file that is damaged, cut or of another version counts as missing.
    """

    def __init__(self, path: Path):
        self.path = path

    def write(self, snapshot: FilterState) -> None:
        """Replace the file. A crash or a full disk leaves either the old file or the new one.

        :raises OSError: the file cannot be written
        """
        layers = [*(layer.save_bytes() for layer in snapshot.full), snapshot.newest]
        head = {
            "version": _VERSION,
            "mark": snapshot.sequence,
            "capacity": snapshot.capacity,
            "count": snapshot.count,
            "room": snapshot.room,
            "sizes": [len(layer) for layer in layers],
            "blake2b": [_checksum(layer) for layer in layers],
        }
        line = json.dumps(head).encode()
        draft = self.path.with_name(self.path.name + ".new")
        try:
            with draft.open("wb") as file:
                file.writelines([b"%b %b\n" % (_checksum(line).encode(), line), *layers])
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            # The draft would take room on the disk that other writes need.
            draft.unlink(missing_ok=True)
            raise
        draft.replace(self.path)
        sync(self.path.parent)

    def read(self) -> FilterState | None:
        """Return the snapshot; None without one."""
        try:
            with self.path.open("rb") as file:
                checksum, _, line = file.readline().rstrip(b"\n").partition(b" ")
                head = json.loads(line) if _checksum(line).encode() == checksum else {}
                layers = [file.read(size) for size in head["sizes"]]
            if head["version"] != _VERSION or [*map(_checksum, layers)] != head["blake2b"]:
                return None
            return FilterState(
                sequence=head["mark"],
                capacity=head["capacity"],
                count=head["count"],
                room=head["room"],
                full=[Bloom.load_bytes(layer, index) for layer in layers[:-1]],
                newest=layers[-1],
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Remove the file durably, so that the next start rebuilds the filter."""
        self.path.unlink(missing_ok=True)
        sync(self.path.parent)


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


# The most new links, as a part of all, that may be taken for known.
FALSE_POSITIVES = 1e-6
# Keys of the largest layers: the newest layer is copied on the event loop when it is saved.
LAYER_MAX = 16_000_000
_CHUNK = 100_000

_NUMBER = Layout(">q").unpack


def _numbers(keys: Iterable[bytes]) -> Iterator[int]:
    """Yield the numbers that stand for keys in the layers. Seeded digests need no hash function."""
    return chain.from_iterable(map(_NUMBER, keys))


class SeenFilter:
    """Layers of Bloom filters over 8-byte keys; ``capacity`` is that of the first layer."""

    def __init__(self, capacity: int, saved: FilterState | None = None):
        self.capacity = capacity
        self.count = 0
        self._layers: list[Bloom] = []
        self._room = 0
        if saved is None:
            self._grow()
        else:
            self.count, self._room = saved.count, saved.room
            self._layers = [*saved.full, Bloom.load_bytes(saved.newest, index)]

    @property
    def layers(self) -> int:
        return len(self._layers)

    @property
    def fill(self) -> float:
        """Return the used part of the newest layer, 0 to 1."""
        return 1 - self._room / self._size(self.layers - 1)

    def _size(self, layer: int) -> int:
        return min(self.capacity << 2 * layer, max(self.capacity, LAYER_MAX))

    def _grow(self) -> None:
        rate = FALSE_POSITIVES / (2 << self.layers)
        self._room = self._size(self.layers)
        self._layers.append(Bloom(self._room, rate, index))

    def __contains__(self, key: bytes) -> bool:
        return bool(self.among((key,)))

    def among(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return those of some keys that the filter has, false positives included."""
        # The newest layer has most of all keys.
        layers = self._layers[::-1]
        found = []
        for key, number in zip(keys, _numbers(keys), strict=True):
            for layer in layers:
                if number in layer:
                    found.append(key)
                    break
        return found

    def update(self, keys: Iterable[bytes]) -> None:
        """Add keys that the filter does not have."""
        iterator = iter(keys)
        # A full layer is followed by a larger one, once there is a key for it.
        while chunk := list(islice(iterator, min(self._room or self.capacity, _CHUNK))):
            if self._room == 0:
                self._grow()
            self._layers[-1].update(_numbers(chunk))
            self._room -= len(chunk)
            self.count += len(chunk)

    def snapshot(self, sequence: int) -> FilterState:
        """Return the present state; full layers do not change, so only the newest is copied."""
        newest = self._layers[-1].save_bytes()
        full = self._layers[:-1]
        return FilterState(sequence, self.capacity, self.count, self._room, full, newest)


# Capacity of the filter of hosts that were handed over, at first: 4 kB.
_GONE_CAPACITY = 1000
# The most identities that one mark stands for.
_JOINED_MAX = 64
# Marks removed or split in one batch, about 5 ms of work.
_STEP = 100
# The value of a handed-over host whose marks are being removed.
_REMOVING = b"\1"


class SeenMarks:
    """The seen marks of a store.

    What a batch marks of one host is one mark. Where single identities are looked up, each has a
    mark of its own: with ``verify``, and for hosts that were handed over. So a start with
    ``verify`` splits the joined marks.

    The seen filter still has the identities of a host that was handed over. So its positives count
    only with a mark on disk: the host may come back without its URLs.
    """

    def __init__(self, store: Store, *, verify: bool):
        self._store = store
        self._verify = verify
        self._gone = SeenFilter(_GONE_CAPACITY)
        for key, value in store.items(GONE):
            if value == _REMOVING:
                for _ in self.remove(key[1:].decode()):
                    pass
        self._gone.update(xxh3_64_digest(key[1:]) for key in store.keys(GONE))
        self._join_or_split()

    def _join_or_split(self) -> None:
        """Record that marks may be joined, or split those that are."""
        joined = self._store.get(JOINED) is not None
        if not self._verify and not joined:
            put(self._store, JOINED, b"")
        if not self._verify or not joined:
            return
        marks = ((key, others) for key, others in self._store.items(SEEN) if others)
        while some := list(islice(marks, _STEP)):
            batch = self._store.batch()
            for key, others in some:
                for identity in marked_by([(key, others)]):
                    batch.put(key[:-KEY_SIZE] + identity, b"")
            batch.write()
        delete(self._store, [JOINED])

    def identities(self) -> Iterator[bytes]:
        """Yield the identities of all hosts."""
        return marked_by(self._store.items(SEEN))

    def among(self, host: str, keys: set[bytes]) -> set[bytes]:
        """Return those of some identities that are marked for a host."""
        if self._is_single(host):
            return {key for key in keys if self.has(host, key)}
        return keys.intersection(marked_by(self._store.items(seen_prefix(host))))

    def has(self, host: str, key: bytes) -> bool:
        """Return whether an identity has a mark of its own."""
        return self._store.read((seen_prefix(host) + key,)) != [None]

    def put(self, host: str, keys: Sequence[bytes], batch: Batch) -> None:
        """Put the marks of identities into a batch."""
        prefix = seen_prefix(host)
        most = 1 if len(keys) > 1 and self._is_single(host) else _JOINED_MAX
        for at in range(0, len(keys), most):
            batch.put(prefix + keys[at], b"".join(keys[at + 1 : at + most]))

    def _is_single(self, host: str) -> bool:
        """Return whether each identity of a host has a mark of its own."""
        return self._verify or self.is_gone(host)

    @property
    def any_gone(self) -> bool:
        """Return whether any host was handed over since the filter was last rebuilt."""
        return self._gone.count > 0

    def is_gone(self, host: str) -> bool:
        """Return whether a host was handed over since the filter was last rebuilt."""
        return (
            self.any_gone
            and xxh3_64_digest(host.encode()) in self._gone
            and self._store.get(gone_key(host)) is not None
        )

    def forget(self, host: str, batch: Batch) -> Iterator[list[bytes]]:
        """Count a host as handed over, with the batch, which removes its marks if they are few.

        Then take all steps of the returned iterator, as of `remove`; a restart does.
        """
        marks = list(islice(self._store.items(seen_prefix(host)), _STEP))
        is_small = len(marks) < _STEP
        for key, _ in marks if is_small else ():
            batch.delete(key)
        batch.put(gone_key(host), b"" if is_small else _REMOVING)
        if not self.is_gone(host):
            self._gone.update([xxh3_64_digest(host.encode())])
        return iter([list(marked_by(marks))]) if is_small else self.remove(host)

    def remove(self, host: str) -> Iterator[list[bytes]]:
        """Remove the marks of a host step by step; yield the identities of each step."""
        prefix = after = seen_prefix(host)
        while marks := list(islice(self._store.items(prefix, after), _STEP)):
            delete(self._store, [key for key, _ in marks])
            after = marks[-1][0]
            yield list(marked_by(marks))
        put(self._store, gone_key(host), b"")

    def filter_rebuilt(self) -> None:
        """Forget which hosts were handed over: a rebuilt filter has nothing of them."""
        self._gone = SeenFilter(_GONE_CAPACITY)
        delete(self._store, self._store.keys(GONE))


# URLs of the first layer of the filter: 4 MB. Each further layer holds four times as many, up to 16
# million, and the rate of false positives of all stays the same.
CAPACITY = 1_000_000
# Keys of each generation of recent keys: some 7 MB for both.
_RECENT = 32_768
# URLs of each generation of recent links: some 12 MB for both.
_RECENT_LINKS = 32_768
# The filter is saved again when so many identities are new, and a quarter of all: a start after a
# kill replays those.
_SAVE_EVERY = 2_000_000


_Key = TypeVar("_Key", bytes, str)


class Recent(Generic[_Key]):
    """Keys that were looked up lately: most links of a page are on the pages before it.

    They are in two generations: the young one holds ``most`` keys, then replaces the old one.
    """

    def __init__(self, most: int):
        self._most = most
        self._young: set[_Key] = set()
        self._old: set[_Key] = set()

    def among(self, keys: Sequence[_Key]) -> set[_Key]:
        """Return those of some keys that are recent, and keep them so."""
        found = self._young.intersection(keys)
        if len(found) < len(keys) and (older := self._old.intersection(keys)):
            older -= found
            self.add(older)
            found |= older
        return found

    def add(self, keys: Iterable[_Key]) -> None:
        self._young.update(keys)
        if len(self._young) >= self._most:
            self._old, self._young = self._young, set()

    def remove(self, keys: Iterable[_Key]) -> None:
        keys = set(keys)
        self._young -= keys
        self._old -= keys

    def clear(self) -> None:
        self._young, self._old = set(), set()


class SeenSet:
    """The known identities: the filter decides, and marks on disk rebuild it.

    With ``verify``, each positive of the filter is looked up on disk, which makes the set exact;
    ``false_positives`` counts those that the disk refuted. Without it, ``expected_losses`` is the
    most new URLs that the filter is expected to have taken for known.

    ``file`` is where the filter is saved. The store has the batches of new identities since then,
    which the next start replays. Without a file, each start rebuilds the filter.
    """

    def __init__(
        self,
        store: Store,
        capacity: int = CAPACITY,
        *,
        verify: bool = False,
        file: FilterFile | None = None,
    ):
        self._store = store
        self._verify = verify
        self._file = file
        self._recent = Recent[bytes](_RECENT)
        # Normalised URLs whose identity is known, so that most links need no hash.
        self.recent_links = Recent[str](_RECENT_LINKS)
        # Identities marked since the last batch, by host; those that were unknown, of which the
        # first `_in_filter` are in the filter already.
        self._pending: dict[str, list[bytes]] = {}
        self._new: list[bytes] = []
        self._in_filter = 0
        self.expected_losses = 0.0
        self.false_positives = 0
        self.rebuilt = False
        self._marks = SeenMarks(store, verify=verify)
        self.filter = self._load(capacity)
        self._saved_count = self.filter.count

    def _load(self, capacity: int) -> SeenFilter:
        """Return the saved filter, brought up to date, or one rebuilt from the marks."""
        snapshot = self._file.read() if self._file is not None else None
        saved = int.from_bytes(self._store.get(SAVED) or b"", "big")
        self._sequence = max([saved, *map(split_new_keys_key, self._store.keys(NEW_KEYS))])
        # A later filter belongs to a store that went on from a copy of this one. For an earlier
        # one, the batches since then are gone.
        if snapshot is not None and saved <= snapshot.sequence <= self._sequence:
            found = SeenFilter(snapshot.capacity, snapshot)
            for _, keys in self._store.items(NEW_KEYS, new_keys_key(snapshot.sequence)):
                found.update(split_keys(keys))
            return found
        self.rebuilt = True
        if self._file is not None:
            # It must not pass for this store's filter once the sequence reaches its own.
            self._file.remove()
        found = SeenFilter(capacity)
        found.update(self._marks.identities())
        self._marks.filter_rebuilt()
        return found

    def __len__(self) -> int:
        return self.filter.count

    def known(self, host: str, key: bytes) -> bool:
        return self.known_among((key,), lambda _: host)[0]

    def known_among(self, keys: Sequence[bytes], host_at: Callable[[int], str]) -> list[bool]:
        """Return for each identity whether it is known.

        ``host_at`` returns the host of the identity at an index, where the disk must be asked.
        """
        known = self._recent.among(keys)
        if len(known) < len(keys):
            positive = self.filter.among([key for key in keys if key not in known])
            if positive and (self._verify or self._marks.any_gone):
                place = {key: at for at, key in enumerate(keys)}
                positive = [key for key in positive if self._is_verified(host_at(place[key]), key)]
            self._recent.add(positive)
            known.update(positive)
        return [key in known for key in keys]

    def _is_verified(self, host: str, key: bytes) -> bool:
        """Return whether a positive of the filter is on disk, where the disk must be asked."""
        if (self._verify or self._marks.is_gone(host)) and not self._marks.has(host, key):
            self.false_positives += self._verify
            return False
        return True

    def marked_among(self, host: str, keys: Iterable[bytes]) -> set[bytes]:
        """Return those of a host's identities that are marked on disk."""
        positive = set(self.filter.among(list(keys)))
        return self._marks.among(host, positive) if positive else positive

    def mark(self, host: str, keys: Sequence[bytes]) -> None:
        """Mark unknown identities of a host as seen. They are known after the next `end_batch`,
        which puts them on disk."""
        if keys:
            self._new += keys
            self._pending.setdefault(host, []).extend(keys)

    def restore(self, host: str, key: bytes) -> None:
        """Mark an identity that another frontier knows, and this one may know too."""
        if key not in self.filter:
            self.mark(host, (key,))
            self._fill_filter()
        # A mark on disk may stand for more identities, so it is not written again.
        elif key not in self._pending.get(host, ()) and not self._marks.has(host, key):
            self._pending.setdefault(host, []).append(key)

    def _fill_filter(self) -> None:
        """Put the identities marked since the last time into the filter: together, as each call
        costs as much as several identities."""
        new = self._new[self._in_filter :]
        self._in_filter = len(self._new)
        self.filter.update(new)
        if not self._verify:
            self.expected_losses += FALSE_POSITIVES * len(new)

    def end_batch(self, batch: Batch) -> None:
        """Put all marks since the last batch into this one."""
        for host, keys in self._pending.items():
            self._marks.put(host, keys, batch)
        self._pending.clear()
        if self._new:
            self._fill_filter()
            self._in_filter = 0
            self._sequence += 1
            batch.put(new_keys_key(self._sequence), b"".join(self._new))
            self._recent.add(self._new)
            self._new.clear()

    def forget(self, host: str, batch: Batch) -> Iterator[None]:
        """Forget a handed-over host, with the batch. Then take all steps of the returned iterator,
        which remove its marks; a restart does."""
        self.recent_links.clear()
        return map(self._recent.remove, self._marks.forget(host, batch))

    # --- saving the filter ---

    def due_to_save(self) -> bool:
        """Return whether so many identities are new that a start after a kill would be slow."""
        new = self.filter.count - self._saved_count
        return self._file is not None and new >= max(_SAVE_EVERY, self.filter.count // 4)

    def snapshot(self) -> FilterState:
        """Return the filter for `save`. If that fails, the next is due after as many new keys."""
        self._saved_count = self.filter.count
        return self.filter.snapshot(self._sequence)

    def save(self, snapshot: FilterState) -> None:
        """Save the filter, then delete the batches in it. This blocks: call it off the event loop.

        :raises OSError: the file cannot be written
        """
        if self._file is None:
            return
        self._file.write(snapshot)
        batch = self._store.batch()
        batch.put(SAVED, snapshot.sequence.to_bytes(8, "big"))
        for name in self._store.keys(NEW_KEYS):
            if split_new_keys_key(name) > snapshot.sequence:
                break
            batch.delete(name)
        batch.write()
