"""The heap of hosts by next-fetch time: all of it on disk, the soonest part in memory.

On disk each host that has entries has one key, in order of its time. A window of the soonest is read into memory
at a time; a host that is given a time beyond the window goes to disk alone, and comes in with a later window. So
memory does not grow with the hosts, and a start reads one window.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.schema import DUE, due_bytes, due_key, split_due_key, whole_microseconds

if TYPE_CHECKING:
    from krowlspider.frontier.hosts import Host
    from krowlspider.frontier.store import Batch, Store

# Hosts read into memory at a time: about 16 ms, and 4 MB.
WINDOW = 20_000
# Seconds beyond now that a window covers when it reaches the end of what is on disk.
LOOKAHEAD = 10.0


class DueHeap:
    """Names of hosts by the time they are due, in seconds of the job clock."""

    def __init__(self, store: Store, scheduled: int, window: int):
        self._store = store
        self._window = window
        # Hosts that have a key on disk.
        self.scheduled = scheduled
        self._heap: list[tuple[float, int, str]] = []
        self._pushes = 0
        # Every key up to this one is in memory, or belongs to a host that has left the heap.
        self._cursor = DUE
        self._covered = 0.0

    def schedule(self, host: Host, due: float, batch: Batch) -> None:
        """Give a host its next-fetch time, on disk with ``batch``, and a place in the heap."""
        self.move(host, due, batch)
        assert host.place is not None
        if host.place <= self._cursor:
            self.push(host.due, host.name)

    def move(self, host: Host, due: float, batch: Batch) -> None:
        """Change a host's time on disk, for one that is out of the heap until it is pushed."""
        if host.place is None:
            self.scheduled += 1
        else:
            batch.delete(host.place)
        host.due = whole_microseconds(due)
        host.place = due_key(host.due, host.name)
        batch.put(host.place, b"")

    def forget(self, host: Host, batch: Batch) -> None:
        """A host has no more entries."""
        if host.place is not None:
            batch.delete(host.place)
            host.place = None
            self.scheduled -= 1

    def push(self, due: float, name: str) -> None:
        """A place in memory only."""
        # The count keeps hosts due at the same moment first in, first out.
        self._pushes += 1
        heappush(self._heap, (due, self._pushes, name))

    def next_due(self) -> float | None:
        """When to look again, at the latest; None when no host has a place."""
        if self._heap:
            return min(self._heap[0][0], self._covered) if self.scheduled else self._heap[0][0]
        return self._covered if self.scheduled else None

    def count_due(self, now: float) -> int:
        """Hosts in memory whose time has come; there may be more on disk. Linear in the window."""
        return sum(due <= now for due, _, _ in self._heap)

    def pop(self, now: float) -> str | None:
        """The name of the host that has been due the longest."""
        while True:
            if self._heap and self._heap[0][0] <= now:
                return heappop(self._heap)[2]
            if now < self._covered or not self.scheduled:
                return None
            self._read_window(now)

    def consumed(self) -> tuple[bytes, bytes]:
        """The range of keys that have been read."""
        return DUE, self._cursor

    def _read_window(self, now: float) -> None:
        keys = list(islice(self._store.keys(DUE, self._cursor), self._window))
        for key in keys:
            due, name = split_due_key(key)
            self.push(due, name)
        if len(keys) == self._window:
            self._cursor = keys[-1]
            self._covered = split_due_key(keys[-1])[0]
        else:
            last = split_due_key(keys[-1])[0] if keys else 0.0
            self._covered = max(now, last) + LOOKAHEAD
            self._cursor = DUE + due_bytes(self._covered)
