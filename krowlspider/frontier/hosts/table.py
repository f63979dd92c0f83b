"""The scheduling table: what an event does to the scheduling state of a host.

For each event that a state allows, `TABLE` has the next state, and the effects that follow in
order. `Transitions` applies them. Any other event raises `IllegalEvent`.
"""

from __future__ import annotations

from enum import Enum


class _ById(Enum):
    """An enum whose members are hashed as any object: each move looks some of them up."""

    __hash__ = object.__hash__


class SchedulingState(_ById):
    """The scheduling state of a host. A host is in one state at a time."""

    IDLE = "idle"  # it has nothing to fetch
    SCHEDULED = "scheduled"  # in the heap, until its next-fetch time
    WAITING = "waiting"  # due, and in line for a share that has no room
    CALLED = "called"  # a share has room for it: it is popped before others
    IN_FLIGHT = "in flight"  # one of its requests is in flight
    AWAITING_ROBOTS = "awaiting robots"  # its robots.txt is being fetched from another host
    DEFERRED = "deferred"  # out of the heap; tried again in a later round, once its time has come
    HELD = "held"  # due, and another node may be fetching it
    SEALED = "sealed"  # on its way to another frontier


class HostEvent(_ById):
    """What can happen to a host."""

    # Something to fetch came.
    PAGES_QUEUED = "have pages queued"
    ROBOTS_QUEUED = "have a robots fetch queued"
    # It was popped.
    NOT_OURS = "be held for another node"
    WAIT_FOR_ROOM = "wait for room"  # in memory
    WAIT_IN_LINE = "wait in line for room"  # by name only: it may leave memory
    ENTER_FLIGHT = "enter flight"
    # Its request has ended. What is left to fetch follows.
    ENDED_WITH_PAGES = "end a request, with pages left"
    ENDED_IN_SESSION = "end a request in a session"
    ENDED_WITH_ROBOTS_FETCHES = "end a request, with robots fetches left"
    ENDED_WITH_NOTHING = "end its last request"
    ENDED_AWAITING_ROBOTS = "end a request, awaiting robots.txt"
    DEFER = "be deferred after a request"
    # A share has room for it, and it was popped for that.
    CALL = "be called"
    TAKE_CALL = "take a call"
    # Its due time, or what it has to fetch, has changed.
    HAS_PAGES = "be scheduled for pages"
    HAS_ROBOTS_FETCHES = "be scheduled for robots fetches"
    HAS_NOTHING = "become idle"
    AWAITS_ROBOTS = "await robots.txt"
    IS_DEFERRED = "become deferred"
    DUE_CHANGED = "be due at another time"
    # A round tries it again, or it was popped although it is deferred.
    REVIVE = "be revived"
    # The ring changed, or the host goes to another frontier.
    RING_CHANGED = "be freed by a new ring"
    SEAL = "be sealed"


class Effect(_ById):
    """What the scheduler does when a host has changed its state."""

    SCHEDULE = "put it into the heap at its due time"
    SCHEDULE_FIRST = "put it among the hosts that are popped first, at its due time"
    SCHEDULE_IN_MEMORY = "put it into the heap in memory, if it has robots fetches"
    END_SESSION = "end its session"
    GIVE_UP_PLACES = "give up its places, and call hosts that wait for them"
    COUNT_WAITING = "count it as waiting in memory"
    UNCOUNT_WAITING = "no longer count it as waiting in memory"
    COUNT_DEFERRED = "count its entries as deferred"
    UNCOUNT_DEFERRED = "no longer count its entries as deferred"
    RECORD = "have the next commit write its record"


class IllegalEvent(Exception):
    """The scheduling state of a host does not allow this event."""


# Short names, so that the table can be read as one.
_S, _E, _F = SchedulingState, HostEvent, Effect
_Row = dict[HostEvent, tuple[SchedulingState, tuple[Effect, ...]]]


def _ignore(state: SchedulingState, *events: HostEvent) -> _Row:
    """Return a row of events that change nothing."""
    return dict.fromkeys(events, (state, ()))


