"""Sessions: a host is asked several times in a row, each time after its delay, while its connection is open.

Else a host with others before it comes again when they all have had their turn, to a new connection, TLS handshake and all,
and its record and the head of its queue are read from the disk again. Heritrix's frontier has sessions for the same reason
(its "balance").
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krowlspider.frontier.hosts import Host


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """``requests`` of a session at most (1: there are none), less than ``wait`` seconds from one to the next. None goes
    on while so many ``hosts`` wait for their next one."""

    requests: int = 1
    wait: float = 0.0
    hosts: int = 0


NO_SESSIONS = SessionLimits()


class Sessions:
    """Names of the hosts that have one and wait for their next request, and of those for which room was made, by the time they
    are due, in seconds of the job clock.

    They have places in the heap on disk like all others, so that who dies goes on without sessions, and need none in its part
    in memory. They stay in memory themselves, as who is read from the disk has no session.
    """

    def __init__(self, limits: SessionLimits):
        self._limits = limits
        self._heap: list[tuple[float, int, str]] = []
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._heap)

    def go_on(self, host: Host, wait: float, *, on: bool = False) -> bool:
        """Whether a host whose request has ended is to be asked again in its session, ``wait``
        seconds from now. ``on`` says that sessions have no end for now."""
        limits = self._limits
        return (
            (host.session + 1 < limits.requests or (on and limits.requests > 1))
            and wait < limits.wait
            and len(self._heap) < limits.hosts
            # One in trouble is left to its turn.
            and not (host.pace.errors or host.pace.distress)
        )

    def push(self, due: float, name: str) -> None:
        """It is asked again at its time."""
        # The count keeps hosts due at the same moment first in, first out.
        self._pushes += 1
        heappush(self._heap, (due, self._pushes, name))

    def pop(self, now: float) -> str | None:
        """The name of the host that has been due the longest."""
        heap = self._heap
        return heappop(heap)[2] if heap and heap[0][0] <= now else None

    def next_due(self) -> float | None:
        """When to pop again; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def count_due(self, now: float) -> int:
        """Hosts whose time has come."""
        return sum(due <= now for due, _, _ in self._heap)
