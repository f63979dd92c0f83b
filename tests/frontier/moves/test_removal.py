"""What a host leaves at its sender, and which hosts leave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.frontier.seen import FilterFile
from krowlspider.frontier.store.schema import GONE, QUEUE, SEEN, marked_by, seen_prefix
from krowlspider.frontier.store.store import LevelStore, Store
from tests.frontier.conftest import LIMITS, World
from tests.frontier.moves.hosts import HOST_NAME, chunks, do, url, urls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_handed_over_url_is_unknown_to_the_sender(tmp_path: Path, other: World) -> None:
    """If the receiver loses its disk, the host comes back without it, and links find it again."""
    file = FilterFile(tmp_path / "seen")
    world = World(lambda: LevelStore(tmp_path / "db", create=True), file=file)
    world.add(*urls(0, 1), "http://b.test/")
    world.restart()
    assert world.add(url(0)) == 0
    world.hand_over(HOST_NAME, other)
    key = world.hasher.key
    for end in (lambda: None, world.crash, world.restart):
        end()
        seen = world.frontier.seen
        assert key(url(0)) in seen.filter
        assert not seen.known(HOST_NAME, key(url(0)))
        assert seen.known("b.test", key("http://b.test/"))
    assert world.add(url(0)) == 1
    assert world.add(url(0)) == 0
    file.path.unlink()
    world.store.close()
    world.open()
    assert list(world.store.keys(GONE)) == []
    assert world.add(*urls(0, 1)) == 1
    world.store.close()


def test_a_start_removes_marks_that_a_death_left(
    open_store: Callable[[], Store], other: World
) -> None:
    world = World(open_store, limits=replace(LIMITS, host_queue=5000), most=5000)
    for at in range(0, 2500, 10):
        world.add(*(url(number) for number in range(at, at + 10)))
    for chunk in chunks(world):
        other.arrivals.take(chunk)
    steps = world.departures.under_way[HOST_NAME].end()
    while world.frontier.queued:
        next(steps)
    assert sum(1 for _ in marked_by(world.store.items(seen_prefix(HOST_NAME)))) == 1500
    world.crash()
    assert list(world.store.keys(SEEN)) == []
    assert list(world.store.keys(QUEUE)) == []
    assert world.add(url(0)) == 1


def test_a_small_host_is_removed_in_one_step(world: World, other: World) -> None:
    """No mark on its removal is left for a start to complete."""
    world.add(*urls(0, 1))
    for chunk in chunks(world):
        other.arrivals.take(chunk)
    next(world.departures.under_way[HOST_NAME].end())
    assert list(world.store.keys(QUEUE)) == list(world.store.keys(SEEN)) == []
    assert [value for _, value in world.store.items(GONE)] == [b""]


def test_a_long_queue_is_removed_in_steps(open_store: Callable[[], Store], other: World) -> None:
    """All of it in the last one: a death before that leaves the whole queue."""
    world = World(open_store, limits=replace(LIMITS, host_queue=5000), most=5000)
    world.add(*urls(*range(2500)))
    for chunk in chunks(world):
        other.arrivals.take(chunk)
    steps = world.departures.under_way[HOST_NAME].end()
    for _ in range(2):
        next(steps)
        assert world.frontier.queued == 2500
    world.crash()
    assert world.frontier.queued == 2500
    assert world.add(url(0)) == 0


def test_a_departing_host_is_busy_for_others(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    found = chunks(world)
    with pytest.raises(HostBusyError):
        world.departures.begin(HOST_NAME)
    with pytest.raises(HostBusyError, match="on its way to another node"):
        world.arrivals.take(found[0])
    world.clocks.pass_(60)
    assert world.fetch() is None
    assert world.frontier.pending == 2


def test_a_ring_change_keeps_hosts_not_yet_delivered(world: World, other: World) -> None:
    world.add(*urls(0, 1, 2), "http://b.test/")
    world.clocks.pass_(1)
    delivered = world.departures.begin("b.test")
    chunk = delivered.chunk(0)
    assert chunk is not None
    assert delivered.chunk(other.arrivals.take(chunk)) is None
    next(delivered.end())
    kept = world.departures.begin(HOST_NAME)
    chunk = kept.chunk(0)
    assert chunk is not None
    other.arrivals.take(chunk)
    world.departures.stop()
    assert world.departures.under_way == {}
    with pytest.raises(ValueError, match="not under way"):
        kept.chunk(1)
    do(world, url(0))
    # The second hand-over leaves out what was fetched meanwhile.
    world.hand_over(HOST_NAME, other)
    assert sorted(other.queued(HOST_NAME)) == urls(1, 2)
    assert world.frontier.pending == 0


def test_moving_finds_hosts_of_others_with_their_owners(world: World) -> None:
    world.add(*(f"http://h{number}.test/" for number in range(2500)))
    owners = {f"h{number}.test": "y" if number % 2 else "x" for number in range(10)}
    steps = list(world.departures.moving(owners.get))
    # Hosts in memory only come first, then 500 records a step.
    assert len(steps) == 6
    assert {pair for step in steps for pair in step} == set(owners.items())
