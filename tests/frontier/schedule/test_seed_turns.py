"""The turns of hosts that wait with a seed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.hosts.host import SEED_PRIORITY
from krowlspider.frontier.limits import SessionLimits
from tests.frontier.conftest import LIMITS, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store


def test_a_seed_to_try_again_counts_at_once(open_store: Callable[[], Store]) -> None:
    """Also of a host whose session goes on with something else: the place of the seed is kept from
    the moment at which it failed."""
    sessions = SessionLimits(requests=3, wait=5.0, hosts=10)
    world = World(open_store, limits=replace(LIMITS, sessions=sessions))
    turns = world.frontier.schedule.seed_turns
    turns.limit()
    world.add("http://a.test/", priority=SEED_PRIORITY)
    world.add("http://a.test/link")
    lease = world.pop()
    assert lease is not None
    assert turns.tried == 0
    again = Entry(lease.entry.url, 0, retries=1, due=world.frontier.now() + 30)
    batch = world.store.batch()
    world.frontier.queues.put_back(lease, again, batch)
    world.frontier.schedule.release(lease.host, 0.25, batch)
    assert lease.host.session
    assert turns.tried == 1
    assert turns.next_tried() > world.frontier.now() + 29


def test_a_seed_to_try_again_counts_while_its_host_rests_longer(world: World) -> None:
    """Its place comes up before the host may be fetched: the place is given again."""
    schedule = world.frontier.schedule
    schedule.seed_turns.limit()
    world.add("http://a.test/", priority=SEED_PRIORITY)
    lease = world.pop()
    assert lease is not None
    again = Entry(lease.entry.url, 0, retries=1, due=world.frontier.now() + 30)
    world.frontier.queues.replace(lease, again)
    schedule.release(lease.host, 30)
    world.clocks.pass_(29.5)
    schedule.rest_longer(lease.host, 1)
    world.clocks.pass_(0.8)
    assert schedule.pop(seeds_only=True) is None
    assert schedule.seed_turns.tried == 1
    world.clocks.pass_(0.3)
    host = schedule.pop(seeds_only=True)
    assert host is not None
    assert host.name == lease.host.name


def test_a_seed_to_try_again_counts_while_it_waits_for_room(world: World) -> None:
    """As it would take the place of a page that a link found."""
    schedule = world.frontier.schedule
    turns = schedule.seed_turns
    turns.limit()
    for name in "ab":
        world.add(f"http://{name}.a.test/", priority=SEED_PRIORITY)
    first, second = world.pop(), world.pop()
    assert first is not None
    assert second is not None
    again = Entry(first.entry.url, 0, retries=1, due=world.frontier.now() + 1)
    world.frontier.queues.replace(first, again)
    world.add("http://a.a.test/another", priority=SEED_PRIORITY)
    schedule.release(first.host, 1)
    world.add("http://c.a.test/")
    assert world.pop() is not None
    world.clocks.pass_(1.1)
    assert schedule.pop(seeds_only=True) is None
    assert turns.known == 2
    assert turns.waits_in_line()
