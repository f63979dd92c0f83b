"""A pass asks each page once that was fetched before it, however often the process dies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.due_pages import PASSES_MAX, RecrawlPass, leave_pass
from krowlspider.frontier.hosts.host import DEFERRED
from krowlspider.frontier.pages.row import PageRow
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import Batch, Store, put
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World
from tests.frontier.pages.fetching import fetch_page, rows

if TYPE_CHECKING:
    from collections.abc import Callable


PAGES = [f"http://{host}.test/{page}" for host in "abc" for page in range(7)]


@pytest.fixture
def world(open_store: Callable[[], Store]) -> World:
    """A frontier with rows of all pages, and nothing queued."""
    world = World(open_store)
    world.add(*PAGES)
    fetch_all(world)
    return world


def fetch_all(world: World) -> Counter[str]:
    """Fetch what is queued, and return it."""
    found: Counter[str] = Counter()
    while world.frontier.queued:
        found[fetch_page(world, world.clocks.wall)] += 1
    return found


def begun(world: World) -> RecrawlPass:
    assert world.frontier.pages is not None
    return RecrawlPass(world.frontier, world.frontier.pages)


def walk(world: World, most: int = 4) -> RecrawlPass:
    """Queue all pages of a pass."""
    found = begun(world)
    while found.is_pending:
        found.step(most)
    return found


class CountingStore(KeptMemoryStore):
    """Counts the batches that are made."""

    batches = 0

    def batch(self, *, sync: bool = False) -> Batch:
        self.batches += 1
        return super().batch(sync=sync)


def test_pages_and_place_are_written_in_one_batch():
    store = CountingStore()
    world = World(lambda: store)
    world.add(*PAGES)
    fetch_all(world)
    found = begun(world)
    before = store.batches
    assert found.step(5) == 5
    assert store.batches == before + 1


@pytest.mark.parametrize("most", [1, 4, 100])
def test_each_page_is_asked_once_again(world: World, most: int):
    for fetches in (2, 3):
        found = walk(world, most)
        assert fetch_all(world) == Counter(PAGES)
        found.end()
        assert {row.fetches for row in rows(world) if row} == {fetches}


def test_a_kill_between_steps_asks_nothing_twice(world: World):
    asked: Counter[str] = Counter()
    for kill in range(20):
        found = begun(world)
        if found.is_pending:
            found.step(2)
        for _ in range(kill % 3):
            if world.frontier.queued:
                asked[fetch_page(world, world.clocks.wall)] += 1
        world.crash()
        world.clocks.pass_(60)
    walk(world)
    asked += fetch_all(world)
    assert asked == Counter(PAGES)


def test_a_pass_that_another_start_has_finished_is_over(world: World):
    walk(world)
    assert not begun(world).is_pending
    leave_pass(world.store)
    fetch_page(world, 1000.0)
    assert begun(world).is_resumed
    # The start that resumed it may die before the end, and then there is nothing left to ask.
    fetch_all(world)
    assert begun(world).is_resumed
    leave_pass(world.store)
    assert not begun(world).is_resumed
    walk(world)
    assert fetch_all(world) == Counter(PAGES)


def test_a_page_in_flight_at_a_kill_is_asked_again(world: World):
    walk(world)
    lease = world.pop()
    assert lease is not None
    world.crash()
    world.clocks.pass_(60)
    assert not walk(world).is_pending
    assert fetch_all(world) == Counter(PAGES)


def test_a_page_found_during_the_pass_is_not_asked_again(world: World):
    begun(world)
    world.add("http://z.test/new")
    assert fetch_all(world) == {"http://z.test/new": 1}
    walk(world)
    assert fetch_all(world) == Counter(PAGES)


def test_a_pass_that_is_over_is_followed_by_another_one(world: World):
    found = walk(world)
    fetch_all(world)
    assert not begun(world).is_pending
    found.end()
    world.restart()
    assert begun(world).is_pending


def test_the_clock_of_the_machine_decides_nothing(world: World):
    world.clocks.wall -= 10 * 365 * 86_400
    walk(world)
    assert fetch_all(world) == Counter(PAGES)


def test_the_numbers_of_passes_begin_anew(world: World):
    put(world.store, schema.RECRAWL_PASS, b'{"number":%d,"is_over":true}' % PASSES_MAX)
    walk(world)
    fetch_all(world)
    assert {row.passed for row in rows(world) if row} == {1}


def test_a_deferred_host_with_a_queue_is_left_out(world: World):
    world.add("http://a.test/queued")
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host)
    walk(world)
    assert world.frontier.queued == 1 + len(PAGES) * 2 // 3


def test_all_pages_of_a_deferred_host_without_a_queue_are_queued(world: World):
    """Though the first step leaves it with a queue."""
    world.add("http://b.test/last")
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.deferral.defer(lease.host)
    world.frontier.acknowledge(lease, dropped="dns")
    assert lease.host.state is DEFERRED
    assert not lease.host.queue.queued
    walk(world)
    assert world.frontier.queued == len(PAGES)


def test_a_row_of_a_later_version_is_passed_over(world: World):
    assert world.frontier.pages is not None
    row = PageRow(PAGES[0], 200, 1, 1.0).encode("a.test")
    put(world.store, world.frontier.pages.key(PAGES[0]), b"\xff" + row[1:])
    walk(world)
    assert fetch_all(world) == Counter(PAGES[1:])


def test_no_budget_or_cap_counts_a_page_again(open_store: Callable[[], Store]):
    world = World(open_store, limits=replace(LIMITS, host_queue=7, domain_budget=7))
    world.add(*PAGES)
    fetch_all(world)
    walk(world)
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.acknowledge(lease, dropped="dns")
    world.commit()
    # What was dropped gave nothing of the budget back.
    assert world.add(f"http://{lease.host.name}/8") == 0
    fetch_all(world)
    assert {world.frontier.schedule.cache.get(f"{name}.test").queue.done for name in "abc"} == {7}


def test_what_is_queued_again_goes_with_its_host(world: World):
    kept = KeptMemoryStore()
    other = World(lambda: kept, node="there")
    walk(world)
    world.hand_over("a.test", other)
    assert fetch_all(other) == Counter(PAGES[:7])
    assert {row.fetches for row in rows(other) if row} == {2}
    assert fetch_all(world) == Counter(PAGES[7:])
