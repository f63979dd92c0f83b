"""The scheduler of hosts: which host is fetched next, and when.

The heap orders hosts by their next-fetch time. A popped host is in flight, with one request. After
the request it returns to the heap, due after its delay. The scheduler decides by times, shares
and ownership which event happens to a host. The table of states says what follows from it.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import (
    AWAITING_ROBOTS,
    CALLED,
    DEFERRED,
    HELD,
    IDLE,
    IN_FLIGHT,
    SCHEDULED,
    WAITING,
    Health,
    Host,
    RobotsFetch,
)
from krowlspider.frontier.hosts.host_record import Tally, rate_in
from krowlspider.frontier.hosts.table import HostEvent
from krowlspider.frontier.schedule.cache import DueHeap, HostCache, JobClock
from krowlspider.frontier.schedule.orders import DELAY, Orders, OwnDelays, StandingOrders
from krowlspider.frontier.schedule.ownership import Deferral, Ownership
from krowlspider.frontier.schedule.transitions import FRONT, SeedTurns, Sessions, Transitions
from krowlspider.frontier.shares import Shares, places_of
from krowlspider.frontier.store.schema import whole_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.limits import FrontierLimits
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Hosts that one pop looks at, most of which may not be ready: bounds the time that it takes.
_LOOKS = 1000
# Seconds until the other hosts are looked at again.
_LOOK_AGAIN = 0.05
# Called hosts that find no room in another share, in one pop: then others are looked at. The shares
# that still have room are called for once a second.
_IN_VAIN = 8
# While a crowd waits, one pop in so many is left to hosts outside sessions.
_HEAP_FIRST = 4
# Seconds between the due times of hosts that wait for room on disk.
_APART = 0.002
# The least seconds in which a process dies and is started again. A wait that exceeds the record's
# wait by more is written immediately, or a restart would cut it short.
_RESTART = 0.5
_POPPABLE = (SCHEDULED, CALLED, AWAITING_ROBOTS, DEFERRED)


class Popped(Enum):
    """What becomes of a host whose place in the heap was popped."""

    IN_FLIGHT = "its next request is to be sent"
    MOVED = "its state has changed since: it has a newer place in the heap, or none"
    IDLE = "it has nothing to fetch"
    HELD = "another node may be fetching it"
    PUT_OFF = "a pause or a block covers it"
    NO_ROOM = "it waits for room in one of its shares"


class HostScheduler:
    """Pops hosts when they are due, and schedules them again. All times are in seconds of the job
    clock.

    ``may_fetch`` is as in `Ownership`. ``recovered_at`` is the time of the last start that followed
    a death of the process, None if that is this start. Hosts read from disk wait from then on.
    """

    def __init__(
        self,
        store: Store,
        tally: Tally,
        limits: FrontierLimits,
        rule: DelayPolicy,
        clock: JobClock,
        *,
        recovered_at: float | None,
        may_fetch: Callable[[str], bool] | None,
    ):
        self._store = store
        self.rule = rule
        # Before the cache, which waits for the longest delay after a death.
        standing = StandingOrders(store)
        delays = OwnDelays(
            rule, {name: order.seconds for name, order in standing.in_force(DELAY).items()}
        )
        self._limits = limits.memory
        self.now = now = clock.now
        self.recovered_at = 0.0 if clock.is_new else now() if recovered_at is None else recovered_at
        # Hosts popped while a crowd waited.
        self._crowded_pops = 0
        # The last due time of the hosts that wait for room on disk.
        self._last_apart = 0.0
        self.due = due = DueHeap(store, tally.hosts, self._limits.window)
        self._sessions = Sessions(limits.sessions)
        self.shares = Shares(limits, now)
        self.cache = cache = HostCache(
            store,
            tally,
            due,
            rule,
            most=self._limits.hosts,
            recovered_at=self.recovered_at,
            now=now,
        )
        self.seed_turns = SeedTurns(cache.get)
        self.transitions = Transitions(
            due,
            self._sessions,
            cache,
            self.shares,
            self.seed_turns,
            deferred=tally.deferred,
            now=now,
        )
        self._calls = self.transitions.calls
        self.deferral = Deferral(
            store, rule, cache=cache, due=due, transitions=self.transitions, now=now
        )
        self.ownership = Ownership(
            may_fetch,
            cache=cache,
            due=due,
            shares=self.shares,
            transitions=self.transitions,
            deferral=self.deferral,
        )
        self.orders = Orders(
            store,
            rule,
            standing,
            delays,
            cache=cache,
            due=due,
            due_changed=self.due_changed,
            now=now,
        )
        # Each start tries the deferred hosts again.
        self.deferral.advance_round()

    # --- the pop ---

    def pop(self, *, seeds_only: bool = False) -> Host | None:
        """Return the next host that has room in all its shares, now in flight; None without one.

        Hosts with a seed come first, then called hosts and those in a session, by due time. Then
        the host that has been due the longest. While a crowd waits, sessions have no end: then
        every fourth host is the one that has been due the longest.

        ``seeds_only``: a host with nothing but pages that are no seeds is not returned.
        """
        self.cache.evict()
        now = self.now()
        self._calls.call_at_pop(now)
        in_vain = 0
        for _ in range(_LOOKS):
            if (name := self._pop_name(now, seeds_only=seeds_only)) is None:
                if in_vain >= _IN_VAIN or not self._calls.call_another(now):
                    return None
                continue
            host = self.cache.hosts.get(name) or self.cache.read_due(name)
            if self.seed_turns.in_line and host.state is not WAITING:
                self.seed_turns.leave_line(name)
            if host.due > now:
                # Its time has changed since; it has a newer place in the heap.
                self.seed_turns.add(host)
                continue
            if seeds_only and not (host.robots.fetches or host.queue.waits_with_seed(now)):
                self.due.push(host.due, name)
                self.seed_turns.add(host)
                continue
            called = self._calls.take(host)
            if self._try(host, in_turn=called is None) is Popped.IN_FLIGHT:
                if called and called not in host.shares.places:
                    self._calls.make_room((called,))
                return host
            in_vain += called is not None
            if self.shares.waiting and in_vain < _IN_VAIN:
                self._calls.pass_on(host, called)
        return None

    def _pop_name(self, now: float, *, seeds_only: bool) -> str | None:
        """Return the name of a due host, in the order of `pop`; None without one."""
        turns = self.seed_turns
        # Called hosts may have a seed too.
        is_first = not turns.is_idle and turns.next_fresh() < self._sessions.next_due()
        if is_first and (name := turns.pop(now)) is not None:
            return name
        if seeds_only and (name := turns.pop_tried(now)) is not None:
            return name
        if self._calls.is_crowded:
            self._crowded_pops += 1
            if self._crowded_pops % _HEAP_FIRST == 0 and (
                (name := self._pop_heap(now, seeds_only=seeds_only)) is not None
            ):
                return name
        return self._sessions.pop(now) or self._pop_heap(now, seeds_only=seeds_only)

    def _pop_heap(self, now: float, *, seeds_only: bool) -> str | None:
        """Return the name of the host outside sessions that has been due the longest; None without
        one. ``seeds_only``: only one at the front."""
        if not self._calls.may_turn_away:
            return None
        while not (seeds_only and self.due.next_due() >= FRONT):
            if (name := self.due.pop(now)) is not None:
                return name
            if not self.due.may_have_more(now):
                return None
            batch = self._store.batch()
            self.cache.record_changed(batch)
            batch.write()
            self.due.read_window(now)
        return None

    def _try(self, host: Host, *, in_turn: bool) -> Popped:
        """Put a host whose due time has come in flight if it may be fetched. Return what has become
        of it. ``in_turn`` is as in `_enter_flight`."""
        if host.state not in _POPPABLE:
            return Popped.MOVED
        if not host.has_work:
            if host.state is SCHEDULED:
                self.transitions.move(host, HostEvent.HAS_NOTHING)
            return Popped.IDLE
        if not self.ownership.is_ours(host.name):
            self.transitions.move(host, HostEvent.NOT_OURS)
            return Popped.HELD
        if self.orders.is_holding and self.orders.holds_back(host):
            return Popped.PUT_OFF
        return self._enter_flight(host, in_turn=in_turn)

    def pop_named(self, name: str) -> Host | None:
        """Return this host, in flight, as `pop` does, or None. Its place in the heap stays, out of
        date. If it waits for room and there is some, it does not wait for its place in the line."""
        host = self.cache.get(name)
        if host.state is WAITING and self.shares.full(self.shares.of(host)) is None:
            self._calls.call(host)
        if host.state not in (SCHEDULED, CALLED) or host.due > self.now():
            return None
        called = self._calls.take(host)
        if self._try(host, in_turn=False) is Popped.IN_FLIGHT:
            return host
        self._calls.pass_on(host, called)
        return None

    def _enter_flight(self, host: Host, *, in_turn: bool) -> Popped:
        """Put a host in flight if all its shares have room; else it waits in line for the first
        that has none.

        ``in_turn`` is False for a host that was called: only the others count as turned away.
        """
        if host.state is DEFERRED:
            self.deferral.revive(host)
            # It has no place on disk: after its request it would be in neither part of the heap.
            self.cache.record_now(host)
        # With the lines full, no host waits for its origin.
        is_full = self.shares.waiting >= self._limits.in_line
        shares = self.shares.of(host, spare=self._calls.takes_spare(host) or is_full)
        if (full := self.shares.full(shares)) is not None:
            if in_turn:
                self._calls.count_turned_away()
            self._wait_for_room(host, full)
            return Popped.NO_ROOM
        self.shares.enter_flight(host, shares)
        self.transitions.move(host, HostEvent.ENTER_FLIGHT)
        return Popped.IN_FLIGHT

    def _wait_for_room(self, host: Host, share: str) -> None:
        """Put a host in line for a share that has no room. With the lines full, it waits on disk
        instead, with a later due time."""
        if self.shares.waiting >= self._limits.in_line:
            self._last_apart = max(self.now(), self._last_apart) + _APART
            event = host.after_request() if host.state is IN_FLIGHT else host.after_change()
            self.transitions.move(host, event, whole_microseconds(self._last_apart))
            return
        # Behind all hosts of its origin, its session would end: a new connection for each page.
        is_first = share.startswith("^") and self._sessions.is_begun(host)
        self.seed_turns.wait_in_line(host)
        self.shares.wait(share, host.name, first=is_first)
        # Enough waiting hosts are in memory: more of them may be evicted, and keep their place on
        # disk.
        stays = self.transitions.waiting < self._limits.waiting or host.robots.awaited
        self.transitions.move(host, HostEvent.WAIT_FOR_ROOM if stays else HostEvent.WAIT_IN_LINE)

    # --- in flight ---

    def reserve_address(self, host: Host, address: str) -> bool:
        """Take the places of the address at which a host in flight is about to be fetched. Return
        False when the address, or its block, has no room now: then call `turn_back`."""
        places, own = places_of(address), host.shares
        if own.address == places[0]:
            return True
        before = (own.address, own.address_block) if own.address else ()
        new = tuple(share for share in places if share not in before)
        if self.shares.full(new) is not None:
            return False
        left = tuple(share for share in before if share not in places)
        self.shares.leave(host, left)
        own.address, own.address_block = places
        self.shares.enter(host, new)
        self._calls.make_room(left)
        return True

    def turn_back(self, host: Host, address: str) -> None:
        """End the flight of a host that sent no request for want of room at its address. It waits
        for that room."""
        own = host.shares
        own.address, own.address_block = places_of(address)
        # Its present places are given up.
        shares = tuple(
            share for share in (own.address_block, own.address) if share not in own.places
        )
        # A hand-over from another frontier may have set a later time meanwhile.
        is_due = host.due <= self.now()
        if is_due and (full := self.shares.full(shares)) is not None:
            self._calls.count_turned_away()
            self._wait_for_room(host, full)
        else:
            in_session = host.session and not host.robots.awaited
            event = HostEvent.ENDED_IN_SESSION if in_session else host.after_request()
            self.transitions.move(host, event)

    def release(self, host: Host, wait: float, batch: Batch | None = None) -> None:
        """End the flight of a host with its request: it is due again ``wait`` seconds from now. Its
        record is written, together with what is in ``batch``; without one, a commit may do so.

        :raises IllegalEvent: the host is not in flight; nothing has changed
        """
        now, turns = self.now(), self.seed_turns
        # A hand-over from another frontier may have set a later time meanwhile.
        due = max(host.due, now + wait)
        continues = (
            host.queue.queued > 0
            and not host.robots.awaited
            and (turns.is_idle or turns.may_go_on(host, now, self.due.next_due))
            # Outside its session it would wait until the whole crowd that is being turned away was
            # looked at.
            and self._sessions.go_on(host, due - now, on=self._calls.is_crowded)
        )
        event = HostEvent.ENDED_IN_SESSION if continues else host.after_request()
        self.transitions.move(host, event, whole_microseconds(due))
        host.ready = host.due
        host.session += continues
        if continues and batch is not None:
            # A seed that is tried again has its place although its host goes on with links.
            turns.add(host)
        rule = self.rule.of(host.name)
        if batch is not None or _waits_longer(host, max(wait, rule.delay(host.rate)), rule):
            self.cache.record_now(host, batch)

    def give_back(self, host: Host, rest: float = 0.0) -> None:
        """End the flight of a popped host that sent no request. It is due after ``rest`` seconds,
        behind those due before it. If nothing but retries is queued, it is due with the first of
        them."""
        now = whole_microseconds(self.now() + rest)
        # It may have been paused meanwhile, or a hand-over has set a later time.
        due = now = max(now, host.due)
        if host.queue.queued and not host.robots.fetches:
            due = whole_microseconds(max(now, host.queue.earliest()))
        self.transitions.move(host, host.after_request(), due)
        if rest:
            host.ready = now

    def rest_longer(self, host: Host, wait: float) -> None:
        """Make a scheduled host that is due within ``wait`` seconds due at their end."""
        due = whole_microseconds(self.now() + wait)
        if host.state in (SCHEDULED, CALLED, WAITING) and host.due < due:
            host.due = host.ready = due
            self.due_changed(host)

    # --- what there is to fetch ---

    def pages_queued(self, host: Host, count: int, *, ready: bool, are_seeds: bool = False) -> None:
        """Schedule a host after ``count`` entries were added to its queue.

        ``ready``: one of them may be fetched without a wait of its own. ``are_seeds``: the host
        goes before those without seeds, when its wait has ended. The caller records the host.
        """
        due = None
        if host.state is IDLE:
            due = max(host.due, whole_microseconds(self.now()))
            if are_seeds and ready and max(host.due, host.ready) <= self.now():
                due = self.seed_turns.next_at_front()
            elif self.seed_turns.is_limited and not host.record:
                self.seed_turns.add_new(host)
        elif host.state is DEFERRED:
            self.transitions.deferred += count
        self.transitions.move(host, HostEvent.PAGES_QUEUED, due)
        if are_seeds:
            self.put_first(host)
        if ready and host.state is SCHEDULED and host.ready < host.due:
            # It rests until a retry is due.
            due = whole_microseconds(max(host.ready, self.now()))
            if due < host.due:
                self.transitions.move(host, HostEvent.HAS_PAGES, due)

    def put_first(self, host: Host) -> None:
        """Put a host with a seed before those without, if its wait has ended."""
        if host.state is not SCHEDULED or host.due < FRONT:
            return
        if host.queue.has_seeds and max(host.due, host.ready) <= self.now():
            self.transitions.move(host, HostEvent.HAS_PAGES, self.seed_turns.next_at_front())
        else:
            self.seed_turns.add(host)

    def enqueue_robots_fetch(self, name: str, robots_fetch: RobotsFetch) -> None:
        """Give a host a robots fetch, and schedule the host. It is fetched before the host's queue,
        and not kept over a restart."""
        host = self.cache.get(name)
        host.robots.fetches.append(robots_fetch)
        self.transitions.move(host, HostEvent.ROBOTS_QUEUED)

    def due_changed(self, host: Host) -> None:
        """Schedule a host again whose due time, or what it has to fetch, has changed."""
        if host.state in (CALLED, WAITING) and host.due > self.now():
            # Others may have the room meanwhile.
            if host.state is WAITING:
                self._calls.call(host)
            called = self._calls.take(host)
            self.transitions.move(host, host.after_change())
            self._calls.pass_on(host, called)
        elif host.state in (CALLED, WAITING):
            self.transitions.move(host, HostEvent.DUE_CHANGED)
        elif host.state in (SCHEDULED, HELD):
            self.transitions.move(host, host.after_change())

    def resume(self, host: Host) -> None:
        """Let a host go on at its own next-fetch time, if it awaits no robots.txt any more."""
        if host.state is AWAITING_ROBOTS:
            self.transitions.move(host, host.after_change())
        # Write what was learnt while it waited: its crawl-delay.
        self.cache.record_now(host)

    def retire(self, host: Host) -> None:
        """Retire a host that asks for a slower rate than this crawl keeps. Until the host is
        forgotten, its queued entries are dropped as they are popped, and new ones are refused."""
        host.set_health(Health.RETIRED)
        self.cache.record_now(host)

    # --- figures ---

    def next_due(self, *, seeds_only: bool = False) -> float | None:
        """Return when to pop again; None when there is nothing to wait for. ``seeds_only`` is as in
        `pop`."""
        due = self.due.next_due()
        if seeds_only and due >= FRONT:
            due = inf
        if not self._calls.may_turn_away:
            due = max(due, self.now() + _LOOK_AGAIN)
        turns = self.seed_turns
        soonest = min(
            due,
            self._sessions.next_due(),
            turns.next_fresh(),
            turns.next_tried() if seeds_only else inf,
            self.shares.next_room(),
        )
        return None if soonest == inf else soonest

    def count_due(self) -> int:
        """Return how many hosts in memory could be fetched now; with a long backlog there are more
        on disk."""
        # The heap also counts out-of-date places, which stay until they are popped: hence the
        # bound.
        now = self.now()
        due = self.due.count_due(now) + self._sessions.count_due(now)
        return min(due + self.shares.waiting, self.host_count)

    @property
    def host_count(self) -> int:
        """Return how many hosts have entries, without deferred ones."""
        return self.due.scheduled


def _waits_longer(host: Host, wait: float, rule: DelayPolicy) -> bool:
    """Return whether ``wait``, in seconds, is longer than the host would wait by its record after a
    restart. ``rule`` is the policy of the host."""
    if not host.record:
        return wait > _RESTART
    if wait <= rule.minimum + _RESTART:
        return False
    return wait > rule.delay(rate_in(host.record)) + _RESTART
