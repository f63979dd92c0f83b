"""The heap pops hosts in due order; the work of a pop and the memory are bounded."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from krowlspider.frontier import frontier as frontier_module
from krowlspider.frontier.limits import MemoryLimits
from krowlspider.frontier.schedule import cache, scheduler
from krowlspider.frontier.schedule.cache import DueHeap
from krowlspider.frontier.store.schema import DUE, due_key, split_due_key, whole_microseconds
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World
from tests.frontier.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from krowlspider.frontier.store.store import Store

MANY = 400
# Most hosts, and most of the heap, are on disk only.
LITTLE = replace(LIMITS, memory=MemoryLimits(hosts=30, window=20))


def page_of(number: int) -> str:
    return f"http://h{number}.d{number}.test/"


def resting(world: World, chance: random.Random) -> dict[str, float]:
    """Add MANY hosts, fetch each once, and let it rest for up to 100 seconds.

    Return when each is due, on the monotonic clock.
    """
    due = {}
    world.add(*(page_of(number) + path for number in range(MANY) for path in "ab"))
    while (lease := world.pop()) is not None:
        wait = chance.uniform(1, 100)
        due[lease.host.name] = world.clocks.monotonic + wait
        world.frontier.schedule.release(lease.host, wait)
        world.frontier.acknowledge(lease)
        if chance.random() < 0.1:
            world.commit()
    assert len(due) == MANY
    return due


def test_a_crash_does_not_load_every_waiting_host_together(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_LOOKS", 20)
    monkeypatch.setattr(cache, "_TOGETHER", 5)
    world = World(open_store, limits=replace(LIMITS, memory=MemoryLimits(hosts=30, window=40)))
    urls = [f"http://h{number}.d{number}.test/" for number in range(MANY)]
    world.add(*urls)
    world.crash()
    for _ in range(MANY):
        before = len(world.frontier.schedule.cache.hosts)
        assert world.frontier.schedule.pop() is None
        assert len(world.frontier.schedule.cache.hosts) <= min(before, 30) + 20 + 5
    assert world.frontier.schedule.due.in_memory <= 40
    found: set[str | None] = set()
    for _ in range(MANY):
        world.clocks.pass_(0.25)
        while (url := world.fetch()) is not None:
            found.add(url)
    assert found == set(urls)


def test_blocked_hosts_of_one_domain_in_memory_are_bounded(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = MemoryLimits(hosts=30, window=40, waiting=5, in_line=10)
    limits = replace(LIMITS, domain_concurrency=1, memory=memory)
    world = World(open_store, limits=limits)
    urls = [f"http://h{number}.shared.test/" for number in range(MANY)]
    world.add(*urls)
    lease = world.pop()
    assert lease is not None
    for _ in range(MANY):
        assert world.pop() is None
        assert world.frontier.schedule.shares.waiting <= 10
        world.commit()
    assert len(world.frontier.schedule.cache.hosts) <= 60
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.acknowledge(lease)
    found = [lease.entry.url]
    for _ in range(4 * MANY):
        world.clocks.pass_(0.25)
        while (url := world.fetch()) is not None:
            found.append(url)
    assert sorted(found) == sorted(urls)


def test_urls_read_ahead_are_bounded_by_their_length(world: World) -> None:
    short = [f"http://a.test/{number}" for number in range(10)]
    long = [f"http://b.test/{number}/{'x' * 1000}" for number in range(10)]
    # Short and long URLs alternate.
    both = [f"http://c.test/{number}/{'x' * 1000 * (number % 2)}" for number in range(10)]
    world.add(*short, *long, *both)
    kept = {"a.test": set[int](), "b.test": set[int](), "c.test": set[int]()}
    for _ in short:
        for _ in kept:
            lease = world.pop()
            assert lease is not None
            kept[lease.host.name].add(len(lease.host.queue.ahead or ()))
            world.frontier.schedule.release(lease.host, 0.25)
            world.frontier.acknowledge(lease)
        world.clocks.pass_(1)
    assert kept == {"a.test": {0, 1, 2, 3}, "b.test": {0}, "c.test": {0, 1}}


def test_a_commit_compacts_the_consumed_part_of_the_heap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compacted = []

    class Watched(KeptMemoryStore):
        def compact(self, start: bytes, stop: bytes) -> None:
            compacted.append((start, stop))

    monkeypatch.setattr(frontier_module, "COMPACT_EVERY", 3)
    world = World(Watched)
    world.add(*(f"http://a.test/{number}" for number in range(7)))
    for _ in range(7):
        assert world.fetch()
        world.commit()
        world.clocks.pass_(1)
    assert len(compacted) == 2
    assert all(start == DUE < stop for start, stop in compacted)


def test_invariant_1_the_delay_after_a_crash_survives_a_restart(world: World) -> None:
    world.add("http://a.test/1", "http://a.test/2")
    lease = world.pop()
    assert lease is not None
    lease.host.rate.floor = 20.0
    world.frontier.schedule.release(lease.host, 20.0)
    world.crash()
    world.clocks.pass_(1)
    world.restart()
    world.clocks.pass_(18)
    assert world.pop() is None
    world.clocks.pass_(1.1)
    assert world.pop() is not None


def test_hosts_are_popped_by_due_time_while_others_are_added(
    open_store: Callable[[], Store],
) -> None:
    """Hosts are new, or fetched again: due immediately, in some seconds, or in a minute."""
    chance = random.Random(3)
    world = World(open_store, limits=LITTLE)
    due = resting(world, chance)
    popped = 0
    for number in range(MANY, 4 * MANY):
        if chance.random() < 0.2:
            world.add(page_of(number), page_of(number) + "again")
            due[f"h{number}.d{number}.test"] = world.clocks.monotonic
        # Due times are stored in whole microseconds, so time moves on by more than one.
        world.clocks.pass_(chance.uniform(0.001, 0.3))
        if chance.random() < 0.05:
            world.commit()
        late = min(due, key=lambda name: due[name])
        host = world.frontier.schedule.pop()
        if due[late] > world.clocks.monotonic:
            assert host is None
            continue
        assert host is not None
        assert host.name == late
        popped += 1
        lease = world.frontier.queues.pop(host)
        assert lease is not None
        wait = chance.choice([0.0005, chance.uniform(1, 9), chance.uniform(50, 70)])
        world.frontier.schedule.release(host, wait)
        world.frontier.acknowledge(lease)
        if host.queue.queued:
            due[late] = world.clocks.monotonic + wait
        else:
            del due[late]
    assert popped > MANY


def test_new_hosts_do_not_delay_overdue_ones(
    open_store: Callable[[], Store],
) -> None:
    """All hosts are overdue, and each fetch finds two new hosts."""
    chance = random.Random(4)
    world = World(open_store, limits=LITTLE)
    due = resting(world, chance)
    world.clocks.pass_(100)
    order = []
    for number in range(MANY):
        new = 2 * number + MANY
        world.clocks.pass_(0.001)
        world.add(page_of(new), page_of(new + 1))
        host = world.frontier.schedule.pop()
        assert host is not None
        order.append(host.name)
        world.frontier.schedule.release(host, 1000.0)
        if number % 20 == 0:
            world.commit()
    assert order == sorted(due, key=lambda name: due[name])
    # The new hosts follow, oldest first.
    host = world.frontier.schedule.pop()
    assert host is not None
    assert host.name in {page_of(number)[7:-1] for number in (MANY, MANY + 1)}


@given(st.floats(0.0, 4e9))
@example(1700001256.8395581)
def test_a_time_on_disk_is_never_earlier(due: float) -> None:
    """Otherwise a host would be popped repeatedly before its entry is due."""
    kept = whole_microseconds(due)
    assert due <= kept <= due + 2.5e-6
    assert split_due_key(due_key(kept, "a.test")) == (kept, "a.test")


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
