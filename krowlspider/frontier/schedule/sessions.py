"""Sessions: a host is asked several times in a row, each time after its delay, while its connection
is open.

Without sessions, a host comes again when all hosts before it have had a request. Then it needs a
new connection and TLS handshake, and its record and the head of its queue are read from the disk
again. Heritrix's frontier has sessions for the same reason (its "balance").
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.limits import SessionLimits


class Sessions:
    """Names of hosts in a session that wait for their next request, and of called hosts. They are
    ordered by due time, in seconds of the job clock.

    All of them have places in the heap on disk, so a start after a death goes on without sessions.
    They need no place in its part in memory. They stay in memory themselves, as a host read from
    disk has no session.
    """

    def __init__(self, limits: SessionLimits):
        self._limits = limits
        self._heap: list[tuple[float, int, str]] = []
        self._pushes = 0

    def go_on(self, host: Host, wait: float, *, on: bool = False) -> bool:
        """Return whether a host whose request has ended is asked again in its session, ``wait``
        seconds from now. While ``on``, a session may exceed its number of requests."""
        limits = self._limits
        return (
            (host.session + 1 < limits.requests or (on and limits.requests > 1))
            and wait < limits.wait
            and len(self._heap) < limits.hosts
            # A host with errors or throttling goes back to the heap.
            and not (host.rate.errors or host.rate.throttling)
        )

    def is_begun(self, host: Host) -> bool:
        """Return whether a host is in a session that has requests left."""
        return 0 < host.session < self._limits.requests

    def push(self, due: float, name: str) -> None:
        """Add a host that is due at a time, in seconds of the job clock."""
        # The counter keeps hosts due at the same moment first in, first out.
        self._pushes += 1
        heappush(self._heap, (due, self._pushes, name))

    def pop(self, now: float) -> str | None:
        """Return the name of the host that has been due the longest; None when none is due."""
        heap = self._heap
        return heappop(heap)[2] if heap and heap[0][0] <= now else None

    def next_due(self) -> float:
        """Return when to pop again, in seconds of the job clock; inf when there is no host."""
        return self._heap[0][0] if self._heap else inf

    def count_due(self, now: float) -> int:
        """Return how many hosts are due."""
        return sum(due <= now for due, _, _ in self._heap)
