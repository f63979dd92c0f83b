"""Blocks and delays that a person orders while the crawl runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.schedule import orders as orders_module
from krowlspider.frontier.schedule.own_delays import OrderError
from tests.frontier.conftest import LIMITS, RULE, KeptMemoryStore, World

if TYPE_CHECKING:
    from krowlspider.frontier.schedule.orders import Orders

A, B, C = "http://a.dom.test/", "http://b.dom.test/", "http://c.other.test/"
YEARS = 3 * 365 * 86_400.0


def orders(world: World) -> Orders:
    return world.frontier.schedule.orders


def fetched(world: World) -> list[str]:
    """Return the URLs of all pages that are due, fetched."""
    found = []
    while (url := world.fetch()) is not None:
        found.append(url)
    return found


def test_a_block_covers_hosts_found_later_and_stands(world: World) -> None:
    world.add(A, C)
    assert orders(world).block("test,dom,", "a test")
    assert not orders(world).block("test,dom,", "a test")
    assert fetched(world) == [C]
    world.commit()
    world.add(B)
    world.crash()
    world.clocks.pass_(YEARS)
    assert world.pop() is None
    # What is put off already, and what a pop has not looked at, go on.
    world.add("http://d.dom.test/")
    assert orders(world).unblock("test,dom,")
    assert not orders(world).unblock("test,dom,")
    world.clocks.pass_(RULE.minimum)
    assert sorted(fetched(world)) == [A, B, "http://d.dom.test/"]


def test_a_request_in_flight_ends_and_no_other_begins(world: World) -> None:
    world.add(A, A + "1")
    lease = world.pop()
    assert lease is not None
    orders(world).block("a.dom.test", "a test")
    world.frontier.acknowledge(lease)
    world.frontier.schedule.release(lease.host, 0.25)
    world.commit()
    world.clocks.pass_(YEARS)
    assert world.pop() is None
    assert world.frontier.schedule.pop_named("a.dom.test") is None
    assert world.frontier.queued == 1


def test_a_host_under_two_blocks_or_paused_stays(world: World) -> None:
    world.add(A, B)
    for rule in ("test,dom,", "a.dom.test"):
        orders(world).block(rule, "a test")
    assert orders(world).pause(world.frontier.schedule.cache.get("b.dom.test"))
    assert fetched(world) == []
    orders(world).unblock("test,dom,")
    world.commit()
    world.clocks.pass_(RULE.minimum)
    assert fetched(world) == []
    orders(world).unblock("a.dom.test")
    world.clocks.pass_(RULE.minimum)
    assert fetched(world) == [A]


def test_the_end_of_a_block_survives_a_kill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders_module, "_RELEASED", 2)
    urls = [f"http://h{at}.dom.test/" for at in range(7)]
    world.add(*urls)
    orders(world).block("test,dom,", "a test")
    assert fetched(world) == []
    orders(world).unblock("test,dom,")
    world.crash()
    for _ in urls:
        world.commit()
    world.clocks.pass_(YEARS)
    assert sorted(fetched(world)) == urls


def test_a_robots_fetch_for_another_host_waits_for_the_block(world: World) -> None:
    schedule = world.frontier.schedule
    orders(world).block("a.dom.test", "a test")
    schedule.enqueue_robots_fetch("a.dom.test", "fetch")
    world.clocks.pass_(1)
    assert schedule.pop() is None
    orders(world).unblock("a.dom.test")
    world.clocks.pass_(RULE.minimum)
    host = schedule.pop()
    assert host is not None
    assert host.name == "a.dom.test"


def test_a_blocked_host_is_paused_at_its_next_owner(world: World) -> None:
    other = World(KeptMemoryStore, limits=LIMITS, node="there")
    world.add(A)
    orders(world).block("a.dom.test", "a test")
    assert fetched(world) == []
    world.hand_over("a.dom.test", other)
    other.clocks.pass_(YEARS)
    assert other.pop() is None
    assert orders(other).unpause(other.frontier.schedule.cache.get("a.dom.test"))
    other.clocks.pass_(RULE.minimum)
    assert other.fetch() == A


def test_a_delay_of_a_host_stands_and_never_speeds_it_up(world: World) -> None:
    world.add(A, A + "1", A + "2")
    host = world.frontier.schedule.cache.get("a.dom.test")
    with pytest.raises(OrderError, match="below the least delay of this host"):
        orders(world).set_delay(host, RULE.minimum / 2)
    orders(world).set_delay(host, 9.0)
    assert world.pop() is None
    world.crash()
    world.clocks.pass_(8.9)
    assert world.pop() is None
    world.clocks.pass_(0.2)
    rule = world.frontier.schedule.rule
    assert world.fetch(rule.of("a.dom.test").delay(host.rate)) == A
    world.clocks.pass_(8.9)
    assert world.pop() is None
    host.rate.floor = 20.0
    assert rule.of("a.dom.test").delay(host.rate) == 20.0
    assert orders(world).delays.end("a.dom.test")
    assert not orders(world).delays.end("a.dom.test")
    assert rule.of("a.dom.test") is rule


def test_a_changed_policy_keeps_longer_delays_of_hosts(world: World) -> None:
    world.add(A)
    orders(world).set_delay(world.frontier.schedule.cache.get("a.dom.test"), 3.0)
    delays, rule = orders(world).delays, world.frontier.schedule.rule
    delays.change_policy("minimum", 1.0)
    assert (rule.minimum, rule.of("a.dom.test").minimum) == (1.0, 3.0)
    delays.change_policy("minimum", 5.0)
    assert rule.of("a.dom.test").minimum == 5.0
    delays.change_policy("factor", 7.0)
    assert rule.of("a.dom.test").factor == 7.0
