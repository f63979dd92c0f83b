"""The scheduling table: what events a state allows, and what follows from them."""

from __future__ import annotations

from itertools import product

import pytest

from krowlspider.frontier.hosts.table import Effect, Event, IllegalEvent, SchedulingState, step

_S, _E, _F = SchedulingState, Event, Effect
ENDS = [
    _E.ENDED_WITH_PAGES,
    _E.ENDED_IN_SESSION,
    _E.ENDED_WITH_ROBOTS_FETCHES,
    _E.ENDED_WITH_NOTHING,
    _E.ENDED_AWAITING_ROBOTS,
    _E.DEFER,
]


def moves() -> list[tuple[SchedulingState, Event, SchedulingState, tuple[Effect, ...]]]:
    """Every legal move: state, event, next state, effects."""
    found = []
    for state, event in product(SchedulingState, Event):
        try:
            after, effects = step(state, event)
        except IllegalEvent:
            continue
        found.append((state, event, after, effects))
    return found


def test_every_state_can_be_reached_and_left() -> None:
    changes = {(state, after) for state, _, after, _ in moves() if state is not after}
    assert {state for state, _ in changes} == set(SchedulingState)
    assert {after for _, after in changes} == set(SchedulingState)
    assert {event for _, event, _, _ in moves()} == set(Event)


def test_only_a_request_in_flight_can_end() -> None:
    allowed = {state for state, event, _, _ in moves() if event in ENDS}
    assert allowed == {SchedulingState.IN_FLIGHT}


def test_leaving_flight_always_gives_up_the_places() -> None:
    for state, event, after, effects in moves():
        left = state is SchedulingState.IN_FLIGHT and after is not SchedulingState.IN_FLIGHT
        assert (_F.GIVE_UP_PLACES in effects) == left, event


@pytest.mark.parametrize(
    ("state", "count", "uncount"),
    [
        (_S.BLOCKED, _F.COUNT_BLOCKED, _F.UNCOUNT_BLOCKED),
        (_S.DEFERRED, _F.COUNT_DEFERRED, _F.UNCOUNT_DEFERRED),
        (_S.HELD, _F.COUNT_HELD, _F.UNCOUNT_HELD),
    ],
)
def test_a_counted_state_is_counted_both_ways(
    state: SchedulingState, count: Effect, uncount: Effect
) -> None:
    for before, event, after, effects in moves():
        assert (count in effects) == (before is not state and after is state), event
        assert (uncount in effects) == (before is state and after is not state), event


def test_a_host_in_flight_is_neither_called_nor_sealed() -> None:
    for event in (_E.CALL, _E.SEAL, _E.ENTER_FLIGHT, _E.REVIVE, _E.HAS_PAGES):
        with pytest.raises(IllegalEvent):
            step(_S.IN_FLIGHT, event)


def test_a_sealed_host_is_not_fetched() -> None:
    left = {
        event for state, event, after, _ in moves() if state is _S.SEALED and after is not state
    }
    assert left == {_E.HAS_PAGES, _E.HAS_ROBOTS_FETCHES, _E.HAS_NOTHING, _E.IS_DEFERRED}


def test_an_illegal_event_says_what_it_was() -> None:
    with pytest.raises(IllegalEvent, match="a host that is idle cannot enter flight"):
        step(_S.IDLE, _E.ENTER_FLIGHT)
