"""Decide which changes of a crawl are events, of which its operator gets a notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

# Seconds before an event is reported again.
_AGAIN = 300.0


class Event(NamedTuple):
    """An event: its name, for programs, and a sentence for people."""

    name: str
    message: str


class Condition(Struct, frozen=True):
    """The condition of a crawl. ``ended`` counts requests that have ended since the start, ``due``
    hosts that are due. ``paused`` is the reason for which no request is sent, "" for none. ``full``
    is a folder without room, ``dead`` has the nodes that have died. ``outage`` says what does not
    work that all requests need; "" for nothing."""

    ended: int
    due: int
    paused: str
    full: Path | None
    outage: str
    dead: frozenset[str] = frozenset()


class Watch:
    """Compares conditions, the first one at ``now`` in monotonic seconds.

    A crawl is stalled if no request has ended for ``patience`` seconds although hosts are due and
    the crawl is not paused; with 0 it never is. Each event is reported at most every five minutes.
    """

    def __init__(self, now: float, patience: float):
        self._patience = patience
        self._last = Condition(ended=-1, due=0, paused="", full=None, outage="")
        self._moved_at = now
        self._is_stalled = False
        self._reported: dict[str, float] = {}

    def look(self, now: float, found: Condition) -> list[Event]:
        """Return the events that this condition is the first to show."""
        events = []
        last, self._last = self._last, found
        if found.full is not None and last.full is None:
            text = f"No room in {found.full}: the crawl is paused until there is some"
            events.append(Event("disk_floor", text))
        if found.outage and not last.outage:
            text = f"The crawl is paused until hosts answer again: {found.outage}"
            events.append(Event("no_network", text))
        if lost := found.dead - last.dead:
            text = f"Nodes have died, with URLs on their disks: {', '.join(sorted(lost))}"
            events.append(Event("node_lost", text))
        if self._stalls(now, found, has_moved=found.ended != last.ended):
            text = f"No request has ended for {self._patience / 60:g} min, though hosts are due"
            events.append(Event("stalled", text))
        return [event for event in events if self._may_report(event.name, now)]

    def _stalls(self, now: float, found: Condition, *, has_moved: bool) -> bool:
        """Return whether the crawl is stalled, and was not at the last look."""
        if has_moved or not found.due or found.paused:
            self._moved_at, self._is_stalled = now, False
            return False
        before, self._is_stalled = self._is_stalled, now - self._moved_at >= self._patience > 0
        return self._is_stalled and not before

    def _may_report(self, name: str, now: float) -> bool:
        if now - self._reported.get(name, -_AGAIN) < _AGAIN:
            return False
        self._reported[name] = now
        return True
