"""The scheduling table: what events a state allows, and what follows from them."""

from __future__ import annotations

import pytest

from krowlspider.frontier.hosts.table import TABLE, Effect, HostEvent, SchedulingState

_S, _E, _F = SchedulingState, HostEvent, Effect
ENDS = [
    _E.ENDED_WITH_PAGES,
    _E.ENDED_IN_SESSION,
    _E.ENDED_WITH_ROBOTS_FETCHES,
    _E.ENDED_WITH_NOTHING,
    _E.ENDED_AWAITING_ROBOTS,
    _E.DEFER,
]


def all_moves() -> list[tuple[SchedulingState, HostEvent, SchedulingState, tuple[Effect, ...]]]:
    """Every legal move: state, event, next state, effects."""
    return [
        (state, event, after, effects)
        for state in SchedulingState
        for event, (after, effects) in TABLE[state].items()
    ]


def test_every_state_can_be_reached_and_left() -> None:
    changes = {(state, after) for state, _, after, _ in all_moves() if state is not after}
    assert {state for state, _ in changes} == set(SchedulingState)
    assert {after for _, after in changes} == set(SchedulingState)
    assert {event for _, event, _, _ in all_moves()} == set(HostEvent)


def test_only_a_request_in_flight_can_end() -> None:
    allowed = {state for state, event, _, _ in all_moves() if event in ENDS}
    assert allowed == {SchedulingState.IN_FLIGHT}


def test_leaving_flight_always_gives_up_the_places() -> None:
    for state, event, after, effects in all_moves():
        left = state is SchedulingState.IN_FLIGHT and after is not SchedulingState.IN_FLIGHT
        assert (_F.GIVE_UP_PLACES in effects) == left, event


@pytest.mark.parametrize(
    ("state", "count", "uncount"),
    [
        (_S.WAITING, _F.COUNT_WAITING, _F.UNCOUNT_WAITING),
        (_S.DEFERRED, _F.COUNT_DEFERRED, _F.UNCOUNT_DEFERRED),
    ],
)
def test_a_counted_state_is_counted_both_ways(
    state: SchedulingState, count: Effect, uncount: Effect
) -> None:
    for before, event, after, effects in all_moves():
        assert (count in effects) == (before is not state and after is state), event
        assert (uncount in effects) == (before is state and after is not state), event


def test_a_host_in_flight_is_neither_called_nor_sealed() -> None:
    allowed = TABLE[_S.IN_FLIGHT].keys()
    assert not allowed & {_E.CALL, _E.SEAL, _E.ENTER_FLIGHT, _E.REVIVE, _E.HAS_PAGES}


def test_a_sealed_host_is_not_fetched() -> None:
    left = {
        event for state, event, after, _ in all_moves() if state is _S.SEALED and after is not state
    }
    assert left == {_E.HAS_PAGES, _E.HAS_ROBOTS_FETCHES, _E.HAS_NOTHING, _E.IS_DEFERRED}
