"""The heap of hosts by next-fetch time: all of it on disk, the soonest part in memory.

On disk each host that has entries has one key, in order of its time. A window of the soonest is read into memory
at a time; a host that is given a time beyond the window goes to disk alone, and comes in with a later window. So
memory does not grow with the hosts, and a start reads one window.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from krowlspider.frontier.schema import DUE, due_bytes, due_key, split_due_key

if TYPE_CHECKING:
    from krowlspider.frontier.hosts import Host
    from krowlspider.frontier.store import Batch, Store

# Hosts read into memory at a time: about 16 ms, and 4 MB.
WINDOW = 10_000
# Seconds beyond now that a window covers when it reaches the end of what is on disk.
LOOKAHEAD = 10.0


class DueHeap:
    """Names of hosts by the time they are due, in seconds of the job clock."""

    def __init__(self, store: Store, scheduled: int, window: int):
        self._store = store
        self._window = window
        # Hosts that have a key on disk.
        self.scheduled = scheduled
        # A window is in order as it is read; only what is pushed in between needs a heap.
        self._run: list[tuple[float, str]] = []
        self._at = 0
        self._heap: list[tuple[float, int, str]] = []
        self._pushes = 0
        # Every key up to this one is in memory, or belongs to a host that has left the heap or is in a session.
        self._cursor = DUE
        self._covered = 0.0
        # As far as memory had read when it began anew.
        self._again = DUE

    def settle(self, host: Host, batch: Batch) -> None:
        """Write a host's place on disk, by its time. A place that memory has read past is pushed."""
        if host.placed == host.due and not host.unread:
            return
        place = due_key(host.due, host.name)
        if host.placed != host.due:
            if host.placed is None:
                self.scheduled += 1
            else:
                batch.delete(due_key(host.placed, host.name))
            host.placed = host.due
            batch.put(place, b"")
        if host.unread:
            host.unread = False
            if place <= self._cursor:
                self.push(host.due, host.name)

    def forget(self, host: Host, batch: Batch) -> None:
        """A host has no more entries, or is put off."""
        if host.placed is not None:
            batch.delete(due_key(host.placed, host.name))
            host.placed = None
            self.scheduled -= 1

    def covers(self, due: float) -> bool:
        """Whether the heap in memory has all hosts of that time, but for those in a session."""
        return due < self._covered

    def push(self, due: float, name: str) -> None:
        """A place in memory only."""
        # The count keeps hosts due at the same moment first in, first out.
        self._pushes += 1
        heappush(self._heap, (due, self._pushes, name))

    @property
    def in_memory(self) -> int:
        """Places in memory, some of which may be out of date."""
        return len(self._heap) + len(self._run) - self._at

    @property
    def _full(self) -> bool:
        """Whether what waits in memory already is as much as a window: it goes first, unless sooner places are read
        again."""
        return self.in_memory >= self._window and self._cursor >= self._again

    def next_due(self) -> float | None:
        """When to look again, at the latest; None when no host has a place."""
        times = [self._covered] if self.scheduled and not self._full else []
        if self._heap:
            times.append(self._heap[0][0])
        if self._at < len(self._run):
            times.append(self._run[self._at][0])
        return min(times, default=None)

    def count_due(self, now: float) -> int:
        """Hosts in memory whose time has come; there may be more on disk. Linear in the window."""
        in_run = bisect_right(self._run, now, self._at, key=itemgetter(0)) - self._at
        return in_run + sum(due <= now for due, _, _ in self._heap)

    def pop(self, now: float) -> str | None:
        """The name of the host that has been due the longest, of those in memory."""
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
        """Names of so many hosts that are among the next in memory."""
        pushed = [name for _, _, name in self._heap[:count]]
        read = [name for _, name in self._run[self._at : self._at + count]]
        if pushed and (not read or self._heap[0][0] < self._run[self._at][0]):
            return (pushed + read)[:count]
        return (read + pushed)[:count]

    def exhausted(self, now: float) -> bool:
        """Whether more hosts may be due on disk when memory has none: `read_window` is to follow."""
        return now >= self._covered and bool(self.scheduled) and not self._full

    def consumed(self) -> tuple[bytes, bytes]:
        """The range of keys that have been read."""
        return DUE, self._cursor

    def read_again(self) -> None:
        """Begin at the soonest on disk: hosts were popped and left where they are."""
        for due, name in self._run[self._at :]:
            self.push(due, name)
        self._run, self._at = [], 0
        self._again = max(self._again, self._cursor)
        self._cursor = DUE
        self._covered = 0.0

    def read_window(self, now: float) -> None:
        """Read the next hosts into memory; the times of all hosts are on disk."""
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
            self._cursor = DUE + due_bytes(self._covered)
