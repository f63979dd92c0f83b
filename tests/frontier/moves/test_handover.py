"""A hand-over moves a host whole, once and with its delay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.hosts.host import Health, SchedulingState
from krowlspider.frontier.robots.gate import Verdict
from krowlspider.frontier.schedule.ownership import ROUND
from krowlspider.frontier.seed_table import ELSEWHERE, is_of_another_node, outcome_of, states_of
from krowlspider.frontier.store.schema import GONE, POISON, robots_key
from krowlspider.frontier.store.store import Store, all_entries
from krowlspider.frontier.work_mark import POISON_STRIKES, strike
from krowlspider.politeness.delay import PARKED
from krowlspider.politeness.robots import RobotsRecord
from tests.frontier.conftest import LIMITS, Clocks, KeptMemoryStore, World
from tests.frontier.moves.hosts import HOST_NAME, content, do, put_retry, url, urls

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_hand_over_moves_everything_of_a_host(world: World, other: World) -> None:
    world.add(*urls(0, 1, 2, 3, 4), priority=3)
    world.add("http://b.test/")
    do(world, url(0))
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(1, 2, 3, 4)
    assert other.add(*urls(0, 1, 2, 3, 4)) == 0
    assert (other.frontier.queued, other.frontier.schedule.host_count) == (4, 1)
    assert other.frontier.schedule.cache.get(HOST_NAME).queue.done == 1
    left = [key for key in content(world) if HOST_NAME.encode() in key]
    assert left == [GONE + HOST_NAME.encode()]
    assert (world.frontier.queued, world.frontier.schedule.host_count) == (1, 1)
    world.clocks.pass_(10)
    assert world.frontier.schedule.count_due() <= 1
    other.clocks.pass_(10)
    assert other.fetch() == url(1)


def test_a_host_done_by_the_sender_is_due_with_a_new_url(world: World, other: World) -> None:
    world.add(url(0))
    world.fetch()
    world.commit()
    other.add(url(0))
    other.commit()
    other.foreign.add(HOST_NAME)
    # The host is held, and not in the heap.
    assert other.fetch() is None
    world.hand_over(HOST_NAME, other)
    assert other.frontier.schedule.cache.get(HOST_NAME).state is SchedulingState.IDLE
    other.foreign.clear()
    other.robots_fetches.ring_changed()
    other.clocks.pass_(60)
    assert other.fetch() is None
    other.add(url(1))
    assert other.fetch() == url(1)


def test_a_deferred_host_stays_deferred_when_more_arrives(world: World, other: World) -> None:
    other.add(url(0))
    host = other.frontier.schedule.pop()
    assert host is not None
    other.frontier.schedule.deferral.defer(host)
    world.add(url(1), url(2))
    world.fetch(wait=5.0)
    world.commit()
    world.hand_over(HOST_NAME, other)
    # The hand-over is stopped, so the host stays.
    other.departures.begin(HOST_NAME)
    other.departures.stop()
    other.clocks.pass_(60)
    assert other.frontier.schedule.pop() is None


def test_a_host_with_nothing_queued_arrives_idle(world: World, other: World) -> None:
    world.add(url(0))
    world.fetch()
    world.commit()
    world.clocks.pass_(60)
    world.hand_over(HOST_NAME, other)
    host = other.frontier.schedule.cache.get(HOST_NAME)
    assert host.state is SchedulingState.IDLE
    # It can serve the robots fetch of another host.
    other.clocks.pass_(60)
    other.frontier.schedule.enqueue_robots_fetch(HOST_NAME, object())
    assert other.frontier.schedule.pop() is host


def test_all_fields_of_an_entry_are_handed_over(world: World, other: World) -> None:
    entry = Entry(
        url(1),
        depth=7,
        redirects=1,
        retries=2,
        throttling=3,
        strikes=1,
        bare=True,
        request=b'J{"x": "\xc3\xa9"}',
        chain=(url(8), "http://c.test/9"),
        via="http://d.test/",
        path="LRM",
    )
    world.frontier.add([Candidate(HOST_NAME, world.hasher.key(url(1)), entry, -5)])
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(10)
    lease = other.pop()
    assert lease is not None
    assert lease.priority == -5
    for name in Entry.__slots__:
        assert getattr(lease.entry, name) == getattr(entry, name)


def test_two_entries_of_one_identity_both_arrive(world: World, other: World) -> None:
    """A redirect may lead to its own identity, and a request may skip the filter."""
    world.add(url(0))
    world.frontier.add([Candidate(HOST_NAME, None, Entry(url(0)))])
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(0, 0)
    assert other.add(url(0)) == 0


def test_a_pickled_request_stays_and_is_counted(world: World, other: World) -> None:
    pickled = Candidate(HOST_NAME, b"12345678", Entry(url(9), request=b"Ppickle"))
    world.add(url(0))
    world.frontier.add([pickled])
    world.add(url(1))
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(0, 1)
    assert world.departures.kept == {HOST_NAME: 1}
    assert [found for found in world.departures.moving(lambda _: "there") if found] == []
    assert (world.frontier.queued, world.frontier.schedule.host_count) == (1, 1)
    other.hand_over(HOST_NAME, world)
    do(world, url(9), url(0), url(1))


def test_an_entry_handed_over_between_two_is_not_fetched(world: World, other: World) -> None:
    """It holds for any part of the queue in memory."""
    world.add(url(0))
    for number in (1, 3):
        entry = Entry(url(number), request=b"Ppickle")
        world.frontier.add([Candidate(HOST_NAME, b"1234567%d" % number, entry)])
        world.add(url(number + 1))
    do(world, url(0))
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(2, 4)
    do(world, url(1), url(3))
    assert world.pop() is None


# What each frontier has done or queued of page 0, and what is fetched once one frontier has all.
@pytest.mark.parametrize(
    ("here", "there", "left"),
    [
        ("queued", "queued", 1),
        ("queued", "done", 0),
        ("done", "queued", 0),
        ("done", "done", 0),
        ("queued", "unknown", 1),
        ("done", "unknown", 0),
        ("unknown", "queued", 1),
    ],
)
@pytest.mark.parametrize("verify", [False, True])
def test_a_page_known_to_both_is_fetched_unless_done(
    open_store: Callable[[], Store], here: str, there: str, left: int, verify: bool
) -> None:
    kept = KeptMemoryStore()
    world = World(open_store, node="here", verify=verify)
    other = World(lambda: kept, node="there", verify=verify)
    for each, state, more in ((world, here, 1), (other, there, 2)):
        if state != "unknown":
            each.add(url(0))
        if state == "done":
            do(each, url(0))
        each.add(url(more))
    world.hand_over(HOST_NAME, other)
    assert sorted(other.queued(HOST_NAME)) == sorted([*urls(0)[:left], *urls(1, 2)])
    assert other.frontier.queued == 2 + left
    for _ in range(2 + left):
        other.clocks.pass_(5)
        assert other.fetch() is not None
    other.commit()
    assert (other.frontier.pending, other.frontier.schedule.host_count) == (0, 0)
    other.crash()
    assert other.add(*urls(0, 1, 2)) == 0


def test_an_entry_done_by_the_sender_is_not_fetched(world: World, other: World) -> None:
    """It holds for any part of the queue in memory."""
    world.add(url(1))
    do(world, url(1))
    other.add(*urls(0, 1, 2))
    do(other, url(0))
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(5)
    do(other, url(2))
    other.commit()
    assert (other.frontier.pending, other.frontier.schedule.host_count) == (0, 0)


def test_a_host_in_flight_keeps_the_later_time(world: World, other: World) -> None:
    """The receiver fetched from the host while the sender was down."""
    world.add(*urls(0, 1))
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 500.0)
    world.frontier.acknowledge(lease)
    world.commit()
    other.add(*urls(0, 5))
    on_the_way = other.pop()
    assert on_the_way is not None
    world.hand_over(HOST_NAME, other)
    other.frontier.schedule.release(on_the_way.host, 0.25)
    other.frontier.acknowledge(on_the_way)
    other.commit()
    other.clocks.pass_(499)
    assert other.fetch() is None
    other.clocks.pass_(2)
    do(other, url(5), url(1))
    assert other.frontier.pending == 0


@pytest.mark.parametrize("wrong_by", [0.0, 7200.0, -7200.0])
def test_the_wait_of_a_host_ignores_wrong_clocks(world: World, wrong_by: float) -> None:
    kept = KeptMemoryStore()
    other = World(lambda: kept, clocks=Clocks(wall=world.clocks.wall + wrong_by))
    world.add(*urls(0, 1, 2))
    lease = world.pop()
    assert lease is not None
    lease.host.rate.ema, lease.host.rate.floor = 0.7, 9.0
    lease.host.set_health(Health.ACTIVE)
    world.frontier.schedule.release(lease.host, 100.0)
    world.frontier.acknowledge(lease)
    world.commit()
    world.clocks.pass_(40)
    world.hand_over(HOST_NAME, other)
    other.crash()
    other.clocks.pass_(59)
    assert other.fetch() is None
    other.clocks.pass_(2)
    host = other.frontier.schedule.cache.get(HOST_NAME)
    assert (host.rate.ema, host.rate.floor) == (pytest.approx(0.7), 9.0)
    assert other.fetch() == url(1)


def test_a_handed_over_retry_waits_for_its_time(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    put_retry(world, 100.0)
    world.clocks.pass_(40)
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(59)
    assert other.fetch() == url(1)
    assert other.fetch() is None
    other.clocks.pass_(2)
    assert other.fetch() == url(0)


def test_a_handed_over_retry_that_is_due_goes_first(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    put_retry(world, 10.0)
    world.clocks.pass_(40)
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(1)
    assert other.fetch() == url(0)


def test_a_host_deferred_to_the_next_round_stays_so(world: World, other: World) -> None:
    world.add(url(0))
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host)
    for _ in range(2):
        # The record may have been read from disk meanwhile.
        world.add("http://b.test/")
    # As if the record had been read meanwhile.
    host.due += 3600
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(100)
    other.commit()
    assert other.fetch() is None
    other.clocks.pass_(ROUND)
    other.commit()
    assert other.fetch() == url(0)


def test_a_host_waits_its_delay_after_the_senders_death(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    lease = world.pop()
    assert lease is not None
    lease.host.rate.floor = 20.0
    world.frontier.schedule.release(lease.host, 20.0)
    world.commit()
    world.clocks.pass_(100)
    world.crash()
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(19)
    assert other.fetch() is None
    other.clocks.pass_(2)
    assert other.fetch() == url(0)


def test_a_deferred_host_arrives_deferred(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host, PARKED)
    world.hand_over(HOST_NAME, other)
    assert other.frontier.schedule.cache.get(HOST_NAME).state is SchedulingState.DEFERRED
    assert other.frontier.deferred_queued == 2
    assert not world.frontier.deferred_queued
    other.crash()
    assert other.frontier.deferred_queued == 2
    other.clocks.pass_(PARKED - 10)
    other.commit()
    assert other.fetch() is None
    other.clocks.pass_(7200)
    other.commit()
    assert other.fetch() == url(0)


def test_robots_txt_is_handed_over(world: World, other: World) -> None:
    wall = world.clocks.wall
    body = b"User-agent: *\nDisallow: /1\n"
    record = RobotsRecord("rules", wall, wall + 500, 200, body)
    world.put_robots(f"https://{HOST_NAME}", record.encode())
    world.add(f"https://{HOST_NAME}/1")
    # The last look-up found no record.
    authority = f"https://{HOST_NAME}"
    assert other.gate.verdict(authority, authority + "/1") is Verdict.UNKNOWN
    world.hand_over(HOST_NAME, other)
    assert other.gate.verdict(authority, authority + "/1") is Verdict.DISALLOWED
    assert other.gate.verdict(authority, authority + "/2") is Verdict.ALLOWED
    assert world.store.get(robots_key(authority)) is None


def test_what_became_of_seeds_is_handed_over(world: World, other: World) -> None:
    """Unless the new owner knows more. A seed that is still queued ends there."""
    for each, number in ((world, 0), (world, 1), (other, 0)):
        each.add(url(number))
        batch = each.store.batch()
        seed = Candidate(HOST_NAME, None, Entry(url(number)), 0)
        each.frontier.seeds.queued([seed], batch, has_lines=True)
        batch.write()
    do(world, url(0))
    states = dict(states_of(world.store, HOST_NAME))
    assert states.keys() == {url(0), url(1)}
    assert outcome_of(world.store, url(0)) == "done"
    world.hand_over(HOST_NAME, other)
    assert dict(states_of(other.store, HOST_NAME)) == states
    assert is_of_another_node(world.store, url(0))
    assert is_of_another_node(world.store, url(1))
    # As when the seeds are read again there, before or after the host has left.
    world.frontier.seeds.refused([url(1)], ELSEWHERE)
    other.frontier.seeds.refused([url(1)], ELSEWHERE)
    do(other, url(1))
    assert outcome_of(other.store, url(1)) == "done"


def test_poison_is_handed_over(world: World, other: World) -> None:
    for each, number in ((world, 0), (other, 5)):
        each.add(url(number))
        ((key, _),) = list(all_entries(each.store))
        for _ in range(POISON_STRIKES):
            strike(each.store, key)
        each.crash()
    world.hand_over(HOST_NAME, other)
    assert len(list(other.store.keys(POISON))) == 2
    assert list(world.store.keys(POISON)) == []
    assert other.add(url(0)) == 0


def test_the_budget_of_a_domain_moves_with_its_hosts(open_store: Callable[[], Store]) -> None:
    kept = KeptMemoryStore()
    world = World(open_store, limits=replace(LIMITS, domain_budget=3))
    other = World(lambda: kept, limits=replace(LIMITS, domain_budget=4), node="there")
    assert world.add(*urls(0, 1, 2, 3)) == 3
    do(world, url(0))
    world.hand_over(HOST_NAME, other)
    assert other.add(*urls(3, 4)) == 1
    other.crash()
    assert other.add(url(5)) == 0
    assert world.add(*urls(6, 7, 8, 9)) == 3
