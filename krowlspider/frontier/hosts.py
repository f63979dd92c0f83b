"""What is remembered of a host, and how it is kept on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import inf
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from krowlspider.politeness.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = Struct(">BBddffBBHIII")
# Behind it, in records of hosts that have one.
_ORIGIN = Struct(">I")
_QUEUE = Struct(">iBII")
_QUEUED = Struct(">I")
_QUEUED_AT = 30
_TIMES = Struct(">ddffBBH")
_TIMES_AT = 2
_VERSION = 2
_VERSION_ORIGIN = 3

# The first byte of a sequence is its lane: 0 for what is new, n for what has been tried n times. So each try has a
# queue of its own, in order of the times at which its entries are due.
_LANE_AT = 56
_LANES = 0xFF
_IN_LANE = 0xFFFFFFFF


class State(IntEnum):
    """What is known of a host's health; the number is the one in its record."""

    NEW = 0  # never asked
    ROBOTS = 1  # waiting for its robots.txt
    ACTIVE = 2  # its last answer was an ordinary one
    BACKING_OFF = 3  # it asked for rest, or did not answer
    DEAD = 4  # put off: its robots.txt cannot be had, or it is parked
    RETIRED = 5  # it asks for a slower pace than this crawl keeps

    @property
    def words(self) -> str:
        """The state as people read it."""
        return "waiting for robots" if self is State.ROBOTS else self.name.lower().replace("_", " ")


# Where a host may go from each state. A retired one is new again when it has been forgotten.
LEGAL_MOVES: dict[State, frozenset[State]] = {
    State.NEW: frozenset(
        {State.ROBOTS, State.ACTIVE, State.BACKING_OFF, State.DEAD, State.RETIRED}
    ),
    State.ROBOTS: frozenset({State.ACTIVE, State.BACKING_OFF, State.DEAD, State.RETIRED}),
    State.ACTIVE: frozenset({State.ROBOTS, State.BACKING_OFF, State.DEAD, State.RETIRED}),
    State.BACKING_OFF: frozenset({State.ROBOTS, State.ACTIVE, State.DEAD, State.RETIRED}),
    State.DEAD: frozenset({State.ACTIVE, State.BACKING_OFF}),
    State.RETIRED: frozenset(),
}


class IllegalMove(Exception):
    """A host was to go where its state does not lead."""


class Turn(Enum):
    """Where a host stands in the round of fetching. One host has one turn at a time."""

    IDLE = "idle"  # nothing to pop
    RESTING = "resting"  # in the heap, until its next-fetch time
    PARKED = "parked"  # due, but one of its shares has all the requests in transit it may have
    IN_TRANSIT = "in transit"  # a request of it is on the way
    WAITING = "waiting"  # its robots.txt is being fetched from another host
    PUT_OFF = "put off"  # out of the heap; tried again in a round that comes after its time


# By these names: before Python 3.12, to read a member off its enum takes 0.1 µs, and a pop does so fifteen times.
IDLE, RESTING, PARKED, IN_TRANSIT, WAITING, PUT_OFF = Turn
_PINNING = (PARKED, IN_TRANSIT, WAITING)
_STATES = tuple(State)
_DEAD = State.DEAD


def origin_of(domain: str) -> int:
    """What a host's record keeps of the domain by whose pages it was found. Two domains may have
    the same number, and share then."""
    return crc32(domain.encode()) or 1


def level_of(priority: int, sequence: int) -> int:
    """The queue of a host that an entry is in: greater ones are popped first. Within a priority, what has been
    tried before goes first when it is due, as it has waited longer."""
    return priority << 8 | sequence >> _LANE_AT


@dataclass(slots=True, eq=False)
class Queue:
    """Sequences of one level: entries from ``head`` up to, not including, ``tail`` are queued. The first of them
    is not due before ``due``, as far as is known."""

    head: int
    tail: int
    due: float = 0.0


