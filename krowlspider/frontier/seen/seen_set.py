"""The seen set: a layered Bloom filter that decides, the keys on disk that rebuild it.

The filter follows Almeida et al., "Scalable Bloom Filters" (2007): each layer holds four times as many keys, up
to a limit, at half the false positives of the one before, so that the whole stays below the stated rate however far it
grows. A new key is looked for in all of them, at the cost of two places in memory that no cache has for each.
"""

from __future__ import annotations

from itertools import chain, islice
from operator import index
from struct import Struct
from typing import TYPE_CHECKING

from rbloom import Bloom
from xxhash import xxh3_64_digest

from krowlspider.frontier.seen.filter_file import FilterFile, Snapshot
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from krowlspider.frontier.store.store import Batch, Store

# Invariant 8: at most one link in a million is taken for known when it is new.
FALSE_POSITIVES = 1e-6
# Keys of the largest layers. The newest one is copied on the event loop when the filter is saved: 33 ms.
LAYER_MAX = 16_000_000
_REBUILD_CHUNK = 100_000
# Keys last met: so many in each of two sets, some 7 MB together. Most links of a page are on pages before it, and a filter
# takes 1 to 1.5 µs a link.
_RECENT = 32_768
# The filter is saved again when so many keys are new since, and a quarter of all: about a second of replay.
_SAVE_EVERY = 2_000_000
# Hosts handed over, to begin with: 4 kB for 1,000.
_GONE_CAPACITY = 1000
# Identities of a host that one mark stands for at most: a page's links to one host, where they are not very many.
_JOINED_MAX = 64
# Marks removed or taken apart in one batch: about 5 ms.
_REMOVED = 100
# What a host that was handed over has in the store while its marks are being removed.
_LEAVING = b"\1"


_NUMBER = Struct(">q").unpack


def _numbers(keys: Iterable[bytes]) -> Iterator[int]:
    """What the filter's layers hold of keys: they hash nothing, as the keys are seeded xxh3 digests, uniform already."""
    return chain.from_iterable(map(_NUMBER, keys))


class SeenFilter:
    """Layers of Bloom filters over 8-byte keys."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.count = 0
        self._layers: list[Bloom] = []
        self._room = 0
        self._grow()

    @property
    def layers(self) -> int:
        return len(self._layers)

    @property
    def fill(self) -> float:
        """Share of the newest layer that is used, 0 to 1."""
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
        """Those of some keys that are in it, as far as a filter can tell."""
        # The newest layer has most of all keys.
        layers = self._layers[::-1]
        found = []
        for key, number in zip(keys, _numbers(keys), strict=True):
            for layer in layers:
                if number in layer:
                    found.append(key)
                    break
        return found

    def add(self, key: bytes) -> None:
        """Add a key that is not in the filter."""
        if self._room == 0:
            self._grow()
        self._layers[-1].add(_NUMBER(key)[0])
        self._room -= 1
        self.count += 1

    def update(self, keys: Iterable[bytes]) -> None:
        """Add many keys, none of which is in the filter."""
        iterator = iter(keys)
        # A full layer is followed by a larger one, once there is a key for it.
        while chunk := list(islice(iterator, min(self._room or self.capacity, _REBUILD_CHUNK))):
            if self._room == 0:
                self._grow()
            self._layers[-1].update(_numbers(chunk))
            self._room -= len(chunk)
            self.count += len(chunk)

    def snapshot(self, mark: int) -> Snapshot:
        """What is to be saved, with the sequence of the last batch of new keys that is in it.

        Full layers change no more and are read when they are written; the newest is copied here.
        """
        full: list[Bloom] = self._layers[:-1]
        return Snapshot(
            mark, self.capacity, self.count, self._room, full, self._layers[-1].save_bytes()
        )

    @classmethod
    def of(cls, snapshot: Snapshot) -> SeenFilter:
        """The filter that was saved."""
        found = cls.__new__(cls)
        found.capacity = snapshot.capacity
        found.count = snapshot.count
        found._room = snapshot.room
        found._layers = [*snapshot.full, Bloom.load_bytes(snapshot.newest, index)]
        return found


class LastMet:
    """Keys that were met lately: fewer than ``most``, and those before them, ``most`` or a few more."""

    def __init__(self, most: int):
        self._most = most
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def among(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of some keys that were met lately."""
        met = self._young.intersection(keys)
        if len(met) < len(keys) and (again := self._old.intersection(keys)):
            again -= met
            self.add(again)
            met |= again
        return met

    def add(self, keys: Iterable[bytes]) -> None:
        """They are met now."""
        self._young.update(keys)
        if len(self._young) >= self._most:
            self._old, self._young = self._young, set()

    def remove(self, keys: Iterable[bytes]) -> None:
        """They are to be taken for known no longer."""
        keys = set(keys)
        self._young.difference_update(keys)
        self._old.difference_update(keys)


