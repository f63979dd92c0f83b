"""The frontier: which URL of which host is fetched next, kept so that nothing is lost.

A URL's seen mark and its queue entry are one batch. A popped entry stays on disk, as a lease, until it is
acknowledged: a restart finds it where it was. Acknowledgements are collected and leave in one synced batch
(`begin_commit`), which the caller writes after the pages' records are durable.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from krowlspider.frontier import schema
from krowlspider.frontier.budget import DomainBudget
from krowlspider.frontier.domainload import DomainLoad
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.handover import Part, put_poison, stays
from krowlspider.frontier.hosts import (
    IDLE,
    PUT_OFF,
    RESTING,
    Host,
    Queue,
    State,
    level_of,
    origin_of,
)
from krowlspider.frontier.linkedports import LinkedPorts
from krowlspider.frontier.outbox import Foreign, Outbox, foreign_mark
from krowlspider.frontier.queues import entries, entry_keys
from krowlspider.frontier.schema import (
    after_all,
    authorities_of,
    host_in,
    split_queue_key,
    whole_microseconds,
)
from krowlspider.frontier.turns import HostTurns, Limits
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from krowlspider.frontier.seen import SeenSet
    from krowlspider.frontier.store import Batch, Store
    from krowlspider.politeness.pace import PaceRule

# Acknowledged entries after which the consumed part of the heap on disk is compacted: a start reads across what
# LevelDB keeps of it. Queues are read by key, and need none.
COMPACT_EVERY = 500_000
# Entries of a host read together when it is popped, which takes 35 µs however many they are; and bytes of the longest that
# is kept in memory until it is.
_AHEAD = 4
# The priority of what a stranger's page names of a host for which so many are queued: with few, one
# queue serves all.
_STRANGERS = -1
_STRANGERS_IN_LINE = 16
_AHEAD_BYTES = 512
# Pages done or dropped that a host is taken over with: half of what its record holds, so that what is fetched here has room.
_COUNT_MAX = 0x7FFFFFFF


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


class Frontier(HostTurns):
    """Queues of all hosts over a store, and the hosts' turns. ``monotonic`` and ``wall`` are clocks in seconds,
    ``boot`` is as of `HostTurns`."""

    def __init__(
        self,
        store: Store,
        seen: SeenSet,
        limits: Limits,
        rule: PaceRule,
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

    # --- opening and closing ---

    def _open(self) -> None:
        saved = self._store.get(schema.COUNTERS)
        self.counters.update(json.loads(saved) if saved else {})
        clean = self._store.get(schema.CLEAN)
        if clean is None:
            # The last process died.
            self._catch_up()
        known: dict[str, Any] = json.loads(clean or b"{}")
        self.queued = self._tally.queued
        # To look for a host's poison where there is none would walk over all that was deleted behind it. Few: each of
        # their pages has cost three processes.
        self.poisoned = {host_in(key) for key in self._store.keys(schema.POISON)}
        self.outbox = Outbox(self._store, self._limits.outbox, known.get("outbox"))
        batch = self._store.batch(sync=True)
        batch.delete(schema.CLEAN)
        batch.put(schema.ROBOTS_END, b"")
        self._tally.put(batch)
        self._put_totals(batch, self.counters)
        batch.write()
        self.start_turns(known.get("unsure"))

    def _catch_up(self) -> None:
        """Have the records of the last commit's hosts say what it left of their queues: the process may have died
        before it wrote them."""
        batch = self._store.batch()
        for name in json.loads(self._store.get(schema.ACKNOWLEDGED) or b"[]"):
            record = self._store.get(schema.host_key(name))
            if record is None:
                # Forgotten by hand since.
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
        """Mark the store as closed in order, and close it. Leases stay queued for the next start."""
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

    # --- discovery ---

    def add(
        self,
        candidates: Iterable[Candidate],
        foreign: Sequence[Foreign] = (),
        decided: Sequence[bytes] = (),
    ) -> int:
        """Queue those that are not known: see `queue`."""
        unknown = [
            candidate
            for candidate in candidates
            if candidate.key is None or not self._is_known(candidate.host, candidate.key)
        ]
        return self.queue(unknown, foreign, decided)

    def _is_known(self, host: str, key: bytes) -> bool:
        return self.knows((key,), lambda _: host)[0]

    def knows(self, keys: Sequence[bytes], host_at: Callable[[int], str]) -> list[bool]:
        """Which identities are known; ``host_at`` tells the host of the one at a place. Those that are, are counted as
        ``known``."""
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
        """Queue candidates that are not known, but for those that are among them twice, and mark them seen, in one
        batch. Returns how many were queued.

        Those a cap refuses are counted as ``dropped/host_queue``, ``dropped/frontier``,
        ``dropped/domain_share`` and
        ``dropped/domain_budget``, those of a retired host as ``dropped/crawl_delay``: they are not marked seen.

        ``foreign`` ones go into the outbox, as `forward` says, in the same batch; ``decided`` are keys of outbox entries
        that `Outbox.rebucket` gave back, which leave it with the batch. ``via`` is the host of the
        page on which all were found, the origin of those hosts that are new.
        """
        self._evict()
        self._recall_missing(candidates)
        batch = self._store.batch()
        # In the order in which they came, not by address in memory: the same crawl twice is the same.
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
        """Those of one host's candidates that are queued; the others are counted. What a stranger's
        page names comes after the host's own, and leaves it half of its room."""
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
        """How many more entries a host may have, and why not more."""
        if host.state is State.RETIRED:
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

    def forward(self, items: Iterable[Foreign]) -> int:
        """Put what is new into the outbox, mark it as sent to its owner, in one batch. Returns how many were put,
        which are counted as ``foreign``; known ones as ``known``, those for which the outbox has no room as
        ``dropped/outbox``: they are not marked."""
        batch = self._store.batch()
        put = self._forward(items, batch)
        self.seen.end_batch(batch)
        batch.write()
        return put

    def _forward(self, items: Iterable[Foreign], batch: Batch) -> int:
        put = 0
        in_batch: set[tuple[str, bytes]] = set()
        for item in items:
            if item.key is not None:
                mark = foreign_mark(item.owner, item.key)
                if mark in in_batch or self.seen.known(*mark):
                    self.counters["known"] += 1
                    continue
            # What is known elsewhere as sent here is not found again.
            if self.outbox.full and item.key is not None:
                self.counters["dropped/outbox"] += 1
                continue
            if item.key is not None:
                in_batch.add(mark)
                self.seen.mark(mark[0], mark[1:])
            self.outbox.put(item.owner, item.host, item.message, batch)
            put += 1
        self.counters["foreign"] += put
        return put

    def _recall_missing(self, candidates: list[Candidate]) -> None:
        hosts = self.hosts
        missing = {candidate.host for candidate in candidates if candidate.host not in hosts}
        if missing:
            self._recall(sorted(missing))

    def _append(self, host: Host, candidates: Sequence[Candidate], batch: Batch) -> None:
        """Queue entries; `_record` of their host in the same batch follows."""
        if not candidates:
            # It would be given a turn for nothing.
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
                tries = entry.retries + entry.distress
            else:
                at_once = True
            sequence = host.append(priority, tries)
            batch.put(schema.queue_key(prefix, priority, sequence), entry.encode(name))
        self.queued += len(candidates)
        self._load.add(host.domain or domain_of(name), len(candidates))
        if host.turn is IDLE:
            host.due = max(host.due, whole_microseconds(self.now()))
            self._line_up(host)
        elif host.turn is RESTING and host.ready < host.due and at_once:
            self._hurry(host)
        elif host.turn is PUT_OFF:
            self._put_off_queued += len(candidates)

    def _hurry(self, host: Host) -> None:
        """A host that rests for a retry has something that need not wait for it."""
        due = whole_microseconds(max(host.ready, self.now()))
        if due < host.due:
            host.due = due
            self._line_up(host)

    # --- popping ---

    def pop(self, host: Host) -> Lease | None:
        """Lease the next entry of a host; None when it has none that is due. The entry stays on disk."""
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
                    # Acknowledged before a restart, while an older one of the host was not.
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
        """The next entries of a host's queue, as `Host.ahead`; no more behind one that is missing, or before a
        long one."""
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
        host.queued -= 1
        self.queued -= 1
        self.leased += 1
        host.leased.append((priority, sequence))
        return Lease(host, priority, sequence, entry)

    def unpop(self, lease: Lease) -> None:
        """Undo the pop that gave this lease, before any other pop of its host."""
        lease.host.queues[level_of(lease.priority, lease.sequence)].head = lease.sequence
        lease.host.queued += 1
        self.queued += 1
        lease.host.leased.remove((lease.priority, lease.sequence))
        self.leased -= 1

    # --- acknowledging ---

    def acknowledge(self, lease: Lease, dropped: str | None = None) -> None:
        """The entry has been dealt with, or dropped for a reason; the next commit counts it and removes it from
        disk."""
        self._acknowledged.append((lease, dropped))

    def replace(self, lease: Lease, entry: Entry) -> None:
        """Put a leased entry back, changed, in one batch with its removal: at the end of its queue, or where it
        has a time of its own among the retries of that time."""
        batch = self._store.batch()
        batch.delete(self.key_of(lease))
        again = Candidate(lease.host.name, None, entry, lease.priority)
        self._append(lease.host, (again,), batch)
        self._end_lease(lease)
        self._record(lease.host, batch)
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
            batch.delete(self.key_of(lease))
            counted["done" if dropped is None else f"dropped/{dropped}"] += 1
        if acknowledged:
            # Their records follow in a batch of their own: a start after a death looks for what that one missed.
            names = {lease.host.name for lease, _ in acknowledged}
            batch.put(schema.ACKNOWLEDGED, json.dumps(sorted(names)).encode())
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
        if self.outbox.consumed():
            also.append(partial(self._store.compact, schema.OUTBOX, after_all(schema.OUTBOX)))
        return also

    def end_commit(self, commit: Commit) -> None:
        """The commit is on disk: its leases are over, and the hosts' records can move on."""
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
        """The key of a lease's entry in the store."""
        return schema.queue_key(schema.host_key(lease.host.name), lease.priority, lease.sequence)

    def _end_lease(self, lease: Lease) -> None:
        lease.host.end_lease(lease.priority, lease.sequence)
        self._load.take(lease.host.domain)
        self.leased -= 1

    # --- hosts that come and go ---

    def give_up_host(self, host: Host, identify: Callable[[Entry], bytes | None]) -> int:
        """Another frontier has taken over all of a sealed host: remove it, but for its seen marks, which
        `SeenSet.remove_marks` is to remove then. Returns how many entries stay, because no other may read them."""
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
                # A deletion of nothing would be gone through like any other by who looks for a record behind it.
                if record is not None:
                    batch.delete(schema.robots_key(authority))
            batch.delete(schema.put_off_key(name))
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
        """All that a host has queued, then its poison: ``queued`` or ``poison``, key and value."""
        for key, value in entries(self._store, name):
            yield "queued", key, value
        if name in self.poisoned:
            for key, value in self._store.items(schema.poison_prefix(name)):
                yield "poison", key, value

    def _keep_queued(self, host: Host, keys: list[bytes]) -> None:
        """These entries of a host are all that is left of it."""
        gone = host.queued - len(keys)
        self.queued -= gone
        self._load.take(domain_of(host.name), gone)
        if host.turn is PUT_OFF:
            self._put_off_queued -= gone
        if self._budget.most:
            self._budget.charge(domain_of(host.name), -gone - host.done)
        host.queued, host.done, host.dropped = len(keys), 0, 0
        host.ahead = None
        host.queues.clear()
        for _, priority, sequence in map(split_queue_key, keys):
            queue = host.queues.setdefault(level_of(priority, sequence), Queue(sequence, sequence))
            queue.tail = sequence + 1

    def take_over(self, part: Part, batch: Batch) -> None:
        """Put a part of a host that another frontier hands over into this one, and write the batch. What is queued goes
        behind what this one has of it, but for what this one knows; what the other has done is not fetched here.
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
        if host.turn is RESTING and host.queued:
            # Its time may be another.
            self._line_up(host)
        elif host.turn is RESTING and host.errands:
            self._due_again(host)
        elif host.turn is RESTING:
            # All that it had was done there.
            self._stand_idle(host)
        elif host.turn is PUT_OFF:
            batch.put(schema.put_off_key(host.name), b"")
        self._budget.end_batch(batch)
        self.seen.end_batch(batch)
        self._record(host, batch)
        batch.write()

    def _merge(self, host: Host, other: Host) -> None:
        """The slower pace and the later times of both."""
        if self._rule.delay(other.pace) > self._rule.delay(host.pace):
            host.pace = other.pace
        host.due = max(host.due, whole_microseconds(other.due))
        if host.turn is not PUT_OFF or host.ready:
            # Else it is put off for the next round.
            host.ready = max(host.ready, whole_microseconds(other.ready))
        host.done = min(host.done + other.done, _COUNT_MAX)
        host.dropped = min(host.dropped + other.dropped, _COUNT_MAX)
        if self._budget.most:
            self._budget.charge(domain_of(host.name), other.done)
        if host.state is State.NEW and host.turn in (IDLE, RESTING):
            host.become(other.state)
            if other.state is State.DEAD:
                host.turn = PUT_OFF
                host.ready = host.due if other.ready else 0.0
                self._put_off_queued += host.queued
                self._rest_apart(host)

    def _withdraw(self, host: Host, part: Part, batch: Batch) -> None:
        """Take out of a host's queue what the other frontier has done."""
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
            if host.turn is PUT_OFF:
                self._put_off_queued -= 1
            if self._budget.most:
                self._budget.give_back(domain_of(host.name))
            self.counters["known"] += 1

    # --- robots.txt records, and figures ---

    def robots(self, authority: str) -> bytes | None:
        """The stored robots.txt record of an authority (``scheme://host[:port]``)."""
        return self._store.read((schema.robots_key(authority),))[0]

    def robots_of(self, authorities: Sequence[str]) -> list[bytes | None]:
        """The stored records of authorities in ascending order, as `robots`."""
        return self._store.read(map(schema.robots_key, authorities))

    def put_robots(self, authority: str, record: bytes) -> None:
        """Keep a robots.txt record."""
        batch = self._store.batch()
        batch.put(schema.robots_key(authority), record)
        batch.write()

    @property
    def hopeful(self) -> bool:
        """Whether entries are queued that can be fetched before the next round."""
        return self.queued > self._put_off_queued or self._round is not None

    @property
    def put_off_queued(self) -> int:
        """Entries of hosts that are put off."""
        return self._put_off_queued

    @property
    def pending(self) -> int:
        """Entries queued or leased."""
        return self.queued + self.leased
