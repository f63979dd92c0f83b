"""The scheduler pops the host that is due longest, and keeps the delay of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.schedule.ownership import ROUND
from tests.frontier.conftest import LIMITS, RULE, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.store.store import Store

A1, A2 = "http://a.test/1", "http://a.test/2"


def test_a_retired_host_takes_no_url_also_after_a_restart(world: World) -> None:
    world.add(A1)
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.retire(lease.host)
    world.frontier.acknowledge(lease, dropped="crawl_delay")
    world.frontier.schedule.give_back(lease.host)
    assert world.add(A2) == 0
    world.commit()
    world.restart()
    assert world.add(A2) == 0
    assert world.frontier.counters["dropped/crawl_delay"] == 3
    assert not world.frontier.seen.known("a.test", world.hasher.key(A2))


def leased(world: World) -> Lease:
    lease = world.pop()
    assert lease is not None
    return lease


def test_a_host_given_back_is_popped_after_those_due_before(world: World) -> None:
    world.add(A1)
    world.clocks.pass_(1)
    world.add("http://b.test/")
    world.clocks.pass_(1)
    lease = leased(world)
    world.frontier.queues.unpop(lease)
    world.frontier.schedule.give_back(lease.host)
    world.clocks.pass_(0.001)
    assert [leased(world).host.name for _ in range(2)] == ["b.test", "a.test"]


def test_rest_longer_never_shortens_a_rest(world: World) -> None:
    world.add("http://a.test/1", "http://a.test/2")
    frontier = world.frontier
    host = frontier.schedule.pop()
    assert host is not None
    lease = frontier.queues.pop(host)
    assert lease is not None
    frontier.schedule.release(host, 1.0)
    frontier.schedule.rest_longer(host, 5.0)
    frontier.schedule.rest_longer(host, 2.0)
    world.clocks.pass_(4.9)
    assert frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    assert frontier.schedule.pop() is host


@pytest.mark.parametrize("left", [True, False])
def test_a_new_url_does_not_shorten_the_rest_of_its_host(world: World, left: bool) -> None:
    world.add(*[A1, A2][: 1 + left])
    lease = leased(world)
    world.frontier.acknowledge(lease, dropped="robots")
    world.frontier.schedule.give_back(lease.host, 5.0)
    world.add("http://a.test/3")
    world.commit()
    world.clocks.pass_(4.9)
    assert world.pop() is None
    world.restart()
    assert world.pop() is None
    world.clocks.pass_(0.2)
    assert leased(world).host.name == "a.test"


def test_pop_named_takes_a_host_out_of_turn_but_keeps_its_delay(world: World) -> None:
    frontier = world.frontier
    world.add(A1, "http://b.test/", "http://b.test/2")
    for name in ("never.test", "a.test"):
        assert (frontier.schedule.pop_named(name) is None) == (name == "never.test")
    host = frontier.schedule.pop_named("b.test")
    assert host is not None
    assert frontier.schedule.pop_named("b.test") is None
    lease = frontier.queues.pop(host)
    assert lease is not None
    # Their places in the heap are stale.
    assert frontier.schedule.pop() is None
    frontier.schedule.release(host, 5.0)
    frontier.acknowledge(lease)
    world.clocks.pass_(4.9)
    assert frontier.schedule.pop_named("b.test") is None
    assert frontier.schedule.pop() is None
    world.clocks.pass_(0.1)
    assert frontier.schedule.pop_named("b.test") is host
    frontier.schedule.give_back(host)
    assert frontier.schedule.pop() is host


def test_pop_named_needs_room_in_the_domain(open_store: Callable[[], Store]) -> None:
    world = World(open_store, limits=replace(LIMITS, domain_concurrency=1))
    frontier = world.frontier
    world.add("http://one.a.test/", "http://two.a.test/")
    one = frontier.schedule.pop_named("one.a.test")
    assert one is not None
    assert frontier.schedule.pop_named("two.a.test") is None
    frontier.schedule.release(one, 5.0)
    assert frontier.schedule.pop() is frontier.schedule.cache.get("two.a.test")


def test_pop_named_refuses_a_host_of_another_node(world: World) -> None:
    world.add(A1)
    world.foreign.add("a.test")
    assert world.frontier.schedule.pop_named("a.test") is None


def test_a_robots_fetch_waits_until_its_host_is_due(world: World) -> None:
    """Both for a resting host and for a deferred one."""
    world.add(A1)
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.release(host, 10.0)
    world.frontier.schedule.enqueue_robots_fetch("a.test", object())
    world.clocks.pass_(9.9)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    assert world.frontier.schedule.pop() is host
    world.frontier.schedule.deferral.defer(host, 2 * ROUND)
    world.clocks.pass_(2 * ROUND - 1)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(1.1)
    assert world.frontier.schedule.pop() is host


# --- a host that a person pauses ---

YEARS = 3 * 365 * 86_400.0


def pause(world: World, *, ended: bool = False) -> bool:
    orders = world.frontier.schedule.orders
    return orders.take(orders.made("pause", "a.test", "a test", ended=ended))


@pytest.mark.parametrize("state", ["scheduled", "in flight", "given back", "turned back", "idle"])
def test_a_paused_host_stays_paused_in_any_state(world: World, state: str) -> None:
    schedule = world.frontier.schedule
    if state == "idle":
        world.add(A1)
        lease = leased(world)
        world.frontier.acknowledge(lease)
        schedule.release(lease.host, 1.0)
        host = lease.host
        assert pause(world)
        world.commit()
        world.add(A2)
    else:
        world.add(A1, A2)
        lease = leased(world) if state != "scheduled" else None
        host = schedule.cache.get("a.test") if lease is None else lease.host
        assert pause(world)
        if lease is not None:
            world.frontier.queues.unpop(lease)
            if state == "in flight":
                schedule.release(host, 1.0)
            elif state == "given back":
                schedule.give_back(host)
            else:
                schedule.turn_back(host, "192.0.2.1")
    world.clocks.pass_(YEARS)
    assert world.pop() is None
    assert pause(world, ended=True)
    assert not pause(world, ended=True)
    assert world.pop() is None
    world.clocks.pass_(RULE.minimum)
    assert leased(world).host.name == "a.test"


def test_a_pause_and_its_end_are_on_disk_at_once(world: World) -> None:
    world.add(A1)
    world.commit()
    pause(world)
    world.crash()
    world.clocks.pass_(YEARS)
    assert world.pop() is None
    pause(world, ended=True)
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert leased(world).host.name == "a.test"


def test_a_deferred_host_is_paused_when_it_is_tried_again(world: World) -> None:
    world.add(A1)
    lease = leased(world)
    world.frontier.queues.unpop(lease)
    lease.host.rate.errors = 100
    world.frontier.schedule.deferral.defer(lease.host, 100.0)
    assert pause(world)
    world.clocks.pass_(200.0)
    assert world.pop() is None
    pause(world, ended=True)
    world.clocks.pass_(ROUND)
    world.commit()
    assert leased(world).host.name == "a.test"
