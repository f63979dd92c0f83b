"""Messages for other nodes until they are durable there, and which of theirs have come.

`Outbox` keeps messages in order until they are durable at their owners. A message is removed once
its owner has acknowledged it, so it may arrive twice and is never lost.

`Finders` knows which batches of forwarded URLs have come, by the node that found the URLs. A finder
numbers the batches of a stream from 0 on. The last one that has come without a gap is kept in the
store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import (
    FINDER,
    KEY_SIZE,
    finder_key,
    outbox_key,
    outbox_prefix,
    split_outbox_key,
)
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from krowlspider.frontier.store.store import Batch, Store

# Entries looked at in one step of `Outbox.rebucket` or `Outbox.acknowledge`: bounds its time.
_STEP = 500
# Entries removed after which their range is compacted: a start reads across what LevelDB keeps.
_COMPACT_EVERY = 500_000
# Stands before the owner in the marks of foreign URLs, where others have a host. No host has it.
FOREIGN = ">"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A URL of another node, as an opaque message; without a ``key``, it is sent even if known."""

    owner: str
    host: str
    key: bytes | None
    message: bytes


@lru_cache(maxsize=4096)
def _space(owner: str) -> tuple[str, int]:
    """Return the name that stands for a host in an owner's marks, and the mask of its keys."""
    name = FOREIGN + owner
    return name, xxh3_64_intdigest(name.encode())


def foreign_mark(owner: str, key: bytes) -> tuple[str, bytes]:
    """Return the name and the key that mark an identity as sent to an owner."""
    # The seen filter knows no hosts. So the key is not that of the URL, which must be unknown when
    # its host becomes ours or another node's.
    name, mask = _space(owner)
    return name, (int.from_bytes(key, "big") ^ mask).to_bytes(KEY_SIZE, "big")


def _sequence(key: bytes) -> int:
    return split_outbox_key(key)[1]


@dataclass(slots=True, eq=False)
class _Bucket:
    """The ``count`` entries of one owner, with sequences from ``head`` to before ``tail``.

    Sequences only grow. Those up to ``sent`` are under way. ``ours`` are those of entries that
    `Outbox.rebucket` has returned.
    """

    prefix: bytes
    head: int = 0
    tail: int = 0
    count: int = 0
    sent: int = -1
    ours: set[int] = field(default_factory=set)


