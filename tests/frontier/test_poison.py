"""A page gets a strike when the process dies while working on it; three set it aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.admin.view import view_frontier
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.host_record import decode_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import Store, all_entries
from krowlspider.frontier.work_mark import (
    MARK,
    POISON_STRIKES,
    WorkMark,
    is_poison,
    left_key,
    mark_of,
    strike,
)
from tests.frontier.conftest import RULE, World

if TYPE_CHECKING:
    from pathlib import Path


BOOT = b"7c90e567-7e12-4456-818a-8602c3cbf4a0"


def key_of(store: Store, url: str) -> bytes:
    """Return the queue key of a URL."""
    found = [k for k, saved in all_entries(store) if entry_of(k, saved).url == url]
    assert len(found) == 1
    return found[0]


def poison(store: Store) -> dict[bytes, Entry]:
    return {key: entry_of(key, saved) for key, saved in store.items(schema.POISON)}


def set_aside(world: World, url: str) -> bytes:
    """Strike a page until it is set aside; return its key."""
    key = key_of(world.store, url)
    for _ in range(POISON_STRIKES):
        strike(world.store, key)
    return key


def test_a_strike_is_counted_in_the_entry(world: World) -> None:
    urls = [f"http://a.test/{number}" for number in range(3)]
    world.add(*urls)
    key = key_of(world.store, urls[0])
    for count in (1, 2):
        entry = strike(world.store, key)
        assert entry is not None
        assert (entry.url, entry.strikes) == (urls[0], count)
    frontier = world.crash()
    assert (frontier.queued, frontier.counters["dropped/poison"]) == (3, 0)
    world.clocks.pass_(60.0)
    lease = world.pop()
    assert lease is not None
    assert (lease.entry.url, lease.entry.strikes) == (urls[0], 2)


def test_the_third_strike_moves_the_whole_entry(world: World) -> None:
    request = Entry("http://a.test/deadly", depth=3, retries=1, strikes=2, request=b"Jx")
    world.frontier.add([world.candidate("http://a.test/first")])
    candidate = world.candidate(request.url)
    candidate.entry = request
    world.frontier.add([candidate])
    key = key_of(world.store, request.url)
    strike(world.store, key)
    assert world.store.get(key) is None
    (kept,) = poison(world.store).items()
    assert kept[0] == schema.POISON + key[1:]
    found = kept[1]
    assert (found.url, found.depth, found.retries, found.request) == (request.url, 3, 1, b"Jx")
    assert found.strikes == POISON_STRIKES == 3


def test_an_earlier_poison_entry_keeps_its_key(world: World) -> None:
    """A queue of retries restarts at its first sequence, so a key may occur twice."""
    world.add("http://a.test/deadly")
    key = key_of(world.store, "http://a.test/deadly")
    batch = world.store.batch()
    batch.put(schema.POISON + key[1:], Entry("http://a.test/older", strikes=3).encode("a.test"))
    batch.write()
    set_aside(world, "http://a.test/deadly")
    assert [entry.url for entry in poison(world.store).values()] == [
        "http://a.test/older",
        "http://a.test/deadly",
    ]


def test_poison_counts_as_dropped_and_the_rest_is_fetched(
    world: World,
) -> None:
    urls = [f"http://a.test/{number}" for number in range(4)]
    world.add(*urls)
    set_aside(world, urls[1])
    frontier = world.crash()
    assert (frontier.queued, frontier.schedule.host_count) == (3, 1)
    assert frontier.counters["dropped/poison"] == 1
    fetched = []
    for _ in range(4):
        world.clocks.pass_(60.0)
        fetched.append(world.fetch())
    assert fetched == [urls[0], urls[2], urls[3], None]
    world.commit()
    assert frontier.queued == frontier.pending == 0
    view = view_frontier([world.store], RULE, world.clocks.wall, most=1)
    assert (view.queued, view.done, view.dropped) == (0, 3, {"poison": 1})
    record = world.store.get(schema.host_key("a.test"))
    assert record is not None
    assert decode_host("a.test", record).queue.dropped == 1


def test_a_host_with_only_poison_leaves_the_heap(world: World) -> None:
    world.add("http://a.test/only", "http://b.test/other")
    set_aside(world, "http://a.test/only")
    frontier = world.crash()
    assert (frontier.queued, frontier.schedule.host_count) == (1, 1)
    assert [key[9:] for key in world.store.keys(schema.DUE)] == [b"b.test"]
    world.clocks.pass_(60.0)
    assert world.fetch() == "http://b.test/other"
    world.clocks.pass_(60.0)
    assert world.fetch() is None
    # The next URL found on it schedules it again.
    assert world.add("http://a.test/new") == 1
    world.clocks.pass_(60.0)
    assert world.fetch() == "http://a.test/new"


def test_totals_of_a_clean_close_do_not_count_poison(world: World) -> None:
    """An import may close the frontier between the crash and the next start."""
    world.add("http://a.test/deadly", "http://b.test/")
    key = key_of(world.store, "http://a.test/deadly")
    world.restart()
    world.frontier.close()
    store = world.open_store()
    for _ in range(POISON_STRIKES):
        strike(store, key)
    store.close()
    frontier = world.open()
    assert (frontier.queued, frontier.schedule.host_count) == (1, 1)


def test_a_poison_page_stays_known(world: World) -> None:
    world.add("http://a.test/deadly")
    set_aside(world, "http://a.test/deadly")
    world.crash()
    assert world.add("http://a.test/deadly") == 0


def test_a_done_page_gets_no_strike(world: World) -> None:
    world.add("http://a.test/", "http://b.test/")
    key = key_of(world.store, "http://a.test/")
    assert world.fetch() == "http://a.test/"
    world.commit()
    before = dict(world.store.items(b""))
    assert strike(world.store, key) is None
    assert dict(world.store.items(b"")) == before


def test_only_the_marked_page_gets_a_strike(world: World, tmp_path: Path) -> None:
    urls = [f"http://a.test/{number}" for number in range(3)]
    world.add(*urls)
    path = tmp_path / MARK
    WorkMark(path, BOOT).put(mark_of(key_of(world.store, urls[1])))
    found = strike(world.store, left_key(path, BOOT))
    assert found is not None
    assert (found.url, is_poison(found)) == (urls[1], False)
    queued = [entry_of(key, saved).strikes for key, saved in all_entries(world.store)]
    assert queued == [0, 1, 0]


def test_no_mark_is_no_strike(world: World) -> None:
    assert strike(world.store, b"") is None
