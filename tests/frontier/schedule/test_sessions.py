"""A session gives a host several requests in a row, each after its delay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.limits import SessionLimits
from krowlspider.urls.canonical import host_of
from tests.frontier.conftest import LIMITS, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

HOSTS = ("a.test", "b.test", "c.test")
SESSIONS = SessionLimits(requests=3, wait=5.0, hosts=10)


@pytest.fixture
def world(world: World) -> World:
    world.frontier.close()
    world.limits = replace(world.limits, sessions=SESSIONS)
    world.open()
    return world


def with_hosts(world: World, pages: int = 6) -> World:
    """Add three hosts that are long overdue."""
    world.add(*(f"http://{host}/{page}" for host in HOSTS for page in range(pages)))
    world.commit()
    world.clocks.pass_(100)
    return world


def order(world: World, count: int, wait: float = 0.25, *, commits: bool = False) -> str:
    """Fetch so many pages, each after its host's wait; return the first letters of their hosts."""
    found = ""
    for _ in range(count):
        url = world.fetch(wait)
        assert url is not None
        found += host_of(url)[0]
        if commits:
            world.commit()
        world.clocks.pass_(wait)
    return found


def test_a_session_ends_before_the_next_host_is_popped(world: World) -> None:
    assert order(with_hosts(world), 18) == "aaabbbccc" * 2


def test_a_session_continues_while_a_crowd_is_turned_away(world: World) -> None:
    """If it ended, its host would wait behind the whole crowd. One pop in four is left to that."""
    world = with_hosts(world)
    found = ""
    calls = world.frontier.schedule._calls
    for _ in range(6):
        for _ in range(1000):
            calls.count_turned_away()
        found += order(world, 1)
    assert found == "aaaaba"
    # Few a second are no crowd, and a crowd is forgotten in two seconds.
    world.clocks.pass_(2.0)
    for _ in range(6):
        for _ in range(100):
            calls.count_turned_away()
        found += order(world, 1)
    assert found == "aaaabababccc"


def test_a_session_ends_although_its_host_is_saved(world: World) -> None:
    # Only the session keeps the host in memory.
    assert order(with_hosts(world), 18, commits=True) == "aaabbbccc" * 2


def test_a_session_without_room_continues_when_there_is_room(
    open_store: Callable[[], Store],
) -> None:
    limits = replace(LIMITS, sessions=SESSIONS, domain_concurrency=1)
    world = World(open_store, limits=limits)
    world.add(*(f"http://{host}/{page}" for host in ("a.s.test", "b.s.test") for page in range(3)))
    world.clocks.pass_(1)
    world.add("http://c.test/1", "http://c.test/2")
    world.clocks.pass_(1)
    assert world.fetch() == "http://a.s.test/0"
    second = world.pop()
    assert second is not None
    assert second.entry.url == "http://b.s.test/0"
    world.clocks.pass_(0.25)
    # The first host is due, but its domain has no room.
    assert world.fetch() == "http://c.test/1"
    world.frontier.schedule.release(second.host, 0.25)
    world.clocks.pass_(0.25)
    assert world.fetch() == "http://a.s.test/1"


@pytest.mark.parametrize(("late", "order"), [(0.9, "bc"), (1.1, "cb")])
def test_a_called_host_goes_before_sessions_not_long_overdue(
    open_store: Callable[[], Store], late: float, order: str
) -> None:
    """Where pops are slow, there is always a called host."""
    limits = replace(LIMITS, sessions=SESSIONS, domain_concurrency=1)
    world = World(open_store, limits=limits)
    world.add("http://a.s.test/1", "http://b.s.test/1", "http://c.test/1", "http://c.test/2")
    world.clocks.pass_(1)
    first = world.pop()
    assert first is not None
    # The second host has no room.
    assert world.fetch() == "http://c.test/1"
    world.clocks.pass_(0.25 + late)
    world.frontier.schedule.release(first.host, 0.25)
    assert [world.fetch(), world.fetch()] == [
        {"b": "http://b.s.test/1", "c": "http://c.test/2"}[name] for name in order
    ]


def test_robots_fetches_alone_start_no_session(world: World) -> None:
    with_hosts(world, pages=1)
    assert order(with_hosts(world, pages=3), 1) == "a"
    lease = world.pop()
    assert lease is not None
    host = lease.host
    assert host.session == 1
    while world.frontier.queues.pop(host) is not None:
        pass
    world.frontier.schedule.enqueue_robots_fetch(host.name, object())
    world.frontier.schedule.release(host, 1.0)
    assert len(world.frontier.schedule._sessions._heap) == 0
    assert host.session == 0


