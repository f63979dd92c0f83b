"""The states of a host, its record, and the budget of its domain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.hosts.host import (
    LEGAL_HEALTH_CHANGES,
    Health,
    Host,
    IllegalTransition,
    SchedulingState,
)
from krowlspider.frontier.hosts.record import decode_host, encode_host
from krowlspider.frontier.hosts.tally import Tally
from krowlspider.frontier.limits import MemoryLimits
from krowlspider.frontier.schedule.deferral import ROUND
from krowlspider.frontier.schedule.due import DueHeap
from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.frontier.seen.seen_set import SeenSet
from krowlspider.frontier.store.schema import DEFERRED, due_key, split_due_key, whole_microseconds
from krowlspider.frontier.store.store import StoreError
from krowlspider.politeness.delay import PARKED, HostRate
from tests.frontier.conftest import LIMITS, RULE, TINY, KeptMemoryStore, World, counted
from tests.frontier.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.store.store import Store

A1, A2, A3 = (f"http://a.test/{number}" for number in range(3))
# A second copy on purpose: the table must not check itself.
LEGAL = {
    "NEW": {"ROBOTS", "ACTIVE", "BACKING_OFF", "DEAD", "RETIRED"},
    "ROBOTS": {"ACTIVE", "BACKING_OFF", "DEAD", "RETIRED"},
    "ACTIVE": {"ROBOTS", "BACKING_OFF", "DEAD", "RETIRED"},
    "BACKING_OFF": {"ROBOTS", "ACTIVE", "DEAD", "RETIRED"},
    "DEAD": {"ACTIVE", "BACKING_OFF"},
    "RETIRED": set(),
}


@pytest.mark.parametrize("start", Health)
@pytest.mark.parametrize("end", Health)
def test_set_health_allows_only_legal_changes(start: Health, end: Health) -> None:
    host = Host("a.test", health=start)
    if end is start or end.name in LEGAL[start.name]:
        host.set_health(end)
        assert host.health is end
        return
    with pytest.raises(
        IllegalTransition, match=rf"a\.test is {start.words} and cannot be {end.words}"
    ):
        host.set_health(end)
    assert host.health is start


def test_every_health_can_be_reached_and_only_retired_is_final() -> None:
    assert set(LEGAL_HEALTH_CHANGES) == set(Health)
    assert set().union(*LEGAL_HEALTH_CHANGES.values()) | {Health.NEW} == set(Health)
    assert [health for health in Health if not LEGAL_HEALTH_CHANGES[health]] == [Health.RETIRED]


@pytest.mark.parametrize("health", Health)
def test_decode_returns_the_encoded_host(health: Health) -> None:
    host = Host("a.test", health=health, rate=HostRate(0.5, 7.0, 9, 3, 2), due=1234.5)
    host.queue.done, host.queue.dropped = 4, 5
    for priority, tries in ((0, 0), (0, 0), (-3, 1), (2**31 - 1, 255), (-(2**31 - 1), 7)):
        host.queue.append(priority, tries)
    again = decode_host("a.test", encode_host(host))
    assert (again.health, again.due, again.queue.queued) == (health, 1234.5, 5)
    assert (again.queue.done, again.queue.dropped) == (4, 5)
    assert [getattr(again.rate, name) for name in HostRate.__slots__] == [0.5, 7.0, 9, 3, 2]
    assert {level: (q.head, q.tail) for level, q in again.queue.levels.items()} == {
        level: (q.head, q.tail) for level, q in host.queue.levels.items()
    }
    assert again.state is (
        SchedulingState.DEFERRED if health is Health.DEAD else SchedulingState.SCHEDULED
    )


def test_a_record_of_another_version_is_refused() -> None:
    record = bytearray(encode_host(Host("a.test")))
    record[0] = 99
    with pytest.raises(ValueError, match=r"host record of a\.test has version 99"):
        decode_host("a.test", bytes(record))


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


@given(st.floats(0.0, 4e9))
@example(1700001256.8395581)
def test_a_time_on_disk_is_never_earlier(due: float) -> None:
    """Otherwise a host would be popped repeatedly before its entry is due."""
    kept = whole_microseconds(due)
    assert due <= kept <= due + 2.5e-6
    assert split_due_key(due_key(kept, "a.test")) == (kept, "a.test")


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


def budgeted(open_store: Callable[[], Store], most: int) -> World:
    return World(open_store, limits=replace(LIMITS, domain_budget=most))


def test_hosts_of_a_domain_share_its_budget(
    open_store: Callable[[], Store],
) -> None:
    world = budgeted(open_store, 3)
    assert world.add("http://a.x.test/", "http://b.x.test/", "http://c.x.test/") == 3
    assert world.add("http://d.x.test/", "http://a.y.test/") == 1
    assert world.frontier.counters["dropped/domain_budget"] == 1
    assert not world.frontier.seen.known("d.x.test", world.hasher.key("http://d.x.test/"))


def test_a_done_page_keeps_its_place_in_the_budget(
    open_store: Callable[[], Store],
) -> None:
    world = budgeted(open_store, 2)
    world.add(A1, A2)
    assert world.fetch() == A1
    world.commit()
    world.crash()
    assert world.add(A3) == 0
    world.clocks.pass_(1)
    lease = world.pop()
    assert lease is not None
    world.frontier.acknowledge(lease, dropped="robots")
    world.frontier.schedule.release(lease.host, 0.25)
    world.commit()
    world.restart()
    assert world.add(A3) == 1


def test_budgets_in_memory_are_bounded(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krowlspider.frontier.budget._DOMAINS_IN_MEMORY", 10)
    world = budgeted(open_store, 1)
    urls = [f"http://h.d{number}.test/" for number in range(50)]
    for url in urls:
        assert world.add(url) == 1
    assert len(world.frontier.budget._counts) <= 10
    assert [world.add(url + "x") for url in urls] == [0] * 50


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
    assert shared.frontier.schedule.cache.get("a.test").state is SchedulingState.BLOCKED


def test_a_host_blocked_by_its_address_frees_its_domain(
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
    assert shared.frontier.schedule.cache.get("a.d.test").state is SchedulingState.BLOCKED


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


def test_a_host_called_to_free_room_is_not_handed_over(
    open_store: Callable[[], Store],
) -> None:
    """The other hosts that wait for the room would never be called."""
    world = World(open_store, limits=replace(LIMITS, address_concurrency=1))
    world.add("http://a.test/", "http://b.test/", "http://c.test/")
    assert popped_to(world, "192.0.2.1") == "a.test"
    assert [popped_to(world, "192.0.2.1") for _ in "bc"] == [None, None]
    world.frontier.schedule.release(world.frontier.schedule.cache.get("a.test"), 1.0)
    with pytest.raises(HostBusyError):
        world.departures.begin("b.test")
    assert popped_to(world, "192.0.2.1") == "b.test"


def test_a_day_of_deferral_survives_rounds_and_restarts(
    world: World,
) -> None:
    world.add(A1)
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host, PARKED)
    assert not world.frontier.hopeful
    for _ in range(22):
        world.clocks.pass_(ROUND)
        world.commit()
        world.restart()
        assert world.frontier.schedule.pop() is None
        assert not world.frontier.hopeful
    world.crash()
    world.clocks.pass_(ROUND)
    world.commit()
    world.clocks.pass_(ROUND - 1)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(1)
    again = world.frontier.schedule.pop()
    assert again is not None
    assert again.name == "a.test"
    assert world.frontier.queued == 1


def defer(world: World, wait: float = 0.0, errors: int = 0) -> str:
    """Pop a host and defer it after so many errors; return its name."""
    host = world.frontier.schedule.pop()
    assert host is not None
    host.rate.errors = errors
    world.frontier.schedule.deferral.defer(host, wait)
    return host.name


def test_a_round_schedules_every_deferred_host(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krowlspider.frontier.schedule.deferral._REVIVED", 2)
    names = {f"h{number}.test" for number in range(5)}
    world.add(*(f"http://{name}/" for name in names))
    assert {defer(world) for _ in names} == names
    world.clocks.pass_(ROUND)
    for _ in range(3):
        world.commit()
    assert list(world.store.keys(DEFERRED)) == []
    assert {host.name for _ in names if (host := world.frontier.schedule.pop())} == names


def test_a_short_deferral_ends_at_its_time_and_is_not_hopeful(
    world: World,
) -> None:
    world.add(A1)
    defer(world, 120.0)
    assert not world.frontier.hopeful
    world.clocks.pass_(119.9)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    host = world.frontier.schedule.pop()
    assert host is not None
    assert (host.name, host.health) == ("a.test", Health.BACKING_OFF)
    assert world.frontier.queues.pop(host) is not None


@pytest.mark.parametrize("stop", ["nothing", "commit", "restart"])
def test_forgiving_a_host_keeps_a_short_deferral(world: World, stop: str) -> None:
    """It has four errors of its own, and one on our side."""
    world.add(A1)
    defer(world, 120.0, errors=5)
    world.frontier.schedule.deferral.forgive("a.test", 1)
    if stop != "nothing":
        world.commit()
    if stop == "restart":
        world.restart()
    world.clocks.pass_(119.9)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    again = world.frontier.schedule.pop()
    assert again is not None
    assert (again.name, again.rate.errors) == ("a.test", 4)
    assert world.frontier.deferred_queued == 0


@pytest.mark.parametrize("stop", ["nothing", "commit", "crash"])
def test_forgiving_a_host_ends_its_day_of_deferral(world: World, stop: str) -> None:
    world.add(A1)
    defer(world, PARKED, errors=10)
    world.commit()
    world.frontier.schedule.deferral.forgive("a.test", 1)
    if stop != "nothing":
        world.commit()
    if stop == "crash":
        world.crash()
    # The longest possible delay.
    world.clocks.pass_(300.0)
    again = world.frontier.schedule.pop()
    assert again is not None
    assert (again.name, again.rate.errors) == ("a.test", 9)
    assert world.frontier.deferred_queued == 0


@pytest.mark.parametrize("stop", ["nothing", "commit", "restart"])
def test_a_forgiven_host_still_waits_its_delay(world: World, stop: str) -> None:
    world.add(A1)
    host = world.frontier.schedule.pop()
    assert host is not None
    host.rate.floor, host.rate.errors = 300.0, 10
    world.frontier.schedule.deferral.defer(host, PARKED)
    world.commit()
    world.frontier.schedule.deferral.forgive("a.test", 1)
    if stop != "nothing":
        world.commit()
    if stop == "restart":
        world.restart()
    world.clocks.pass_(299.9)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    assert world.frontier.schedule.pop() is not None


def test_a_start_keeps_a_short_deferral(
    world: World,
) -> None:
    world.add(A1)
    defer(world, 120.0)
    world.commit()
    world.restart()
    assert not world.frontier.hopeful
    world.clocks.pass_(119.0)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(2.0)
    assert world.frontier.schedule.pop() is not None


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


def restarted(world: World, boot: bytes) -> Frontier:
    """Reopen the frontier as another process of the same job."""
    world.store.close()
    world.store = world.open_store()
    seen = SeenSet(world.store, 1000)
    clocks = world.clocks
    world.frontier = Frontier(
        world.store,
        seen,
        world.limits,
        RULE,
        monotonic=lambda: clocks.monotonic,
        wall=lambda: clocks.wall,
        boot=boot,
    )
    return world.frontier


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 86_400.0 * 365])
def test_the_job_clock_ignores_changes_of_the_wall_clock(world: World, jump: float) -> None:
    restarted(world, b"one run")
    world.commit()
    before = world.frontier.now()
    world.clocks.monotonic += 7.0
    world.clocks.wall += jump
    assert restarted(world, b"one run").now() == pytest.approx(before + 7.0)


def test_the_job_clock_never_goes_back_after_a_reboot(
    world: World,
) -> None:
    restarted(world, b"one run")
    world.commit()
    before = world.frontier.now()
    world.clocks.monotonic = 3.0
    world.clocks.wall -= 3600.0
    assert restarted(world, b"another").now() == pytest.approx(before)
    world.clocks.wall += 7200.0
    assert restarted(world, b"a third").now() == pytest.approx(world.clocks.wall)


def test_a_busy_host_is_not_handed_over(world: World) -> None:
    world.add(A1, A2)
    lease = world.pop()
    assert lease is not None
    with pytest.raises(HostBusyError, match=r"a\.test is in flight, with 1 pages open"):
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
    world.add(A1, A2)
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
    assert world.add(A1) == 0


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


def test_the_heap_yields_hosts_in_the_order_of_their_times() -> None:
    store = MemoryStore()
    batch = store.batch()
    for due in (10.0, 20.0, 30.0):
        batch.put(due_key(due, f"{due:.0f}.test"), b"")
    batch.write()
    heap = DueHeap(store, 3, 100)
    heap.read_window(5.0)
    assert heap.soon(2) == ["10.test", "20.test"]
    heap.push(15.0, "15.test")
    assert heap.soon(2) == ["10.test", "20.test"]
    heap.push(9.0, "9.test")
    assert heap.soon(2) == ["9.test", "15.test"]
    assert [heap.pop(40.0) for _ in range(6)] == [
        *("9.test", "10.test", "15.test", "20.test", "30.test"),
        None,
    ]


@pytest.mark.parametrize("operation", ["add", "take over", "give up"])
def test_an_error_during_a_change_keeps_the_tally_correct(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """The tally decides when a crawl ends."""
    there = World(KeptMemoryStore, node="there")
    there.add("http://c.test/1", "http://c.test/2")
    world.add("http://a.test/1", "http://a.test/2", "http://b.test/")

    def fail(*_: object) -> None:
        raise StoreError("the disk")

    step, change = {
        "add": ("end_batch", lambda: world.add("http://a.test/3", "http://d.test/")),
        "take over": ("end_batch", lambda: there.hand_over("c.test", world)),
        "give up": ("forget", lambda: world.hand_over("a.test", there)),
    }[operation]
    with monkeypatch.context() as patch:
        patch.setattr(world.frontier.seen, step, fail)
        with pytest.raises(StoreError, match="the disk"):
            change()
    # Another change writes the records.
    assert world.fetch() is not None
    world.commit()
    assert Tally.read(world.store) == counted(world.store)
    world.crash()
    assert world.frontier.queued == counted(world.store).queued
