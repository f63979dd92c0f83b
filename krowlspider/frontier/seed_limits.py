"""URLs of seeds that limits have left out, besides those of the words of a seed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from krowlspider.frontier.store.schema import SEED_LEFT, seed_left_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from krowlspider.frontier.store.store import Batch, Store

# What the limits are called, by the reason of the drop.
LIMITS = {
    **{name: f"{name} of a sheet" for name in ("max_pages", "max_bytes", "max_seconds")},
    "domain_budget": "KROWL_DOMAIN_BUDGET",
    "domain_share": "share of the domain",
    "frontier": "KROWL_FRONTIER_MAX",
}
# Seeds that are kept in memory between two commits.
_KEPT = 10_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, int]).decode


class SeedLimits:
    """Counts the URLs by the keys of `SeedNames` and the reasons of LIMITS.

    The counts are written with the next commit. Other nodes count their own.
    """

    def __init__(self, store: Store):
        self._store = store
        self._counts: dict[bytes, Counter[str]] = {}
        self._changed: set[bytes] = set()

    def add(self, key: bytes, reasons: Iterable[str | None]) -> None:
        """Count URLs of a seed that are dropped for these reasons; an empty key is of none."""
        if not key:
            return
        for reason in reasons:
            if reason in LIMITS:
                if (counts := self._counts.get(key)) is None:
                    counts = self._counts[key] = _read(self._store, key)
                counts[reason] += 1
                self._changed.add(key)

    def put(self, batch: Batch) -> None:
        """Put what has changed into the batch of a commit."""
        for key in self._changed:
            batch.put(seed_left_key(key), _encode(self._counts[key]))
        if len(self._counts) > _KEPT:
            # Those of this batch may not be on disk when they are asked for.
            self._counts = {key: self._counts[key] for key in self._changed}
        self._changed.clear()


def left_out_reader(stores: Sequence[Store]) -> Callable[[bytes], Counter[str]] | None:
    """Return a function that returns what limits have left out of the seed with a key, at all nodes
    whose stores these are; None if they have left out nothing."""
    some = [each for each in stores if next(iter(each.keys(SEED_LEFT)), None) is not None]
    if not some:
        return None

    def left_out(key: bytes) -> Counter[str]:
        counts: Counter[str] = Counter()
        for store in some:
            counts.update(_read(store, key))
        return counts

    return left_out


def _read(store: Store, key: bytes) -> Counter[str]:
    saved = store.get(seed_left_key(key))
    return Counter() if saved is None else Counter(_decode(saved))
