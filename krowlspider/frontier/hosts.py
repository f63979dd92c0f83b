"""What is remembered of a host, and how it is kept on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from struct import Struct

from krowlspider.frontier.schema import due_key
from krowlspider.politeness.pace import Pace

_HEAD = Struct(">BBdddHHQQQ")
_QUEUE = Struct(">iQQ")
_QUEUED = Struct(">Q")
_TIMES = Struct(">ddd")
_QUEUED_AT = 30
_TIMES_AT = 2
_VERSION = 1
_PUT_OFF = 1


class Turn(Enum):
    """Where a host stands in the round of fetching. One host has one turn at a time."""

    IDLE = "idle"  # nothing to pop
    RESTING = "resting"  # in the heap, until its next-fetch time
    PARKED = "parked"  # due, but its domain has all the requests in transit it may have
    IN_TRANSIT = "in transit"  # a request of it is on the way
    WAITING = "waiting"  # its robots.txt is being fetched from another host
    PUT_OFF = "put off"  # its robots.txt could not be had; tried again in the next round


@dataclass(slots=True, eq=False)
class Queue:
    """Sequences of one priority: entries from ``head`` up to, not including, ``tail`` are queued."""

    head: int
    tail: int


@dataclass(slots=True, eq=False)
class Host:
    """One host. ``due`` is its next-fetch time in seconds of the job clock; ``queued`` counts entries not popped,
    ``leased`` holds (priority, sequence) of those popped and not acknowledged. ``place`` is its key in the heap on
    disk, while it has entries and is not put off. ``recalled`` says that it was read from disk, ``waits`` that its
    robots.txt is being fetched from another host; it serves errands meanwhile."""

    name: str
    pace: Pace = field(default_factory=Pace)
    due: float = 0.0
    turn: Turn = Turn.IDLE
    domain: str = ""
    place: bytes | None = None
    recalled: bool = False
    waits: bool = False
    errand_last: bool = False
    queued: int = 0
    done: int = 0
    dropped: int = 0
    queues: dict[int, Queue] = field(default_factory=dict)
    # Lists, as they hold one or two: a set or deque for each host would be half its memory.
    leased: list[tuple[int, int]] = field(default_factory=list)
    errands: list[object] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """Entries on disk: queued or leased."""
        return self.queued + len(self.leased)

    @property
    def pinned(self) -> bool:
        """Whether memory holds more of it than its record on disk."""
        return bool(
            self.leased or self.errands or self.turn in (Turn.PARKED, Turn.IN_TRANSIT, Turn.WAITING)
        )

    def best(self) -> tuple[int, int] | None:
        """Priority and sequence of the entry to pop next."""
        priorities = self.queues if len(self.queues) == 1 else sorted(self.queues, reverse=True)
        for priority in priorities:
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

    def encode(self) -> bytes:
        """The host record: it counts leased entries as queued, because that is what they are after a restart."""
        pace = self.pace
        record = _HEAD.pack(
            _VERSION,
            _PUT_OFF if self.turn is Turn.PUT_OFF else 0,
            self.due,
            pace.ema,
            pace.floor,
            min(pace.distress, 0xFFFF),
            min(pace.errors, 0xFFFF),
            self.queued + len(self.leased),
            self.done,
            self.dropped,
        )
        for priority, queue in self.queues.items():
            head = queue.head
            for level, sequence in self.leased:
                if level == priority and sequence < head:
                    head = sequence
            record += _QUEUE.pack(priority, head, queue.tail)
        return record

    @classmethod
    def decode(cls, name: str, data: bytes) -> Host:
        """The host of a record.

        :raises ValueError: the record is of another version
        """
        version, flags, due, ema, floor, distress, errors, queued, done, dropped = (
            _HEAD.unpack_from(data)
        )
        if version != _VERSION:
            raise ValueError(f"host record of {name} has version {version}, not {_VERSION}")
        queues = {
            priority: Queue(head, tail)
            for priority, head, tail in _QUEUE.iter_unpack(data[_HEAD.size :])
        }
        pace = Pace(ema=ema, floor=floor, distress=distress, errors=errors)
        host = cls(name, pace, due, recalled=True, queued=queued, done=done, dropped=dropped)
        host.queues = queues
        if flags & _PUT_OFF:
            host.turn = Turn.PUT_OFF
        elif queued:
            host.turn = Turn.RESTING
            host.place = due_key(due, name)
        return host


def queued_in(record: bytes) -> tuple[int, bool]:
    """Entries that a host record counts and whether the host is put off, without reading the rest of it."""
    return _QUEUED.unpack_from(record, _QUEUED_AT)[0], bool(record[1] & _PUT_OFF)


def times_in(record: bytes) -> tuple[float, float, float]:
    """Due time, average latency and crawl-delay of a host record, without reading the rest of it; seconds."""
    return _TIMES.unpack_from(record, _TIMES_AT)
