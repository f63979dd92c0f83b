"""The frontier: which URL of which host is fetched next, kept so that nothing is lost.

A URL's seen mark and its queue entry are one batch. A popped entry stays on disk, as a lease, until it is
acknowledged: a restart finds it where it was. Acknowledgements are collected and leave in one synced batch
(`begin_commit`), which the caller writes after the pages' records are durable.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krowlspider.frontier import schema
from krowlspider.frontier.hosts import Host, HostHeap, Turn
from krowlspider.frontier.schema import Entry
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.frontier.seen import SeenSet
    from krowlspider.frontier.store import Batch, Store
    from krowlspider.politeness.pace import PaceRule

# A due time further away than this was written by a clock that has jumped: Retry-After and backoff end at an hour.
LONGEST_WAIT = 3600.0


@dataclass(slots=True, eq=False)
class Lease:
    """An entry that was popped and is not acknowledged."""

    host: Host
    priority: int
    sequence: int
    entry: Entry


@dataclass(slots=True)
class Candidate:
    """A URL that may become a queue entry. ``key`` is its identity; None is queued without a seen mark."""

    host: str
    key: bytes | None
    entry: Entry
    priority: int = 0


@dataclass(slots=True, eq=False)
class Commit:
    """Acknowledgements on their way to disk. ``write`` blocks for an fsync: call it off the event loop."""

    batch: Batch
    leases: list[Lease]

    def write(self) -> None:
        self.batch.write()


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of the frontier: URLs per host, URLs in all, hosts of one domain in transit."""

    host_queue: int
    total: int
    domain_concurrency: int