def test_without_sessions_hosts_alternate(open_store: Callable[[], Store]) -> None:
    assert order(with_hosts(World(open_store)), 9) == "abc" * 3


def test_while_a_session_waits_others_are_popped(world: World) -> None:
    with_hosts(world)
    assert [host_of(world.fetch() or "http://none/") for _ in range(4)] == [*HOSTS, "none"]
    world.clocks.pass_(0.25)
    assert [host_of(world.fetch() or "http://none/") for _ in range(4)] == [*HOSTS, "none"]


def test_a_session_keeps_the_delay_of_its_host(world: World) -> None:
    world.add("http://a.test/1", "http://a.test/2")
    assert world.fetch(wait=4.0) is not None
    world.clocks.pass_(3.99)
    assert world.fetch() is None
    assert world.frontier.schedule.next_due() == pytest.approx(
        world.frontier.now() + 0.01, abs=1e-5
    )
    world.clocks.pass_(0.0101)
    assert world.fetch() is not None


def test_a_handed_over_wait_ends_a_session(world: World) -> None:
    with_hosts(world)
    lease = world.pop()
    assert lease is not None
    # As `take_over` sets it.
    lease.host.due = world.frontier.now() + 1000
    world.frontier.schedule.release(lease.host, 0.25)
    assert len(world.frontier.schedule._sessions._heap) == 0


def test_a_wait_that_outlasts_the_connection_ends_a_session(world: World) -> None:
    assert order(with_hosts(world), 6, wait=5.0) == "abcabc"


def test_a_host_with_errors_has_no_session(world: World) -> None:
    with_hosts(world)
    found = ""
    for _ in range(6):
        lease = world.pop()
        assert lease is not None
        found += lease.host.name[0]
        lease.host.rate.errors = 1
        lease.host.set_health(Health.BACKING_OFF)
        world.frontier.schedule.release(lease.host, 0.25)
        world.clocks.pass_(0.25)
    assert found == "abcabc"


def test_sessions_are_bounded_by_the_kept_connections(
    open_store: Callable[[], Store],
) -> None:
    one = replace(SESSIONS, hosts=1)
    world = with_hosts(World(open_store, limits=replace(LIMITS, sessions=one)))
    assert [host_of(world.fetch() or "") for _ in range(3)] == [*HOSTS]
    world.clocks.pass_(0.25)
    # Only the first host has a session; the others alternate by due time.
    assert order(world, 8) == "aabbbccc"
    assert len(world.frontier.schedule._sessions._heap) <= 1


def test_an_idle_host_has_no_session(world: World) -> None:
    world.add("http://a.test/1")
    world.fetch()
    assert len(world.frontier.schedule._sessions._heap) == 0


@pytest.mark.parametrize("end", [World.restart, World.crash])
def test_a_restart_ends_a_session_and_loses_no_url(
    world: World, end: Callable[[World], object]
) -> None:
    with_hosts(world)
    assert order(world, 2) == "aa"
    world.commit()
    end(world)
    world.clocks.pass_(100)
    assert sorted(order(world, 16)) == sorted("a" * 4 + "b" * 6 + "c" * 6)
    world.commit()
    assert world.frontier.pending == 0


def test_a_foreign_host_in_a_session_is_held(world: World) -> None:
    with_hosts(world)
    assert order(world, 1) == "a"
    world.foreign.add("a.test")
    assert order(world, 12) == "bbbccc" * 2
    assert world.fetch() is None
    host = world.frontier.schedule.cache.get("a.test")
    assert host.state is SchedulingState.HELD
    world.commit()
    # A held host need not stay in memory.
    assert not world.frontier.schedule.cache._is_pinned(host)
    world.foreign.clear()
    world.robots_fetches.ring_changed()
    assert order(world, 5) == "a" * 5


def test_hosts_of_sessions_are_counted_as_due(world: World) -> None:
    world.add("http://a.test/1", "http://a.test/2")
    world.fetch()
    assert world.frontier.schedule.count_due() == 0
    world.clocks.pass_(0.3)
    assert world.frontier.schedule.count_due() == 1
