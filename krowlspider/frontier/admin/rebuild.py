"""What a frontier's store holds twice, put right from the queue entries: they are what counts.

Host records count entries and know where queues begin and end, the heap has a key for each host that has entries,
each queued URL has a seen mark. A damaged store may have lost one without the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from itertools import chain, groupby
from typing import TYPE_CHECKING

from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.host import DEFERRED, Host, Level, level_of
from krowlspider.frontier.hosts.record import decode_host, encode_host
from krowlspider.frontier.outbox import FOREIGN
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import records
from krowlspider.frontier.store.schema import host_in, split_queue_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.frontier.store.store import Store
    from krowlspider.urls.canonical import IdentityHasher

# Changes in one batch: about 1 MB.
_BATCH = 10_000
# What follows the host in a seen mark's key: a zero byte and an identity.
_SEEN_TAIL = 1 + schema.KEY_SIZE
_KINDS = {
    "poison": schema.POISON,
    "robots": schema.ROBOTS + b"http",
    "outbox": schema.OUTBOX,
    "budgets": schema.BUDGET,
}


@dataclass(slots=True)
class Found:
    """What is left of a frontier. ``kept`` counts keys by kind, ``marked`` the seen marks that were made anew.

    ``short`` are the hosts whose records count more entries than there are, with how many: those that lost most.
    ``short_hosts`` and ``short_urls`` are the totals. After a kill they include what was done in its last second.

    ``unrecorded`` are the first of the ``unrecorded_hosts`` that had entries or seen marks and no record: nobody
    knows how many entries they had. ``counters_lost``: the counters are not there, or older than the host records.
    """

    kept: dict[str, int] = field(default_factory=dict)
    marked: int = 0
    short: list[tuple[int, str]] = field(default_factory=list)
    short_hosts: int = 0
    short_urls: int = 0
    unrecorded: list[str] = field(default_factory=list)
    unrecorded_hosts: int = 0
    counters_lost: bool = False

    @property
    def whole(self) -> bool:
        """Whether nothing was missing."""
        return not (self.marked or self.short_hosts or self.unrecorded_hosts)


def rebuild_indexes(store: Store, hasher: IdentityHasher, now: float, most: int) -> Found:
    """Make host records, heap and seen marks agree with the queue entries.

    Pace, counters, clock, robots.txt records and what is deferred stay as they are; a host without a record is due
    ``now``, in seconds of the job clock. ``most`` is the length of the lists in `Found`. The mark of a clean end and
    the tally go, and so do the lists that bring a saved seen filter up to date: the filter must have been removed.
    """
    work = _Work(store, hasher, now, most)
    work.clear()
    for name, record, entries in _joined(store):
        work.put_host(name, record, entries)
    work.end()
    seen = work.count_seen()
    hosts = sum(1 for _ in records(store))
    work.found.kept = {"hosts": hosts, "queued": sum(1 for _ in store.keys(schema.QUEUE)) - hosts}
    work.found.kept |= {kind: sum(1 for _ in store.keys(prefix)) for kind, prefix in _KINDS.items()}
    work.found.kept["seen"] = seen
    work.found.short.sort(reverse=True)
    return work.found


def _joined(store: Store) -> Iterator[tuple[str, bytes | None, Iterable[tuple[bytes, bytes]]]]:
    """Each host that has a record or entries, with both."""
    for name, found in groupby(store.items(schema.QUEUE), key=lambda item: host_in(item[0])):
        items = iter(found)
        first = next(items)
        if schema.is_record(first[0]):
            yield name, first[1], items
        else:
            yield name, None, chain([first], items)


class _Work:
    """One pass over a store, in batches of a bounded size."""

    def __init__(self, store: Store, hasher: IdentityHasher, now: float, most: int):
        self._store = store
        self._hasher = hasher
        self._now = schema.whole_microseconds(now)
        self._most = most
        self._changes = 0
        self._batch = store.batch()
        self._done = 0
        self.found = Found()

    def _put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        if self._changes == _BATCH:
            self._batch.write()
            self._batch = self._store.batch()
            self._changes = 0

    def clear(self) -> None:
        """Remove what is made anew, here or by the next start."""
        self._batch.delete(schema.CLEAN)
        self._batch.delete(schema.TALLY)
        # Lists are counted on from there: a filter is known by the number of the last that is in it.
        last = max(map(schema.split_new_keys_key, self._store.keys(schema.NEW_KEYS)), default=0)
        saved = int.from_bytes(self._store.get(schema.SAVED) or b"", "big")
        self._batch.put(schema.SAVED, max(saved, last).to_bytes(8, "big"))
        for kind in (schema.DUE, schema.NEW_KEYS):
            for key in self._store.keys(kind):
                self._batch.delete(key)
                self._changed()

    def end(self) -> None:
        # Should it have been lost, marks that are joined would never be taken apart.
        self._batch.put(schema.JOINED, b"")
        self._batch.write()
        self._store.batch(sync=True).write()
        saved = self._store.get(schema.COUNTERS)
        self.found.counters_lost = saved is None or json.loads(saved).get("done", 0) < self._done

    def count_seen(self) -> int:
        """Count the seen marks, when the hosts that have entries have their records again."""
        count = 0
        by_host = groupby(self._store.items(schema.SEEN), key=lambda mark: mark[0][1:-_SEEN_TAIL])
        for name, marks in by_host:
            # Those of other nodes' hosts are by node.
            if (
                name[:1] != FOREIGN.encode()
                and self._store.get(schema.host_key(name.decode())) is None
            ):
                self._miss_record(name.decode())
            count += sum(1 for _ in schema.marked_by(marks))
        return count

    def put_host(
        self, name: str, record: bytes | None, entries: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Write a host's record and its place in the heap, and the seen marks that its entries lack."""
        if record is None:
            self._miss_record(name)
            host = Host(name, due=self._now)
        else:
            host = decode_host(name, record)
        self._done += host.queue.done
        counted = host.queue.queued
        host.queue.queued = 0
        host.queue.levels = {}
        marked: set[bytes] | None = None
        for key, value in entries:
            if marked is None:
                marked = set(schema.marked_by(self._store.items(schema.seen_prefix(name))))
            self._take(host, *split_queue_key(key)[1:])
            self._mark(name, entry_of(key, value), marked)
        if host.queue.queued < counted:
            self._miss(name, counted - host.queue.queued)
        if host.state is DEFERRED:
            self._put(schema.deferred_key(name), b"")
        elif host.queue.queued:
            self._put(schema.due_key(host.due, name), b"")
        if host.queue.queued or counted:
            self._put(schema.host_key(name), encode_host(host))

    def _take(self, host: Host, priority: int, sequence: int) -> None:
        number = level_of(priority, sequence)
        host.queue.levels.setdefault(number, Level(sequence, sequence)).tail = sequence + 1
        host.queue.queued += 1

    def _mark(self, name: str, entry: Entry, marked: set[bytes]) -> None:
        if entry.request:
            # It may have no identity, or a body that is part of it. At worst it is queued once more.
            return
        key = self._hasher.key(entry.url)
        if key not in marked:
            marked.add(key)
            self._put(schema.seen_prefix(name) + key, b"")
            self.found.marked += 1

    def _miss_record(self, name: str) -> None:
        self.found.unrecorded_hosts += 1
        if len(self.found.unrecorded) < self._most:
            self.found.unrecorded.append(name)

    def _miss(self, name: str, count: int) -> None:
        found = self.found
        found.short_hosts += 1
        found.short_urls += count
        if len(found.short) < self._most:
            heappush(found.short, (count, name))
        else:
            heappushpop(found.short, (count, name))