TABLE: dict[SchedulingState, _Row] = {
    _S.IDLE: {
        **_ignore(_S.IDLE, _E.HAS_NOTHING),
        _E.PAGES_QUEUED: (_S.SCHEDULED, (_F.SCHEDULE,)),
        _E.ROBOTS_QUEUED: (_S.SCHEDULED, (_F.SCHEDULE_IN_MEMORY,)),
        _E.IS_DEFERRED: (_S.DEFERRED, (_F.COUNT_DEFERRED,)),
        _E.SEAL: (_S.SEALED, ()),
    },
    _S.SCHEDULED: {
        **_ignore(_S.SCHEDULED, _E.PAGES_QUEUED, _E.ROBOTS_QUEUED),
        _E.NOT_OURS: (_S.HELD, (_F.END_SESSION,)),
        _E.WAIT_FOR_ROOM: (_S.WAITING, (_F.COUNT_WAITING,)),
        _E.WAIT_IN_LINE: (_S.SCHEDULED, (_F.END_SESSION,)),
        _E.ENTER_FLIGHT: (_S.IN_FLIGHT, ()),
        _E.CALL: (_S.CALLED, (_F.SCHEDULE_FIRST,)),
        _E.HAS_PAGES: (_S.SCHEDULED, (_F.END_SESSION, _F.SCHEDULE, _F.RECORD)),
        _E.HAS_ROBOTS_FETCHES: (_S.SCHEDULED, (_F.END_SESSION, _F.SCHEDULE_IN_MEMORY)),
        _E.HAS_NOTHING: (_S.IDLE, (_F.END_SESSION, _F.RECORD)),
        _E.IS_DEFERRED: (_S.DEFERRED, (_F.END_SESSION, _F.COUNT_DEFERRED)),
        _E.SEAL: (_S.SEALED, (_F.END_SESSION,)),
    },
    _S.WAITING: {
        **_ignore(_S.WAITING, _E.PAGES_QUEUED, _E.ROBOTS_QUEUED, _E.DUE_CHANGED),
        _E.CALL: (_S.CALLED, (_F.UNCOUNT_WAITING, _F.SCHEDULE_FIRST)),
        _E.SEAL: (_S.SEALED, (_F.UNCOUNT_WAITING, _F.END_SESSION)),
    },
    _S.CALLED: {
        **_ignore(_S.CALLED, _E.PAGES_QUEUED, _E.ROBOTS_QUEUED),
        _E.TAKE_CALL: (_S.SCHEDULED, ()),
        _E.AWAITS_ROBOTS: (_S.AWAITING_ROBOTS, (_F.END_SESSION,)),
        _E.DUE_CHANGED: (_S.CALLED, (_F.SCHEDULE_FIRST,)),
    },
    _S.IN_FLIGHT: {
        **_ignore(_S.IN_FLIGHT, _E.PAGES_QUEUED, _E.ROBOTS_QUEUED),
        _E.WAIT_FOR_ROOM: (_S.WAITING, (_F.GIVE_UP_PLACES, _F.COUNT_WAITING)),
        _E.WAIT_IN_LINE: (_S.SCHEDULED, (_F.GIVE_UP_PLACES, _F.END_SESSION)),
        _E.ENDED_WITH_PAGES: (
            _S.SCHEDULED,
            (_F.GIVE_UP_PLACES, _F.END_SESSION, _F.SCHEDULE, _F.RECORD),
        ),
        _E.ENDED_IN_SESSION: (_S.SCHEDULED, (_F.GIVE_UP_PLACES, _F.SCHEDULE_FIRST, _F.RECORD)),
        _E.ENDED_WITH_ROBOTS_FETCHES: (
            _S.SCHEDULED,
            (_F.GIVE_UP_PLACES, _F.END_SESSION, _F.SCHEDULE_IN_MEMORY, _F.RECORD),
        ),
        _E.ENDED_WITH_NOTHING: (_S.IDLE, (_F.GIVE_UP_PLACES, _F.END_SESSION, _F.RECORD)),
        _E.ENDED_AWAITING_ROBOTS: (
            _S.AWAITING_ROBOTS,
            (_F.GIVE_UP_PLACES, _F.END_SESSION, _F.SCHEDULE_IN_MEMORY, _F.RECORD),
        ),
        _E.DEFER: (_S.DEFERRED, (_F.GIVE_UP_PLACES, _F.END_SESSION, _F.COUNT_DEFERRED)),
    },
    _S.AWAITING_ROBOTS: {
        **_ignore(_S.AWAITING_ROBOTS, _E.PAGES_QUEUED, _E.NOT_OURS),
        _E.ROBOTS_QUEUED: (_S.AWAITING_ROBOTS, (_F.SCHEDULE_IN_MEMORY,)),
        _E.WAIT_FOR_ROOM: (_S.WAITING, (_F.COUNT_WAITING,)),
        _E.ENTER_FLIGHT: (_S.IN_FLIGHT, ()),
        _E.HAS_PAGES: (_S.SCHEDULED, (_F.SCHEDULE,)),
        _E.HAS_ROBOTS_FETCHES: (_S.SCHEDULED, (_F.SCHEDULE_IN_MEMORY,)),
        _E.HAS_NOTHING: (_S.IDLE, ()),
        _E.AWAITS_ROBOTS: (_S.AWAITING_ROBOTS, (_F.SCHEDULE_IN_MEMORY,)),
    },
    _S.DEFERRED: {
        **_ignore(_S.DEFERRED, _E.PAGES_QUEUED, _E.NOT_OURS),
        _E.ROBOTS_QUEUED: (_S.DEFERRED, (_F.SCHEDULE_IN_MEMORY,)),
        _E.REVIVE: (_S.SCHEDULED, (_F.UNCOUNT_DEFERRED, _F.RECORD)),
        _E.SEAL: (_S.SEALED, (_F.UNCOUNT_DEFERRED,)),
    },
    _S.HELD: {
        **_ignore(_S.HELD, _E.PAGES_QUEUED, _E.ROBOTS_QUEUED, _E.HAS_PAGES, _E.HAS_ROBOTS_FETCHES),
        _E.HAS_NOTHING: (_S.IDLE, (_F.RECORD,)),
        _E.IS_DEFERRED: (_S.DEFERRED, (_F.COUNT_DEFERRED,)),
        _E.RING_CHANGED: (_S.SCHEDULED, ()),
        _E.SEAL: (_S.SEALED, ()),
    },
    _S.SEALED: {
        **_ignore(_S.SEALED, _E.PAGES_QUEUED, _E.ROBOTS_QUEUED),
        _E.HAS_PAGES: (_S.SCHEDULED, (_F.SCHEDULE,)),
        _E.HAS_ROBOTS_FETCHES: (_S.SCHEDULED, (_F.SCHEDULE_IN_MEMORY,)),
        _E.HAS_NOTHING: (_S.IDLE, ()),
        _E.IS_DEFERRED: (_S.DEFERRED, (_F.COUNT_DEFERRED,)),
    },
}
