"""Hosts of other nodes are held at the pop, and never lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.hosts.host import Health, Host, RobotsFetch
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.limits import MemoryLimits
from krowlspider.frontier.robots.gate import Verdict
from krowlspider.frontier.schedule.ownership import ROUND, HostBusyError
from krowlspider.politeness.robots import RobotsRecord, Ruling
from tests.frontier.conftest import LIMITS, TINY, KeptMemoryStore, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.robots.fetches import RobotsFetches
    from krowlspider.frontier.store.store import Store

A, A2, B = "http://a.test/0", "http://a.test/1", "http://b.test/0"


def make_ours(world: World, *domains: str) -> None:
    world.foreign.difference_update(domains)
    world.robots_fetches.ring_changed()


def fetched(world: World) -> list[str]:
    """Fetch all pages that are due now; return their URLs."""
    found = []
    while (url := world.fetch()) is not None:
        found.append(url)
    return found


def state_of_a(world: World) -> SchedulingState:
    return world.frontier.schedule.cache.get("a.test").state


def test_a_foreign_host_is_held_and_others_are_popped(world: World) -> None:
    world.foreign.add("a.test")
    world.add(A, B)
    world.clocks.pass_(1)
    assert fetched(world) == [B]
    assert state_of_a(world) is SchedulingState.HELD
    assert world.frontier.has_fetchable
    assert world.frontier.pending == 1 + 1  # the fetched page is not committed yet


def test_a_ring_change_releases_a_held_host(world: World) -> None:
    world.foreign.add("a.test")
    world.add(A, B)
    fetched(world)
    make_ours(world)
    assert state_of_a(world) is SchedulingState.SCHEDULED
    assert fetched(world) == []
    assert state_of_a(world) is SchedulingState.HELD
    make_ours(world, "a.test")
    assert fetched(world) == [A]
    world.commit()
    assert world.frontier.pending == 0


@pytest.mark.parametrize("end", [World.restart, World.crash])
def test_a_held_host_keeps_its_place_after_a_restart_and_a_crash(
    world: World, end: Callable[[World], object]
) -> None:
    world.foreign.add("a.test")
    world.add(A)
    assert fetched(world) == []
    end(world)
    world.clocks.pass_(1)
    assert fetched(world) == []
    assert world.frontier.schedule.host_count == 1
    make_ours(world, "a.test")
    assert fetched(world) == [A]


def test_held_hosts_are_looked_at_once_and_cause_no_wake_up(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store, limits=replace(LIMITS, memory=MemoryLimits(window=50)))
    world.add(*(f"http://h{number}.a.test/" for number in range(500)))
    world.foreign.add("a.test")
    asked = world.looked_at
    world.clocks.pass_(1)
    assert fetched(world) == []
    assert len(asked) == 500
    for _ in range(20):
        due = world.frontier.schedule.next_due()
        assert due is not None
        assert due > world.frontier.now()
        world.clocks.pass_(due - world.frontier.now())
        assert fetched(world) == []
    assert len(asked) == 500
    world.foreign.clear()
    world.frontier.schedule.ownership.ring_changed()
    assert len(fetched(world)) == 500


def test_a_full_window_does_not_hide_released_hosts(
    open_store: Callable[[], Store],
) -> None:
    """The window may be full of later hosts when earlier ones must be read again."""
    world = World(
        open_store, limits=replace(LIMITS, memory=MemoryLimits(window=5), domain_concurrency=100)
    )
    world.foreign.add("a.test")
    world.add(A)
    assert fetched(world) == []
    others = [f"http://h{number}.test/{page}" for number in range(20) for page in range(2)]
    world.add(*others)
    leases = [lease for _ in range(20) if (lease := world.pop()) is not None]
    for lease in leases:
        world.frontier.schedule.release(lease.host, 3.0)
    make_ours(world, "a.test")
    assert fetched(world) == [A]
    assert world.frontier.schedule.next_due() is not None
    world.clocks.pass_(4)
    assert len(fetched(world)) == 20


def test_frequent_ring_changes_do_not_fill_memory(world: World) -> None:
    world.add(*(f"http://h{number}.test/{page}" for number in range(20) for page in range(2)))
    leases = [lease for _ in range(20) if (lease := world.pop()) is not None]
    for lease in leases:
        world.frontier.schedule.release(lease.host, 5.0)
    world.commit()
    for _ in range(10):
        world.robots_fetches.ring_changed()
        assert fetched(world) == []
    assert world.frontier.schedule.due.in_memory <= 20
    world.clocks.pass_(6)
    assert len(fetched(world)) == 20


def test_a_url_found_on_a_held_host_waits_with_it(world: World) -> None:
    world.foreign.add("a.test")
    world.add(A)
    assert fetched(world) == []
    world.add("http://a.test/1")
    world.clocks.pass_(60)
    assert fetched(world) == []
    make_ours(world, "a.test")
    found = fetched(world)
    world.clocks.pass_(1)
    assert found + fetched(world) == [A, "http://a.test/1"]


def test_a_host_in_flight_is_held_when_its_request_ends(world: World) -> None:
    world.add(A, "http://a.test/1")
    lease = world.pop()
    assert lease is not None
    world.foreign.add("a.test")
    world.robots_fetches.ring_changed()
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.acknowledge(lease)
    world.commit()
    world.clocks.pass_(60)
    assert fetched(world) == []
    make_ours(world, "a.test")
    assert fetched(world) == ["http://a.test/1"]


def test_a_held_host_passes_its_room_to_the_next(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store, limits=replace(LIMITS, address_concurrency=1))
    world.add(A, B, "http://c.test/0")
    first = world.pop()
    assert first is not None
    assert world.frontier.schedule.reserve_address(first.host, "192.0.2.1")
    for _ in "bc":
        lease = world.pop()
        assert lease is not None
        assert not world.frontier.schedule.reserve_address(lease.host, "192.0.2.1")
        world.frontier.queues.unpop(lease)
        world.frontier.schedule.turn_back(lease.host, "192.0.2.1")
    world.foreign.add("b.test")
    world.robots_fetches.ring_changed()
    world.frontier.schedule.release(first.host, 1.0)
    assert fetched(world) == ["http://c.test/0"]


def test_a_deferred_foreign_host_returns_with_a_round_once_ours(world: World) -> None:
    world.add(A)
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host, 100.0)
    world.foreign.add("a.test")
    world.robots_fetches.ring_changed()
    world.clocks.pass_(200)
    assert fetched(world) == []
    make_ours(world, "a.test")
    world.clocks.pass_(ROUND)
    world.commit()
    assert fetched(world) == [A]


def test_a_node_is_asked_when_the_awaited_host_becomes_its_own(world: World) -> None:
    world.add(A)
    host = world.frontier.schedule.pop()
    assert host is not None
    robots_fetch = RobotsFetch("http://a.test", host, "http://a.test/robots.txt")
    world.robots_fetches.answered(robots_fetch, 301, b"", "http://b.test/robots.txt")
    assert robots_fetch.is_away
    world.frontier.schedule.release(host, 0.25)
    world.foreign.add("b.test")
    world.robots_fetches.ring_changed()
    ((node, number, url),) = world.peers.asks
    assert (node, url) == ("there", "http://b.test/robots.txt")
    world.clocks.pass_(1)
    assert world.frontier.schedule.pop() is None
    # And back again.
    world.foreign.clear()
    world.robots_fetches.ring_changed()
    world.robots_fetches.take_answer(number, location="http://a.test/late")
    assert world.frontier.schedule.cache.get("b.test").robots.fetches == [robots_fetch]
    assert world.robots_fetches.waiting == 1


def redirected_to_b(world: World) -> tuple[RobotsFetch, Host]:
    """Redirect A's robots.txt to B, which has no record; return the fetch and B, in flight."""
    world.add(A)
    host = world.frontier.schedule.pop()
    assert host is not None
    robots_fetch = RobotsFetch("http://a.test", host, "http://a.test/robots.txt")
    world.robots_fetches.answered(robots_fetch, 301, b"", "http://b.test/robots.txt")
    assert robots_fetch.is_away
    world.frontier.schedule.release(host, 0.25)
    asked = world.frontier.schedule.pop()
    assert asked is not None
    assert asked.name == "b.test"
    assert asked.robots.fetches.pop() is robots_fetch
    return robots_fetch, asked