class Frontier:
    """Queues of all hosts over a store. ``monotonic`` and ``wall`` are clocks in seconds."""

    def __init__(
        self,
        store: Store,
        seen: SeenSet,
        limits: Limits,
        rule: PaceRule,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ):
        self._store = store
        self.seen = seen
        self._limits = limits
        self._rule = rule
        self._monotonic = monotonic
        self._wall = wall
        self._heap = HostHeap(limits.domain_concurrency)
        self.hosts: dict[str, Host] = {}
        self.queued = 0
        self.leased = 0
        self.counters: Counter[str] = Counter()
        self._acknowledged: list[Lease] = []
        self._load()

    # --- opening and closing ---

    def _load(self) -> None:
        saved = self._store.get(schema.COUNTERS)
        self.counters.update(json.loads(saved) if saved else {})
        clean = self._store.get(schema.CLEAN) is not None
        now, wall = self._monotonic(), self._wall()
        for key, value in self._store.items(schema.HOST):
            name = key[1:].decode()
            host, due = Host.decode(name, domain_of(name), value)
            host.due = now + min(max(due - wall, 0.0), LONGEST_WAIT)
            if not clean:
                # The last request's end may not have reached the disk: wait as if it had ended just now.
                host.due = max(host.due, now + self._rule.delay(host.pace))
            if host.queued or host.due > now:
                self.hosts[name] = host
                self.queued += host.queued
                self._heap.push(host)
        batch = self._store.batch(sync=True)
        batch.delete(schema.CLEAN)
        batch.write()

    def close(self) -> None:
        """Mark the store as closed in order, and close it. Leases stay queued for the next start."""
        batch = self._store.batch(sync=True)
        for host in self.hosts.values():
            self._put_host(host, batch)
        batch.put(schema.COUNTERS, json.dumps(self.counters).encode())
        batch.put(schema.CLEAN, b"")
        batch.write()
        self._store.close()

    # --- discovery ---

    def host(self, name: str) -> Host:
        """The host's record: from memory, from disk, or new."""
        host = self.hosts.get(name)
        if host is None:
            saved = self._store.get(schema.host_key(name))
            if saved is None:
                host = Host(name, domain_of(name), due=self._monotonic())
            else:
                host, due = Host.decode(name, domain_of(name), saved)
                host.due = self._monotonic() + min(max(due - self._wall(), 0.0), LONGEST_WAIT)
            self.hosts[name] = host
        return host

    def add(self, candidates: Iterable[Candidate]) -> int:
        """Queue what is new, mark it seen, in one batch. Returns how many were queued.

        Known ones are counted as ``known``; those a cap refuses as ``dropped/host_queue`` and
        ``dropped/frontier``, and they are not marked seen.
        """
        batch = self._store.batch()
        touched: set[Host] = set()
        in_batch: set[bytes] = set()
        added = 0
        for candidate in candidates:
            key = candidate.key
            if key is not None and (key in in_batch or self.seen.known(candidate.host, key)):
                self.counters["known"] += 1
                continue
            host = self.host(candidate.host)
            if refusal := self._refusal(host):
                self.counters[f"dropped/{refusal}"] += 1
                if host.turn is Turn.IDLE:
                    self._rest(host)
                continue
            if key is not None:
                in_batch.add(key)
                self.seen.mark(candidate.host, key, batch)
            self._append(host, candidate.entry, candidate.priority, batch)
            touched.add(host)
            added += 1
        for host in touched:
            self._put_host(host, batch)
        batch.write()
        self.counters["queued"] += added
        return added

    def _refusal(self, host: Host) -> str | None:
        if host.queued >= self._limits.host_queue:
            return "host_queue"
        if self.queued >= self._limits.total:
            return "frontier"
        return None

    def _append(self, host: Host, entry: Entry, priority: int, batch: Batch) -> None:
        priority = max(-schema.PRIORITY_LIMIT, min(priority, schema.PRIORITY_LIMIT))
        sequence = host.append(priority)
        self.queued += 1
        key = schema.queue_key(schema.queue_prefix(host.name), priority, sequence)
        batch.put(key, entry.encode())
        if host.turn is Turn.IDLE:
            host.due = max(host.due, self._monotonic())
            self._heap.push(host)

    def _put_host(self, host: Host, batch: Batch) -> None:
        due = host.due - self._monotonic() + self._wall()
        batch.put(schema.host_key(host.name), host.encode(due))

    # --- popping ---

    def pop_host(self) -> Host | None:
        """Take the host that has been due the longest, and put it in transit."""
        while (host := self._heap.pop(self._monotonic())) is not None:
            if host.queued or host.errands:
                return host
            self._heap.leave_transit(host)
            self._rest(host)
        return None

    def urge(self, name: str, errand: object) -> None:
        """Give a host an errand: something to fetch before its queue, not kept over a restart."""
        host = self.host(name)
        host.errands.append(errand)
        if host.turn is Turn.IDLE:
            host.due = max(host.due, self._monotonic())
            self._heap.push(host)

    def give_back(self, host: Host) -> None:
        """A popped host that sent no request is due at once, behind those due before it."""
        self._heap.leave_transit(host)
        self._heap.push(host)

    def next_due(self) -> float | None:
        """Monotonic time of the next host that rests; None when none does."""
        return self._heap.next_due()

    def pop(self, host: Host) -> Lease | None:
        """Lease the next entry of a host; None when it has none. The entry stays on disk."""
        prefix = schema.queue_prefix(host.name)
        while (best := host.best()) is not None:
            priority, sequence = best
            host.queues[priority].head += 1
            saved = self._store.get(schema.queue_key(prefix, priority, sequence))
            if saved is None:
                # Acknowledged before a restart, while an older one of the host was not.
                continue
            host.queued -= 1
            self.queued -= 1
            self.leased += 1
            host.leased.add(best)
            return Lease(host, priority, sequence, Entry.decode(saved))
        # Nothing is left: a count that came back too high from a crash ends here.
        self.queued -= host.queued
        host.queued = 0
        return None

    def unpop(self, lease: Lease) -> None:
        """Undo the pop that gave this lease, before any other pop of its host."""
        lease.host.queues[lease.priority].head = lease.sequence
        lease.host.queued += 1
        self.queued += 1
        self._forget(lease)

    def release(self, host: Host, wait: float) -> None:
        """The host's request has ended: it is due again ``wait`` seconds from now."""
        self._heap.leave_transit(host)
        host.due = self._monotonic() + wait
        self._heap.push(host)
        batch = self._store.batch()
        self._put_host(host, batch)
        batch.write()

    def wait(self, host: Host, wait: float) -> None:
        """The host's request has ended, but it stays out of the heap until `resume`."""
        self._heap.leave_transit(host)
        host.due = self._monotonic() + wait
        host.turn = Turn.WAITING

    def resume(self, host: Host) -> None:
        """Give a waiting host its place in the heap again, at its own next-fetch time."""
        if host.turn is not Turn.WAITING:
            raise ValueError(f"{host.name} is {host.turn.value}, not waiting")
        self._heap.push(host)

    def _rest(self, host: Host) -> None:
        """A host with nothing queued stays in the heap until its delay is over, and in memory until its last
        lease is; its record is on disk."""
        if host.due > self._monotonic():
            self._heap.push(host)
        elif not host.leased:
            self.hosts.pop(host.name, None)

    # --- acknowledging ---

    def acknowledge(self, lease: Lease, dropped: str | None = None) -> None:
        """The entry has been dealt with, or dropped for a reason; the next commit removes it from disk."""
        self._acknowledged.append(lease)
        if dropped is None:
            lease.host.done += 1
            self.counters["done"] += 1
        else:
            lease.host.dropped += 1
            self.counters[f"dropped/{dropped}"] += 1

    def replace(self, lease: Lease, entry: Entry) -> None:
        """Put a leased entry back at the end of its queue, changed, in one batch with its removal."""
        batch = self._store.batch()
        batch.delete(self._key(lease))
        self._append(lease.host, entry, lease.priority, batch)
        self._forget(lease)
        self._put_host(lease.host, batch)
        batch.write()

    def begin_commit(self) -> Commit:
        """Collect what has been acknowledged since the last commit.

        Their records must be durable before ``write``; after it, `end_commit` follows.
        """
        leases, self._acknowledged = self._acknowledged, []
        batch = self._store.batch(sync=True)
        for lease in leases:
            batch.delete(self._key(lease))
        batch.put(schema.COUNTERS, json.dumps(self.counters).encode())
        return Commit(batch, leases)

    def end_commit(self, commit: Commit) -> None:
        """The commit is on disk: its leases are over, and the hosts' records can move on."""
        batch = self._store.batch()
        for lease in commit.leases:
            self._forget(lease)
        for host in {lease.host for lease in commit.leases}:
            self._put_host(host, batch)
        batch.write()

    def _key(self, lease: Lease) -> bytes:
        return schema.queue_key(
            schema.queue_prefix(lease.host.name), lease.priority, lease.sequence
        )

    def _forget(self, lease: Lease) -> None:
        lease.host.leased.discard((lease.priority, lease.sequence))
        self.leased -= 1
        if lease.host.turn is Turn.IDLE:
            self._rest(lease.host)

    # --- robots.txt records, and figures ---

    def robots(self, authority: str) -> bytes | None:
        """The stored robots.txt record of an authority (``scheme://host[:port]``)."""
        return self._store.get(schema.robots_key(authority))

    def put_robots(self, authority: str, record: bytes) -> None:
        batch = self._store.batch()
        batch.put(schema.robots_key(authority), record)
        batch.write()

    def now(self) -> float:
        """The monotonic clock, in seconds."""
        return self._monotonic()

    @property
    def pending(self) -> int:
        """Entries queued or leased."""
        return self.queued + self.leased

    def count_due(self) -> int:
        """Hosts that could be fetched now. Linear in the hosts in memory."""
        return self._heap.count_due(self._monotonic())