class Outbox:
    """Entries by owner, ``depth`` of them, at most ``most``; 0 is no limit.

    ``saved`` is what `gauges` returned at a clean close. Without it, all keys are counted.
    """

    def __init__(self, store: Store, most: int, saved: dict[str, list[int]] | None):
        self._store = store
        self._most = most
        self._buckets: dict[str, _Bucket] = {}
        self._removed = 0
        if saved is None:
            self._count()
        else:
            for owner, (head, tail, count) in saved.items():
                self._buckets[owner] = _Bucket(outbox_prefix(owner), head, tail, count)
        self.depth = sum(self.depths().values())

    def _count(self) -> None:
        for key in self._store.keys(schema.OUTBOX):
            owner, sequence = split_outbox_key(key)
            bucket = self._bucket(owner)
            if not bucket.count:
                bucket.head = sequence
            bucket.tail = sequence + 1
            bucket.count += 1

    def _bucket(self, owner: str) -> _Bucket:
        if owner not in self._buckets:
            self._buckets[owner] = _Bucket(outbox_prefix(owner))
        return self._buckets[owner]

    def gauges(self) -> dict[str, list[int]]:
        """Return head, tail and count by owner, for the next start."""
        return {
            owner: [bucket.head, bucket.tail, bucket.count]
            for owner, bucket in self._buckets.items()
            if bucket.count
        }

    def depths(self) -> dict[str, int]:
        """Return how many entries each owner has; owners without entries are left out."""
        return {owner: bucket.count for owner, bucket in self._buckets.items() if bucket.count}

    def owners(self) -> list[str]:
        """Return the nodes for which there are entries."""
        return list(self.depths())

    @property
    def full(self) -> bool:
        return 0 < self._most <= self.depth

    @property
    def is_full_of_unsent(self) -> bool:
        """Return whether as many entries as the limit are not under way to their owners."""
        return self.full and self._most <= sum(
            min(bucket.count, bucket.tail - 1 - max(bucket.sent, bucket.head - 1))
            for bucket in self._buckets.values()
        )

    def note_sent(self, owner: str, sequence: int) -> None:
        """Note that an owner's entries up to a sequence are under way, and no others."""
        self._bucket(owner).sent = sequence

    def put(self, owner: str, host: str, message: bytes, batch: Batch) -> None:
        """Put an entry for an owner into the batch, behind its others."""
        self._append(owner, b"%b\0%b" % (host.encode(), message), batch)

    def _append(self, owner: str, value: bytes, batch: Batch) -> None:
        bucket = self._bucket(owner)
        if not bucket.count:
            bucket.head = bucket.tail
        batch.put(outbox_key(bucket.prefix, bucket.tail), value)
        bucket.tail += 1
        bucket.count += 1
        self.depth += 1

    def after(self, owner: str, sequence: int, most: int) -> list[tuple[int, bytes]]:
        """Return sequence and message of an owner's first entries behind a sequence.

        They stay until `acknowledge`. -1 stands before the first sequence.
        """
        bucket = self._bucket(owner)
        found = islice(self._from(bucket, max(sequence + 1, bucket.head)), most)
        return [(_sequence(key), value.partition(b"\0")[2]) for key, value in found]

    def _from(self, bucket: _Bucket, sequence: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of a bucket's entries from a sequence on."""
        after = outbox_key(bucket.prefix, sequence - 1) if sequence else b""
        return self._store.items(bucket.prefix, after)

    def acknowledge(self, owner: str, last: int) -> Iterator[int]:
        """Remove an owner's entries up to the sequence ``last``, some in each step.

        Yield how many were removed.
        """
        bucket = self._bucket(owner)
        last = min(last, bucket.tail - 1)
        while sequences := self._first(bucket, last):
            batch = self._store.batch()
            for sequence in sequences:
                self._drop(bucket, sequence, batch)
            batch.write()
            # The next one need not walk over the deleted keys before it.
            bucket.head = sequences[-1] + 1
            yield len(sequences)

    def _first(self, bucket: _Bucket, last: int) -> Sequence[int]:
        """Return the sequences of a bucket's first entries up to ``last``."""
        if bucket.count == bucket.tail - bucket.head:
            # None is missing, as long as the ring has not changed: there is no need to read.
            return range(bucket.head, min(last + 1, bucket.head + _STEP))
        after = outbox_key(bucket.prefix, bucket.head - 1) if bucket.head else b""
        found = map(_sequence, islice(self._store.keys(bucket.prefix, after), _STEP))
        return [sequence for sequence in found if sequence <= last]

    def take_out(self, keys: Iterable[bytes], batch: Batch) -> None:
        """Remove entries that `rebucket` has returned with the batch that queues them."""
        for key in keys:
            owner, sequence = split_outbox_key(key)
            bucket = self._bucket(owner)
            if sequence in bucket.ours:
                self._drop(bucket, sequence, batch)

    def _drop(self, bucket: _Bucket, sequence: int, batch: Batch) -> None:
        bucket.ours.discard(sequence)
        batch.delete(outbox_key(bucket.prefix, sequence))
        bucket.count -= 1
        self.depth -= 1
        self._removed += 1

    def consumed(self) -> bool:
        """Return whether enough was removed, since the last time, that compacting is worthwhile."""
        due = self._removed >= _COMPACT_EVERY
        if due:
            self._removed = 0
        return due

    def rebucket(
        self, owner_of: Callable[[str], str | None]
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Move each entry into the bucket of its new owner, some in each step.

        ``owner_of`` returns the owner of a domain, None for this node. Yield key and message of the
        entries that are ours now: they stay until `take_out`, in the batch that queues them.
        """
        for owner, bucket in list(self._buckets.items()):
            at, end = bucket.head, bucket.tail
            while at < end and bucket.count:
                at, ours = self._rebucket_some(owner, at, end, owner_of)
                yield ours

    def _rebucket_some(
        self, owner: str, at: int, end: int, owner_of: Callable[[str], str | None]
    ) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Move the entries of one step; return where to continue, and the entries that are ours."""
        bucket = self._buckets[owner]
        batch = self._store.batch()
        ours = []
        found = list(islice(self._from(bucket, at), _STEP))
        for key, value in found:
            sequence = _sequence(key)
            if sequence >= end:
                break
            host, _, message = value.partition(b"\0")
            other = owner_of(domain_of(host.decode()))
            if other is None:
                bucket.ours.add(sequence)
                ours.append((key, message))
            elif other != owner:
                self._drop(bucket, sequence, batch)
                self._append(other, value, batch)
        batch.write()
        return _sequence(found[-1][0]) + 1 if found else end, ours


# Finders that are known. Of one that is forgotten, the next batch has a gap before it.
FINDERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Arrived:
    """The batches of ``stream`` up to ``number`` are here, with URLs up to the sequence ``last``.

    ``number`` and ``last`` are -1 if there is none.
    """

    stream: int
    number: int = -1
    last: int = -1


class Finders:
    """The streams of the finders that have sent URLs to a frontier."""

    def __init__(self, store: Store):
        # The finder whose batch came last is the last one.
        self._arrived = {
            key[1:].decode(): Arrived(*json.loads(value)) for key, value in store.items(FINDER)
        }

    def take(
        self, finder: str, stream: int, number: int, last: int, batch: Batch
    ) -> tuple[Arrived, bool]:
        """Note that the URLs of a batch of a stream are written; return what has arrived of it.

        The second value is whether an earlier batch is missing: then this one does not count.
        ``batch`` must be synced: the note must not outlive the URLs.
        """
        before = self._arrived.get(finder)
        if before is None or before.stream != stream:
            before = Arrived(stream)
        if number > before.number + 1:
            return before, True
        arrived = Arrived(stream, max(before.number, number), max(before.last, last))
        self._arrived.pop(finder, None)
        self._arrived[finder] = arrived
        text = json.dumps([arrived.stream, arrived.number, arrived.last])
        batch.put(finder_key(finder), text.encode())
        if len(self._arrived) > FINDERS_MAX:
            oldest = next(iter(self._arrived))
            del self._arrived[oldest]
            batch.delete(finder_key(oldest))
        return arrived, False
