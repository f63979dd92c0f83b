"""What the frontier remembers of a host, and the format of a host's record on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import inf
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from krowlspider.politeness.delay import HostRate

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = Struct(">BBddffBBHIII")
# Follows the head in the records of hosts that have an origin.
_ORIGIN = Struct(">I")
_QUEUE = Struct(">iBII")
_QUEUED = Struct(">I")
_QUEUED_AT = 30
_TIMES = Struct(">ddffBBH")
_TIMES_AT = 2
_VERSION = 2
_VERSION_ORIGIN = 3

# The first byte of a sequence is its lane: 0 for new entries, n for entries tried n times. So each
# number of tries has a queue of its own, ordered by the due times of its entries.
_LANE_AT = 56
_LANES = 0xFF
_IN_LANE = 0xFFFFFFFF


class Health(IntEnum):
    """The health of a host. Its record stores the number of the member."""

    NEW = 0  # no request was sent yet
    ROBOTS = 1  # waiting for its robots.txt
    ACTIVE = 2  # its last answer was an ordinary one
    BACKING_OFF = 3  # it was throttling, or did not answer
    DEAD = 4  # deferred: its robots.txt cannot be fetched, or the host is parked
    RETIRED = 5  # it asks for a slower rate than this crawl keeps

    @property
    def words(self) -> str:
        """Return the name of the health as people read it, in lower case."""
        return (
            "waiting for robots" if self is Health.ROBOTS else self.name.lower().replace("_", " ")
        )


# The health that each health may change to. A retired host is new again once it was forgotten.
LEGAL_HEALTH_CHANGES: dict[Health, frozenset[Health]] = {
    Health.NEW: frozenset(
        {Health.ROBOTS, Health.ACTIVE, Health.BACKING_OFF, Health.DEAD, Health.RETIRED}
    ),
    Health.ROBOTS: frozenset({Health.ACTIVE, Health.BACKING_OFF, Health.DEAD, Health.RETIRED}),
    Health.ACTIVE: frozenset({Health.ROBOTS, Health.BACKING_OFF, Health.DEAD, Health.RETIRED}),
    Health.BACKING_OFF: frozenset({Health.ROBOTS, Health.ACTIVE, Health.DEAD, Health.RETIRED}),
    Health.DEAD: frozenset({Health.ACTIVE, Health.BACKING_OFF}),
    Health.RETIRED: frozenset(),
}


class IllegalTransition(Exception):
    """A change of health that `LEGAL_HEALTH_CHANGES` does not allow."""


class SchedulingState(Enum):
    """The scheduling state of a host. A host is in one state at a time."""

    IDLE = "idle"  # it has nothing to fetch
    RESTING = "resting"  # in the heap, until its next-fetch time
    BLOCKED = "blocked"  # due, but one of its shares has as many requests in flight as it may have
    IN_FLIGHT = "in flight"  # one of its requests is in flight
    WAITING = "waiting"  # its robots.txt is being fetched from another host
    DEFERRED = "deferred"  # out of the heap; tried again in a later round, once its time has come


# Names in the module: before Python 3.12 reading a member off its enum is slow, and every pop does
# so often.
IDLE, RESTING, BLOCKED, IN_FLIGHT, WAITING, DEFERRED = SchedulingState
_PINNING = (BLOCKED, IN_FLIGHT, WAITING)
_HEALTHS = tuple(Health)
_DEAD = Health.DEAD


def origin_of(domain: str) -> int:
    """Return the number by which a host's record names its origin: the domain whose pages led to
    it.

    The number is never 0. Two domains may have the same number; their hosts then share one origin.
    """
    return crc32(domain.encode()) or 1


def level_of(priority: int, sequence: int) -> int:
    """Return the level of an entry: the key of its host's queue that holds it.

    Greater levels are popped first. Within a priority, entries that were tried before go first once
    they are due: they have waited longer.
    """
    return priority << 8 | sequence >> _LANE_AT


@dataclass(slots=True, eq=False)
class Queue:
    """The queue of one level of a host. Sequences from ``head`` up to, not including, ``tail`` are
    queued. ``due`` is the earliest time, as far as is known, at which the first of them may be due.
    It is in seconds of the job clock."""

    head: int
    tail: int
    due: float = 0.0


@dataclass(slots=True, eq=False)
class Host:
    """One host. All times are in seconds of the job clock.

    - ``due``: its next-fetch time. ``ready``: the end of its last wait. They differ where only
      retries are queued and none of them is due.
    - ``domain``: its registrable domain; empty until it is needed.
    - ``address``, ``block``: the shares of the address at which it was last fetched; empty when
      that is not known.
    - ``places``: the shares in which it has a place while it is in flight.
    - ``origin``: the domain whose pages first led to it, as `origin_of`; 0 for none, and for its
      own.
    - ``placed``: the time under which it is in the heap on disk; None when it is not there.
      ``unread``: it belongs in the heap, but not yet in the part that is in memory.
    - ``record``: its record on disk; empty without one. ``changed``: memory is newer than the
      record. ``recalled``: it was read from disk.
    - ``waits``: its robots.txt is being fetched from another host. Meanwhile it serves robots
      fetches.
    - ``called``: the share in which room was made for it; empty for none.
    - ``held``: it was due, and this frontier may not fetch it. ``leaving``: it is on its way to
      another frontier.
    - ``robots_fetch_last``: its last pop was for a robots fetch, so a page is next.
    - ``session``: how many requests of its session came before the next one.
    - ``queued``: entries that were not popped. ``leased``: (priority, sequence) of entries that
      were popped and are not acknowledged. ``done``, ``dropped``: entries acknowledged so far.
    - ``queues``: its queues by level.
    """

    name: str
    rate: HostRate = field(default_factory=HostRate)
    due: float = 0.0
    ready: float = 0.0
    state: SchedulingState = IDLE
    health: Health = Health.NEW
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
    robots_fetch_last: bool = False
    session: int = 0
    queued: int = 0
    done: int = 0
    dropped: int = 0
    queues: dict[int, Queue] = field(default_factory=dict)
    # Lists, as they hold one or two items: a set or deque for each host would be half its memory.
    leased: list[tuple[int, int]] = field(default_factory=list)
    robots_fetches: list[object] = field(default_factory=list)
    # Level, sequence and value of the entries that are popped next, in reverse order: read
    # together.
    ahead: list[tuple[int, int, bytes | None]] | None = None

    def set_health(self, health: Health) -> None:
        """Change the health of the host.

        :raises IllegalTransition: the present health may not change to this one; nothing has
            changed
        """
        if health is self.health:
            return
        if health not in LEGAL_HEALTH_CHANGES[self.health]:
            raise IllegalTransition(
                f"{self.name} is {self.health.words} and cannot be {health.words}"
            )
        self.health = health

    @property
    def pending(self) -> int:
        """Return how many entries are on disk: queued or leased."""
        return self.queued + len(self.leased)

    @property
    def pinned(self) -> bool:
        """Return whether the host must stay in memory, which holds more of it than its record on
        disk."""
        return bool(
            self.changed
            or self.leased
            or self.robots_fetches
            or self.called
            or self.leaving
            or self.state in _PINNING
            or (self.session and self.state is RESTING)
        )

    @property
    def busy(self) -> bool:
        """Return whether the host cannot be handed over now: it has a request in flight,
        unacknowledged pages or robots fetches, waits for another host, or waits for room or was
        called to it."""
        return bool(
            self.leased
            or self.robots_fetches
            or self.waits
            or self.called
            or self.state in (IN_FLIGHT, BLOCKED)
        )

    def levels(self) -> Iterable[int]:
        """Return the keys of its queues, in the order in which they are popped."""
        return self.queues if len(self.queues) == 1 else sorted(self.queues, reverse=True)

    @property
    def head(self) -> tuple[int, int] | None:
        """Return level and sequence of the entry that is popped next; None where it may be missing.
        It is certain for a resting host with one queue without gaps: for nearly all hosts."""
        if not self.queued or self.state is not RESTING or len(self.queues) != 1:
            return None
        ((level, queue),) = self.queues.items()
        # The queue has no gaps, as in `has_gaps`.
        return (level, queue.head) if queue.tail - queue.head == self.queued else None

    @property
    def rests(self) -> bool:
        """Return whether the host is deferred until its own time, not until the next round, and has
        entries queued."""
        return self.state is DEFERRED and self.ready == self.due and self.queued > 0

    @property
    def has_gaps(self) -> bool:
        """Return whether its queues have sequences without an entry: some were acknowledged while
        an older one was not."""
        if len(self.queues) == 1:
            # The short way: nearly all hosts have one queue.
            (queue,) = self.queues.values()
            return queue.tail - queue.head != self.queued
        return sum(queue.tail - queue.head for queue in self.queues.values()) != self.queued

    def earliest(self) -> float:
        """Return the time at which the first of its queued entries is due, as far as is known, in
        seconds of the job clock; inf when none is queued."""
        return min(
            (queue.due for queue in self.queues.values() if queue.head < queue.tail), default=inf
        )

    def append(self, priority: int, tries: int = 0) -> int:
        """Count a new entry at the end of its queue, and return its sequence.

        ``tries`` is how often the entry has been tried, when its next try has a due time; else 0.
        """
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
        """End the lease of an entry that is removed from disk too. A queue that is empty then is
        removed, except that of level 0."""
        self.leased.remove((priority, sequence))
        if level := level_of(priority, sequence):
            queue = self.queues.get(level)
            # A new queue begins at the first sequence again: no key of the old one may still be on
            # disk.
            if (
                queue
                and queue.head == queue.tail
                and level not in [level_of(*at) for at in self.leased]
            ):
                del self.queues[level]

    def encode(self) -> bytes:
        """Return the host record. It counts leased entries as queued: after a restart they are."""
        rate = self.rate
        record = _HEAD.pack(
            _VERSION_ORIGIN if self.origin else _VERSION,
            self.health,
            self.due,
            self.ready,
            rate.ema,
            rate.floor,
            rate.quiet,
            rate.throttling,
            min(rate.errors, 0xFFFF),
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
        """Return the host that a record describes.

        :raises ValueError: the record is of another version
        """
        (
            version,
            health,
            due,
            ready,
            ema,
            floor,
            quiet,
            throttling,
            errors,
            queued,
            done,
            dropped,
        ) = _HEAD.unpack_from(data)
        if version not in (_VERSION, _VERSION_ORIGIN):
            raise ValueError(f"host record of {name} has version {version}, not {_VERSION}")
        host = cls(name, HostRate(ema, floor, quiet, throttling, errors), due)
        host.ready = ready
        host.health = _HEALTHS[health]
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
        if health == _DEAD:
            host.state = DEFERRED
        elif queued:
            host.state = RESTING
            host.placed = due
        return host


def queued_in(record: bytes) -> tuple[int, bool]:
    """Return how many entries a host record counts, leased ones too, and whether the host is
    deferred. The rest of the record is not read."""
    return _QUEUED.unpack_from(record, _QUEUED_AT)[0], record[1] == _DEAD


def times_in(record: bytes) -> tuple[float, HostRate]:
    """Return due time, in seconds of the job clock, and rate of a host record. The rest of the
    record is not read."""
    due, _, *rate = _TIMES.unpack_from(record, _TIMES_AT)
    return due, HostRate(*rate)
