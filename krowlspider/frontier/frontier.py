"""The frontier: which URL of which host is fetched next, kept so that no URL is lost.

A URL's seen mark and its queue entry are written in one batch. A popped entry stays on disk, as a
lease, until it is acknowledged: after a restart it is still queued. Acknowledgements are collected
and written in one synced batch (`begin_commit`). The caller writes that batch once the pages'
records are durable.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from krowlspider.frontier.budget import DomainBudget
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.domain_load import DomainLoad
from krowlspider.frontier.hosts.host import (
    DEFERRED,
    IDLE,
    RESTING,
    Health,
    Host,
    Queue,
    level_of,
    origin_of,
)
from krowlspider.frontier.hosts.linked_ports import LinkedPorts
from krowlspider.frontier.hosts.scheduling import HostScheduler
from krowlspider.frontier.outbox import Foreign, Outbox, foreign_mark
from krowlspider.frontier.part import Part, put_poison, stays
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import entries, entry_keys
from krowlspider.frontier.store.schema import (
    after_all,
    authorities_of,
    host_in,
    split_queue_key,
    whole_microseconds,
)
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from krowlspider.frontier.hosts.limits import Limits
    from krowlspider.frontier.seen.seen_set import SeenSet
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Acknowledged entries after which the consumed part of the heap on disk is compacted: a start reads
# across what LevelDB keeps of it. Queues are read by key, and need no compaction.
COMPACT_EVERY = 500_000
# Entries of a host that are read together when it is popped.
_AHEAD = 4
# The priority of URLs that another domain's page names, once the host has _STRANGERS_IN_LINE
# entries. With fewer, one queue serves all.
_STRANGERS = -1
_STRANGERS_IN_LINE = 16
# Bytes of the longest entry that is kept in memory until it is popped.
_AHEAD_BYTES = 512
# The most pages done or dropped that a host is taken over with: half of what its record holds,
# which leaves room for more here.
_COUNT_MAX = 0x7FFFFFFF


@dataclass(slots=True, eq=False)
class Lease:
    """An entry that was popped and is not acknowledged."""

    host: Host
    priority: int
    sequence: int
    entry: Entry


# A lease that has ended, and the reason its entry was dropped; None where it was not dropped.
Acknowledged = tuple[Lease, str | None]


@dataclass(slots=True)
class Candidate:
    """A URL that may become a queue entry. ``key`` is its identity; with None, the URL is queued
    without a seen mark."""

    host: str
    key: bytes | None
    entry: Entry
    priority: int = 0


@dataclass(slots=True, eq=False)
class Commit:
    """Acknowledgements on their way to disk. ``also`` is upkeep that follows them."""

    batch: Batch
    acknowledged: list[Acknowledged]
    counters: Counter[str]
    also: list[Callable[[], None]]

    def write(self) -> None:
        """Write the batch and do the upkeep. This blocks for an fsync: call it off the event
        loop."""
        self.batch.write()
        for work in self.also:
            work()


class Frontier(HostScheduler):
    """The queues of all hosts over a store, and the scheduling of the hosts. ``monotonic`` and
    ``wall`` are clocks in seconds; ``boot`` is as in `HostScheduler`."""

    def __init__(
        self,
        store: Store,
        seen: SeenSet,
        limits: Limits,
        rule: DelayPolicy,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        boot: bytes = b"",
    ):
        super().__init__(store, limits, rule, monotonic=monotonic, wall=wall, boot=boot)
        self.seen = seen
        self._budget = DomainBudget(store, limits.domain_budget)
        self._load = DomainLoad(store, limits.domain_share, limits.total)
        self.linked_ports = LinkedPorts(store, limits.ports)
        self.leased = 0
        self.counters: Counter[str] = Counter()
        self._acknowledged: list[Acknowledged] = []
        self._consumed = 0
        self._open()

    def _open(self) -> None:
        """Read the counters and the poisoned hosts, mark the store as open, and start
        scheduling."""
        saved = self._store.get(schema.COUNTERS)
        self.counters.update(json.loads(saved) if saved else {})
        clean = self._store.get(schema.CLEAN)
        if clean is None:
            # The store was not closed: the last process died.
            self._catch_up()
        known: dict[str, Any] = json.loads(clean or b"{}")
        self.queued = self._tally.queued
        # Few hosts have poison. To search for that of any other host would walk over all keys that
        # were deleted behind it.
        self.poisoned = {host_in(key) for key in self._store.keys(schema.POISON)}
        self.outbox = Outbox(self._store, self._limits.outbox, known.get("outbox"))
        batch = self._store.batch(sync=True)
        batch.delete(schema.CLEAN)
        batch.put(schema.ROBOTS_END, b"")
        self._tally.put(batch)
        self._put_totals(batch, self.counters)
        batch.write()
        self.start_scheduling(known.get("unsure"))

    def _catch_up(self) -> None:
        """Correct the records of the last commit's hosts from their queues on disk: the process may
        have died before it wrote the records."""
        batch = self._store.batch()
        for name in json.loads(self._store.get(schema.ACKNOWLEDGED) or b"[]"):
            record = self._store.get(schema.host_key(name))
            if record is None:
                # The host was forgotten by hand since.
                continue
            host = Host.decode(name, record)
            heads: dict[int, int] = {}
            host.queued = 0
            for key in entry_keys(self._store, name):
                heads.setdefault(level_of(*split_queue_key(key)[1:]), split_queue_key(key)[2])
                host.queued += 1
            for level, queue in host.queues.items():
                queue.head = heads.get(level, queue.tail)
            if not host.queued and host.placed is not None:
                batch.delete(schema.due_key(host.placed, name))
            batch.put(schema.host_key(name), caught_up := host.encode())
            self._tally.replace(record, caught_up)
        self._tally.put(batch)
        batch.write()

    def close(self) -> None:
        """Mark the store as cleanly closed, and close it. Leased entries stay queued for the next
        start."""
        batch = self._store.batch(sync=True)
        self._record_changed(batch)
        self._put_totals(batch, self.counters)
        known = {"unsure": self.unsure, "outbox": self.outbox.gauges()}
        batch.put(schema.CLEAN, json.dumps(known).encode())
        batch.write()
        self.seen.save(self.seen.snapshot())
        self._store.flush()
        self._store.close()

    def _put_totals(self, batch: Batch, counters: Counter[str]) -> None:
        batch.put(schema.COUNTERS, json.dumps(counters).encode())
        self._load.put(batch)
        self.put_clock(batch)

    def add(
        self,
        candidates: Iterable[Candidate],
        foreign: Sequence[Foreign] = (),
        decided: Sequence[bytes] = (),
    ) -> int:
        """Queue the candidates that are not known, as `queue` does, and return how many were
        queued."""
        unknown = [
            candidate
            for candidate in candidates
            if candidate.key is None or not self._is_known(candidate.host, candidate.key)
        ]
        return self.queue(unknown, foreign, decided)

    def _is_known(self, host: str, key: bytes) -> bool:
        """Return whether an identity is known, as `knows`."""
        return self.knows((key,), lambda _: host)[0]

    def knows(self, keys: Sequence[bytes], host_at: Callable[[int], str]) -> list[bool]:
        """Return for each identity whether it is known, in the order of ``keys``. ``host_at``
        returns the host of the identity at an index. The known ones are counted as ``known``."""
        known = self.seen.known_among(keys, host_at)
        if count := sum(known):
            self.counters["known"] += count
        return known

    def queue(
        self,
        candidates: list[Candidate],
        foreign: Sequence[Foreign] = (),
        decided: Sequence[bytes] = (),
        via: str = "",
    ) -> int:
        """Queue candidates that are not known, and mark them seen, in one batch. Return how many
        were queued.

        A candidate that is given twice is queued once. Those that a cap refuses are not marked
        seen. They are counted as ``dropped/host_queue``, ``dropped/frontier``,
        ``dropped/domain_share`` or ``dropped/domain_budget``, those of a retired host as
        ``dropped/crawl_delay``.

        - ``foreign``: URLs that go into the outbox in the same batch, as in `_forward`.
        - ``decided``: keys of outbox entries that `Outbox.rebucket` returned; they leave the outbox
          with the batch.
        - ``via``: the host of the page on which all candidates were found: the origin of those
          hosts that are new.
        """
        self._evict()
        self._recall_missing(candidates)
        batch = self._store.batch()
        # In the order of arrival, not by address in memory: the same crawl twice gives the same
        # result.
        by_host: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            by_host.setdefault(candidate.host, []).append(candidate)
        added = 0
        touched = []
        domain = domain_of(via) if via else ""
        for name, some in by_host.items():
            host = self.hosts[name]
            host.domain = host.domain or domain_of(name)
            by_stranger = bool(domain) and host.domain != domain
            if by_stranger and not (host.record or host.queues):
                host.origin = origin_of(domain)
            if taken := self._admitted(host, some, by_stranger=by_stranger):
                self.seen.mark(name, [each.key for each in taken if each.key is not None])
                self._append(host, taken, batch)
                touched.append(host)
                added += len(taken)
        if foreign:
            self._forward(foreign, batch)
        if decided:
            self.outbox.take_out(decided, batch)
        self._budget.end_batch(batch)
        self.seen.end_batch(batch)
        for host in touched:
            self._record(host, batch)
        batch.write()
        self.counters["queued"] += added
        return added

    def _admitted(
        self, host: Host, candidates: list[Candidate], *, by_stranger: bool
    ) -> list[Candidate]:
        """Return the candidates of one host that are queued, and count the others.

        With ``by_stranger``, another domain's page names them. Then they go behind the host's own,
        once some entries are queued, and leave the host half of its room.
        """
        room, refusal = self._room(host, by_stranger=by_stranger)
        met: set[bytes | None] = set()
        taken: list[Candidate] = []
        for candidate in candidates:
            key = candidate.key
            if key in met:
                self.counters["known"] += 1
            elif len(taken) >= room:
                self.counters[f"dropped/{refusal}"] += 1
            elif self._budget.most and not self._budget.take(host.domain):
                self.counters["dropped/domain_budget"] += 1
            else:
                if by_stranger and host.queued + len(taken) >= _STRANGERS_IN_LINE:
                    candidate.priority = min(candidate.priority, _STRANGERS)
                taken.append(candidate)
                if key is not None:
                    met.add(key)
        return taken

    def _room(self, host: Host, *, by_stranger: bool) -> tuple[int, str]:
        """Return how many more entries a host may have, and which cap it is: the name of its
        ``dropped/`` counter."""
        if host.health is Health.RETIRED:
            return 0, "crawl_delay"
        most = self._limits.host_queue
        here = (most // 2 if by_stranger else most) - host.queued
        anywhere = self._limits.total - self.queued
        room, reason = (here, "host_queue") if here <= max(anywhere, 0) else (anywhere, "frontier")
        of_domain = self._load.room(host.domain, self.queued)
        return (
            (room, reason)
            if of_domain is None or room <= of_domain
            else (of_domain, "domain_share")
        )

    def _forward(self, items: Iterable[Foreign], batch: Batch) -> None:
        """Put new items into the outbox and mark them as sent to their owner.

        Items put are counted as ``foreign``, known ones as ``known``. Those for which the outbox
        has no room are counted as ``dropped/outbox``, and not marked.
        """
        in_batch: set[tuple[str, bytes]] = set()
        for item in items:
            if item.key is not None:
                mark = foreign_mark(item.owner, item.key)
                if mark in in_batch or self.seen.known(*mark):
                    self.counters["known"] += 1
                    continue
            # Without a key, it goes in even then: its finder has marked it as sent, and would not
            # send it again.
            if self.outbox.full and item.key is not None:
                self.counters["dropped/outbox"] += 1
                continue
            if item.key is not None:
                in_batch.add(mark)
                self.seen.mark(mark[0], mark[1:])
            self.outbox.put(item.owner, item.host, item.message, batch)
            self.counters["foreign"] += 1

    def _recall_missing(self, candidates: list[Candidate]) -> None:
        """Read the candidates' hosts into memory that are not there."""
        hosts = self.hosts
        missing = {candidate.host for candidate in candidates if candidate.host not in hosts}
        if missing:
            self._recall(sorted(missing))

    def _append(self, host: Host, candidates: Sequence[Candidate], batch: Batch) -> None:
        """Put entries into a host's queues and into the batch. The caller adds `_record` of the
        host to the same batch."""
        if not candidates:
            # Without an entry, the host would be scheduled for nothing.
            return
        name = host.name
        prefix = schema.host_key(name)
        most = schema.PRIORITY_LIMIT
        at_once = False
        for candidate in candidates:
            entry = candidate.entry
            priority = max(-most, min(candidate.priority, most)) if candidate.priority else 0
            tries = 0
            if entry.due:
                tries = entry.retries + entry.throttling
            else:
                at_once = True
            sequence = host.append(priority, tries)
            batch.put(schema.queue_key(prefix, priority, sequence), entry.encode(name))
        self.queued += len(candidates)
        self._load.add(host.domain or domain_of(name), len(candidates))
        if host.state is IDLE:
            host.due = max(host.due, whole_microseconds(self.now()))
            self._line_up(host)
        elif host.state is RESTING and host.ready < host.due and at_once:
            self._hurry(host)
        elif host.state is DEFERRED:
            self._deferred_queued += len(candidates)

    def _hurry(self, host: Host) -> None:
        """Make a host due earlier: it rests until a retry, and has an entry now that need not wait
        for that."""
        due = whole_microseconds(max(host.ready, self.now()))
        if due < host.due:
            host.due = due
            self._line_up(host)

    def pop(self, host: Host) -> Lease | None:
        """Lease the next entry of a host, and return the lease; None when no entry is due. The
        entry stays on disk."""
        now = self.now()
        ahead, host.ahead = host.ahead, None
        gaps = not ahead and host.has_gaps
        for level in host.levels():
            queue = host.queues[level]
            while queue.head < queue.tail and queue.due <= now:
                if not (ahead and ahead[-1][:2] == (level, queue.head)):
                    ahead = self._read_ahead(host.name, level, queue, 1 if gaps else _AHEAD)
                saved = ahead.pop()[2]
                if saved is None:
                    # It was acknowledged before a restart, while an older entry of the host was
                    # not.
                    queue.head += 1
                    continue
                entry = Entry.decode(saved, host.name)
                if entry.due > now:
                    queue.due = entry.due
                    break
                queue.head += 1
                host.ahead = ahead
                return self._lease(host, level >> 8, queue.head - 1, entry)
        return None

    def _read_ahead(
        self, name: str, level: int, queue: Queue, most: int
    ) -> list[tuple[int, int, bytes | None]]:
        """Read up to ``most`` next entries of a host's queue, and return them in the form of
        `Host.ahead`. Nothing is read behind a missing entry, nor from a long one on, unless that is
        the first."""
        prefix = schema.host_key(name)
        key = schema.queue_key(prefix, level >> 8, queue.head)
        if most == 1:
            return [(level, queue.head, self._store.get(key))]
        found: list[tuple[int, int, bytes | None]] = []
        with self._store.reader() as reader:
            value = reader.read(key)
            found.append((level, queue.head, value))
            for sequence in range(queue.head + 1, min(queue.head + most, queue.tail)):
                if value is None:
                    break
                value = reader.read_next(schema.queue_key(prefix, level >> 8, sequence))
                if value is not None and len(value) > _AHEAD_BYTES:
                    break
                found.append((level, sequence, value))
        found.reverse()
        return found

    def _lease(self, host: Host, priority: int, sequence: int, entry: Entry) -> Lease:
        """Count an entry as leased, and return its lease."""
        host.queued -= 1
        self.queued -= 1
        self.leased += 1
        host.leased.append((priority, sequence))
        return Lease(host, priority, sequence, entry)

    def unpop(self, lease: Lease) -> None:
        """Undo the pop that returned this lease. No other pop of its host may come in between."""
        lease.host.queues[level_of(lease.priority, lease.sequence)].head = lease.sequence
        lease.host.queued += 1
        self.queued += 1
        lease.host.leased.remove((lease.priority, lease.sequence))
        self.leased -= 1

    def acknowledge(self, lease: Lease, dropped: str | None = None) -> None:
        """Record that an entry is done, or ``dropped`` for a reason. The next commit counts it and
        removes it from disk."""
        self._acknowledged.append((lease, dropped))

    def replace(self, lease: Lease, entry: Entry) -> None:
        """Put a leased entry back, changed, in one batch with the removal of the old one. It goes
        to the end of its queue; with a due time of its own, to the queue for its number of
        tries."""
        batch = self._store.batch()
        batch.delete(self.key_of(lease))
        again = Candidate(lease.host.name, None, entry, lease.priority)
        self._append(lease.host, (again,), batch)
        self._end_lease(lease)
        self._record(lease.host, batch)
        batch.write()

    def begin_commit(self) -> Commit:
        """Return a commit of all acknowledgements since the last one.

        The pages' records must be durable before its ``write``. After it, call `end_commit`.
        """
        self._revive()
        acknowledged, self._acknowledged = self._acknowledged, []
        batch = self._store.batch(sync=True)
        counted: Counter[str] = Counter()
        for lease, dropped in acknowledged:
            batch.delete(self.key_of(lease))
            counted["done" if dropped is None else f"dropped/{dropped}"] += 1
        if acknowledged:
            # The hosts' records follow in a batch of their own: a start after a death corrects
            # those that are missing.
            names = {lease.host.name for lease, _ in acknowledged}
            batch.put(schema.ACKNOWLEDGED, json.dumps(sorted(names)).encode())
        self._put_totals(batch, self.counters + counted)
        return Commit(batch, acknowledged, counted, self._upkeep(len(acknowledged)))

    def _upkeep(self, acknowledged: int) -> list[Callable[[], None]]:
        """Return the upkeep that is due, for the thread that writes the commit."""
        also: list[Callable[[], None]] = []
        if self.seen.due_to_save():
            also.append(partial(self.seen.save, self.seen.snapshot()))
        self._consumed += acknowledged
        if self._consumed >= COMPACT_EVERY:
            self._consumed = 0
            also.append(partial(self._store.compact, *self._due.consumed()))
        if self.outbox.consumed():
            also.append(partial(self._store.compact, schema.OUTBOX, after_all(schema.OUTBOX)))
        return also

    def end_commit(self, commit: Commit) -> None:
        """Finish a commit that is on disk: end its leases, count them, and write the records of
        their hosts."""
        for lease, dropped in commit.acknowledged:
            self._end_lease(lease)
            self._note(lease.host)
            if dropped is None:
                lease.host.done += 1
            else:
                lease.host.dropped += 1
                if self._budget.most:
                    self._budget.give_back(domain_of(lease.host.name))
        batch = self._store.batch()
        self._record_changed(batch)
        self._budget.end_batch(batch)
        batch.write()
        self.counters.update(commit.counters)

    def key_of(self, lease: Lease) -> bytes:
        """Return the key of a lease's entry in the store."""
        return schema.queue_key(schema.host_key(lease.host.name), lease.priority, lease.sequence)

    def _end_lease(self, lease: Lease) -> None:
        """End a lease in memory: the entry is removed from disk too."""
        lease.host.end_lease(lease.priority, lease.sequence)
        self._load.take(lease.host.domain)
        self.leased -= 1

    def give_up_host(self, host: Host, identify: Callable[[Entry], bytes | None]) -> int:
        """Remove a sealed host that another frontier has taken over, except its seen marks: the
        caller removes those by `SeenSet.remove_marks`. Return how many entries stay, because no
        other job can read them."""
        name = host.name
        batch = self._store.batch()
        kept: list[bytes] = []
        for _, key, value in self.entries(name):
            if stays(entry_of(key, value), identify):
                kept.append(key)
            else:
                batch.delete(key)
        for note in self._store.keys(schema.arriving_prefix(name)):
            batch.delete(note)
        if not kept:
            for authority, record in zip(
                both := authorities_of(name), self.robots_of(both), strict=True
            ):
                # Delete only what exists: whoever searches behind a deleted key has to walk over
                # it.
                if record is not None:
                    batch.delete(schema.robots_key(authority))
            batch.delete(schema.deferred_key(name))
        self.seen.forget(name, batch)
        self._keep_queued(host, [key for key in kept if key[:1] == schema.QUEUE])
        self._budget.end_batch(batch)
        if kept:
            self._record(host, batch)
        else:
            self._due.forget(host, batch)
            batch.delete(schema.host_key(name))
            self._tally.replace(host.record, b"")
            self._tally.put(batch)
            host.record = b""
        batch.write()
        return len(kept)

    def entries(self, name: str) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield all queued entries of a host, then its poison, as (``queued`` or ``poison``, key,
        value)."""
        for key, value in entries(self._store, name):
            yield "queued", key, value
        if name in self.poisoned:
            for key, value in self._store.items(schema.poison_prefix(name)):
                yield "poison", key, value

    def _keep_queued(self, host: Host, keys: list[bytes]) -> None:
        """Reduce a host to the entries with these keys, in its queues and in all counts."""
        gone = host.queued - len(keys)
        self.queued -= gone
        self._load.take(domain_of(host.name), gone)
        if host.state is DEFERRED:
            self._deferred_queued -= gone
        if self._budget.most:
            self._budget.charge(domain_of(host.name), -gone - host.done)
        host.queued, host.done, host.dropped = len(keys), 0, 0
        host.ahead = None
        host.queues.clear()
        for _, priority, sequence in map(split_queue_key, keys):
            queue = host.queues.setdefault(level_of(priority, sequence), Queue(sequence, sequence))
            queue.tail = sequence + 1

    def take_over(self, part: Part, batch: Batch) -> None:
        """Take over one part of a host that another frontier hands over, and write the batch.

        Its entries go behind those queued here, except the ones known here. What the other frontier
        has done is removed from the queue here.
        """
        self._evict()
        host = self.host(part.name)
        if part.host is not None:
            self._merge(host, part.host)
        self._withdraw(host, part, batch)
        known = self.seen.marked_among(
            host.name, [key for _, _, key in part.entries if key is not None]
        )
        for done in part.done:
            self.seen.restore(host.name, done)
        new = [
            Candidate(host.name, key, entry, priority)
            for priority, entry, key in part.entries
            if key not in known
        ]
        self.counters["known"] += len(part.entries) - len(new)
        self.seen.mark(host.name, [each.key for each in new if each.key is not None])
        self._append(host, new, batch)
        if self._budget.most:
            self._budget.charge(domain_of(host.name), len(new))
        if part.poison:
            put_poison(self._store, part, batch)
            self.poisoned.add(host.name)
        if host.state is RESTING and host.queued:
            # Its next-fetch time may have changed.
            self._line_up(host)
        elif host.state is RESTING and host.robots_fetches:
            self._due_again(host)
        elif host.state is RESTING:
            # The other frontier has done all that was queued here.
            self._stand_idle(host)
        elif host.state is DEFERRED:
            batch.put(schema.deferred_key(host.name), b"")
        self._budget.end_batch(batch)
        self.seen.end_batch(batch)
        self._record(host, batch)
        batch.write()

    def _merge(self, host: Host, other: Host) -> None:
        """Keep the slower rate and the later times of both hosts, and add up their counts."""
        if self._rule.delay(other.rate) > self._rule.delay(host.rate):
            host.rate = other.rate
        host.due = max(host.due, whole_microseconds(other.due))
        if host.state is not DEFERRED or host.ready:
            # A ``ready`` of 0 means deferred until the next round: it stays.
            host.ready = max(host.ready, whole_microseconds(other.ready))
        host.done = min(host.done + other.done, _COUNT_MAX)
        host.dropped = min(host.dropped + other.dropped, _COUNT_MAX)
        if self._budget.most:
            self._budget.charge(domain_of(host.name), other.done)
        if host.health is Health.NEW and host.state in (IDLE, RESTING):
            host.set_health(other.health)
            if other.health is Health.DEAD:
                host.state = DEFERRED
                host.ready = host.due if other.ready else 0.0
                self._deferred_queued += host.queued
                self._rest_apart(host)

    def _withdraw(self, host: Host, part: Part, batch: Batch) -> None:
        """Remove the entries from a host's queue that the other frontier has done, except leased
        ones."""
        doubtful = self.seen.marked_among(host.name, part.done)
        if not doubtful or not host.queued:
            return
        host.ahead = None
        for key, value in entries(self._store, host.name):
            entry = entry_of(key, value)
            if split_queue_key(key)[1:] in host.leased or part.identity(entry) not in doubtful:
                continue
            batch.delete(key)
            host.queued -= 1
            self.queued -= 1
            self._load.take(domain_of(host.name))
            if host.state is DEFERRED:
                self._deferred_queued -= 1
            if self._budget.most:
                self._budget.give_back(domain_of(host.name))
            self.counters["known"] += 1

    def robots(self, authority: str) -> bytes | None:
        """Return the stored robots.txt record of an authority (``scheme://host[:port]``); None
        without one."""
        return self._store.read((schema.robots_key(authority),))[0]

    def robots_of(self, authorities: Sequence[str]) -> list[bytes | None]:
        """Return the stored records of authorities, as `robots`. The authorities are in ascending
        order."""
        return self._store.read(map(schema.robots_key, authorities))

    def put_robots(self, authority: str, record: bytes) -> None:
        """Write a robots.txt record to the store."""
        batch = self._store.batch()
        batch.put(schema.robots_key(authority), record)
        batch.write()

    @property
    def hopeful(self) -> bool:
        """Return whether queued entries may be fetched before the next round."""
        return self.queued > self._deferred_queued or self._round is not None

    @property
    def deferred_queued(self) -> int:
        """Return how many entries of deferred hosts are queued."""
        return self._deferred_queued

    @property
    def pending(self) -> int:
        """Return how many entries are queued or leased."""
        return self.queued + self.leased
