"""The outbox: messages for other nodes, kept until their owners have taken them, first in, first out.

What is sent is removed afterwards, so a message may arrive twice and is never lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from krowlspider.frontier import schema
from krowlspider.frontier.schema import KEY_SIZE, outbox_key, outbox_prefix, split_outbox_key
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.store import Batch, Store

# Entries looked at in one step of `Outbox.rebucket`: about 3 ms where all of them move.
_STEP = 500
# Entries removed after which the consumed part is compacted: a start reads across what LevelDB keeps of it.
_COMPACT_EVERY = 500_000


# What the marks of foreign URLs have before the owner, where those of ours have the host: no host begins so.
FOREIGN = ">"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A URL of another node. ``key`` is its identity, None for one that is sent whether it is known or not;
    ``message`` is opaque here."""

    owner: str
    host: str
    key: bytes | None
    message: bytes


@lru_cache(maxsize=4096)
def _space(owner: str) -> tuple[str, int]:
    name = FOREIGN + owner
    return name, xxh3_64_intdigest(name.encode())


def foreign_mark(owner: str, key: bytes) -> tuple[str, bytes]:
    """The name, which no host can have, and the key by which an identity is marked as sent to an owner.

    The filter knows no hosts, so the key is another than that of the URL itself: when its host becomes ours, or
    another's, it is not known yet.
    """
    name, mask = _space(owner)
    return name, (int.from_bytes(key, "big") ^ mask).to_bytes(KEY_SIZE, "big")


@dataclass(slots=True, eq=False)
class _Bucket:
    """One owner's entries: sequences from ``head`` up to, not including, ``tail``, ``count`` of them. ``lent`` are
    those that were handed out, and not removed since."""

    prefix: bytes
    head: int = 0
    tail: int = 0
    count: int = 0
    lent: set[int] = field(default_factory=set)


class Outbox:
    """Entries by owner. ``most`` is the cap of all together, 0 for none; ``saved`` are the `gauges` of a clean end,
    without which all keys are counted: 0.4 µs each."""

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
        bucket = self._buckets.get(owner)
        if bucket is None:
            bucket = self._buckets[owner] = _Bucket(outbox_prefix(owner))
        return bucket

    def gauges(self) -> dict[str, list[int]]:
        """What a clean end saves."""
        return {
            owner: [bucket.head, bucket.tail, bucket.count]
            for owner, bucket in self._buckets.items()
            if bucket.count
        }

    # --- in ---

    @property
    def full(self) -> bool:
        return 0 < self._most <= self.depth

    def put(self, owner: str, host: str, message: bytes, batch: Batch) -> None:
        self._append(owner, b"%b\0%b" % (host.encode(), message), batch)

    def _append(self, owner: str, value: bytes, batch: Batch) -> None:
        bucket = self._bucket(owner)
        batch.put(outbox_key(bucket.prefix, bucket.tail), value)
        bucket.tail += 1
        bucket.count += 1
        self.depth += 1

    # --- out ---

    def owners(self) -> list[str]:
        """The nodes for which there are entries."""
        return [owner for owner, bucket in self._buckets.items() if bucket.count]

    def depths(self) -> dict[str, int]:
        """Entries by owner."""
        return {owner: bucket.count for owner, bucket in self._buckets.items() if bucket.count}

    def head(self, owner: str, most: int) -> list[tuple[bytes, bytes]]:
        """Key and message of an owner's first entries. They stay until `remove`."""
        bucket = self._bucket(owner)
        found = []
        for key, value in islice(self._from(bucket, bucket.head), most):
            bucket.lent.add(split_outbox_key(key)[1])
            found.append((key, value.partition(b"\0")[2]))
        if found:
            # What is behind it has been removed, and is not walked over again.
            bucket.head = split_outbox_key(found[0][0])[1]
        return found

    def _from(self, bucket: _Bucket, sequence: int) -> Iterator[tuple[bytes, bytes]]:
        after = outbox_key(bucket.prefix, sequence - 1) if sequence else b""
        return self._store.items(bucket.prefix, after)

    def remove(self, owner: str, keys: Iterable[bytes]) -> int:
        """The owner has taken entries that `head` gave; how many of them were still there. The others were put into
        another bucket since, or decided here."""
        batch = self._store.batch()
        removed = self.take_out(keys, batch)
        batch.write()
        return removed

    def take_out(self, keys: Iterable[bytes], batch: Batch) -> int:
        """Remove entries that `head` or `rebucket` gave, where they are still there."""
        removed = 0
        for key in keys:
            owner, sequence = split_outbox_key(key)
            bucket = self._bucket(owner)
            if sequence in bucket.lent:
                self._drop(bucket, key, sequence, batch)
                removed += 1
        return removed

    def _drop(self, bucket: _Bucket, key: bytes, sequence: int, batch: Batch) -> None:
        bucket.lent.discard(sequence)
        batch.delete(key)
        bucket.count -= 1
        self.depth -= 1
        self._removed += 1

    def consumed(self) -> bool:
        """Whether so much was removed, since this last said so, that the range is to be compacted."""
        due = self._removed >= _COMPACT_EVERY
        if due:
            self._removed = 0
        return due

    # --- a new ring ---

    def rebucket(
        self, owner_of: Callable[[str], str | None]
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Put each entry into the bucket of its new owner, some at each step; others may use the outbox in between.

        ``owner_of`` says who owns a domain, None for us. Key and message of those that are ours now are yielded, to
        be decided: they stay where they are until `take_out`, in the batch that queues them.
        """
        for owner, bucket in list(self._buckets.items()):
            at, end = bucket.head, bucket.tail
            while at < end and bucket.count:
                at, ours = self._rebucket_some(owner, bucket, at, end, owner_of)
                yield ours

    def _rebucket_some(
        self,
        owner: str,
        bucket: _Bucket,
        at: int,
        end: int,
        owner_of: Callable[[str], str | None],
    ) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Where to go on, and what is ours now."""
        batch = self._store.batch()
        ours = []
        found = list(islice(self._from(bucket, at), _STEP))
        for key, value in found:
            sequence = split_outbox_key(key)[1]
            if sequence >= end:
                break
            host, _, message = value.partition(b"\0")
            other = owner_of(domain_of(host.decode()))
            if other is None:
                bucket.lent.add(sequence)
                ours.append((key, message))
            elif other != owner:
                self._drop(bucket, key, sequence, batch)
                self._append(other, value, batch)
        batch.write()
        return split_outbox_key(found[-1][0])[1] + 1 if found else end, ours