@pytest.mark.parametrize(
    "end",
    [
        lambda fetches, robots_fetch: fetches.failed(robots_fetch, final=False),
        lambda fetches, robots_fetch: fetches.queue(robots_fetch),
        lambda fetches, robots_fetch: fetches.answered(robots_fetch, 503, b"", None),
    ],
    ids=["no answer", "postponed", "503"],
)
@pytest.mark.parametrize("lost", ["b.test", "a.test", "both"])
def test_a_robots_fetch_in_flight_ends_if_a_host_becomes_foreign(
    world: World, end: Callable[[RobotsFetches, RobotsFetch], object], lost: str
) -> None:
    robots_fetch, asked = redirected_to_b(world)
    world.foreign.update(["a.test", "b.test"] if lost == "both" else [lost])
    world.robots_fetches.ring_changed()
    end(world.robots_fetches, robots_fetch)
    world.frontier.schedule.release(asked, 0.25)
    if lost == "a.test":
        assert asked.robots.fetches == [robots_fetch]
        return
    assert asked.robots.fetches == []
    waits = lost == "b.test"
    assert [url for _, _, url in world.peers.asks] == ["http://b.test/robots.txt"] * waits
    assert world.robots_fetches.waiting == waits
    assert len(world.frontier.schedule.cache.get("a.test").robots.awaited) == waits
    assert world.gate.verdict("http://a.test", A) is Verdict.UNKNOWN


