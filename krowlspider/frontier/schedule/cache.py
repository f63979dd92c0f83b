"""The hosts in memory, their records on disk, their heap by due time, and the job clock.

`DueHeap` has all hosts by next-fetch time on disk, and the soonest of them in memory. On disk each
host that has entries has one key, in the order of due times. A window of the soonest keys is read
into memory at a time. A host whose time is beyond the window goes to disk alone, and comes in with
a later window. So memory does not grow with the number of hosts, and a start reads one window.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import islice
from math import inf
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import (
    AWAITING_ROBOTS,
    CALLED,
    DEFERRED,
    IN_FLIGHT,
    SCHEDULED,
    SEALED,
    WAITING,
    Health,
    Host,
)
from krowlspider.frontier.hosts.host_record import (
    HostPositions,
    Tally,
    decode_host,
    encode_host,
    place_in,
)
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import CLOCK, DUE, due_key, split_due_key, whole_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Job clock and monotonic clock of a commit, in seconds. The id of the machine's run follows them.
_CLOCKS = Struct(">dd")
_JOB_CLOCK = Struct(">d")


class JobClock:
    """Wall time when the job begins, and monotonic from there on, in seconds.

    It runs on across restarts of the process. After a restart of the machine it is wall time again,
    or the time of the last commit where that is later. So it never goes back, even if somebody sets
    the machine's clock, and times on disk stay valid.

    ``monotonic`` and ``wall`` are clocks in seconds. ``boot`` identifies the run of the machine;
    empty where it is not known. ``is_new`` is true if the store has no clock yet.
    """

    def __init__(
        self,
        store: Store,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        boot: bytes = b"",
    ):
        self._monotonic = monotonic
        self._boot = boot
        saved = store.get(CLOCK)
        self.is_new = saved is None
        self._ahead = (wall() if saved is None else self._continued(saved, wall)) - monotonic()

    def _continued(self, saved: bytes, wall: Callable[[], float]) -> float:
        """Return the job clock, in seconds, as it continues from the last commit."""
        job: float = _JOB_CLOCK.unpack_from(saved)[0]
        if self._boot and saved[_CLOCKS.size :] == self._boot:
            then: float = _CLOCKS.unpack_from(saved)[1]
            return job + max(0.0, self._monotonic() - then)
        return max(wall(), job)

    def now(self) -> float:
        """Return the job clock, in seconds."""
        return self._monotonic() + self._ahead

    def put(self, batch: Batch) -> None:
        """Put the clocks into the batch, for the next start."""
        batch.put(CLOCK, _CLOCKS.pack(self.now(), self._monotonic()) + self._boot)


# Seconds beyond now that a window covers when it reaches the end of the heap on disk.
LOOKAHEAD = 10.0


class DueHeap:
    """Names of hosts by the time at which they are due, in seconds of the job clock.

    A place is one pair of time and name. A host may have out-of-date places in memory: the caller
    ignores those. ``scheduled`` is the number of hosts on disk at the start, ``window`` the number
    read at a time.
    """

    def __init__(self, store: Store, scheduled: int, window: int):
        self._store = store
        self._window = window
        # Hosts that have a key on disk.
        self.scheduled = scheduled
        # A window is read in order; only the hosts pushed in between need a heap.
        self._run: list[tuple[float, str]] = []
        self._at = 0
        self._heap: list[tuple[float, int, str]] = []
        self._pushes = 0
        # Hosts that belong into the heap on disk with their next record.
        self._beyond: set[str] = set()
        # Every key up to this one is in memory, or its host has left the heap, or is in a session.
        self._cursor = DUE
        self._covered = 0.0
        # How far memory had read before `read_again`.
        self._again = DUE

    def add(self, host: Host) -> None:
        """Add a host at its due time: to the heap in memory, if that reaches so far. Else it comes
        into the heap on disk with its next record."""
        if host.due < self._covered:
            self._beyond.discard(host.name)
            self.push(host.due, host.name)
        else:
            self._beyond.add(host.name)

    def put_place(self, host: Host, batch: Batch) -> None:
        """Put a host's place on disk into the batch, by its due time. Call this before the record
        of the host is replaced.

        A place that memory has already read past is pushed too.
        """
        placed, is_beyond = place_in(host.record), host.name in self._beyond
        if placed == host.due and not is_beyond:
            return
        place = due_key(host.due, host.name)
        if placed != host.due:
            if placed is None:
                self.scheduled += 1
            else:
                batch.delete(due_key(placed, host.name))
            batch.put(place, b"")
        if is_beyond:
            self._beyond.discard(host.name)
            if place <= self._cursor:
                self.push(host.due, host.name)

    def delete_place(self, host: Host, batch: Batch) -> None:
        """Delete the place on disk of a host that has no more entries, or is deferred. Call this
        before the record of the host is replaced."""
        self._beyond.discard(host.name)
        if (placed := place_in(host.record)) is not None:
            batch.delete(due_key(placed, host.name))
            self.scheduled -= 1

    def push(self, due: float, name: str) -> None:
        """Add a place in memory only."""
        # The counter keeps hosts due at the same moment first in, first out.
        self._pushes += 1
        heappush(self._heap, (due, self._pushes, name))

    @property
    def in_memory(self) -> int:
        """Return how many places are in memory, some of which may be out of date."""
        return len(self._heap) + len(self._run) - self._at

    @property
    def _full(self) -> bool:
        """Return whether memory already holds as many places as a window has: they go first, unless
        `read_again` has sooner places to read."""
        return self.in_memory >= self._window and self._cursor >= self._again

    def next_due(self) -> float:
        """Return when to look again at the latest, in seconds of the job clock; inf when no host
        has a place."""
        times = [self._covered] if self.scheduled and not self._full else []
        if self._heap:
            times.append(self._heap[0][0])
        if self._at < len(self._run):
            times.append(self._run[self._at][0])
        return min(times, default=inf)

    def count_due(self, now: float) -> int:
        """Return how many places in memory are due; there may be more on disk. The cost is linear
        in the window."""
        in_run = bisect_right(self._run, now, self._at, key=itemgetter(0)) - self._at
        return in_run + sum([due <= now for due, _, _ in self._heap])

    def pop(self, now: float) -> str | None:
        """Return the name of the host in memory that has been due the longest; None when none is
        due."""
        heap = self._heap
        if self._at < len(self._run):
            due, name = self._run[self._at]
            if not heap or due <= heap[0][0]:
                if due > now:
                    return None
                self._at += 1
                return name
        if heap and heap[0][0] <= now:
            return heappop(heap)[2]
        return None

    def soon(self, count: int) -> list[str]:
        """Return up to ``count`` names of hosts that are among the next in memory."""
        pushed = [name for _, _, name in self._heap[:count]]
        read = [name for _, name in self._run[self._at : self._at + count]]
        if pushed and (not read or self._heap[0][0] < self._run[self._at][0]):
            return (pushed + read)[:count]
        return (read + pushed)[:count]

    def may_have_more(self, now: float) -> bool:
        """Return whether more hosts may be due on disk, once memory has none. Then call
        `read_window`."""
        return now >= self._covered and bool(self.scheduled) and not self._full

    def consumed(self) -> tuple[bytes, bytes]:
        """Return the range of keys on disk that have been read, as its first and its last key."""
        return DUE, self._cursor

    def read_again(self) -> None:
        """Start again at the soonest host on disk: some were popped and left where they are."""
        for due, name in self._run[self._at :]:
            self.push(due, name)
        self._run, self._at = [], 0
        self._again = max(self._again, self._cursor)
        self._cursor = DUE
        self._covered = 0.0

    def read_window(self, now: float) -> None:
        """Read the next window of hosts into memory. The due times of all hosts must be on disk."""
        known = {place[::2] for place in self._heap} if self._cursor < self._again else set()
        keys = list(islice(self._store.keys(DUE, self._cursor), self._window))
        new = [place for place in map(split_due_key, keys) if place not in known]
        self._run, self._at = self._run[self._at :] + new, 0
        if len(keys) == self._window:
            self._cursor = keys[-1]
            self._covered = split_due_key(keys[-1])[0]
        else:
            last = split_due_key(keys[-1])[0] if keys else 0.0
            self._covered = max(now, last) + LOOKAHEAD
            self._cursor = due_key(self._covered, "")


# Hosts that are read together when one of them is due, each with the head of its queue.
_TOGETHER = 16
# The most URLs of a host whose queue head is searched from its record onwards. The search passes
# over each key that was removed or rewritten in between.
_NEAR = 64
# States in which memory holds more of a host than its record.
_PINNING = (WAITING, CALLED, IN_FLIGHT, AWAITING_ROBOTS, SEALED)


class HostCache:
    """The hosts in memory. All others are read from their records.

    ``most`` is how many are kept besides the pinned ones. The last request of a host may have ended
    later than its record says: a host that is read waits as if that request had ended at
    ``recovered_at``, in seconds of the job clock.
    """

    def __init__(
        self,
        store: Store,
        tally: Tally,
        due: DueHeap,
        rule: DelayPolicy,
        *,
        most: int,
        recovered_at: float,
        now: Callable[[], float],
    ):
        self.hosts: dict[str, Host] = {}
        self.positions = HostPositions(store)
        self._store = store
        self._tally = tally
        self._due = due
        self._rule = rule
        self._most = most
        self._recovered_at = recovered_at
        # From then on, every host has waited its delay since that start.
        self._all_waited = recovered_at + rule.longest
        self._now = now
        # Hosts in memory at which the next eviction begins.
        self._evict_at = most
        # Hosts whose record the next commit writes, by name.
        self._changed: dict[str, Host] = {}

    def get(self, name: str) -> Host:
        """Return a host: from memory, from its record on disk, or new."""
        host = self.hosts.get(name)
        if host is None:
            self.read((name,))
            host = self.hosts[name]
        return host

    def read(self, names: Iterable[str]) -> None:
        """Read those hosts into memory that are not in it."""
        if missing := sorted(name for name in names if name not in self.hosts):
            records = self._store.read(map(schema.host_key, missing))
            for name, saved in zip(missing, records, strict=True):
                self._remember(name, saved)

    def read_due(self, name: str) -> Host:
        """Read a due host into memory, with some that are due soon, and return it.

        The head of each host's queue is read too: it is in the same place on the disk.
        """
        names = {name, *self._due.soon(_TOGETHER)}
        with self._store.reader() as reader:
            for each in sorted(names.difference(self.hosts)):
                key = schema.host_key(each)
                host = self._remember(each, reader.read(key))
                queue = host.queue
                if host.state is SCHEDULED and (head := queue.head) is not None:
                    # Older records and removed entries lie between the two until LevelDB merges
                    # them away.
                    near = queue.queued + queue.done + queue.dropped <= _NEAR
                    key = schema.queue_key(key, head[0] >> 8, head[1])
                    value = reader.read_next(key) if near else reader.read(key)
                    queue.ahead = [(*head, value)]
        return self.hosts[name]

    def _remember(self, name: str, saved: bytes | None) -> Host:
        if saved is None:
            host = Host(name, due=self._now())
        else:
            host = decode_host(name, saved)
            if self._now() < self._all_waited:
                self._wait_after_death(host)
        self.hosts[name] = host
        return host

    def _wait_after_death(self, host: Host) -> None:
        """Make a host that was read wait as if its last request had ended at ``recovered_at``.

        The record of a deferred host is written when it is deferred, so it is right.
        """
        delay = self._rule.of(host.name).delay(host.rate)
        earliest = whole_microseconds(self._recovered_at + delay)
        if earliest > host.due and host.state is not DEFERRED:
            host.due = earliest
            host.ready = max(host.ready, earliest)
            if host.state is SCHEDULED:
                self._due.push(earliest, host.name)

    def evict(self) -> None:
        """When too many hosts are in memory, remove the oldest tenth from it, except pinned ones.

        Never call this while a batch is open: a host on disk equals the host in memory only once
        its batch is written.
        """
        if len(self.hosts) < self._evict_at:
            return
        before = len(self.hosts)
        oldest = list(islice(self.hosts.values(), self._most // 10 + 1))
        for host in oldest:
            del self.hosts[host.name]
            if self._is_pinned(host):
                # Move it to the end: it is looked at again after all others.
                self.hosts[host.name] = host
        # Where most hosts are pinned, do not try again for each new host.
        few_left = len(self.hosts) > before - len(oldest) // 2
        self._evict_at = max(self._most, few_left * (len(self.hosts) + self._most // 20))

    def _is_pinned(self, host: Host) -> bool:
        """Return whether a host must stay in memory, which holds more of it than its record."""
        return bool(
            host.name in self._changed
            or host.queue.leased
            or host.robots.fetches
            or host.state in _PINNING
            or (host.session and host.state is SCHEDULED)
        )

    def note(self, host: Host) -> None:
        """Have the next commit write a host's record: memory is newer than it."""
        self._changed[host.name] = host

    def record(self, hosts: Collection[Host], batch: Batch) -> None:
        """Put the records of hosts and their places in the heap into the batch.

        Nothing that may fail comes between this and the write of the batch: the tally counts what
        is written.
        """
        for host in hosts:
            if host.queue.pending and host.health is not Health.DEFERRED:
                self._due.put_place(host, batch)
            else:
                self._due.delete_place(host, batch)
            before, host.record = host.record, encode_host(host)
            batch.put(schema.host_key(host.name), host.record)
            if not before:
                self.positions.put(host.name, batch)
            self._tally.replace(before, host.record)
            self._changed.pop(host.name, None)
        if hosts:
            self._tally.put(batch)

    def record_changed(self, batch: Batch) -> None:
        """Put the records of all hosts into the batch that have changed since their last one."""
        self.record(list(self._changed.values()), batch)

    def record_now(self, host: Host, batch: Batch | None = None) -> None:
        """Write the record of a host, together with what is in ``batch``."""
        if batch is None:
            batch = self._store.batch()
        self.record([host], batch)
        batch.write()

    def record_if_changed(self, host: Host) -> None:
        """Write the record of a host, if memory is newer than it."""
        if host.name in self._changed:
            self.record_now(host)

    def erase(self, host: Host, batch: Batch) -> None:
        """Put the removal of a host's record and of its place in the heap into the batch."""
        self._due.delete_place(host, batch)
        batch.delete(schema.host_key(host.name))
        self.positions.delete(host.name, batch)
        self._tally.replace(host.record, b"")
        self._tally.put(batch)
        host.record = b""

    def remove(self, host: Host) -> None:
        """Remove a host from memory. If it comes back, it is read again, or new."""
        self._changed.pop(host.name, None)
        del self.hosts[host.name]
