"""The queue of one host: where its entries are on disk, by level."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import PRIORITY_LIMIT

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
