"""The seen set: a layered Bloom filter that decides, the keys on disk that rebuild it.

The filter follows Almeida et al., "Scalable Bloom Filters" (2007): each layer holds twice as many keys at half
the false positives of the one before, so that the whole stays below the stated rate however far it grows.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from rbloom import Bloom

from krowlspider.frontier.schema import SEEN, seen_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.frontier.store import Batch, Store

# Invariant 8: at most one link in a million is taken for known when it is new.
FALSE_POSITIVES = 1e-6
KEY_SIZE = 8
_REBUILD_CHUNK = 100_000


def _hash(key: bytes) -> int:
    # The keys are seeded xxh3 digests, uniform already.
    return int.from_bytes(key, "big", signed=True)


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
        return 1 - self._room / (self.capacity << (self.layers - 1))

    def _grow(self) -> None:
        rate = FALSE_POSITIVES / (2 << self.layers)
        self._room = self.capacity << self.layers
        self._layers.append(Bloom(self._room, rate, _hash))

    def __contains__(self, key: bytes) -> bool:
        return any(key in layer for layer in reversed(self._layers))

    def add(self, key: bytes) -> None:
        if self._room == 0:
            self._grow()
        self._layers[-1].add(key)
        self._room -= 1
        self.count += 1

    def update(self, keys: Iterable[bytes]) -> None:
        """Add many keys, none of which is in the filter."""
        iterator = iter(keys)
        while chunk := list(islice(iterator, min(self._room, _REBUILD_CHUNK))):
            self._layers[-1].update(chunk)
            self._room -= len(chunk)
            self.count += len(chunk)
            if self._room == 0:
                self._grow()


class SeenSet:
    """Which identities of which hosts are known.

    ``verify`` looks each positive of the filter up on disk, which makes the set exact. ``expected_losses`` is
    the number of new URLs the filter is expected to have taken for known so far (0 with ``verify``), and
    ``false_positives`` how many of its positives the disk has refuted.
    """

    def __init__(self, store: Store, capacity: int, *, verify: bool = False):
        self._store = store
        self._verify = verify
        self.filter = SeenFilter(capacity)
        self.filter.update(key[-KEY_SIZE:] for key in store.keys(SEEN))
        self.expected_losses = 0.0
        self.false_positives = 0

    def __len__(self) -> int:
        return self.filter.count

    def known(self, host: str, key: bytes) -> bool:
        if key not in self.filter:
            return False
        if not self._verify:
            return True
        if self._store.get(seen_prefix(host) + key) is not None:
            return True
        self.false_positives += 1
        return False

    def mark(self, host: str, key: bytes, batch: Batch) -> None:
        """Mark an identity as seen; it is on disk once ``batch`` is written."""
        self.filter.add(key)
        batch.put(seen_prefix(host) + key, b"")
        if not self._verify:
            # An upper bound: the rate the whole filter keeps at its capacity.
            self.expected_losses += FALSE_POSITIVES
