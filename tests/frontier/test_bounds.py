"""However many hosts there are, a pop looks at few of them and memory holds few of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from krowlspider.frontier import frontier as frontier_module
from krowlspider.frontier import turns
from krowlspider.frontier.schema import DUE
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from krowlspider.frontier.store import Store

MANY = 400


def test_after_a_death_the_hosts_that_wait_are_not_all_read_at_once(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_LOOKS", 20)
    monkeypatch.setattr(turns, "_TOGETHER", 5)
    world = World(open_store, limits=replace(LIMITS, hosts_in_memory=30, window=40))
    urls = [f"http://h{number}.d{number}.test/" for number in range(MANY)]
    world.add(*urls)
    world.crash()
    for _ in range(MANY):
        before = len(world.frontier.hosts)
        assert world.frontier.pop_host() is None
        assert len(world.frontier.hosts) <= min(before, 30) + 20 + 5
    assert len(world.frontier._due._heap) <= 40
    found: set[str | None] = set()
    for _ in range(MANY):
        world.clocks.pass_(0.25)
        while (url := world.fetch()) is not None:
            found.add(url)
    assert found == set(urls)


def test_the_hosts_of_one_domain_that_have_no_turn_are_not_all_kept_in_memory(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_PARKED", 10)
    limits = replace(LIMITS, domain_concurrency=1, hosts_in_memory=30, window=40)
    world = World(open_store, limits=limits)
    urls = [f"http://h{number}.shared.test/" for number in range(MANY)]
    world.add(*urls)
    lease = world.pop()
    assert lease is not None
    for _ in range(MANY):
        assert world.pop() is None
        assert world.frontier.parked <= 10
        world.commit()
    assert len(world.frontier.hosts) <= 60
    world.frontier.release(lease.host, 0.25)
    world.frontier.acknowledge(lease)
    found = [lease.entry.url]
    for _ in range(4 * MANY):
        world.clocks.pass_(0.25)
        while (url := world.fetch()) is not None:
            found.append(url)
    assert sorted(found) == sorted(urls)


def test_the_consumed_part_of_the_heap_is_compacted_with_a_commit(
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


def test_invariant_1_what_a_death_left_unsure_is_so_after_a_clean_end_too(world: World) -> None:
    world.add("http://a.test/1", "http://a.test/2")
    lease = world.pop()
    assert lease is not None
    lease.host.pace.floor = 20.0
    world.frontier.release(lease.host, 20.0)
    world.crash()
    world.clocks.pass_(1)
    world.restart()
    world.clocks.pass_(18)
    assert world.pop() is None
    world.clocks.pass_(1.1)
    assert world.pop() is not None
