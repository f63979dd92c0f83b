"""A rebuild makes records, heap, marks and counts agree with the queue entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.admin.repair import FrontierRemains, rebuild_indexes
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.hosts.host_record import decode_host, encode_host
from krowlspider.frontier.outbox import Foreign
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import host_in, host_key
from krowlspider.frontier.store.store import Store, all_entries, entry_keys, records
from tests.frontier.conftest import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


HOSTS = {"a.test": 5, "a.test.b": 1, "a-b.test": 2, "c.test": 3}


@pytest.fixture
def world(open_store: Callable[[], Store]) -> World:
    """A closed frontier of four hosts; its store is open."""
    world = World(open_store)
    for host, pages in HOSTS.items():
        world.add(*(f"http://{host}/{page}" for page in range(pages)))
    world.add("http://a.test/first", priority=3)
    world.put_robots("http://a.test", b"record")
    world.clocks.pass_(5)
    assert world.fetch(100.0) is not None
    world.commit()
    world.frontier.close()
    world.store = open_store()
    return world


def delete_prefixes(world: World, *prefixes: bytes) -> list[bytes]:
    """Delete all keys of these prefixes; return them."""
    return delete_keys(world, [key for prefix in prefixes for key in world.store.keys(prefix)])


def delete_keys(world: World, keys: Iterable[bytes]) -> list[bytes]:
    """Delete these keys; return them."""
    keys = list(keys)
    batch = world.store.batch()
    for key in keys:
        batch.delete(key)
    batch.write()
    return keys


def delete_records(world: World, *names: str) -> list[bytes]:
    """Delete the records of these hosts, or of all; return their keys."""
    return delete_keys(world, [host_key(name) for name in names or dict(records(world.store))])


def rebuilt(world: World, most: int = 10) -> FrontierRemains:
    return rebuild_indexes(world.store, world.hasher, world.clocks.wall, most)


def contents(world: World) -> dict[bytes, object]:
    """Return all keys and values, with the queues of each host record sorted."""
    return {
        key: sorted_record(key, value)
        if key[:1] == schema.QUEUE and schema.is_record(key)
        else value
        for key, value in world.store.items(b"")
    }


def sorted_record(key: bytes, record: bytes) -> bytes:
    host = decode_host(host_in(key), record)
    host.queue.levels = dict(sorted(host.queue.levels.items()))
    return encode_host(host)


def crawled(world: World) -> set[str]:
    """Open the frontier and fetch all pages; return their URLs."""
    world.store.close()
    world.open()
    found = set()
    for _ in range(40):
        world.clocks.pass_(200)
        if (url := world.fetch()) is not None:
            found.add(url)
    assert world.frontier.queued == 0
    return found


def test_a_healthy_frontier_is_unchanged_by_a_rebuild(world: World) -> None:
    before = contents(world)
    found = rebuilt(world)
    assert found.kept == {
        "hosts": 4,
        "queued": 11,
        "poison": 0,
        "seen": 12,
        "robots": 1,
        "outbox": 0,
        "budgets": 0,
        "pages": 0,
    }
    assert (found.marked, found.short, found.short_hosts) == (0, [], 0)
    after = contents(world)
    lists = [key for key in before if key[:1] == schema.NEW_KEYS]
    for key in [schema.CLEAN, schema.TALLY, *lists]:
        del before[key]
    # The rebuild deletes the lists and continues their numbers.
    assert after.pop(schema.SAVED) == max(lists)[1:]
    assert after == before


@pytest.mark.parametrize("kind", ["records", schema.DUE, schema.SEEN])
def test_lost_records_heap_and_marks_are_rebuilt(world: World, kind: bytes | str) -> None:
    urls = {entry_of(key, value).url for key, value in all_entries(world.store)}
    assert delete_records(world) if isinstance(kind, str) else delete_prefixes(world, kind)
    assert rebuilt(world).marked == (11 if kind == schema.SEEN else 0)
    assert len(list(world.store.keys(schema.DUE))) == 4
    assert crawled(world) == urls
    assert world.add(*urls) == 0


def test_lost_entries_are_counted_by_host(world: World) -> None:
    gone = [key for name in ("a.test", "c.test") for key in entry_keys(world.store, name)]
    assert len(delete_keys(world, gone)) == 9
    found = rebuilt(world, most=1)
    assert found.short == [(6, "a.test")]
    assert (found.short_hosts, found.short_urls) == (2, 9)
    record = world.store.get(host_key("a.test"))
    assert record is not None
    assert decode_host("a.test", record).queue.queued == 0
    assert crawled(world) == {"http://a.test.b/0", "http://a-b.test/1"}


def test_a_hole_in_a_queue_hides_no_later_entry(world: World) -> None:
    keys = list(entry_keys(world.store, "c.test"))
    batch = world.store.batch()
    batch.delete(keys[0])
    batch.delete(keys[1])
    batch.write()
    assert rebuilt(world).short == [(2, "c.test")]
    assert "http://c.test/2" in crawled(world)


def test_a_host_without_a_record_is_new_and_due_now(world: World) -> None:
    delete_records(world, "c.test")
    rebuilt(world)
    record = world.store.get(host_key("c.test"))
    assert record is not None
    host = decode_host("c.test", record)
    assert (host.due, host.queue.queued) == (world.clocks.wall, 3)


def test_hosts_without_a_record_are_named(
    world: World,
) -> None:
    delete_records(world, "c.test", "a-b.test")
    delete_keys(world, entry_keys(world.store, "c.test"))
    found = rebuilt(world)
    assert found.unrecorded_hosts == 2
    assert sorted(found.unrecorded) == ["a-b.test", "c.test"]
    assert (found.short_hosts, found.whole) == (0, False)
    assert found.kept["seen"] == 12
    assert rebuilt(world, most=0).unrecorded_hosts == 1


@pytest.mark.parametrize("left", [None, b"{}", b'{"done": 0}'])
def test_lost_or_old_counters_are_reported(world: World, left: bytes | None) -> None:
    assert not rebuilt(world).counters_lost
    batch = world.store.batch()
    batch.delete(schema.COUNTERS)
    if left is not None:
        batch.put(schema.COUNTERS, left)
    batch.write()
    assert rebuilt(world).counters_lost


def test_a_lost_key_of_a_deferred_host_is_rebuilt(world: World) -> None:
    world.store.close()
    frontier = world.open()
    world.clocks.pass_(200)
    host = frontier.schedule.pop()
    assert host is not None
    frontier.schedule.deferral.defer(host)
    frontier.close()
    world.store = world.open_store()
    assert len(delete_prefixes(world, schema.DEFERRED)) == 1
    rebuilt(world)
    assert list(world.store.keys(schema.DEFERRED)) == [schema.deferred_key(host.name)]
    assert any(host.name in url for url in crawled(world))


@pytest.mark.parametrize(
    ("request_", "identity"), [(b"J{}", None), (b"R0image", "requisite http://new.test/x")]
)
def test_marks_of_requests_that_are_no_pages(
    world: World, request_: bytes, identity: str | None
) -> None:
    """A whole request may have none, and a requisite has that of a requisite."""
    world.store.close()
    frontier = world.open()
    frontier.add([Candidate("new.test", None, Entry("http://new.test/x", request=request_))])
    frontier.close()
    world.store = world.open_store()
    assert rebuilt(world).marked == (identity is not None)
    marks = set(schema.marked_by(world.store.items(schema.seen_prefix("new.test"))))
    assert marks == ({world.hasher.key(identity)} if identity else set())


def test_a_second_rebuild_completes_one_that_was_killed(world: World) -> None:
    delete_records(world)
    delete_prefixes(world, schema.SEEN)
    urls = {entry_of(key, value).url for key, value in all_entries(world.store)}
    batch = world.store.batch()
    for key in world.store.keys(schema.DUE):
        batch.delete(key)
    batch.write()
    rebuilt(world)
    first = contents(world)
    rebuilt(world)
    assert contents(world) == first
    assert crawled(world) == urls


def test_marks_of_foreign_urls_belong_to_no_host(world: World) -> None:
    world.store.close()
    world.open()
    item = Foreign("x", "f.test", world.hasher.key("http://f.test/"), b"message")
    world.forward([item])
    found = rebuilt(world)
    assert found.whole
    assert found.kept["seen"] == 13
    world.store.close()
    world.open()
    assert world.forward([item]) == 0
    assert world.frontier.outbox.depths() == {"x": 1}
