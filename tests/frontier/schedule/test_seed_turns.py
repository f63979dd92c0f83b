"""The turns of hosts that wait with a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.hosts.host import SEED_PRIORITY

if TYPE_CHECKING:
    from tests.frontier.conftest import World


def test_a_seed_to_try_again_counts_at_once(world: World) -> None:
    """Also of a host that is scheduled for something else meanwhile: the place of the seed is kept
    from the moment at which it failed."""
    turns = world.frontier.schedule.seed_turns
    turns.limit()
    world.add("http://a.test/", priority=SEED_PRIORITY)
    world.add("http://a.test/link")
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 0.25)
    assert turns.tried == 0
    again = Entry(lease.entry.url, 0, retries=1, due=world.frontier.now() + 30)
    world.frontier.queues.replace(lease, again)
    assert turns.tried == 1
    assert turns.next_tried() > world.frontier.now() + 29
