"""The frontier: which URL of which host is fetched next, kept so that nothing is lost.

A URL's seen mark and its queue entry are one batch. A popped entry stays on disk, as a lease, until it is
acknowledged: a restart finds it where it was. Acknowledgements are collected and leave in one synced batch
(`begin_commit`), which the caller writes after the pages' records are durable.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier import schema
from krowlspider.frontier.due import WINDOW, DueHeap
from krowlspider.frontier.hosts import Host, Turn, queued_in
from krowlspider.frontier.schema import Entry
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.frontier.seen import SeenSet
    from krowlspider.frontier.store import Batch, Store
    from krowlspider.politeness.pace import PaceRule

_FLOAT = Struct(">d")
# Hosts kept in memory beside those that are busy: about 1 kB each.
HOSTS_IN_MEMORY = 50_000
# Seconds from one round of tries of the hosts that did not answer to the next.
ROUND = 3600.0
# Hosts of a round made due at a time, once a commit: about 15 ms.
_REVIVED = 1000
# Acknowledged entries after which the consumed part of the heap on disk is compacted: a start reads across what
# LevelDB keeps of it, 0.3 s for half a million. Queues are read by key, and need none.
COMPACT_EVERY = 500_000


@dataclass(slots=True, eq=False)
class Lease:
    """An entry that was popped and is not acknowledged."""

    host: Host
    priority: int
    sequence: int
    entry: Entry


# A lease that is over, and the reason its entry was dropped, if it was.
Acknowledged = tuple[Lease, str | None]


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
    acknowledged: list[Acknowledged]
    counters: Counter[str]
    also: list[Callable[[], None]]

    def write(self) -> None:
        self.batch.write()
        for work in self.also:
            work()


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of the frontier: URLs per host, URLs in all, hosts of one domain in transit; and of its memory: hosts
    kept beside those that are busy, and places of the heap read at a time."""

    host_queue: int
    total: int
    domain_concurrency: int
    hosts_in_memory: int = HOSTS_IN_MEMORY
    window: int = WINDOW