class SeenSet:
    """Which identities of which hosts are known.

    ``verify`` looks each positive of the filter up on disk, which makes the set exact. ``expected_losses`` is
    the number of new URLs the filter is expected to have taken for known so far (0 with ``verify``), and
    ``false_positives`` how many of its positives the disk has refuted. ``file`` is where the filter is saved;
    without one it is rebuilt from the keys on disk at each start.

    The filter forgets nothing. So the positives of hosts that were handed over are looked up on disk, like all
    with ``verify``, until it is rebuilt: else a URL of a host that comes back alone would be taken for known.

    What a batch marks of one host is one mark on disk. Where single identities are looked up each has its own: with
    ``verify``, and for hosts that were handed over. So a start with ``verify`` takes joined marks apart.
    """

    def __init__(
        self, store: Store, capacity: int, *, verify: bool = False, file: FilterFile | None = None
    ):
        self._store = store
        self._verify = verify
        self._file = file
        self._new: list[bytes] = []
        # The same by host, and what `restore` adds.
        self._marks: dict[str, list[bytes]] = {}
        self._met = LastMet(_RECENT)
        self._sequence = 0
        self.rebuilt = False
        self._end_forgetting()
        self._join_or_part()
        self.filter = self._load(capacity)
        self._gone = self._load_gone()
        self._saved_count = self.filter.count
        self.expected_losses = 0.0
        self.false_positives = 0

    def _load(self, capacity: int) -> SeenFilter:
        snapshot = self._file.read(index) if self._file is not None else None
        saved = int.from_bytes(self._store.get(SAVED) or b"", "big")
        new = map(split_new_keys_key, self._store.keys(NEW_KEYS))
        self._sequence = max(saved, max(new, default=0))
        if snapshot is not None and saved <= snapshot.mark <= self._sequence:
            found = SeenFilter.of(snapshot)
            found.update(self._since(snapshot.mark))
            return found
        self.rebuilt = True
        if self._file is not None:
            # A filter that has more than the store is of a later one: what was found since then is not in this one. It must
            # not be taken for this one's when there is as much. One that has less lacks lists that are there no more.
            self._file.remove()
        found = SeenFilter(capacity)
        found.update(marked_by(self._store.items(SEEN)))
        return found

    def _since(self, mark: int) -> Iterator[bytes]:
        """Keys of the batches written after a snapshot."""
        for name, keys in self._store.items(NEW_KEYS):
            if split_new_keys_key(name) > mark:
                yield from split_keys(keys)

    def _end_forgetting(self) -> None:
        """Remove the marks of hosts that were handed over when the last process died."""
        for name, value in self._store.items(GONE):
            if value:
                for _ in self.remove_marks(name[1:].decode()):
                    pass

    def _join_or_part(self) -> None:
        """Note that marks will be joined, or take apart those that are."""
        joined = self._store.get(JOINED) is not None
        if joined == (not self._verify):
            return
        if joined:
            marks = self._store.items(SEEN)
            while some := list(islice(((name, keys) for name, keys in marks if keys), _REMOVED)):
                batch = self._store.batch()
                for name, keys in some:
                    for key in (name[-KEY_SIZE:], *split_keys(keys)):
                        batch.put(name[:-KEY_SIZE] + key, b"")
                batch.write()
        batch = self._store.batch()
        if joined:
            batch.delete(JOINED)
        else:
            batch.put(JOINED, b"")
        batch.write()

    def _load_gone(self) -> SeenFilter:
        gone = SeenFilter(_GONE_CAPACITY)
        if not self.rebuilt:
            gone.update(xxh3_64_digest(name[1:]) for name in self._store.keys(GONE))
            return gone
        # The filter holds what is on disk, no more.
        batch = self._store.batch()
        for name in self._store.keys(GONE):
            batch.delete(name)
        batch.write()
        return gone

    def __len__(self) -> int:
        return self.filter.count

    def known(self, host: str, key: bytes) -> bool:
        return self.known_among((key,), lambda _: host)[0]

    def known_among(self, keys: Sequence[bytes], host_at: Callable[[int], str]) -> list[bool]:
        """Which identities are known, each of the host that ``host_at`` tells for its place: for all links of a page at once,
        as a call for each takes longer than the look-up. The host is asked for only where the disk is."""
        met = self._met.among(keys)
        if len(met) < len(keys):
            positive = self.filter.among([key for key in keys if key not in met])
            if positive and (self._verify or self._gone.count):
                place = {key: at for at, key in enumerate(keys)}
                positive = [key for key in positive if self._is_verified(host_at(place[key]), key)]
            self._met.add(positive)
            met.update(positive)
        return [key in met for key in keys]

    def _is_verified(self, host: str, key: bytes) -> bool:
        """Whether a positive of the filter is one on disk too, where that is asked for."""
        if (self._verify or self._has_gone(host)) and not self._on_disk(host, key):
            self.false_positives += self._verify
            return False
        return True

    def marked_among(self, host: str, keys: Iterable[bytes]) -> set[bytes]:
        """Which identities of a host are known, by the disk where the filter says so."""
        positive = set(self.filter.among(list(keys)))
        if not positive:
            return positive
        if self._is_looked_up(host):
            return {key for key in positive if self._on_disk(host, key)}
        return positive.intersection(marked_by(self._store.items(seen_prefix(host))))

    def _on_disk(self, host: str, key: bytes) -> bool:
        return self._store.read((seen_prefix(host) + key,)) != [None]

    def _has_gone(self, host: str) -> bool:
        """Whether a host was handed over, by the disk where the filter says so."""
        return (
            self._gone.count > 0
            and xxh3_64_digest(host.encode()) in self._gone
            and self._store.get(gone_key(host)) is not None
        )

    def _is_looked_up(self, host: str) -> bool:
        """Whether each identity of a host has a mark of its own."""
        return self._verify or self._has_gone(host)

    def mark(self, host: str, keys: Sequence[bytes]) -> None:
        """Mark identities of a host, none of which is known, as seen; they are on disk once the batch of the next `end_batch`
        is written."""
        if not keys:
            return
        self.filter.update(keys)
        self._new += keys
        self._marks.setdefault(host, []).extend(keys)
        if not self._verify:
            # An upper bound: the rate the whole filter keeps at its capacity.
            self.expected_losses += FALSE_POSITIVES * len(keys)

    def restore(self, host: str, key: bytes) -> None:
        """Mark an identity as seen, as `mark` does, that another frontier knows and this one may know too."""
        if key not in self.filter:
            self.mark(host, (key,))
        # A mark that is there may stand for more, and is not put again.
        elif (
            key not in self._marks.get(host, ())
            and self._store.get(seen_prefix(host) + key) is None
        ):
            self._marks.setdefault(host, []).append(key)

    def forget(self, host: str, batch: Batch) -> None:
        """A host was handed over, which is settled once ``batch`` is written; `remove_marks` is to follow. A start after
        a death in between removes what is left of them."""
        batch.put(gone_key(host), _LEAVING)
        if not self._has_gone(host):
            self._gone.add(xxh3_64_digest(host.encode()))

    def remove_marks(self, host: str) -> Iterator[None]:
        """Remove the marks of a host, some at each step."""
        prefix = seen_prefix(host)
        after = prefix
        while marks := list(islice(self._store.items(prefix, after), _REMOVED)):
            batch = self._store.batch()
            for name, _ in marks:
                batch.delete(name)
            batch.write()
            self._met.remove(marked_by(marks))
            after = marks[-1][0]
            yield
        batch = self._store.batch()
        batch.put(gone_key(host), b"")
        batch.write()

    def end_batch(self, batch: Batch) -> None:
        """Put the marks that were made since the last batch, and list their keys in one entry, by which a saved filter is
        brought up to date."""
        for host, keys in self._marks.items():
            self._put_marks(host, keys, batch)
        self._marks.clear()
        if self._new:
            self._sequence += 1
            batch.put(new_keys_key(self._sequence), b"".join(self._new))
            self._met.add(self._new)
            self._new.clear()

    def _put_marks(self, host: str, keys: list[bytes], batch: Batch) -> None:
        prefix = seen_prefix(host)
        if len(keys) == 1:
            batch.put(prefix + keys[0], b"")
            return
        most = 1 if self._is_looked_up(host) else _JOINED_MAX
        for at in range(0, len(keys), most):
            batch.put(prefix + keys[at], b"".join(keys[at + 1 : at + most]))

    # --- saving ---

    def due_to_save(self) -> bool:
        """Whether so much is new that a start after a crash would take long."""
        new = self.filter.count - self._saved_count
        return self._file is not None and new >= max(_SAVE_EVERY, self.filter.count // 4)

    def snapshot(self) -> Snapshot:
        """What `save` writes; taken on the event loop. Should it fail, the next is due when as much is new again."""
        self._saved_count = self.filter.count
        return self.filter.snapshot(self._sequence)

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot, then drop the lists of keys that are in it. Blocks: call it off the event loop."""
        if self._file is None:
            return
        self._file.write(snapshot)
        batch = self._store.batch()
        batch.put(SAVED, snapshot.mark.to_bytes(8, "big"))
        for name in self._store.keys(NEW_KEYS):
            if split_new_keys_key(name) > snapshot.mark:
                break
            batch.delete(name)
        batch.write()