@dataclass(slots=True, eq=False)
class Host:
    """One host. ``due`` is its next-fetch time in seconds of the job clock, ``ready`` the end of its last wait: they
    differ where nothing but retries is queued, and none of them is due. ``queued`` counts entries not popped,
    ``leased`` holds (priority, sequence) of those popped and not acknowledged. ``placed`` is the time by which it is
    in the heap on disk, ``unread`` says that it is to be in the heap and not yet in memory's part of it.
    ``address`` and ``block`` are the shares of where it was last fetched; empty when that is not
    known. ``places`` are the shares in which it has a place, in transit. ``origin`` says by the
    pages of which domain it was first found, as of `origin_of`; 0 where none or its own did.
    ``record`` is its record on disk, empty without one, ``changed`` says that memory knows more than it.
    ``recalled`` says that it was read from disk, ``waits`` that its robots.txt is being fetched from another host;
    it serves errands meanwhile. ``called`` is the share in which room was made for it, empty for none,
    ``held`` says that it was due and not ours to fetch, ``leaving`` that it is on its way to another frontier. ``session`` counts the requests of its session before the next one."""

    name: str
    pace: Pace = field(default_factory=Pace)
    due: float = 0.0
    ready: float = 0.0
    turn: Turn = IDLE
    state: State = State.NEW
    domain: str = ""
    address: str = ""
    block: str = ""
    places: tuple[str, ...] = ()
    origin: int = 0
    placed: float | None = None
    unread: bool = False
    record: bytes = b""
    changed: bool = False
    recalled: bool = False
    waits: bool = False
    called: str = ""
    held: bool = False
    leaving: bool = False
    errand_last: bool = False
    session: int = 0
    queued: int = 0
    done: int = 0
    dropped: int = 0
    queues: dict[int, Queue] = field(default_factory=dict)
    # Lists, as they hold one or two: a set or deque for each host would be half its memory.
    leased: list[tuple[int, int]] = field(default_factory=list)
    errands: list[object] = field(default_factory=list)
    # Level, sequence and value of entries that are popped next, the first of them last: read together.
    ahead: list[tuple[int, int, bytes | None]] | None = None

    def become(self, state: State) -> None:
        """:raises IllegalMove: the state does not lead there; nothing has changed"""
        if state is self.state:
            return
        if state not in LEGAL_MOVES[self.state]:
            raise IllegalMove(f"{self.name} is {self.state.words} and cannot be {state.words}")
        self.state = state

    @property
    def pending(self) -> int:
        """Entries on disk: queued or leased."""
        return self.queued + len(self.leased)

    @property
    def pinned(self) -> bool:
        """Whether memory holds more of it than its record on disk."""
        return bool(
            self.changed
            or self.leased
            or self.errands
            or self.called
            or self.leaving
            or self.turn in _PINNING
            or (self.session and self.turn is RESTING)
        )

    @property
    def busy(self) -> bool:
        """Whether it has a request in transit, pages that are not acknowledged, or waits for another host."""
        return bool(
            self.leased
            or self.errands
            or self.waits
            or self.called
            or self.turn in (IN_TRANSIT, PARKED)
        )

    def levels(self) -> Iterable[int]:
        """The keys of its queues, those to pop from first in front."""
        return self.queues if len(self.queues) == 1 else sorted(self.queues, reverse=True)

    @property
    def head(self) -> tuple[int, int] | None:
        """Level and sequence of the entry that is popped next, where it is sure to be there: of the hosts with a single
        queue, nearly all."""
        if not self.queued or self.turn is not RESTING or len(self.queues) != 1:
            return None
        ((level, queue),) = self.queues.items()
        # As with `has_gaps`.
        return (level, queue.head) if queue.tail - queue.head == self.queued else None

    @property
    def rests(self) -> bool:
        """Whether it is put off until its own time, not for the next round, and has something to be fetched then."""
        return self.turn is PUT_OFF and self.ready == self.due and self.queued > 0

    @property
    def has_gaps(self) -> bool:
        """Whether its queues have sequences without an entry: acknowledged ones, while an older one was not."""
        if len(self.queues) == 1:
            # What nearly all have.
            (queue,) = self.queues.values()
            return queue.tail - queue.head != self.queued
        return sum(queue.tail - queue.head for queue in self.queues.values()) != self.queued

    def earliest(self) -> float:
        """When the first of its queued entries is due, as far as is known; seconds of the job clock."""
        return min(
            (queue.due for queue in self.queues.values() if queue.head < queue.tail), default=inf
        )

    def append(self, priority: int, tries: int = 0) -> int:
        """The sequence for a new entry at the end of a level. ``tries`` says how often it has been tried, when
        its next try has a time of its own."""
        lane = min(tries, _LANES)
        level = priority << 8 | lane
        queue = self.queues.get(level)
        if queue is None:
            start = lane << _LANE_AT
            queue = self.queues[level] = Queue(start, start)
        queue.tail += 1
        self.queued += 1
        return queue.tail - 1

    def end_lease(self, priority: int, sequence: int) -> None:
        """A lease is over, on disk too. A queue that nothing is in ends with it, but for the ordinary one."""
        self.leased.remove((priority, sequence))
        if level := level_of(priority, sequence):
            queue = self.queues.get(level)
            # Its sequences start anew only when no key of the old ones is left to be removed.
            if (
                queue
                and queue.head == queue.tail
                and level not in [level_of(*at) for at in self.leased]
            ):
                del self.queues[level]

    def encode(self) -> bytes:
        """The host record: it counts leased entries as queued, because that is what they are after a restart."""
        pace = self.pace
        record = _HEAD.pack(
            _VERSION_ORIGIN if self.origin else _VERSION,
            self.state,
            self.due,
            self.ready,
            pace.ema,
            pace.floor,
            pace.quiet,
            pace.distress,
            min(pace.errors, 0xFFFF),
            self.queued + len(self.leased),
            self.done,
            self.dropped,
        )
        if self.origin:
            record += _ORIGIN.pack(self.origin)
        for level, queue in self.queues.items():
            head = queue.head
            for priority, sequence in self.leased:
                if sequence < head and level_of(priority, sequence) == level:
                    head = sequence
            record += _QUEUE.pack(
                level >> 8, level & _LANES, head & _IN_LANE, queue.tail & _IN_LANE
            )
        return record

    @classmethod
    def decode(cls, name: str, data: bytes) -> Host:
        """The host of a record.

        :raises ValueError: the record is of another version
        """
        version, state, due, ready, ema, floor, quiet, distress, errors, queued, done, dropped = (
            _HEAD.unpack_from(data)
        )
        if version not in (_VERSION, _VERSION_ORIGIN):
            raise ValueError(f"host record of {name} has version {version}, not {_VERSION}")
        host = cls(name, Pace(ema, floor, quiet, distress, errors), due)
        host.ready = ready
        host.state = _STATES[state]
        host.recalled = True
        host.queued = queued
        host.done = done
        host.dropped = dropped
        host.record = data
        queues_at = _HEAD.size
        if version == _VERSION_ORIGIN:
            (host.origin,) = _ORIGIN.unpack_from(data, queues_at)
            queues_at += _ORIGIN.size
        for at in range(queues_at, len(data), _QUEUE.size):
            priority, lane, head, tail = _QUEUE.unpack_from(data, at)
            start = lane << _LANE_AT
            host.queues[priority << 8 | lane] = Queue(start + head, start + tail)
        if state == _DEAD:
            host.turn = PUT_OFF
        elif queued:
            host.turn = RESTING
            host.placed = due
        return host


def queued_in(record: bytes) -> tuple[int, bool]:
    """Entries that a host record counts and whether the host is put off, without reading the rest of it."""
    return _QUEUED.unpack_from(record, _QUEUED_AT)[0], record[1] == _DEAD


def times_in(record: bytes) -> tuple[float, Pace]:
    """Due time and pace of a host record, without reading the rest of it."""
    due, _, *pace = _TIMES.unpack_from(record, _TIMES_AT)
    return due, Pace(*pace)
