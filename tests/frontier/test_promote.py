"""A URL that is queued as a link, and turns out to be a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.hosts.host import SEED_PRIORITY
from krowlspider.frontier.hosts.host_record import Tally
from tests.frontier.conftest import counted

if TYPE_CHECKING:
    from tests.frontier.conftest import World

URLS = [f"http://a.test/{number}" for number in range(5)]


def promote(world: World, url: str) -> bool:
    seed = world.candidate(url, SEED_PRIORITY)
    return world.frontier.promote(seed, world.hasher.key)


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("ends", ["goes on", "restart", "crash"])
def test_it_is_fetched_first_and_all_are_fetched_once(world: World, at: int, ends: str) -> None:
    world.add(*URLS)
    assert promote(world, URLS[at])
    assert not promote(world, URLS[at])
    assert world.frontier.pending == 5
    if ends == "restart":
        world.restart()
    elif ends == "crash":
        world.crash()
    assert Tally.read(world.store) == counted(world.store)
    fetched = []
    world.clocks.pass_(1)
    while (url := world.fetch()) is not None:
        fetched.append(url)
        world.clocks.pass_(1)
    assert fetched == [URLS[at], *URLS[:at], *URLS[at + 1 :]]
    world.commit()
    assert world.frontier.pending == 0
    assert world.frontier.counters["done"] == 5
    assert world.queued("a.test") == []


def test_what_was_read_ahead_is_read_again(world: World) -> None:
    world.add(*URLS)
    assert world.fetch() == URLS[0]
    world.clocks.pass_(1)
    assert promote(world, URLS[1])
    assert [world.fetch() for _ in range(2) if not world.clocks.pass_(1)] == [URLS[1], URLS[2]]


def test_one_in_flight_or_done_stays_as_it_is(world: World) -> None:
    world.add(*URLS[:2])
    lease = world.pop()
    assert lease is not None
    assert not promote(world, URLS[0])
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.acknowledge(lease)
    world.commit()
    assert not promote(world, URLS[0])
    assert world.queued("a.test") == [URLS[1]]


def test_a_retry_keeps_its_time_and_its_tries(world: World) -> None:
    world.add(URLS[0])
    lease = world.pop()
    assert lease is not None
    due = world.frontier.now() + 30
    world.frontier.queues.replace(lease, Entry(URLS[0], 3, retries=2, due=due))
    world.frontier.schedule.release(lease.host, 0.25)
    assert promote(world, URLS[0])
    world.clocks.pass_(29)
    assert world.fetch() is None
    world.clocks.pass_(2)
    again = world.pop()
    assert again is not None
    assert (again.entry.retries, again.entry.depth, again.priority) == (2, 0, SEED_PRIORITY)


def test_a_deferred_host_stays_deferred(world: World) -> None:
    world.add(*URLS[:2])
    lease = world.pop()
    assert lease is not None
    world.frontier.queues.unpop(lease)
    world.frontier.schedule.deferral.defer(lease.host)
    assert world.frontier.deferred_queued == 2
    assert promote(world, URLS[1])
    assert world.frontier.deferred_queued == 2
    assert world.fetch() is None
