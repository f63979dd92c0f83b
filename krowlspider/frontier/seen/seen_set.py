"""The seen set: which identities of which hosts are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.seen.seen_filter import FALSE_POSITIVES, SeenFilter
from krowlspider.frontier.seen.seen_marks import SeenMarks
from krowlspider.frontier.store.schema import (
    NEW_KEYS,
    SAVED,
    new_keys_key,
    split_keys,
    split_new_keys_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from krowlspider.frontier.seen.filter_file import FilterFile, Snapshot
    from krowlspider.frontier.store.store import Batch, Store

# URLs of the first layer of the filter: 4 MB. Each further layer holds four times as many, up to 16
# million, and the rate of false positives of all stays the same.
CAPACITY = 1_000_000
# Keys of each generation of recent keys: some 7 MB for both.
_RECENT = 32_768
# The filter is saved again when so many identities are new, and a quarter of all: a start after a
# kill replays those.
_SAVE_EVERY = 2_000_000


class RecentKeys:
    """Keys that were looked up lately: most links of a page are on the pages before it.

    They are in two generations: the young one holds ``most`` keys, then replaces the old one.
    """

    def __init__(self, most: int):
        self._most = most
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def among(self, keys: Sequence[bytes]) -> set[bytes]:
        """Return those of some keys that are recent, and keep them so."""
        found = self._young.intersection(keys)
        if len(found) < len(keys) and (older := self._old.intersection(keys)):
            older -= found
            self.add(older)
            found |= older
        return found

    def add(self, keys: Iterable[bytes]) -> None:
        self._young.update(keys)
        if len(self._young) >= self._most:
            self._old, self._young = self._young, set()

    def remove(self, keys: Iterable[bytes]) -> None:
        keys = set(keys)
        self._young -= keys
        self._old -= keys


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
        self._recent = RecentKeys(_RECENT)
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
        return map(self._recent.remove, self._marks.forget(host, batch))

    # --- saving the filter ---

    def due_to_save(self) -> bool:
        """Return whether so many identities are new that a start after a kill would be slow."""
        new = self.filter.count - self._saved_count
        return self._file is not None and new >= max(_SAVE_EVERY, self.filter.count // 4)

    def snapshot(self) -> Snapshot:
        """Return the filter for `save`. If that fails, the next is due after as many new keys."""
        self._saved_count = self.filter.count
        return self.filter.snapshot(self._sequence)

    def save(self, snapshot: Snapshot) -> None:
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
