"""The heap of hosts by next-fetch time: all of it on disk, the soonest part in memory.

On disk each host that has entries has one key, in the order of due times. A window of the soonest
keys is read into memory at a time. A host whose time is beyond the window goes to disk alone, and
comes in with a later window. So memory does not grow with the number of hosts, and a start reads
one window.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import islice
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host_record import place_in
from krowlspider.frontier.store.schema import DUE, due_key, split_due_key

if TYPE_CHECKING:
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.store.store import Batch, Store

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
