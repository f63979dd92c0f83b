"""Hosts: what is remembered of each, and the heap of those that may be fetched, by next-fetch time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from struct import Struct

from krowlspider.politeness.pace import Pace

_HEAD = Struct(">BdddHHQQQ")
_QUEUE = Struct(">iQQ")
_VERSION = 1


class Turn(Enum):
    """Where a host stands in the round of fetching. One host has one turn at a time."""

    RESTING = "resting"  # in the heap, until its next-fetch time
    PARKED = "parked"  # due, but its domain has all the requests in transit it may have
    IN_TRANSIT = "in transit"  # a request of it is on the way
    WAITING = "waiting"  # its robots.txt is being fetched from another host
    IDLE = "idle"  # nothing queued and no delay to remember


@dataclass(slots=True, eq=False)
class Queue:
    """Sequences of one priority: entries from ``head`` up to, not including, ``tail`` are queued."""

    head: int
    tail: int


@dataclass(slots=True, eq=False)
class Host:
    """One host. ``due`` is its next-fetch time on the monotonic clock, in seconds; ``queued`` counts entries not
    popped, ``leased`` holds (priority, sequence) of those popped and not acknowledged."""

    name: str
    domain: str
    pace: Pace = field(default_factory=Pace)
    due: float = 0.0
    turn: Turn = Turn.IDLE
    queued: int = 0
    done: int = 0
    dropped: int = 0
    queues: dict[int, Queue] = field(default_factory=dict)
    leased: set[tuple[int, int]] = field(default_factory=set)
    errands: deque[object] = field(default_factory=deque)

    def best(self) -> tuple[int, int] | None:
        """Priority and sequence of the entry to pop next."""
        for priority in sorted(self.queues, reverse=True):
            queue = self.queues[priority]
            if queue.head < queue.tail:
                return priority, queue.head
        return None

    def append(self, priority: int) -> int:
        """The sequence for a new entry at the end of a priority."""
        queue = self.queues.get(priority)
        if queue is None:
            queue = self.queues[priority] = Queue(0, 0)
        queue.tail += 1
        self.queued += 1
        return queue.tail - 1

    def encode(self, wall_due: float) -> bytes:
        """The host record: it counts leased entries as queued, because that is what they are after a restart."""
        pace = self.pace
        head = _HEAD.pack(
            _VERSION,
            wall_due,
            pace.ema,
            pace.floor,
            min(pace.distress, 0xFFFF),
            min(pace.errors, 0xFFFF),
            self.queued + len(self.leased),
            self.done,
            self.dropped,
        )
        return head + b"".join(
            _QUEUE.pack(priority, self._kept_head(priority, queue.head), queue.tail)
            for priority, queue in self.queues.items()
        )

    def _kept_head(self, priority: int, head: int) -> int:
        leased = [sequence for level, sequence in self.leased if level == priority]
        return min(leased, default=head)

    @classmethod
    def decode(cls, name: str, domain: str, data: bytes) -> tuple[Host, float]:
        """The host and the wall-clock time (epoch seconds) it is due."""
        version, due, ema, floor, distress, errors, queued, done, dropped = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise ValueError(f"host record of {name} has version {version}, not {_VERSION}")
        queues = {
            priority: Queue(head, tail)
            for priority, head, tail in _QUEUE.iter_unpack(data[_HEAD.size :])
        }
        pace = Pace(ema=ema, floor=floor, distress=distress, errors=errors)
        host = cls(name, domain, pace, queued=queued, done=done, dropped=dropped, queues=queues)
        return host, due


class HostHeap:
    """Hosts by next-fetch time: the longest overdue comes first. Holds a host at most once, as RESTING or PARKED.

    At most ``domain_limit`` hosts of one domain are in transit; a due host above that is parked until one of its
    domain comes back.
    """

    def __init__(self, domain_limit: int):
        self._limit = domain_limit
        self._heap: list[tuple[float, int, Host]] = []
        self._pushes = 0
        self._in_transit: dict[str, int] = {}
        self._parked: dict[str, deque[Host]] = {}
        self.parked = 0

    def __len__(self) -> int:
        return len(self._heap) + self.parked

    def push(self, host: Host) -> None:
        host.turn = Turn.RESTING
        # The count keeps hosts due at the same moment first in, first out.
        self._pushes += 1
        heappush(self._heap, (host.due, self._pushes, host))

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def count_due(self, now: float) -> int:
        """Hosts whose time has come. Linear: for the status line, not for the hot path."""
        return sum(due <= now for due, _, _ in self._heap) + self.parked

    def pop(self, now: float) -> Host | None:
        """Take the longest overdue host whose domain has room, and put it in transit."""
        while self._heap and self._heap[0][0] <= now:
            host = heappop(self._heap)[2]
            if self._in_transit.get(host.domain, 0) < self._limit:
                self._in_transit[host.domain] = self._in_transit.get(host.domain, 0) + 1
                host.turn = Turn.IN_TRANSIT
                return host
            host.turn = Turn.PARKED
            self._parked.setdefault(host.domain, deque()).append(host)
            self.parked += 1
        return None

    def leave_transit(self, host: Host) -> None:
        """The host's request has ended: make room in its domain. The caller gives the host its next turn."""
        if host.turn is not Turn.IN_TRANSIT:
            raise ValueError(f"{host.name} is {host.turn.value}, not in transit")
        host.turn = Turn.IDLE
        left = self._in_transit[host.domain] - 1
        if left:
            self._in_transit[host.domain] = left
        else:
            del self._in_transit[host.domain]
        if parked := self._parked.get(host.domain):
            self.push(parked.popleft())
            self.parked -= 1
            if not parked:
                del self._parked[host.domain]