def test_an_unsaved_host_is_handed_over_after_its_robots_fetch(
    world: World,
) -> None:
    _, asked = redirected_to_b(world)
    world.foreign.add("b.test")
    world.robots_fetches.ring_changed()
    owners = {"b.test": "there"}

    def moving() -> list[tuple[str, str]]:
        return [pair for step in world.departures.moving(owners.get) for pair in step]

    assert moving() == [("b.test", "there")]
    with pytest.raises(HostBusyError):
        world.departures.begin("b.test")
    world.frontier.schedule.release(asked, 0.25)
    world.commit()
    assert moving() == [("b.test", "there")]
    other = World(KeptMemoryStore, node="there")
    world.hand_over("b.test", other)
    assert moving() == []
    # The receiver keeps its delay.
    other.add(B)
    assert other.frontier.schedule.cache.get("b.test").due > other.frontier.now()


def test_a_host_awaiting_a_resting_host_leaves_immediately(world: World) -> None:
    """The awaited host may rest for an hour."""
    world.add(A, B)
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.cache.get("b.test").due = world.frontier.now() + 3600
    robots_fetch = RobotsFetch("http://a.test", host, "http://a.test/robots.txt")
    world.robots_fetches.answered(robots_fetch, 301, b"", "http://b.test/robots.txt")
    assert robots_fetch.is_away
    world.frontier.schedule.release(host, 0.25)
    world.foreign.add("a.test")
    world.robots_fetches.ring_changed()
    other = World(KeptMemoryStore, node="there")
    world.hand_over("a.test", other)
    assert other.queued("a.test") == [A]
    assert world.frontier.schedule.cache.get("b.test").robots.fetches == []
    assert world.robots_fetches.waiting == 0


def test_a_host_awaiting_a_fetch_in_flight_leaves_at_its_end(world: World) -> None:
    robots_fetch, asked = redirected_to_b(world)
    world.foreign.add("a.test")
    world.robots_fetches.ring_changed()
    with pytest.raises(HostBusyError):
        world.departures.begin("a.test")
    world.robots_fetches.answered(robots_fetch, 404, b"", None)
    assert not robots_fetch.is_away
    world.frontier.schedule.release(asked, 0.25)
    world.departures.begin("a.test")


def test_robots_fetches_survive_while_their_host_is_held(
    open_store: Callable[[], Store],
) -> None:
    """The node that lost the domain had not published it yet."""
    world = World(open_store, limits=TINY)
    world.add(A)
    world.frontier.schedule.enqueue_robots_fetch("b.test", "fetch")
    world.foreign.add("b.test")
    world.clocks.pass_(1)
    assert fetched(world) == [A]
    world.foreign.clear()
    world.frontier.schedule.ownership.ring_changed()
    host = world.frontier.schedule.pop()
    assert host is not None
    assert (host.name, host.robots.fetches) == ("b.test", ["fetch"])


def test_a_newer_robots_txt_of_another_node_replaces_ours(world: World) -> None:
    record = RobotsRecord(
        Ruling.RULES.value,
        world.clocks.wall + 5,
        world.clocks.wall + 500,
        200,
        b"User-agent: *\nDisallow: /\n",
    )
    assert world.gate.verdict("http://a.test", A) is Verdict.UNKNOWN
    for fetched_at, verdict in ((5, Verdict.DISALLOWED), (1, Verdict.DISALLOWED)):
        batch = world.store.batch()
        world.robots_fetches.cache.take_over(
            "http://a.test", replace(record, fetched=world.clocks.wall + fetched_at), batch
        )
        batch.write()
        assert world.gate.verdict("http://a.test", A) is verdict


def test_a_busy_host_is_not_handed_over(world: World) -> None:
    world.add(A, A2)
    lease = world.pop()
    assert lease is not None
    with pytest.raises(HostBusyError, match=r"a\.test is in flight, pages open: 1"):
        world.departures.begin("a.test")
    world.frontier.schedule.release(lease.host, 0.25)
    with pytest.raises(HostBusyError):
        world.departures.begin("a.test")
    world.frontier.acknowledge(lease)
    world.commit()
    other = World(KeptMemoryStore)
    world.hand_over("a.test", other)
    assert other.queued("a.test") == [A2]
    assert world.frontier.pending == 0
    assert world.frontier.schedule.host_count == 0


def test_a_handed_over_host_keeps_its_rate_health_and_due_time(world: World) -> None:
    world.add(A, A2)
    lease = world.pop()
    assert lease is not None
    host = lease.host
    host.rate.ema, host.rate.floor = 0.7, 9.0
    host.set_health(Health.ACTIVE)
    world.frontier.schedule.release(host, 500.0)
    world.frontier.acknowledge(lease)
    world.commit()
    other = World(KeptMemoryStore)
    world.hand_over("a.test", other)
    other.hand_over("a.test", world)
    assert world.fetch() is None
    world.crash()
    host = world.frontier.schedule.cache.get("a.test")
    assert (host.rate.ema, host.rate.floor) == (pytest.approx(0.7), 9.0)
    assert (host.health, host.queue.done) == (Health.ACTIVE, 1)
    world.clocks.pass_(499)
    assert world.fetch() is None
    world.clocks.pass_(2)
    assert world.fetch() == A2
    assert world.add(A) == 0
