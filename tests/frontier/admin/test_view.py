"""The view of a whole frontier that no crawl has open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.admin.view import view_frontier
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.store.schema import poison_prefix, queue_key
from krowlspider.views.frontier import whole
from tests.frontier.conftest import RULE, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store


def test_totals_and_the_biggest_slowest_and_next_hosts(open_store: Callable[[], Store]) -> None:
    world = World(open_store)
    for host in range(5):
        world.add(*(f"http://h{host}.test/{page}" for page in range(host + 1)))
    lease = world.pop()
    assert lease is not None
    lease.host.rate.ema = 2.0
    world.frontier.schedule.release(lease.host, 100.0)
    world.frontier.acknowledge(lease)
    dropped = world.pop()
    assert dropped is not None
    world.frontier.acknowledge(dropped, dropped="robots")
    world.frontier.schedule.release(dropped.host, 50.0)
    aside = world.frontier.schedule.pop()
    assert aside is not None
    world.frontier.schedule.deferral.defer(aside)
    world.commit()
    view = view_frontier([world.store], RULE, world.clocks.wall, most=2)
    assert (view.hosts, view.deferred, view.queued, view.done) == (5, 1, 13, 1)
    assert view.dropped == {"robots": 1}
    assert [(line.host, line.queued) for line in view.biggest] == [("h4.test", 5), ("h3.test", 4)]
    assert (view.slowest[0].host, view.slowest[0].delay, view.slowest[0].done) == (
        "h0.test",
        10.0,
        1,
    )
    assert [line.host for line in view.next_due] == ["h3.test", "h4.test"]
    every = view_frontier([world.store], RULE, world.clocks.wall, most=10)
    assert {line.host: line.due_in for line in every.next_due} == {
        "h1.test": 50.0,
        "h3.test": 0.0,
        "h4.test": 0.0,
    }
    assert [line.host for line in every.biggest if line.deferred] == ["h2.test"]


def test_poison_is_shown(open_store: Callable[[], Store]) -> None:
    world = World(open_store)
    batch = world.store.batch()
    for page in range(3):
        entry = Entry(f"http://a.test/{page}", strikes=3)
        batch.put(queue_key(poison_prefix("a.test"), 0, page), entry.encode("a.test"))
    batch.write()
    view = view_frontier([world.store], RULE, world.clocks.wall, most=2)
    assert view.poison == 3
    assert [(line.url, line.strikes) for line in view.poisoned] == [
        ("http://a.test/0", 3),
        ("http://a.test/1", 3),
    ]


def test_the_text_lists_pages_set_aside_with_their_strikes(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store)
    assert "set aside" not in whole(view_frontier([world.store], RULE, world.clocks.wall, most=10))
    batch = world.store.batch()
    for page in range(1200):
        entry = Entry(f"http://a.test/{page}", depth=4, retries=2, strikes=3)
        batch.put(queue_key(poison_prefix("a.test"), 5, page), entry.encode("a.test"))
    batch.write()
    world.frontier.counters["dropped/poison"] += 1200
    world.frontier.counters["dropped/robots"] += 34
    world.commit()
    lines = whole(view_frontier([world.store], RULE, world.clocks.wall, most=2)).splitlines()
    assert "dropped  1,234 (poison: 1,200, robots: 34)" in lines
    assert "set aside 1,200" in lines
    assert [line.split() for line in lines[-4:]] == [
        ["set", "aside"],
        ["priority", "depth", "tries", "strikes", "due", "in", "url"],
        ["5", "4", "2", "3", "0.0", "s", "http://a.test/0"],
        ["5", "4", "2", "3", "0.0", "s", "http://a.test/1"],
    ]
