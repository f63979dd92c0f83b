"""Hosts of one address share its concurrency."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.hosts.host import SchedulingState
from krowlspider.frontier.limits import MemoryLimits
from tests.frontier.conftest import LIMITS, TINY, KeptMemoryStore, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store


@pytest.fixture
def shared(open_store: Callable[[], Store]) -> World:
    """A frontier with one request at a time for each domain and each address."""
    return World(open_store, limits=replace(LIMITS, domain_concurrency=1, address_concurrency=1))


def popped_to(world: World, address: str) -> str | None:
    """Pop a host and reserve an address; return its name, or None if there is none or no room."""
    host = world.frontier.schedule.pop()
    if host is None:
        return None
    if not world.frontier.schedule.reserve_address(host, address):
        world.frontier.schedule.turn_back(host, address)
        return None
    return host.name


def test_hosts_of_one_address_share_its_concurrency(
    shared: World,
) -> None:
    shared.add("http://a.test/", "http://b.test/", "http://c.test/")
    assert popped_to(shared, "192.0.2.1") == "a.test"
    assert popped_to(shared, "192.0.2.1") is None
    assert popped_to(shared, "192.0.2.2") == "c.test"
    assert shared.frontier.schedule.pop() is None
    shared.frontier.schedule.release(shared.frontier.schedule.cache.get("a.test"), 1.0)
    assert popped_to(shared, "192.0.2.1") == "b.test"


def test_a_host_of_a_full_known_address_is_not_popped(
    shared: World,
) -> None:
    shared.add("http://a.test/1", "http://a.test/2")
    assert popped_to(shared, "192.0.2.1") == "a.test"
    shared.frontier.schedule.release(shared.frontier.schedule.cache.get("a.test"), 1.0)
    shared.add("http://b.test/")
    assert popped_to(shared, "192.0.2.1") == "b.test"
    shared.clocks.pass_(1)
    assert shared.frontier.schedule.pop() is None
    assert shared.frontier.schedule.cache.get("a.test").state is SchedulingState.WAITING


def test_a_host_waiting_for_its_address_frees_its_domain(
    shared: World,
) -> None:
    """No other request of the domain would end and call the next host."""
    shared.add("http://a.d.test/1", "http://a.d.test/2", "http://x.test/")
    assert popped_to(shared, "192.0.2.1") == "a.d.test"
    shared.frontier.schedule.release(shared.frontier.schedule.cache.get("a.d.test"), 5.0)
    assert popped_to(shared, "192.0.2.1") == "x.test"
    shared.add("http://first.d.test/")
    assert popped_to(shared, "192.0.2.2") == "first.d.test"
    shared.clocks.pass_(5)
    shared.add("http://last.d.test/")
    assert shared.frontier.schedule.pop() is None
    assert shared.frontier.schedule.shares.waiting == 2
    shared.frontier.schedule.release(shared.frontier.schedule.cache.get("first.d.test"), 1.0)
    assert popped_to(shared, "192.0.2.3") == "last.d.test"
    assert shared.frontier.schedule.cache.get("a.d.test").state is SchedulingState.WAITING


def test_room_at_an_address_survives_eviction_of_the_host(
    open_store: Callable[[], Store],
) -> None:
    """Eviction forgets the address of the called host, and its domain is full by then."""
    world = World(open_store, limits=replace(TINY, domain_concurrency=1, address_concurrency=1))
    world.add("http://a.test/", "http://b.d.test/", "http://c.test/")
    assert popped_to(world, "192.0.2.1") == "a.test"
    assert [popped_to(world, "192.0.2.1") for _ in "bc"] == [None, None]
    assert world.frontier.schedule.shares.waiting == 2
    world.add("http://full.d.test/")
    assert popped_to(world, "192.0.2.2") == "full.d.test"
    world.frontier.schedule.release(world.frontier.schedule.cache.get("a.test"), 1.0)
    # Each batch evicts the oldest host in memory.
    for number in range(5):
        world.add(f"http://h{number}.test/")
    assert popped_to(world, "192.0.2.1") == "c.test"


@pytest.mark.parametrize("leaving", [["b.test"], ["c.test", "b.test"]])
def test_hosts_that_leave_pass_their_room_on(
    open_store: Callable[[], Store], leaving: list[str]
) -> None:
    """B is called for the room and C is in line for it when both leave, or only B."""
    world = World(open_store, limits=replace(LIMITS, address_concurrency=1))
    world.add(*(f"http://{letter}.test/" for letter in "abcd"))
    assert popped_to(world, "192.0.2.1") == "a.test"
    assert [popped_to(world, "192.0.2.1") for _ in "bcd"] == [None] * 3
    world.frontier.schedule.release(world.frontier.schedule.cache.get("a.test"), 1.0)
    for name in leaving:
        world.hand_over(name, World(KeptMemoryStore, node="there"))
    assert popped_to(world, "192.0.2.1") == ("d.test" if "c.test" in leaving else "c.test")


def test_a_turned_back_host_that_has_to_wait_is_not_in_line(shared: World) -> None:
    """A hand-over has set a later time while its address was looked up."""
    shared.add("http://a.test/", "http://b.test/", "http://c.test/")
    assert popped_to(shared, "192.0.2.1") == "a.test"
    schedule = shared.frontier.schedule
    host = schedule.pop()
    assert host is not None
    host.due = schedule.now() + 60.0
    schedule.turn_back(host, "192.0.2.1")
    schedule.release(schedule.cache.get("a.test"), 1000.0)
    assert popped_to(shared, "192.0.2.1") == "c.test"
    assert schedule._calls._called == {}
    shared.frontier.schedule.release(schedule.cache.get("c.test"), 1000.0)
    shared.clocks.pass_(61)
    assert popped_to(shared, "192.0.2.1") == "b.test"


def test_turning_back_a_host_ends_its_deferral_on_disk_too(
    open_store: Callable[[], Store],
) -> None:
    world = World(
        open_store, limits=replace(LIMITS, memory=MemoryLimits(hosts=1), address_concurrency=1)
    )
    world.add("http://a.test/")
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host, 60.0)
    assert world.frontier.deferred_queued == 1
    world.clocks.pass_(61)
    again = world.frontier.schedule.pop()
    assert again is not None
    world.frontier.schedule.turn_back(again, "192.0.2.1")
    assert world.frontier.deferred_queued == 0
    world.commit()
    world.add("http://b.test/", "http://c.test/")
    world.add("http://d.test/")
    assert "a.test" not in world.frontier.schedule.cache.hosts
    assert world.frontier.schedule.cache.get("a.test").state is SchedulingState.SCHEDULED
    assert {popped_to(world, f"192.0.2.{number}") for number in range(4)} == {
        f"{letter}.test" for letter in "abcd"
    }
    assert world.frontier.deferred_queued == 0
