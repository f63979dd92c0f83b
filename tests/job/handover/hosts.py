"""Helpers for tests of the hand-over through Redis: the keys, and hosts of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from krowlspider.cluster.transport.inbox import hosts_key
from krowlspider.frontier.moves.chunks import encode_chunk
from krowlspider.frontier.store.schema import ROBOTS_END
from krowlspider.frontier.store.store import entry_keys, records
from krowlspider.frontier.work_mark import POISON_STRIKES, strike
from krowlspider.politeness.robots import RobotsRecord
from tests.cluster.forwarding import SPIDER
from tests.job.handover.nodes import content

if TYPE_CHECKING:
    from tests.frontier.conftest import World

KEY = hosts_key(SPIDER)
DEAD = f"{SPIDER}:dead"


def to_there(_: str) -> str:
    return "there"


def do(world: World, count: int) -> None:
    """Fetch ``count`` pages and commit."""
    for _ in range(count):
        world.clocks.pass_(5)
        assert world.fetch() is not None
    world.commit()


def fill(world: World) -> None:
    """Make hosts that have every kind of entry."""
    for host in range(40):
        name = f"http://h{host}.test"
        world.add(*(f"{name}/{page}" for page in range(host % 7 + 1)), priority=host % 3)
        world.add(f"{name}/first", priority=9)
        rules = b"User-agent: *\nDisallow: /%d\n" % host
        wall = world.clocks.wall
        record = RobotsRecord("rules", wall, wall + 500, 200, rules)
        world.put_robots(name, record.encode())
    do(world, 25)
    for wait in (0.0, 500.0):
        world.clocks.pass_(5)
        host = world.frontier.schedule.pop()
        assert host is not None
        world.frontier.schedule.deferral.defer(host, wait)
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 90.0)
    due = world.frontier.now() + 100
    world.frontier.queues.replace(lease, structs.replace(lease.entry, retries=1, due=due))
    world.add("http://poison.test/")
    world.commit()
    (key,) = entry_keys(world.store, "poison.test")
    for _ in range(POISON_STRIKES):
        strike(world.store, key)
    world.crash()


def left_of(world: World) -> dict[bytes, bytes]:
    return {
        key: value for key, value in content(world).items() if key[:1] != b"e" and key != ROBOTS_END
    }


def cut(world: World) -> list[bytes]:
    """Return all chunks of all hosts, as JSON."""
    found = []
    for name in [name for name, _ in records(world.store)]:
        departure = world.departures.begin(name)
        count = 0
        while (chunk := departure.chunk(count)) is not None:
            found.append(encode_chunk(chunk))
            count += 1
        departure.abort()
    return found
