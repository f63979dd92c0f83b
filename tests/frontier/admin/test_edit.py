"""Dropping a host keeps its URLs known; forgetting it lets them be found again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.admin import edit
from krowlspider.frontier.admin.edit import UnknownHostError, drop_host, forget_host
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.host_record import decode_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import poison_prefix
from krowlspider.frontier.store.store import Batch, Store, entries, entry_keys
from tests.frontier.conftest import LIMITS, RULE, World

if TYPE_CHECKING:
    from collections.abc import Callable


A = [f"http://a.test/{page}" for page in range(5)]
B = ["http://b.test/", "http://a.test.b.test/"]


class Killed(Exception):
    """Stands for the death of the process."""


class MortalStore:
    """A store that raises `Killed` after so many batches."""

    def __init__(self, store: Store, batches: int):
        self._store = store
        self._left = batches
        self.get = store.get
        self.read = store.read
        self.keys = store.keys
        self.items = store.items

    def batch(self, *, sync: bool = False) -> Batch:
        if not self._left:
            raise Killed
        self._left -= 1
        return self._store.batch(sync=sync)


@pytest.fixture
def closed(open_store: Callable[[], Store]) -> World:
    """A frontier with entries of three hosts, closed cleanly; its store is open."""
    world = World(open_store)
    world.add(*A, *B)
    world.add("http://a.test/first", priority=7)
    world.put_robots("http://a.test", b"record")
    world.frontier.close()
    world.store = open_store()
    return world


def reopened(world: World) -> World:
    world.store.close()
    world.open()
    return world


def nothing() -> None:
    """Stands for removing a saved filter: there is none."""


def test_a_dropped_host_has_nothing_queued_and_stays_known(closed: World) -> None:
    assert drop_host(closed.store, "a.test") == 6
    world = reopened(closed)
    assert world.frontier.queued == 2
    assert world.frontier.schedule.host_count == 2
    assert world.frontier.counters["dropped/operator"] == 6
    assert world.add(*A) == 0
    assert world.store.get(schema.robots_key("http://a.test")) == b"record"
    world.clocks.pass_(60)
    assert {world.fetch(), world.fetch(), world.fetch()} == {*B, None}


def test_dropping_twice_drops_nothing_more(closed: World) -> None:
    drop_host(closed.store, "a.test")
    assert drop_host(closed.store, "a.test") == 0
    assert reopened(closed).frontier.counters["dropped/operator"] == 6


def test_a_dropped_host_takes_new_urls(closed: World) -> None:
    drop_host(closed.store, "a.test")
    world = reopened(closed)
    assert world.add("http://a.test/new") == 1
    world.clocks.pass_(60)
    assert "http://a.test/new" in {world.fetch() for _ in range(4)}


def test_an_unknown_host_is_not_dropped(closed: World) -> None:
    with pytest.raises(UnknownHostError, match=r"'c\.test'"):
        drop_host(closed.store, "c.test")


def test_a_drop_cut_short_leaves_a_correct_record(
    closed: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edit, "_BATCH", 2)
    with pytest.raises(Killed):
        drop_host(MortalStore(closed.store, 2), "a.test")  # type: ignore[arg-type]
    record = closed.store.get(schema.host_key("a.test"))
    assert record is not None
    assert decode_host("a.test", record).queue.queued == 2
    assert len(list(entry_keys(closed.store, "a.test"))) == 2
    assert closed.store.get(schema.CLEAN) is None
    assert drop_host(closed.store, "a.test") == 2
    world = reopened(closed)
    assert world.frontier.queued == 2
    assert world.frontier.counters["dropped/operator"] == 6


def test_a_forgotten_host_leaves_nothing_and_is_found_anew(closed: World) -> None:
    removed: list[str] = []
    poison = poison_prefix("a.test") + bytes(12)
    batch = closed.store.batch()
    batch.put(poison, Entry("http://a.test/bad").encode("a.test"))
    batch.write()
    assert forget_host(closed.store, "a.test", lambda: removed.append("filter")) == (6, 6)
    assert removed == ["filter"]
    left = [key for key, _ in closed.store.items(b"") if b"a.test" in key.replace(b"a.test.b", b"")]
    assert left == []
    world = reopened(closed)
    assert world.frontier.queued == 2
    assert world.add(*A) == 5
    assert world.add(*B) == 0


def test_a_host_with_only_seen_marks_can_be_forgotten(closed: World) -> None:
    drop_host(closed.store, "a.test")
    assert forget_host(closed.store, "a.test", nothing) == (6, 0)
    with pytest.raises(UnknownHostError):
        forget_host(closed.store, "a.test", nothing)


@pytest.mark.parametrize("batches", range(5))
def test_invariant_4_a_forget_cut_short_loses_no_url(
    closed: World, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    monkeypatch.setattr(edit, "_BATCH", 2)
    order: list[str] = []
    mortal = MortalStore(closed.store, batches)
    with pytest.raises(Killed):
        forget_host(mortal, "a.test", lambda: order.append("filter"))  # type: ignore[arg-type]
    queued = {
        closed.hasher.key(entry_of(key, value).url)
        for key, value in entries(closed.store, "a.test")
    }
    marked = set(schema.marked_by(closed.store.items(schema.seen_prefix("a.test"))))
    assert marked <= queued
    assert order == ["filter"]
    forget_host(closed.store, "a.test", nothing)
    world = reopened(closed)
    assert world.frontier.queued == 2
    assert world.add(*A) == 5


def test_a_dropped_deferred_host_takes_new_urls(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store)
    world.add(*A)
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host)
    world.frontier.close()
    world.store = open_store()
    assert drop_host(world.store, "a.test") == 5
    reopened(world)
    assert world.add("http://a.test/new") == 1
    world.clocks.pass_(RULE.maximum + 1)
    assert world.fetch() == "http://a.test/new"


def test_dropped_urls_return_their_place_in_the_budget(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store, limits=replace(LIMITS, domain_budget=5))
    assert world.add(*(f"http://www.a.test/{page}" for page in range(3))) == 3
    assert world.add(*A) == 2
    assert world.fetch() is not None
    assert world.fetch() is not None
    world.commit()
    world.frontier.close()
    world.store = open_store()
    assert drop_host(world.store, "www.a.test") == 2
    reopened(world)
    assert world.add("http://www.a.test/new", *A[2:]) == 2
    world.frontier.close()
    world.store = open_store()
    forget_host(world.store, "www.a.test", nothing)
    forget_host(world.store, "a.test", nothing)
    reopened(world)
    assert world.add(*(f"http://www.a.test/{page}" for page in range(9))) == 5
