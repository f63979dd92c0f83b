"""Move hosts between scheduling states: sessions of requests, turns of seeds, and other effects.

Sessions: a host is asked several times in a row, each time after its delay, while its connection is
open. Without sessions, a host comes again when all hosts before it have had a request. Then it
needs a new connection and TLS handshake, and its record and the head of its queue are read from the
disk again. Heritrix's frontier has sessions for the same reason (its "balance").

Hosts that wait with a seed: they are popped before all others. A seed host that was not popped yet
has a due time at the front of the heap. One that was popped, for its robots.txt or another seed,
has its real due time, and its place is here.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import Health, Host
from krowlspider.frontier.hosts.table import TABLE, Effect, HostEvent, IllegalEvent
from krowlspider.frontier.shares import Calls, Shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.limits import SessionLimits
    from krowlspider.frontier.schedule.cache import DueHeap, HostCache


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


# Due times below it, in seconds of the job clock, are of hosts at the front: the clock begins at
# wall time.
FRONT = 1e6
# Seconds between the due times of two hosts at the front, as short as the heap can have them.
_APART = 1e-6
# Hosts that have a place here. The others are popped in the order of the heap.
_MOST = 100_000
# While pages are limited, no host has so many pages before all have one.
_PAGES = 10
# The health of a host that has sent no page.
_NEW = (Health.NEW, Health.ROBOTS)


class SeedTurns:
    """Names of hosts with a seed, by the time at which it may be fetched.

    A name may be out of date: the host it belongs to decides.

    - ``is_limited``: the number of pages is limited. ``are_coming``: not all seeds are queued.
    - ``sent_count`` changes when seeds may have gone to other nodes.
    - ``in_line``: hosts that wait for room in a share, and how many seeds each has.
    - ``is_idle``: no host is known to wait with a seed, and nothing here needs to be asked.

    ``host`` returns a host by its name.
    """

    def __init__(self, host: Callable[[str], Host]) -> None:
        self._host = host
        self.is_limited = False
        self.are_coming = False
        self.sent_count = 0
        # Hosts on disk may be at the front.
        self.is_idle = False
        self.in_line: dict[str, int] = {}
        self._seeds_in_line = 0
        self._front = 0.0
        # Whether a place in the heap may be at the front; some may be on disk.
        self._may_be_front = True
        # Hosts with a seed that was not tried.
        self._fresh: list[tuple[float, str]] = []
        self._fresh_counts: dict[str, int] = {}
        self.fresh = 0
        # While pages are limited: hosts that have failed, or a seed of which has failed, with the
        # number of their seeds. They have places in the heap of all hosts too.
        self._tried: list[tuple[float, str]] = []
        self._counts: dict[str, int] = {}
        self.tried = 0
        # While pages are limited: hosts that are new, the oldest first.
        self._new: deque[str] = deque(maxlen=_MOST)

    def limit(self) -> None:
        """Pages are limited from now on."""
        self.is_limited, self.is_idle = True, False

    def begin(self) -> None:
        """Seeds are coming, until `end`."""
        self.are_coming, self.is_idle = True, False

    def end(self) -> None:
        """All seeds are queued."""
        self.are_coming = False
        self.sent()

    def sent(self) -> None:
        """Seeds may be on their way to other nodes."""
        self.sent_count += 1

    def next_at_front(self) -> float:
        """Return the due time of the next host at the front."""
        self.is_idle, self._may_be_front = False, True
        self._front = min(self._front + _APART, FRONT - _APART)
        return self._front

    def any_at_front(self, next_due: Callable[[], float]) -> bool:
        """Return whether hosts are at the front; ``next_due`` returns the soonest due time in the
        heap."""
        if self._may_be_front:
            self._may_be_front = next_due() < FRONT
        return self._may_be_front

    @property
    def any_known(self) -> bool:
        """Return whether hosts are known to wait with a seed, besides those at the front."""
        return bool(self.are_coming or self._fresh or self._tried or self.in_line)

    def add(self, host: Host) -> bool:
        """Give a host that is scheduled a place, if it waits with a seed. Return whether it needs
        no other place."""
        if host.due < FRONT:
            self._may_be_front = True
            return False
        fresh, retries, due = host.queue.seeds()
        if not (fresh or retries):
            return False
        if fresh and not (host.rate.errors or host.rate.throttling):
            if len(self._fresh) >= _MOST:
                return False
            self.is_idle = False
            heappush(self._fresh, (host.due, host.name))
            self.fresh += fresh - self._fresh_counts.get(host.name, 0)
            self._fresh_counts[host.name] = fresh
            return True
        if self.is_limited and len(self._counts) < _MOST:
            self._add_tried(host.name, host.due if fresh else max(host.due, due), fresh + retries)
        return False

    def _add_tried(self, name: str, due: float, seeds: int) -> None:
        if name not in self._counts:
            heappush(self._tried, (due, name))
        self.tried += seeds - self._counts.get(name, 0)
        self._counts[name] = seeds

    def wait_in_line(self, host: Host) -> None:
        """Note that a host waits for room in a share, if it waits with a seed."""
        if (seeds := self._seeds_of(host)) and len(self.in_line) < _MOST:
            self.is_idle = False
            self.leave_line(host.name)
            self.in_line[host.name] = seeds
            self._seeds_in_line += seeds

    def leave_line(self, name: str) -> None:
        """Note that a host waits for room no more."""
        self._seeds_in_line -= self.in_line.pop(name, 0)

    def waits_in_line(self) -> bool:
        """Return whether a host with a seed waits for room in a share."""
        while self.in_line:
            name = next(iter(self.in_line))
            if self._seeds_of(self._host(name)):
                return True
            # It has left the line by another way than a pop.
            self.leave_line(name)
        return False

    def _seeds_of(self, host: Host) -> int:
        """Return for how many seeds others wait while a host waits for room."""
        fresh, retries, _ = host.queue.seeds()
        return fresh + retries if self.is_limited else fresh

    @property
    def known(self) -> int:
        """How many seeds are known to wait, besides those of hosts at the front."""
        return self.fresh + self.tried + self._seeds_in_line

    def pop(self, now: float) -> str | None:
        """Return the name of a host whose seed may be fetched; None without one."""
        if not self._fresh or self._fresh[0][0] > now:
            return None
        name = heappop(self._fresh)[1]
        self.fresh -= self._fresh_counts.pop(name, 0)
        return name

    def pop_tried(self, now: float) -> str | None:
        """Return the name of a host whose seed may be tried again; None without one."""
        tried = self._tried
        if not tried or tried[0][0] > now:
            return None
        name = heappop(tried)[1]
        self.tried -= self._counts.pop(name)
        return name

    def add_new(self, host: Host) -> None:
        """Note a host that was never asked, while pages are limited."""
        self._new.append(host.name)

    def may_go_on(self, host: Host, now: float, next_due: Callable[[], float]) -> bool:
        """Return whether a host may have a session: no host waits with a seed. While pages are
        limited, it has its tenth page only once no host waits for its first.

        ``next_due`` is as in `any_at_front`.
        """
        waits = bool(self.in_line) and self.waits_in_line()
        holds_up = self.are_coming or waits or self.any_at_front(next_due)
        self.is_idle = not (holds_up or self._fresh or self.is_limited)
        is_fresh = bool(self._fresh) and self._fresh[0][0] <= now
        if holds_up or is_fresh or host.queue.has_seeds:
            return False
        pages = host.queue.done + len(host.queue.leased)
        return not self.is_limited or pages < _PAGES - 1 or not self._waits_for_first_page()

    def _waits_for_first_page(self) -> bool:
        while self._new:
            host = self._host(self._new[0])
            if host.health in _NEW and not host.queue.done and host.queue.queued:
                return True
            self._new.popleft()
        return False

    def next_fresh(self) -> float:
        """Return when to pop again, in seconds of the job clock; inf without a host."""
        return self._fresh[0][0] if self._fresh else inf

    def next_tried(self) -> float:
        """Return when to pop a host again whose seed was tried; inf without one."""
        return self._tried[0][0] if self._tried else inf


# Seconds that a host in a session must be overdue to go before called hosts: where pops are slow,
# there is always a called host.
_OVERDUE = 1.0


class Transitions:
    """The only place that changes the scheduling state of a host in memory.

    ``waiting`` counts the hosts in memory that wait for room, ``deferred`` the entries that are
    queued for deferred hosts. ``calls`` calls hosts for room.
    """

    def __init__(
        self,
        due: DueHeap,
        sessions: Sessions,
        cache: HostCache,
        shares: Shares,
        seed_turns: SeedTurns,
        *,
        deferred: int,
        now: Callable[[], float],
    ):
        self.waiting = 0
        self.deferred = deferred
        self.calls = Calls(shares, host=cache.get, move=self.move, now=now)
        self._due = due
        self._sessions = sessions
        self._shares = shares
        self._seed_turns = seed_turns
        self._now = now
        effects: dict[Effect, Callable[[Host], None]] = {
            Effect.SCHEDULE: self._schedule,
            Effect.SCHEDULE_FIRST: self._schedule_first,
            Effect.SCHEDULE_IN_MEMORY: self._schedule_in_memory,
            Effect.END_SESSION: self._end_session,
            Effect.GIVE_UP_PLACES: self._give_up_places,
            Effect.COUNT_WAITING: self._count_waiting,
            Effect.UNCOUNT_WAITING: self._uncount_waiting,
            Effect.COUNT_DEFERRED: self._count_deferred,
            Effect.UNCOUNT_DEFERRED: self._uncount_deferred,
            Effect.RECORD: cache.note,
        }
        # The table, with the methods that apply the effects.
        self._table = {
            state: {
                event: (after, tuple(effects[effect] for effect in wanted))
                for event, (after, wanted) in row.items()
            }
            for state, row in TABLE.items()
        }

    def move(self, host: Host, event: HostEvent, due: float | None = None) -> None:
        """Apply an event to a host, which is due at ``due`` from then on; None leaves its time.

        :raises IllegalEvent: the host's state does not allow the event; nothing has changed
        """
        try:
            host.state, effects = self._table[host.state][event]
        except KeyError:
            raise IllegalEvent(
                f"{host.name} is {host.state.value} and cannot {event.value}"
            ) from None
        if due is not None:
            host.due = due
        for apply in effects:
            apply(host)

    def _schedule(self, host: Host) -> None:
        levels = host.queue.levels
        # Nearly all hosts have one level, which is not that of seeds.
        may_have_seeds = len(levels) > 1 or 0 not in levels
        if not (may_have_seeds and self._seed_turns.add(host)):
            self._due.add(host)

    def _schedule_first(self, host: Host) -> None:
        # Called hosts have been due for longer: only more overdue hosts go before them.
        self._sessions.push(max(host.due, self._now() - _OVERDUE), host.name)

    def _schedule_in_memory(self, host: Host) -> None:
        if host.robots.fetches:
            self._due.push(max(host.due, self._now()), host.name)

    def _end_session(self, host: Host) -> None:
        host.session = 0

    def _give_up_places(self, host: Host) -> None:
        self.calls.make_room(self._shares.leave_flight(host))

    def _count_waiting(self, _: Host) -> None:
        self.waiting += 1

    def _uncount_waiting(self, _: Host) -> None:
        self.waiting -= 1

    def _count_deferred(self, host: Host) -> None:
        self.deferred += host.queue.queued

    def _uncount_deferred(self, host: Host) -> None:
        self.deferred -= host.queue.queued
