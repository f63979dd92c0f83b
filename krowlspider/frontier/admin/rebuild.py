"""Rebuild what a frontier derives from its queue entries: host records, heap and seen marks.

A damaged store may have lost one without the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from itertools import chain, groupby
from typing import TYPE_CHECKING

from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts.host import DEFERRED, Host
from krowlspider.frontier.hosts.host_record import decode_host, encode_host
from krowlspider.frontier.hosts.queue import Level, level_of
from krowlspider.frontier.outbox import FOREIGN
from krowlspider.frontier.stopped import read_counters
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import records
from krowlspider.frontier.store.schema import host_in, split_queue_key
from krowlspider.urls.canonical import requisite_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.frontier.entry import Entry
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
    "pages": schema.PAGES,
}


@dataclass(slots=True)
class Found:
    """What is left of a frontier.

    - ``kept``: keys by kind. ``marked``: seen marks that were made anew.
    - ``short``: the hosts that lack most of the entries that their records count, and how many.
      ``short_hosts``, ``short_urls``: totals, with what was done in the last second before a kill.
    - ``unrecorded``: the first of the hosts with entries or seen marks and no record.
    - ``counters_lost``: the counters are missing, or older than the host records.
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
        """Return whether nothing was missing."""
        return not (self.marked or self.short_hosts or self.unrecorded_hosts)


def rebuild_indexes(store: Store, hasher: IdentityHasher, now: float, most: int) -> Found:
    """Make everything agree with the queue entries; the saved seen filter must be removed before.

    A host without a record becomes due ``now``, in seconds of the job clock. ``most`` is the length
    of the lists in `Found`.
    """
    rebuild = _Rebuild(store, hasher, now, most)
    rebuild.clear()
    for name, record, entries in _hosts(store):
        rebuild.put_host(name, record, entries)
    rebuild.mark_pages()
    rebuild.end()
    rebuild.count()
    return rebuild.found


def _hosts(store: Store) -> Iterator[tuple[str, bytes | None, Iterable[tuple[bytes, bytes]]]]:
    """Yield name, record and entries of each host that has a record or entries."""
    for name, found in groupby(store.items(schema.QUEUE), key=lambda item: host_in(item[0])):
        items = iter(found)
        first = next(items)
        if schema.is_record(first[0]):
            yield name, first[1], items
        else:
            yield name, None, chain([first], items)


class _Rebuild:
    """One pass over a store, in batches of a bounded size."""

    def __init__(self, store: Store, hasher: IdentityHasher, now: float, most: int):
        self._store = store
        self._hasher = hasher
        self._now = schema.whole_microseconds(now)
        self._most = most
        self._batch = store.batch()
        self._changes = 0
        self._pages = 0
        self.found = Found()

    def _change(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._batch.delete(key)
        else:
            self._batch.put(key, value)
        self._changes += 1
        if self._changes % _BATCH == 0:
            self._batch.write()
            self._batch = self._store.batch()

    def clear(self) -> None:
        """Remove what is made anew here or by the next start."""
        # Sequences go on from here: a saved filter is known by that of its last batch.
        sequences = map(schema.split_new_keys_key, self._store.keys(schema.NEW_KEYS))
        saved = int.from_bytes(self._store.get(schema.SAVED) or b"", "big")
        self._change(schema.SAVED, max([saved, *sequences]).to_bytes(8, "big"))
        for kind in (schema.CLEAN, schema.TALLY, schema.DUE, schema.NEW_KEYS):
            for key in self._store.keys(kind):
                self._change(key, None)

    def put_host(
        self, name: str, record: bytes | None, entries: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Write a host's record, its place in the heap, and the missing marks of its entries."""
        if record is None:
            self._miss_record(name)
            host = Host(name, due=self._now)
        else:
            host = decode_host(name, record)
        queue = host.queue
        self._pages += queue.pages
        counted, queue.queued, queue.levels = queue.queued, 0, {}
        marked: set[bytes] | None = None
        for key, value in entries:
            if marked is None:
                marked = set(schema.marked_by(self._store.items(schema.seen_prefix(name))))
            priority, sequence = split_queue_key(key)
            number = level_of(priority, sequence)
            queue.levels.setdefault(number, Level(sequence, sequence)).tail = sequence + 1
            queue.queued += 1
            self._mark(name, entry_of(key, value), marked)
        if queue.queued < counted:
            self._miss_entries(name, counted - queue.queued)
        if host.state is DEFERRED:
            self._change(schema.deferred_key(name), b"")
        elif queue.queued:
            self._change(schema.due_key(host.due, name), b"")
        if queue.queued or counted:
            self._change(schema.host_key(name), encode_host(host))

    def _mark(self, name: str, entry: Entry, marked: set[bytes]) -> None:
        # A whole request may have no identity, or one with its body: it may be queued once more.
        if not (entry.is_plain or entry.is_requisite):
            return
        url = requisite_identity(entry.url) if entry.is_requisite else entry.url
        identity = self._hasher.key(url)
        if identity not in marked:
            marked.add(identity)
            self._change(schema.seen_prefix(name) + identity, b"")
            self.found.marked += 1

    def mark_pages(self) -> None:
        """Write the missing marks of pages that have a row."""
        keys = self._store.keys(schema.PAGES)
        for name, some in groupby(keys, key=schema.host_of_page):
            prefix = schema.seen_prefix(name)
            marked = set(schema.marked_by(self._store.items(prefix)))
            for identity in {key[-schema.KEY_SIZE :] for key in some} - marked:
                self._change(prefix + identity, b"")
                self.found.marked += 1

    def end(self) -> None:
        # If this were lost, joined marks would never be split.
        self._batch.put(schema.JOINED, b"")
        # Buckets may be lost: the next start with a schedule makes them anew from the rows.
        self._batch.delete(schema.DUE_PLACE)
        self._batch.write()
        self._store.batch(sync=True).write()

    def count(self) -> None:
        """Count what is left, now that hosts with entries have their records again."""
        found, store = self.found, self._store
        hosts = sum(1 for _ in records(store))
        queued = sum(1 for _ in store.keys(schema.QUEUE)) - hosts
        found.kept = {"hosts": hosts, "queued": queued}
        found.kept |= {kind: sum(1 for _ in store.keys(key)) for kind, key in _KINDS.items()}
        found.kept["seen"] = self._count_seen()
        found.short.sort(reverse=True)
        is_missing = store.get(schema.COUNTERS) is None
        found.counters_lost = is_missing or read_counters(store)["done"] < self._pages

    def _count_seen(self) -> int:
        count = 0
        marks = groupby(self._store.items(schema.SEEN), key=lambda mark: mark[0][1:-_SEEN_TAIL])
        for host, some in marks:
            name = host.decode()
            is_ours = not name.startswith(FOREIGN)
            if is_ours and self._store.get(schema.host_key(name)) is None:
                self._miss_record(name)
            count += sum(1 for _ in schema.marked_by(some))
        return count

    def _miss_record(self, name: str) -> None:
        self.found.unrecorded_hosts += 1
        if len(self.found.unrecorded) < self._most:
            self.found.unrecorded.append(name)

    def _miss_entries(self, name: str, count: int) -> None:
        found = self.found
        found.short_hosts += 1
        found.short_urls += count
        if len(found.short) < self._most:
            heappush(found.short, (count, name))
        else:
            heappushpop(found.short, (count, name))
