"""One host as the frontier knows it: its state, its rate, and its queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from krowlspider.frontier.hosts.table import HostEvent, SchedulingState
from krowlspider.frontier.store.schema import PRIORITY_LIMIT
from krowlspider.politeness.delay import HostRate
from krowlspider.urls.canonical import authority_of, domain_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# The first byte of a sequence is its lane: 0 for new entries, n for entries tried n times. So each
# number of tries has a queue of its own, ordered by the due times of its entries.
LANE_AT = 56
LANES = 0xFF
_IN_LANE = (1 << LANE_AT) - 1
# The priority of seeds, and of the URLs at which seeds go on. No other entry has it.
SEED_PRIORITY = 1_000_000
# The priority of pages that are fetched again by the schedule: behind all others.
AGAIN_PRIORITY = -PRIORITY_LIMIT


def level_of(priority: int, sequence: int) -> int:
    """Return the level of an entry: the key of its host's queue that holds it.

    Greater levels are popped first. Within a priority, entries that were tried before go first once
    they are due: they have waited longer.
    """
    return priority << 8 | sequence >> LANE_AT


@dataclass(slots=True, eq=False)
class Level:
    """The entries of one level of a host's queue.

    Sequences from ``head`` up to, not including, ``tail`` are queued. ``due`` is the earliest time,
    as far as is known, at which the first of them may be due, in seconds of the job clock.
    """

    head: int
    tail: int
    due: float = 0.0


@dataclass(slots=True, eq=False)
class HostQueue:
    """The queue entries of one host.

    - ``levels``: its queues by level.
    - ``queued``: entries that were not popped. ``leased``: (priority, sequence) of entries that
      were popped and are not acknowledged. ``done``, ``dropped``: entries acknowledged so far.
    - ``extras``: entries done that are no pages: redirects, sitemaps, requisites, opt-out files.
    - ``ahead``: level, sequence and value of the entries that are popped next, in reverse order.
    """

    levels: dict[int, Level] = field(default_factory=dict)
    queued: int = 0
    # A list, as it holds one or two items: a set for each host would be half its memory.
    leased: list[tuple[int, int]] = field(default_factory=list)
    done: int = 0
    dropped: int = 0
    extras: int = 0
    ahead: list[tuple[int, int, bytes | None]] | None = None

    @property
    def pages(self) -> int:
        """Return how many pages are done."""
        return self.done - self.extras

    @property
    def pending(self) -> int:
        """Return how many entries are on disk: queued or leased."""
        return self.queued + len(self.leased)

    def in_order(self) -> Iterable[int]:
        """Return the levels in the order in which they are popped."""
        return self.levels if len(self.levels) == 1 else sorted(self.levels, reverse=True)

    def in_turn(self, share: float) -> Iterable[int]:
        """Return the levels as `in_order`, with those of AGAIN_PRIORITY first at a ``share`` of the
        pops while other entries are queued too."""
        numbers = self.in_order()
        again = [number for number in numbers if number >> 8 == AGAIN_PRIORITY]
        if not again or len(again) == len(self.levels):
            return numbers
        # Each pop makes this number greater by one, so it needs no place of its own.
        pops = sum(level.head & _IN_LANE for level in self.levels.values())
        if int((pops + 1) * share) == int(pops * share):
            return numbers
        return [*again, *(number for number in numbers if number >> 8 != AGAIN_PRIORITY)]

    @property
    def has_gaps(self) -> bool:
        """Return whether there are sequences without an entry: some were acknowledged while an
        older one was not."""
        if len(self.levels) == 1:
            # The short way: nearly all hosts have one level.
            (level,) = self.levels.values()
            return level.tail - level.head != self.queued
        return sum(level.tail - level.head for level in self.levels.values()) != self.queued

    @property
    def head(self) -> tuple[int, int] | None:
        """Return level and sequence of the entry that is popped next; None where it may be missing.
        It is certain for a queue of one level without gaps: for nearly all hosts."""
        if not self.queued or len(self.levels) != 1:
            return None
        ((number, level),) = self.levels.items()
        return (number, level.head) if level.tail - level.head == self.queued else None

    def seeds(self) -> tuple[int, int, float]:
        """Return how many seeds were not tried, how many wait to be tried again, and when the first
        of these is due, as far as is known, in seconds of the job clock."""
        levels = self.levels
        if len(levels) == 1 and 0 in levels:
            # The short way: nearly all hosts have none.
            return 0, 0, inf
        fresh = retries = 0
        due = inf
        for number, level in levels.items():
            if number >> 8 == SEED_PRIORITY and (count := level.tail - level.head):
                if number & LANES:
                    retries, due = retries + count, min(due, level.due)
                else:
                    fresh += count
        return fresh, retries, due

    @property
    def has_seeds(self) -> bool:
        """Return whether a seed is queued that was not tried."""
        return self.seeds()[0] > 0

    def waits_with_seed(self, now: float) -> bool:
        """Return whether a seed may be fetched at ``now``, in seconds of the job clock."""
        fresh, _, due = self.seeds()
        return fresh > 0 or due <= now

    def earliest(self) -> float:
        """Return the time at which the first queued entry is due, as far as is known, in seconds of
        the job clock; inf when none is queued."""
        return min(
            (level.due for level in self.levels.values() if level.head < level.tail), default=inf
        )

    def level(self, priority: int, tries: int = 0) -> Level:
        """Return the level of new entries of a priority.

        ``tries`` is how often they have been tried, when their next try has a due time; else 0.
        """
        lane = min(tries, LANES)
        number = priority << 8 | lane
        level = self.levels.get(number)
        if level is None:
            start = lane << LANE_AT
            level = self.levels[number] = Level(start, start)
        return level

    def end_lease(self, priority: int, sequence: int) -> None:
        """End the lease of an entry that is removed from disk too. A level that is empty then is
        removed, except level 0."""
        self.leased.remove((priority, sequence))
        if number := level_of(priority, sequence):
            level = self.levels.get(number)
            # A new level begins at the first sequence again: no key of the old one may still be on
            # disk.
            if (
                level
                and level.head == level.tail
                and number not in [level_of(*at) for at in self.leased]
            ):
                del self.levels[number]


# Names in the module: before Python 3.12 reading a member off its enum is slow, and every pop does
# so often.
IDLE = SchedulingState.IDLE
SCHEDULED = SchedulingState.SCHEDULED
WAITING = SchedulingState.WAITING
CALLED = SchedulingState.CALLED
IN_FLIGHT = SchedulingState.IN_FLIGHT
AWAITING_ROBOTS = SchedulingState.AWAITING_ROBOTS
DEFERRED = SchedulingState.DEFERRED
HELD = SchedulingState.HELD
SEALED = SchedulingState.SEALED

# Due times of hosts that a pause or a block covers, in seconds of the job clock: of one that came
# from another node where it was put off, and of one put off here. No other due time is so late.
PUT_OFF_ELSEWHERE = 1e10
PUT_OFF_HERE = 2e10


class Health(IntEnum):
    """The health of a host. Its record stores the number of the member."""

    NEW = 0  # no request was sent yet
    ROBOTS = 1  # waiting for its robots.txt
    ACTIVE = 2  # its last answer was an ordinary one
    BACKING_OFF = 3  # it was throttling, or did not answer
    DEFERRED = 4  # errors, no robots.txt, or it held the event loop
    RETIRED = 5  # it asks for a slower rate than this crawl keeps

    @property
    def words(self) -> str:
        """Return the name of the health as people read it, in lower case."""
        if self is Health.ROBOTS:
            return "waiting for robots"
        return self.name.lower().replace("_", " ")


# The health that each health may change to. A retired host is new again once it was forgotten.
LEGAL_HEALTH_CHANGES: dict[Health, frozenset[Health]] = {
    Health.NEW: frozenset(
        {Health.ROBOTS, Health.ACTIVE, Health.BACKING_OFF, Health.DEFERRED, Health.RETIRED}
    ),
    Health.ROBOTS: frozenset({Health.ACTIVE, Health.BACKING_OFF, Health.DEFERRED, Health.RETIRED}),
    Health.ACTIVE: frozenset({Health.ROBOTS, Health.BACKING_OFF, Health.DEFERRED, Health.RETIRED}),
    Health.BACKING_OFF: frozenset({Health.ROBOTS, Health.ACTIVE, Health.DEFERRED, Health.RETIRED}),
    Health.DEFERRED: frozenset({Health.ACTIVE, Health.BACKING_OFF}),
    Health.RETIRED: frozenset(),
}


class IllegalTransition(Exception):
    """A change of health that `LEGAL_HEALTH_CHANGES` does not allow."""


def origin_of(domain: str) -> int:
    """Return the number by which a host's record names its origin: the domain whose pages led to
    it.

    The number is never 0. Two domains may have the same number; their hosts then share one origin.
    """
    return crc32(domain.encode()) or 1


@dataclass(slots=True, eq=False)
class HostShares:
    """What a host has in common with others.

    - ``origin``: the domain whose pages first led to it, as `origin_of`; 0 for none, and for its
      own.
    - ``address``, ``address_block``: the shares of the address at which it was last fetched; empty
      when that is not known.
    - ``places``: the shares in which it has a place while it is in flight.
    """

    origin: int = 0
    address: str = ""
    address_block: str = ""
    places: tuple[str, ...] = ()


class RobotsFetch(msgspec.Struct, eq=False):
    """The fetch of one authority's robots.txt.

    ``host`` is the host whose pages wait for it. ``url`` is the URL to fetch next. ``passed`` are
    the authorities whose robots.txt redirected, the last of them to ``url``. ``redirects``,
    ``retries`` and ``throttling`` count redirects, tries without an answer, and answers 429 or 5xx.

    ``asked_by`` are the nodes for which the URL is fetched, with the numbers of their asks. Such a
    fetch has no ``authority``, and its ``host`` is that of the URL.
    """

    authority: str
    host: Host
    url: str
    redirects: int = 0
    retries: int = 0
    throttling: int = 0
    passed: list[str] = msgspec.field(default_factory=list)
    asked_by: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def is_away(self) -> bool:
        """Return whether the host awaits this fetch from another host."""
        return self in self.host.robots.awaited

    @property
    def is_fresh(self) -> bool:
        """Return whether no try has failed, no redirect was followed, and no node has asked."""
        tried = self.retries or self.throttling or self.passed
        return not (tried or self.is_away or self.asked_by)

    @property
    def source(self) -> str | None:
        """Return the authority whose robots.txt is ``url``; None if ``url`` is another file."""
        authority = authority_of(self.url)
        return authority if self.url == authority + "/robots.txt" else None


@dataclass(slots=True, eq=False)
class HostRobots:
    """The robots fetches that concern a host.

    - ``fetches``: those that wait to be sent to it, for itself or for other hosts.
    - ``awaited``: those of its own that are to be sent to other hosts. Its pages wait for them.
    - ``served_last``: its last pop was for a robots fetch, so a page is next.
    - ``looked_at``: the authority of its last page, whose robots.txt was looked at for sitemaps.
    - ``passed_over``: its entries since its last page whose server could not be asked.
    """

    fetches: list[RobotsFetch] = field(default_factory=list)
    awaited: list[RobotsFetch] = field(default_factory=list)
    served_last: bool = False
    looked_at: str = ""
    passed_over: int = 0


@dataclass(slots=True, eq=False)
class Host:
    """One host. All times are in seconds of the job clock.

    - ``due``: its next-fetch time. ``ready``: the end of its last wait. They differ where only
      retries are queued and none of them is due.
    - ``session``: how many requests of its session came before the next one.
    - ``asks_signature``: requests to it are signed, if there is a key.
    - ``record``: its record on disk; empty without one.
    - ``domain``: its registrable domain.
    """

    name: str
    state: SchedulingState = IDLE
    health: Health = Health.NEW
    rate: HostRate = field(default_factory=HostRate)
    due: float = 0.0
    ready: float = 0.0
    session: int = 0
    asks_signature: bool = False
    record: bytes = b""
    queue: HostQueue = field(default_factory=HostQueue)
    shares: HostShares = field(default_factory=HostShares)
    robots: HostRobots = field(default_factory=HostRobots)
    domain: str = field(init=False)

    def __post_init__(self) -> None:
        self.domain = domain_of(self.name)

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
    def is_put_off(self) -> bool:
        """Return whether a pause or a block covers the host, or did at the node it came from."""
        return self.due >= PUT_OFF_ELSEWHERE

    @property
    def has_own_time(self) -> bool:
        """Return whether the host has entries and is deferred until its own due time.

        Otherwise a deferred host waits for the next round: the hour or start at which all deferred
        hosts are tried again.
        """
        return self.state is DEFERRED and self.ready == self.due and self.queue.queued > 0

    @property
    def has_work(self) -> bool:
        """Return whether a request may be sent once the host is due: a robots fetch, or a page that
        waits for no robots.txt and no later round."""
        if self.robots.fetches:
            return True
        if self.state is DEFERRED:
            return self.has_own_time
        return self.queue.queued > 0 and not self.robots.awaited

    @property
    def is_busy(self) -> bool:
        """Return whether the host cannot be handed over now: it has a request in flight,
        unacknowledged pages or robots fetches, or waits for another host."""
        return bool(
            self.queue.leased
            or self.robots.fetches
            or self.robots.awaited
            or self.state is IN_FLIGHT
        )

    def after_change(self) -> HostEvent:
        """Return the event by which the host goes where it belongs, when its due time or what it
        has to fetch has changed."""
        if self.robots.awaited:
            return HostEvent.AWAITS_ROBOTS
        if self.queue.queued:
            return HostEvent.HAS_PAGES
        return HostEvent.HAS_ROBOTS_FETCHES if self.robots.fetches else HostEvent.HAS_NOTHING

    def after_request(self) -> HostEvent:
        """Return the event by which the host leaves flight, when its request has ended."""
        if self.robots.awaited:
            return HostEvent.ENDED_AWAITING_ROBOTS
        if self.queue.queued:
            return HostEvent.ENDED_WITH_PAGES
        if self.robots.fetches:
            return HostEvent.ENDED_WITH_ROBOTS_FETCHES
        return HostEvent.ENDED_WITH_NOTHING
