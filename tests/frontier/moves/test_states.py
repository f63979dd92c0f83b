"""A host can leave in whatever state a change of the ring finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.hosts.host import (
    AWAITING_ROBOTS,
    CALLED,
    DEFERRED,
    HELD,
    IDLE,
    IN_FLIGHT,
    SCHEDULED,
    SEALED,
    WAITING,
    RobotsFetch,
)
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.limits import FrontierLimits, SessionLimits
from krowlspider.frontier.schedule.ownership import HostBusyError
from tests.frontier.conftest import LIMITS, TINY, KeptMemoryStore, World
from tests.support.tables import table

if TYPE_CHECKING:
    from krowlspider.frontier.hosts.host import Host

A, A2, B = "http://a.test/0", "http://a.test/1", "http://b.test/0"
ADDRESS = "192.0.2.1"
SESSIONS = SessionLimits(requests=5, wait=10.0, hosts=10)
# What ends the state; None if nothing has to end.
Finish = Callable[[], object] | None


def _pop(world: World, name: str) -> Host:
    host = world.frontier.schedule.pop()
    assert host is not None
    assert host.name == name
    return host


def _robots_fetch(world: World, host: Host, location: str) -> RobotsFetch:
    """Redirect a host's robots.txt; return the fetch, which waits at the target."""
    robots_fetch = RobotsFetch(f"http://{host.name}", host, f"http://{host.name}/robots.txt")
    world.robots_fetches.answered(robots_fetch, 301, b"", location)
    return robots_fetch


def _idle(world: World) -> Finish:
    assert world.fetch() == A
    assert world.fetch() is None
    world.clocks.pass_(5)
    assert world.fetch() == A2
    world.commit()
    return None


def _scheduled(_: World) -> Finish:
    return None


def _in_session(world: World) -> Finish:
    world.fetch()
    world.commit()
    assert world.frontier.schedule.cache.get("a.test").session
    return None


def _held(world: World) -> Finish:
    world.foreign.add("a.test")
    assert world.fetch() is None
    return None


def _deferred(world: World) -> Finish:
    world.frontier.schedule.deferral.defer(_pop(world, "a.test"))
    return None


def _deferred_for_a_day(world: World) -> Finish:
    world.frontier.schedule.deferral.defer(_pop(world, "a.test"), 86_400.0)
    return None


def _in_flight(world: World) -> Finish:
    host = _pop(world, "a.test")
    return lambda: world.frontier.schedule.release(host, 0.25)


def _page_not_acknowledged(world: World) -> Finish:
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 0.25)

    def end() -> None:
        world.frontier.acknowledge(lease)
        world.commit()

    return end


def _waiting_for_its_address(world: World) -> Finish:
    """The neighbour in flight has taken the only place, and its request never ends."""
    world.add("http://n.test/")
    host = _pop(world, "a.test")
    neighbour = _pop(world, "n.test")
    assert world.frontier.schedule.reserve_address(neighbour, ADDRESS)
    assert not world.frontier.schedule.reserve_address(host, ADDRESS)
    world.frontier.schedule.turn_back(host, ADDRESS)
    return None


def _called_for_room(world: World) -> Finish:
    _waiting_for_its_address(world)
    world.frontier.schedule.release(world.frontier.schedule.cache.get("n.test"), 1.0)
    return None


def _awaiting_a_queued_robots_fetch(world: World) -> Finish:
    host = _pop(world, "a.test")
    _robots_fetch(world, host, "http://b.test/robots.txt")
    world.frontier.schedule.release(host, 0.25)
    return None


def _awaiting_a_robots_fetch_in_flight(world: World) -> Finish:
    _awaiting_a_queued_robots_fetch(world)
    asked = _pop(world, "b.test")
    robots_fetch = asked.robots.fetches.pop()
    assert isinstance(robots_fetch, RobotsFetch)

    def end() -> None:
        world.robots_fetches.failed(robots_fetch, final=True)
        world.frontier.schedule.release(asked, 0.25)

    return end


def _asked_for_the_robots_txt_of_another(world: World) -> Finish:
    world.add(B)
    host = _pop(world, "a.test")
    world.frontier.schedule.release(host, 60.0)
    other = _pop(world, "b.test")
    _robots_fetch(world, other, "http://a.test/robots.txt")
    world.frontier.schedule.release(other, 0.25)
    assert world.frontier.schedule.cache.get("a.test").robots.fetches
    return None


def _waiting_while_it_awaits_robots(world: World) -> Finish:
    """It is due for the robots.txt of another host, whose own awaits one too."""
    _asked_for_the_robots_txt_of_another(world)
    world.clocks.pass_(100)
    world.add("http://n.test/")
    host = _pop(world, "a.test")
    neighbour = _pop(world, "n.test")
    assert world.frontier.schedule.reserve_address(neighbour, ADDRESS)
    _robots_fetch(world, host, "http://c.test/robots.txt")
    assert len(host.robots.awaited) == 1
    world.frontier.schedule.turn_back(host, ADDRESS)
    return None


CASES: list[tuple[SchedulingState, Callable[[World], Finish]]] = [
    (IDLE, _idle),
    (SCHEDULED, _scheduled),
    (SCHEDULED, _in_session),
    (SCHEDULED, _page_not_acknowledged),
    (SCHEDULED, _asked_for_the_robots_txt_of_another),
    (WAITING, _waiting_for_its_address),
    (WAITING, _waiting_while_it_awaits_robots),
    (CALLED, _called_for_room),
    (IN_FLIGHT, _in_flight),
    (AWAITING_ROBOTS, _awaiting_a_queued_robots_fetch),
    (AWAITING_ROBOTS, _awaiting_a_robots_fetch_in_flight),
    (DEFERRED, _deferred),
    (DEFERRED, _deferred_for_a_day),
    (HELD, _held),
]


@table("limits", [LIMITS, TINY])
@table(("state", "bring"), CASES)
def test_host_in_any_state_can_leave(
    state: SchedulingState, bring: Callable[[World], Finish], limits: FrontierLimits
) -> None:
    """It leaves without another pop: a node that leaves pops nothing."""
    world = World(KeptMemoryStore, limits=replace(limits, address_concurrency=1, sessions=SESSIONS))
    world.add(A, A2)
    finish = bring(world)
    left = set(world.queued("a.test"))
    assert world.frontier.schedule.cache.get("a.test").state is state
    world.foreign.update(("a.test", "b.test", "n.test", "c.test"))
    world.robots_fetches.ring_changed()
    if finish is not None:
        with pytest.raises(HostBusyError):
            world.departures.begin("a.test")
        finish()
        left = set(world.queued("a.test"))
    other = World(KeptMemoryStore, node="there")
    world.hand_over("a.test", other)
    assert set(other.queued("a.test")) == left
    assert world.frontier.schedule.transitions.waiting == 0
    assert world.frontier.schedule._calls._called == {}


def test_every_state_is_left() -> None:
    assert {state for state, _ in CASES} == set(SchedulingState) - {SEALED}
