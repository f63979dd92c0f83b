"""Hosts share addresses, blocks, origins, and the crowd of hosts not known to answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier import limits as addresses
from krowlspider.frontier import shares
from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.hosts.host_record import decode_host, encode_host
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.limits import FrontierLimits, MemoryLimits, SessionLimits
from krowlspider.frontier.shares import places_of
from tests.frontier.conftest import LIMITS, RULE, TINY, World
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

SLOTS = 64

# For thousands of hosts, of which others of these tests have a few in LevelDB.
mostly_in_memory = pytest.mark.parametrize(
    "open_store", ["memory", pytest.param("leveldb", marks=pytest.mark.slow)], indirect=True
)


@pytest.mark.parametrize(
    ("address", "places"),
    [
        ("192.0.2.77", ("@192.0.2.77", "#192.0.2")),
        ("::ffff:192.0.2.77", ("@192.0.2.77", "#192.0.2")),
        ("64:ff9b::c000:24d", ("@192.0.2.77", "#192.0.2")),
        ("2001:db8:1:2:3::4", ("@2001:db8:1:2::/64", "#2001:db8:1::/48")),
        ("2001:db8:1:2:ffff::", ("@2001:db8:1:2::/64", "#2001:db8:1::/48")),
        ("2001:db8:1:3::", ("@2001:db8:1:3::/64", "#2001:db8:1::/48")),
    ],
)
def test_an_ipv6_64_is_one_address_and_a_48_one_block(
    address: str, places: tuple[str, str]
) -> None:
    assert places_of(address) == places


def opened(
    open_store: Callable[[], Store], limits: FrontierLimits = LIMITS, **caps: object
) -> World:
    return World(open_store, limits=replace(limits, **caps))  # type: ignore[arg-type]


def sent(world: World, address: str | None = None) -> Host | None:
    """Pop the next host that has room at its address; None if there is none."""
    while (host := world.frontier.schedule.pop()) is not None:
        where = address or address_of(host.name)
        if world.frontier.schedule.reserve_address(host, where):
            return host
        world.frontier.schedule.turn_back(host, where)
    return None


def address_of(name: str) -> str:
    """Return an address in a block of the domain alone."""
    number = int(name.partition(".")[0].lstrip("abcdefghijklmnopqrstuvwxyz") or 0)
    return f"10.{number // 250}.{number % 250}.1"


def all_sent(world: World, address: str | None = None) -> list[Host]:
    found = []
    while (host := sent(world, address)) is not None:
        found.append(host)
    return found


def answer(world: World, host: Host, latency: float = 0.1) -> None:
    """Record an answer of the host; it is due again after 0.25 s or more."""
    world.frontier.schedule.release(host, RULE.after_answer(host.rate, latency))


def reached(world: World, count: int) -> list[str]:
    """Return the names of so many hosts that have answered and have more pages."""
    names = [f"good{number}.test" for number in range(count)]
    world.add(*(f"http://{name}/{page}" for name in names for page in range(50)))
    for host in all_sent(world):
        answer(world, host)
    return names


def test_hosts_of_a_block_have_a_quarter_of_the_slots(open_store: Callable[[], Store]) -> None:
    world = opened(open_store, slots=SLOTS, address_concurrency=2)
    world.add(*(f"http://h{number}.test/" for number in range(40)))
    places = [f"192.0.2.{number}" for number in range(40)]
    sent_hosts = []
    while (host := world.frontier.schedule.pop()) is not None:
        place = places[int(host.name[1:-5])]
        if world.frontier.schedule.reserve_address(host, place):
            sent_hosts.append(host)
        else:
            world.frontier.schedule.turn_back(host, place)
    assert len(sent_hosts) == SLOTS // 4
    world.frontier.schedule.release(sent_hosts[0], 5.0)
    assert len(all_sent(world, "192.0.2.200")) == 1


def test_a_crowd_alone_has_nearly_all_slots(open_store: Callable[[], Store]) -> None:
    world = opened(open_store, slots=SLOTS)
    world.add(*(f"http://h{number}.test/" for number in range(100)))
    assert len(all_sent(world)) == SLOTS - SLOTS // 32


def test_a_crowd_leaves_slots_to_hosts_that_answer(open_store: Callable[[], Store]) -> None:
    """They keep the slots they used together lately, and a quarter more."""
    world = opened(open_store, slots=SLOTS)
    good = reached(world, 20)
    world.clocks.pass_(1)
    assert {host.name for host in all_sent(world)} == {*good}
    for name in good:
        answer(world, world.frontier.schedule.cache.get(name))
    world.add(*(f"http://dead{number}.test/" for number in range(500)))
    crowd = all_sent(world)
    assert len(crowd) == SLOTS - SLOTS // 32 - 25
    world.clocks.pass_(0.5)
    assert {host.name for host in all_sent(world)} == {*good}


def test_a_crowd_has_a_quarter_of_the_slots_at_least(open_store: Callable[[], Store]) -> None:
    world = opened(open_store, slots=SLOTS)
    reached(world, 60)
    world.clocks.pass_(1)
    assert len(all_sent(world)) == 60
    world.add(*(f"http://dead{number}.test/" for number in range(500)))
    assert len(all_sent(world)) == SLOTS // 4


def test_a_crowd_takes_the_slots_that_others_leave_free(open_store: Callable[[], Store]) -> None:
    world = opened(open_store, slots=SLOTS)
    good = reached(world, 40)
    for name in good:
        world.frontier.schedule.cache.get(name).due = world.frontier.now() + 1e6
    world.add(*(f"http://dead{number}.test/" for number in range(500)))
    before = len(all_sent(world))
    for _ in range(120):
        world.clocks.pass_(1)
        before += len(all_sent(world))
    assert before == SLOTS - SLOTS // 32


@pytest.mark.parametrize(("latency", "errors"), [(20.0, 0), (0.1, 1)])
def test_slow_and_failing_hosts_are_of_the_crowd(
    open_store: Callable[[], Store], latency: float, errors: int
) -> None:
    world = opened(open_store, slots=SLOTS)
    reached(world, 20)
    world.clocks.pass_(1)
    assert len(all_sent(world)) == 20
    for number in range(60):
        world.add(f"http://slow{number}.test/")
        host = world.frontier.schedule.cache.get(f"slow{number}.test")
        host.rate.ema, host.rate.errors = latency, errors
    assert len(all_sent(world)) == SLOTS - SLOTS // 32 - 25


@mostly_in_memory
@pytest.mark.parametrize("limits", [LIMITS, TINY], ids=["roomy", "tiny"])
def test_each_host_that_waits_for_room_is_sent_once(
    open_store: Callable[[], Store], limits: FrontierLimits
) -> None:
    """Also hosts of which memory has only the name, and hosts only on disk."""
    world = opened(open_store, limits, slots=8, address_concurrency=1)
    urls = [f"http://h{number}.test/" for number in range(100)]
    world.add(*urls)
    found = []
    for _ in range(400):
        for host in all_sent(world, f"192.0.{len(found) % 7}.1"):
            lease = world.frontier.queues.pop(host)
            assert lease is not None
            found.append(lease.entry.url)
            world.frontier.acknowledge(lease)
            world.frontier.schedule.release(host, 1.0)
        world.commit()
        world.clocks.pass_(0.1)
    assert sorted(found) == sorted(urls)


@mostly_in_memory
def test_each_of_many_waiting_hosts_costs_one_look(open_store: Callable[[], Store]) -> None:
    """Nothing is written for them, and hosts behind them are found."""
    sessions = SessionLimits(10, 15.0, 2000)
    world = opened(open_store, slots=SLOTS, sessions=sessions)
    good = reached(world, 10)
    world.clocks.pass_(0.1)
    world.add(*(f"http://dead{number}.test/" for number in range(10_000)))
    world.commit()
    popped = []

    def crawl() -> None:
        for _ in range(200):
            world.clocks.pass_(0.51)
            for host in all_sent(world):
                if host.name in good:
                    popped.append(host)
                    answer(world, host)

    spent = seconds(crawl, tries=1)
    assert len(popped) >= 1750
    assert world.frontier.schedule.shares.waiting > 9_900
    # Looking at all hosts in each pop would take many times as long.
    assert spent < 2.5
    assert not any("dead" in name for name in world.frontier.schedule.cache._changed)


@pytest.mark.parametrize(("turned_back", "continues"), [(700, True), (300, False)])
def test_hosts_turned_back_at_an_address_are_a_crowd(
    open_store: Callable[[], Store], turned_back: int, *, continues: bool
) -> None:
    """A session has no end then. Otherwise its host would wait behind all of them."""
    sessions = SessionLimits(2, 15.0, 2000)
    world = opened(open_store, slots=1000, sessions=sessions, address_concurrency=1)
    (good,) = reached(world, 1)
    world.add(*(f"http://h{number}.test/" for number in range(1000)))
    schedule = world.frontier.schedule
    for at in range(turned_back + 1):
        host = schedule.pop()
        assert host is not None
        if not schedule.reserve_address(host, "192.0.2.1"):
            schedule.turn_back(host, "192.0.2.1")
        else:
            assert at == 0
    world.clocks.pass_(0.5)
    host = schedule.pop()
    assert host is not None
    assert host.name == good
    answer(world, host)
    world.clocks.pass_(0.5)
    following = schedule.pop()
    assert following is not None
    assert (following.name == good) is continues


def test_a_pop_out_of_looks_takes_only_sessions(open_store: Callable[[], Store]) -> None:
    sessions = SessionLimits(1000, 15.0, 2000)
    world = opened(open_store, slots=SLOTS, sessions=sessions)
    good = reached(world, 5)
    world.clocks.pass_(0.5)
    world.frontier.schedule._calls._left = -1.0
    world.frontier.schedule._calls._left_at = world.frontier.now()
    world.add("http://late.test/")
    assert {one.name for one in all_sent(world)} == {*good}
    due = world.frontier.schedule.next_due()
    assert due is not None
    assert due > world.frontier.now()
    world.clocks.pass_(0.05)
    assert [one.name for one in all_sent(world)] == ["late.test"]


def test_a_pop_out_of_looks_continues_immediately(
    open_store: Callable[[], Store],
) -> None:
    """It returns no host, but reports that hosts are still due."""
    world = opened(open_store, domain_concurrency=1)
    world.add(*(f"http://h{number}.full.test/" for number in range(2500)), "http://last.test/")
    looks = world.looked_at
    assert sent(world) is not None
    looked = [len(looks)]
    for _ in range(2):
        assert world.frontier.schedule.pop() is None
        due = world.frontier.schedule.next_due()
        assert due is not None
        assert due <= world.frontier.now()
        looked.append(len(looks))
    host = world.frontier.schedule.pop()
    assert host is not None
    assert host.name == "last.test"
    assert looked == [1, 1001, 2001]
    assert len(looks) == 2501


# --- the rate of an address ---


def with_address_delay(
    open_store: Callable[[], Store], limits: FrontierLimits = LIMITS, hosts: int = 50
) -> World:
    world = opened(open_store, limits, address_delay=0.1, address_concurrency=8)
    world.add(*(f"http://h{number}.test/{page}" for number in range(hosts) for page in (1, 2)))
    return world


@mostly_in_memory
@pytest.mark.parametrize("limits", [LIMITS, TINY], ids=["roomy", "tiny"])
def test_an_address_is_asked_ten_times_a_second(
    open_store: Callable[[], Store], limits: FrontierLimits
) -> None:
    world = with_address_delay(open_store, limits)
    times = []
    for _ in range(1000):
        for host in all_sent(world, "192.0.2.1"):
            times.append(world.frontier.now())
            answer(world, host, 0.01)
        world.clocks.pass_(0.01)
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert min(gaps) >= 0.1 - 1e-6
    # All hosts are sent, nearly at the allowed rate.
    assert 90 <= len(times) <= 100


def test_next_due_includes_the_delay_of_an_address(open_store: Callable[[], Store]) -> None:
    world = with_address_delay(open_store, hosts=2)
    assert sent(world, "192.0.2.1") is not None
    assert sent(world, "192.0.2.1") is None
    due = world.frontier.schedule.next_due()
    assert due == pytest.approx(world.frontier.now() + 0.1)
    world.clocks.pass_(0.1)
    assert sent(world, "192.0.2.1") is not None


def refuse(world: World, host: Host, retry_after: float | None = None) -> float:
    """Record a refusal of the host; return for how long its address rests."""
    wait = RULE.after_throttling(host.rate, 0.01, retry_after, 0.0)
    rest = world.frontier.schedule.shares.addresses.refused(
        host, retry_after, world.frontier.now(), 0.0
    )
    world.frontier.schedule.release(host, wait)
    return rest


def next_sent(world: World, address: str = "192.0.2.1") -> tuple[Host, float]:
    """Wait for the next host that is sent; return it with the time waited."""
    begun = world.frontier.now()
    while (host := sent(world, address)) is None:
        due = world.frontier.schedule.next_due()
        assert due is not None
        world.clocks.pass_(max(due - world.frontier.now(), 1e-6))
    return host, world.frontier.now() - begun


def test_three_refusals_by_different_hosts_rest_their_address(
    open_store: Callable[[], Store],
) -> None:
    world = with_address_delay(open_store)
    assert [refuse(world, next_sent(world)[0], retry_after=30.0) for _ in range(3)] == [0, 0, 30]
    assert next_sent(world)[1] == pytest.approx(30.0)


def test_the_retry_after_of_an_address_has_a_bound(open_store: Callable[[], Store]) -> None:
    world = with_address_delay(open_store)
    for _ in range(3):
        refuse(world, next_sent(world)[0], retry_after=3600.0)
    assert next_sent(world)[1] == pytest.approx(60.0)


def test_refusals_by_few_hosts_do_not_rest_their_address(
    open_store: Callable[[], Store],
) -> None:
    """Neither those of two hosts, nor those of many hosts with answers in between."""
    world = with_address_delay(open_store)
    first, second = next_sent(world)[0], next_sent(world)[0]
    for host in (first, first, second, first):
        world.frontier.schedule.shares.addresses.refused(host, 3600.0, world.frontier.now(), 0.0)
    for number in range(20):
        host, took = next_sent(world)
        assert took <= 0.2
        if number % 3:
            refuse(world, host, 3600.0)
        else:
            world.frontier.schedule.shares.addresses.answered(host, 0.01)
            answer(world, host)


def test_each_further_refusal_doubles_the_delay_of_an_address(
    open_store: Callable[[], Store],
) -> None:
    world = with_address_delay(open_store)
    waits = []
    for _ in range(8):
        host, took = next_sent(world)
        waits.append(round(took, 3))
        refuse(world, host)
    assert waits == [0.0, 0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]


def test_refusals_of_requests_in_flight_count_once(
    open_store: Callable[[], Store],
) -> None:
    world = with_address_delay(open_store)
    sent_hosts = [next_sent(world)[0] for _ in range(8)]
    for host in sent_hosts:
        refuse(world, host)
    assert next_sent(world)[1] == pytest.approx(0.2)


def test_ten_answers_halve_the_backoff_of_an_address(open_store: Callable[[], Store]) -> None:
    world = with_address_delay(open_store)
    for _ in range(4):
        refuse(world, next_sent(world)[0])
    waits = []
    for _ in range(22):
        host, took = next_sent(world)
        waits.append(round(took, 3))
        world.frontier.schedule.shares.addresses.answered(host, 0.01)
        answer(world, host)
    assert waits == [0.4] * 11 + [0.2] * 10 + [0.1]


def test_addresses_in_memory_are_bounded(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "ADDRESSES", 10)
    world = opened(open_store, address_delay=0.1)
    world.add(*(f"http://h{number}.test/" for number in range(50)))
    assert len(all_sent(world)) == 50
    assert len(world.frontier.schedule.shares.addresses._known) == 10


def test_each_of_many_hosts_at_one_address_is_turned_back_once(
    open_store: Callable[[], Store],
) -> None:
    """Their address is unknown before the first pop, and may be evicted meanwhile."""
    memory = MemoryLimits(hosts=100, waiting=10)
    world = opened(open_store, address_delay=0.1, memory=memory, slots=256)
    world.add(*(f"http://h{number}.test/" for number in range(2000)))
    turned_back = 0
    found: list[Host] = []
    for _ in range(300):
        while (host := world.frontier.schedule.pop()) is not None:
            if world.frontier.schedule.reserve_address(host, "192.0.2.1"):
                found.append(host)
                answer(world, host)
            else:
                turned_back += 1
                world.frontier.schedule.turn_back(host, "192.0.2.1")
        world.clocks.pass_(0.1)
    assert turned_back < 2010
    assert 295 <= len(found) <= 301


def test_a_sealed_host_leaves_its_line(open_store: Callable[[], Store]) -> None:
    world = opened(open_store, domain_concurrency=1, memory=MemoryLimits(waiting=0))
    world.add("http://a.d.test/", "http://b.d.test/")
    first = world.frontier.schedule.pop()
    assert first is not None
    assert world.frontier.schedule.pop() is None
    other = world.frontier.schedule.cache.get("b.d.test")
    assert other.state is SchedulingState.SCHEDULED
    world.frontier.schedule.ownership.seal("b.d.test")
    world.frontier.schedule.release(first, 1.0)
    assert world.frontier.schedule.pop() is None
    world.frontier.schedule.ownership.unseal(other)
    assert world.frontier.schedule.pop() is other


# --- origins: where hosts were found ---


def found(world: World, via: str, *urls: str) -> None:
    world.frontier.queue([world.candidate(url) for url in urls], via=via)


def test_hosts_of_one_origin_have_an_eighth_of_the_slots(open_store: Callable[[], Store]) -> None:
    """It holds while others are due; slots they leave free go to the origin."""
    world = opened(open_store, slots=SLOTS)
    good = reached(world, 20)
    found(world, "www.hub.test", *(f"http://h{number}.test/" for number in range(500)))
    world.clocks.pass_(1)
    first = [sent(world) for _ in range(28)]
    names = {host.name for host in first if host is not None}
    assert {*good} < names
    assert len(names) == 20 + SLOTS // 8
    more = all_sent(world)
    assert len(more) == SLOTS - SLOTS // 32 - 25 - SLOTS // 8


def test_one_origin_alone_has_nearly_all_slots(open_store: Callable[[], Store]) -> None:
    """Its hosts answer, so they are not of the crowd."""
    world = opened(open_store, slots=SLOTS)
    found(world, "hub.test", *(f"http://h{number}.test/{p}" for number in range(500) for p in "ab"))
    for _ in range(20):
        for host in all_sent(world):
            answer(world, host)
        world.clocks.pass_(0.5)
    assert len(all_sent(world)) >= SLOTS * 3 // 4


def test_a_full_origin_does_not_delay_hosts_of_other_origins(
    open_store: Callable[[], Store],
) -> None:
    world = opened(open_store, slots=SLOTS)
    reached(world, 40)
    world.clocks.pass_(1)
    assert len(all_sent(world)) == 40
    found(world, "hub.test", *(f"http://h{number}.test/" for number in range(500)))
    crowd = all_sent(world)
    assert len(crowd) == SLOTS // 4
    found(world, "hub.test", *(f"http://more{number}.test/" for number in range(500)))
    assert all_sent(world) == []
    found(world, "other.test", "http://new.test/")
    assert all_sent(world) == []
    world.frontier.schedule.release(crowd[-1], 5.0)
    assert [host.name for host in all_sent(world)] == ["new.test"]


def test_a_session_is_not_interrupted_by_its_origin(open_store: Callable[[], Store]) -> None:
    """Its host has the next free place of the origin. Others have the place while it rests: so a
    few sessions take turns, instead of all hosts."""
    world = opened(open_store, slots=8, sessions=SessionLimits(3, 5.0, 100))
    good = reached(world, 4)
    found(world, "hub.test", *(f"http://h{number}.test/{p}" for number in range(9) for p in "abcd"))
    order = []
    while len(order) < 9:
        world.clocks.pass_(1)
        popped = [host for _ in range(5) if (host := sent(world)) is not None]
        order += [host.name for host in popped if host.name not in good]
        for host in popped:
            answer(world, host)
    assert len({*order}) <= 4


def test_an_origin_is_a_domain_and_survives_a_restart(open_store: Callable[[], Store]) -> None:
    world = opened(open_store)
    found(world, "www.hub.test", "http://a.test/", "http://deep.hub.test/")
    found(world, "m.hub.test", "http://b.test/")
    found(world, "else.test", "http://c.test/", "http://a.test/2")
    found(world, "", "http://seed.test/")
    world.commit()
    world.restart()
    origins = [
        world.frontier.schedule.cache.get(f"{name}.test").shares.origin
        for name in ("a", "b", "c", "seed")
    ]
    assert origins[0] == origins[1]
    assert len({*origins}) == 3
    assert origins[3] == world.frontier.schedule.cache.get("deep.hub.test").shares.origin == 0
    assert None not in [world.fetch() for _ in range(5)]


def test_a_host_with_ten_pages_leaves_its_origin(open_store: Callable[[], Store]) -> None:
    world = opened(open_store, slots=SLOTS)
    found(world, "hub.test", *(f"http://h{number}.test/" for number in range(40)))
    for number in range(40):
        host = world.frontier.schedule.cache.get(f"h{number}.test")
        host.queue.done, host.rate.ema = 10, 0.1
    assert not any(place[0] == "^" for host in all_sent(world) for place in host.shares.places)


def test_a_record_without_an_origin_is_read() -> None:
    host = Host("a.test")
    host.queue.done = 3
    host.queue.level(0).tail += 1
    host.queue.queued += 1
    before = encode_host(host)
    assert before[0] == 2
    again = decode_host("a.test", before)
    assert (again.shares.origin, again.queue.done, again.queue.queued) == (0, 3, 1)
    again.shares.origin = 0xFFFFFFFF
    after = decode_host("a.test", encode_host(again))
    assert (after.shares.origin, after.queue.done, after.queue.queued) == (0xFFFFFFFF, 3, 1)
    assert after.queue.levels[0].tail == 1


def test_a_domain_in_a_full_origin_does_not_delay_other_hosts(
    open_store: Callable[[], Store],
) -> None:
    """Its hosts move between two lines with each request that ends."""
    world = opened(open_store, slots=SLOTS, domain_concurrency=2)
    good = reached(world, 10)
    slow = [f"http://h{number}.test/" for number in range(SLOTS // 8)]
    world.frontier.queue([world.candidate(url) for url in slow], via="www.hub.test")
    for _ in slow:
        assert sent(world) is not None
    names = [f"http://v{number}.victim.test/" for number in range(3000)]
    world.frontier.queue([world.candidate(url) for url in names], via="www.hub.test")
    world.clocks.pass_(1)
    # Each is looked at once, a thousand in a pop.
    for _ in range(3):
        assert not all_sent(world)
    for _ in range(20):
        sent_hosts = all_sent(world)
        assert {host.name for host in sent_hosts} >= {*good}
        for host in sent_hosts:
            answer(world, host)
        world.clocks.pass_(1)
    assert world.frontier.schedule._calls._left > 0


def test_a_crowd_goes_on_after_a_probe_pops_the_called_host(
    open_store: Callable[[], Store],
) -> None:
    world = opened(open_store, slots=16)
    world.add(*(f"http://h{number}.test/" for number in range(40)))
    sent_hosts = all_sent(world)
    first = world.frontier.schedule.shares._lines["?"][0]
    world.frontier.schedule.release(sent_hosts.pop(), 1000.0)
    world.frontier.schedule._calls.call_at_pop(world.frontier.now())
    probe = world.frontier.schedule.pop_named(first)
    assert probe is not None
    for host in (probe, *sent_hosts):
        world.frontier.schedule.release(host, 1000.0)
    world.clocks.pass_(1)
    assert len(all_sent(world)) == 16


def test_hosts_of_an_idle_address_are_called_after_its_rest(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "_LINES_LOOKED_AT", 0)
    world = opened(open_store, address_delay=0.1, address_concurrency=3)
    world.add(*(f"http://h{number}.test/" for number in range(20)))
    sent_hosts: list[Host] = []
    for _ in range(10):
        sent_hosts += all_sent(world, "192.0.2.1")
        world.clocks.pass_(0.2)
    assert len(sent_hosts) == 3
    for host in sent_hosts:
        world.frontier.schedule.shares.addresses.refused(host, 60.0, world.frontier.now(), 0.0)
    for host in sent_hosts:
        world.frontier.schedule.release(host, 1000.0)
    assert sent(world, "192.0.2.1") is None
    world.clocks.pass_(61)
    assert sent(world, "192.0.2.1") is not None


def test_a_line_whose_call_was_lost_is_called_within_a_second(
    open_store: Callable[[], Store],
) -> None:
    world = opened(open_store, domain_concurrency=1)
    world.add("http://a.shared.test/", "http://b.shared.test/")
    (host,) = all_sent(world)
    world.frontier.schedule.shares.leave_flight(host)
    assert sent(world) is None
    world.clocks.pass_(1.1)
    assert sent(world) is not None


@mostly_in_memory
def test_a_crowd_does_not_outnumber_hosts_that_answer(open_store: Callable[[], Store]) -> None:
    """After 10 s each pop takes 20 ms, as in a crawl that is short of CPU time. Then few hosts of a
    crowd are turned away, and more find room than can be popped."""
    sessions = SessionLimits(10, 15.0, 1000)
    world = opened(
        open_store, slots=256, address_concurrency=2, address_delay=0.1, sessions=sessions
    )
    good = set(reached(world, 60))
    for hub in range(5):
        names = (f"n{n}.w{n % 256}.test" for n in range(hub, 5000, 5))
        urls = (f"http://{name}/{page}" for name in names for page in (1, 2))
        found(world, f"hub{hub}.test", *urls)
    popped: Counter[bool] = Counter()
    flights: list[tuple[float, Host]] = []
    begun = world.clocks.monotonic
    while (now := world.clocks.monotonic - begun) < 40.0:
        for ends, host in list(flights):
            if ends <= now:
                flights.remove((ends, host))
                answer(world, host, 0.01)
        if (host := world.frontier.schedule.pop()) is not None:
            number = int(host.name.partition(".")[0].lstrip("godn"))
            where = address_of(host.name) if host.name in good else f"127.7.0.{number % 32}"
            if world.frontier.schedule.reserve_address(host, where):
                popped[host.name in good] += now > 20.0
                flights.append((now + (0.01 if host.name in good else 0.3), host))
            else:
                world.frontier.schedule.turn_back(host, where)
        world.clocks.pass_(0.02 if now > 10.0 else 0.0005)
    assert popped[True] > 250
    assert popped[False] > 100


def test_called_hosts_that_rest_longer_hold_no_calls(open_store: Callable[[], Store]) -> None:
    """Their pages took much of the event loop while they waited for room."""
    world = opened(open_store, domain_concurrency=1)
    count = 40
    world.add(*(f"http://{host}.d{number}.test/" for host in "ab" for number in range(count)))
    sent_hosts = all_sent(world)
    assert len(sent_hosts) == count
    schedule = world.frontier.schedule
    others = [host for host in schedule.cache.hosts.values() if host not in sent_hosts]
    for host in others[:-1]:
        schedule.rest_longer(host, 60.0)
    for host in sent_hosts:
        schedule.release(host, 1000.0)
    assert all_sent(world) == others[-1:]
    world.clocks.pass_(61)
    assert {host.name for host in all_sent(world)} == {host.name for host in others[:-1]}
