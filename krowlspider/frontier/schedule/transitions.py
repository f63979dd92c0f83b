"""Moves hosts between their scheduling states, and applies the effects of each move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.table import TABLE, Effect, Event, IllegalEvent
from krowlspider.frontier.shares.calls import Calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.schedule.cache import HostCache
    from krowlspider.frontier.schedule.due import DueHeap
    from krowlspider.frontier.schedule.seed_turns import SeedTurns
    from krowlspider.frontier.schedule.sessions import Sessions
    from krowlspider.frontier.shares.shares import Shares


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

    def move(self, host: Host, event: Event, due: float | None = None) -> None:
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