class Frontier:
    """Queues of all hosts over a store. ``monotonic`` and ``wall`` are clocks in seconds.

    Its own clock is the *job clock*: wall time at the start, or the time of the last commit where that is later,
    and from there on monotonic. So it never goes back, whatever the machine's clock does, and times on disk hold
    across restarts.
    """

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
        self.hosts: dict[str, Host] = {}
        self.leased = 0
        self.counters: Counter[str] = Counter()
        self._acknowledged: list[Acknowledged] = []
        self._consumed = 0
        self._in_transit: Counter[str] = Counter()
        self._parked: dict[str, deque[Host]] = {}
        self.parked = 0
        self._ahead = self._clock_start(wall()) - monotonic()
        self._open()

    # --- opening and closing ---

    def _clock_start(self, wall: float) -> float:
        saved = self._store.get(schema.CLOCK)
        return max(wall, _FLOAT.unpack(saved)[0]) if saved else wall

    def now(self) -> float:
        """The job clock, in seconds."""
        return self._monotonic() + self._ahead

    def _open(self) -> None:
        saved = self._store.get(schema.COUNTERS)
        self.counters.update(json.loads(saved) if saved else {})
        gauges = self._store.get(schema.CLEAN)
        new = self._store.get(schema.CLOCK) is None
        # Unless the ends of all requests are on disk, hosts wait as if theirs had ended now.
        self._unsure = -inf if new or gauges is not None else self.now()
        counted = self._count() if gauges is None else json.loads(gauges)
        self.queued: int = counted["queued"]
        self._put_off_queued: int = counted["put_off"]
        self._due = DueHeap(self._store, counted["hosts"], self._limits.window)
        # Each start tries the hosts again that did not answer the last one.
        self._round: bytes | None = schema.PUT_OFF
        self._next_round = self.now() + ROUND
        batch = self._store.batch(sync=True)
        batch.delete(schema.CLEAN)
        self._put_totals(batch, self.counters)
        batch.write()
        self._revive()

    def _count(self) -> dict[str, int]:
        """Go through all host records, as the gauges of a process that died are not on disk."""
        counted = {"queued": 0, "hosts": 0, "put_off": 0}
        for _, record in self._store.items(schema.HOST):
            queued, put_off = queued_in(record)
            counted["queued"] += queued
            counted["put_off"] += queued * put_off
            counted["hosts"] += bool(queued) and not put_off
        return counted

    def close(self) -> None:
        """Mark the store as closed in order, and close it. Leases stay queued for the next start."""
        batch = self._store.batch(sync=True)
        for host in self.hosts.values():
            self._put_host(host, batch)
        self._put_totals(batch, self.counters)
        gauges = {
            "queued": self.pending,
            "hosts": self._due.scheduled,
            "put_off": self._put_off_queued,
        }
        batch.put(schema.CLEAN, json.dumps(gauges).encode())
        batch.write()
        self.seen.save(self.seen.snapshot())
        self._store.close()

    def _put_totals(self, batch: Batch, counters: Counter[str]) -> None:
        batch.put(schema.COUNTERS, json.dumps(counters).encode())
        batch.put(schema.CLOCK, _FLOAT.pack(self.now()))

    # --- discovery ---

    def host(self, name: str) -> Host:
        """The host: from memory, from its record on disk, or new."""
        host = self.hosts.get(name)
        if host is None:
            saved = self._store.get(schema.host_key(name))
            host = Host(name, due=self.now()) if saved is None else Host.decode(name, saved)
            self.hosts[name] = host
        return host

    def _evict(self) -> None:
        """With too many hosts in memory, let the oldest tenth go, except those that are busy.

        Not while a batch is open: a host is on disk as it is in memory only when its batch is written.
        """
        if len(self.hosts) < self._limits.hosts_in_memory:
            return
        oldest = list(islice(self.hosts.values(), self._limits.hosts_in_memory // 10 + 1))
        for host in oldest:
            del self.hosts[host.name]
            if host.pinned:
                # To the end: it is not looked at again before all others.
                self.hosts[host.name] = host

    def add(self, candidates: Iterable[Candidate]) -> int:
        """Queue what is new, mark it seen, in one batch. Returns how many were queued.

        Known ones are counted as ``known``; those a cap refuses as ``dropped/host_queue`` and
        ``dropped/frontier``, and they are not marked seen.
        """
        self._evict()
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
                continue
            if key is not None:
                in_batch.add(key)
                self.seen.mark(candidate.host, key, batch)
            self._append(host, candidate.entry, candidate.priority, batch)
            touched.add(host)
            added += 1
        for host in touched:
            self._put_host(host, batch)
        self.seen.end_batch(batch)
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
            self._schedule(host, max(host.due, self.now()), batch)
        elif host.turn is Turn.PUT_OFF:
            self._put_off_queued += 1
        elif host.place is None:
            # Out of the heap, but its entries must be found after a crash.
            self._due.move(host, host.due, batch)

    def _schedule(self, host: Host, due: float, batch: Batch) -> None:
        """Put a host in the heap, for ``due``."""
        self._due.schedule(host, due, batch)
        host.turn = Turn.RESTING

    def _put_host(self, host: Host, batch: Batch) -> None:
        batch.put(schema.host_key(host.name), host.encode())

    # --- popping ---

    def pop_host(self) -> Host | None:
        """Take the host that has been due the longest, if its domain has room, and put it in transit."""
        self._evict()
        now = self.now()
        while (name := self._due.pop(now)) is not None:
            host = self.host(name)
            aside = host.turn is Turn.WAITING or host.turn is Turn.PUT_OFF
            ready = host.turn is Turn.RESTING or (aside and host.errands)
            if not ready or host.due > now:
                # It has been given another turn or time since; that one has a place of its own.
                continue
            if host.recalled and (earliest := self._unsure + self._rule.delay(host.pace)) > now:
                # The end of its last request may not have reached the disk: wait as if it had been at the start.
                self._due.push(earliest, name)
            elif not host.queued and not host.errands:
                self._stand_idle(host)
            elif self._enter_transit(host):
                return host
        return None

    def _stand_idle(self, host: Host) -> None:
        host.turn = Turn.IDLE
        if not host.pending:
            batch = self._store.batch()
            self._due.forget(host, batch)
            self._put_host(host, batch)
            batch.write()

    def _enter_transit(self, host: Host) -> bool:
        if host.turn is Turn.PUT_OFF:
            self._put_off_queued -= host.queued
        host.domain = host.domain or domain_of(host.name)
        if self._in_transit[host.domain] >= self._limits.domain_concurrency:
            host.turn = Turn.PARKED
            self._parked.setdefault(host.domain, deque()).append(host)
            self.parked += 1
            return False
        self._in_transit[host.domain] += 1
        host.turn = Turn.IN_TRANSIT
        return True

    def _leave_transit(self, host: Host) -> None:
        """Make room in the host's domain. The caller gives the host its next turn."""
        if host.turn is not Turn.IN_TRANSIT:
            raise ValueError(f"{host.name} is {host.turn.value}, not in transit")
        host.turn = Turn.IDLE
        self._in_transit[host.domain] -= 1
        if not self._in_transit[host.domain]:
            del self._in_transit[host.domain]
        if parked := self._parked.get(host.domain):
            self._due_again(parked.popleft())
            self.parked -= 1
            if not parked:
                del self._parked[host.domain]

    def _due_again(self, host: Host) -> None:
        """A host that was popped without being fetched keeps its time."""
        self._due.push(host.due, host.name)
        host.turn = Turn.WAITING if host.waits else Turn.RESTING

    def urge(self, name: str, errand: object) -> None:
        """Give a host an errand: something to fetch before its queue, not kept over a restart."""
        host = self.host(name)
        host.errands.append(errand)
        if host.turn in (Turn.IDLE, Turn.PUT_OFF, Turn.WAITING):
            self._due.push(max(host.due, self.now()), name)
        if host.turn is Turn.IDLE:
            host.turn = Turn.RESTING

    def give_back(self, host: Host) -> None:
        """A popped host that sent no request is due at once, behind those due before it."""
        self._leave_transit(host)
        if host.queued or host.errands:
            self._due_again(host)
        else:
            self._stand_idle(host)

    def next_due(self) -> float | None:
        """When to pop again, in seconds of the job clock; None when there is nothing to wait for."""
        return self._due.next_due()

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
            host.leased.append(best)
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
        lease.host.leased.remove((lease.priority, lease.sequence))
        self.leased -= 1

    def release(self, host: Host, wait: float) -> None:
        """The host's request has ended: it is due again ``wait`` seconds from now."""
        self._leave_transit(host)
        batch = self._store.batch()
        self._rest(host, self.now() + wait, batch)
        batch.write()
        self._keep_waiting(host)

    def wait(self, host: Host, wait: float) -> None:
        """The host's request has ended, but it stays out of the heap until `resume`."""
        host.waits = True
        self.release(host, wait)

    def _keep_waiting(self, host: Host) -> None:
        if host.waits:
            host.turn = Turn.WAITING
            if host.errands:
                self._due.push(host.due, host.name)

    def resume(self, host: Host) -> None:
        """Give a waiting host its place in the heap again, at its own next-fetch time."""
        if not host.waits:
            raise ValueError(f"{host.name} is {host.turn.value}, not waiting")
        host.waits = False
        if host.turn is Turn.WAITING:
            host.turn = Turn.IDLE
            if host.queued or host.errands:
                self._due_again(host)
        # What was learnt while it waited, its crawl-delay.
        batch = self._store.batch()
        self._put_host(host, batch)
        batch.write()

    def _rest(self, host: Host, due: float, batch: Batch) -> None:
        host.due = due
        host.turn = Turn.IDLE
        if host.pending:
            self._schedule(host, due, batch)
        else:
            self._due.forget(host, batch)
            if host.errands:
                self._due_again(host)
        self._put_host(host, batch)

    # --- hosts that do not answer ---

    def put_off(self, host: Host) -> None:
        """Take a host in transit out of the heap, with all its entries, until the next round."""
        self._leave_transit(host)
        batch = self._store.batch()
        self._due.forget(host, batch)
        batch.put(schema.put_off_key(host.name), b"")
        host.turn = Turn.PUT_OFF
        self._put_off_queued += host.queued
        self._put_host(host, batch)
        batch.write()
        if host.errands:
            self._due.push(host.due, host.name)

    def _revive(self) -> None:
        """Go on with a round: hosts that were put off are due again, so many at a time."""
        if self._round is None:
            if self.now() < self._next_round:
                return
            self._round = schema.PUT_OFF
            self._next_round = self.now() + ROUND
        keys = list(islice(self._store.keys(schema.PUT_OFF, self._round), _REVIVED))
        self._round = keys[-1] if len(keys) == _REVIVED else None
        batch = self._store.batch()
        for key in keys:
            batch.delete(key)
            host = self.host(key[1:].decode())
            if host.turn is Turn.PUT_OFF:
                self._put_off_queued -= host.queued
                self._schedule(host, max(host.due, self.now()), batch)
                self._put_host(host, batch)
        batch.write()

    @property
    def hopeful(self) -> bool:
        """Whether entries are queued that can be fetched before the next round."""
        return self.queued > self._put_off_queued or self._round is not None

    # --- acknowledging ---

    def acknowledge(self, lease: Lease, dropped: str | None = None) -> None:
        """The entry has been dealt with, or dropped for a reason; the next commit counts it and removes it from
        disk."""
        self._acknowledged.append((lease, dropped))

    def replace(self, lease: Lease, entry: Entry) -> None:
        """Put a leased entry back at the end of its queue, changed, in one batch with its removal."""
        batch = self._store.batch()
        batch.delete(self._key(lease))
        self._append(lease.host, entry, lease.priority, batch)
        self._forget(lease, batch)
        self._put_host(lease.host, batch)
        batch.write()

    def begin_commit(self) -> Commit:
        """Collect what has been acknowledged since the last commit.

        Their records must be durable before ``write``; after it, `end_commit` follows.
        """
        self._revive()
        acknowledged, self._acknowledged = self._acknowledged, []
        batch = self._store.batch(sync=True)
        counted: Counter[str] = Counter()
        for lease, dropped in acknowledged:
            batch.delete(self._key(lease))
            counted["done" if dropped is None else f"dropped/{dropped}"] += 1
        self._put_totals(batch, self.counters + counted)
        return Commit(batch, acknowledged, counted, self._upkeep(len(acknowledged)))

    def _upkeep(self, acknowledged: int) -> list[Callable[[], None]]:
        """Work for the thread that writes the commit, when it is due."""
        also: list[Callable[[], None]] = []
        if self.seen.due_to_save():
            also.append(partial(self.seen.save, self.seen.snapshot()))
        self._consumed += acknowledged
        if self._consumed >= COMPACT_EVERY:
            self._consumed = 0
            also.append(partial(self._store.compact, *self._due.consumed()))
        return also

    def end_commit(self, commit: Commit) -> None:
        """The commit is on disk: its leases are over, and the hosts' records can move on."""
        batch = self._store.batch()
        for lease, dropped in commit.acknowledged:
            self._forget(lease, batch)
            if dropped is None:
                lease.host.done += 1
            else:
                lease.host.dropped += 1
        for host in {lease.host for lease, _ in commit.acknowledged}:
            self._put_host(host, batch)
        batch.write()
        self.counters.update(commit.counters)

    def _key(self, lease: Lease) -> bytes:
        return schema.queue_key(
            schema.queue_prefix(lease.host.name), lease.priority, lease.sequence
        )

    def _forget(self, lease: Lease, batch: Batch) -> None:
        """The lease is over; a host without entries leaves the heap on disk."""
        host = lease.host
        host.leased.remove((lease.priority, lease.sequence))
        self.leased -= 1
        if not host.pending:
            self._due.forget(host, batch)

    # --- robots.txt records, and figures ---

    def robots(self, authority: str) -> bytes | None:
        """The stored robots.txt record of an authority (``scheme://host[:port]``)."""
        return self._store.get(schema.robots_key(authority))

    def put_robots(self, authority: str, record: bytes) -> None:
        """Keep a robots.txt record."""
        batch = self._store.batch()
        batch.put(schema.robots_key(authority), record)
        batch.write()

    @property
    def pending(self) -> int:
        """Entries queued or leased."""
        return self.queued + self.leased

    @property
    def host_count(self) -> int:
        """Hosts that have entries."""
        return self._due.scheduled

    def count_due(self) -> int:
        """Hosts that could be fetched now, of those in memory: with a long backlog there are more."""
        return self._due.count_due(self.now()) + self.parked
