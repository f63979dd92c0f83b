"""A Bloom filter that grows by layers.

After Almeida et al., "Scalable Bloom Filters" (2007): each layer holds four times as many keys as
the one before, up to a limit, at half its rate of false positives. So the whole filter stays below
`FALSE_POSITIVES` however far it grows.
"""

from __future__ import annotations

from itertools import chain, islice
from operator import index
from struct import Struct
from typing import TYPE_CHECKING

from rbloom import Bloom

from krowlspider.frontier.seen.filter_file import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# The most new links, as a part of all, that may be taken for known.
FALSE_POSITIVES = 1e-6
# Keys of the largest layers: the newest layer is copied on the event loop when it is saved.
LAYER_MAX = 16_000_000
_CHUNK = 100_000

_NUMBER = Struct(">q").unpack


def _numbers(keys: Iterable[bytes]) -> Iterator[int]:
    """Yield the numbers that stand for keys in the layers. Seeded digests need no hash function."""
    return chain.from_iterable(map(_NUMBER, keys))


class SeenFilter:
    """Layers of Bloom filters over 8-byte keys; ``capacity`` is that of the first layer."""

    def __init__(self, capacity: int, saved: Snapshot | None = None):
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

    def snapshot(self, sequence: int) -> Snapshot:
        """Return the present state; full layers do not change, so only the newest is copied."""
        newest = self._layers[-1].save_bytes()
        full = self._layers[:-1]
        return Snapshot(sequence, self.capacity, self.count, self._room, full, newest)
