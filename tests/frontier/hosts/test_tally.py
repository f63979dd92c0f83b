"""The tally on disk agrees with the host records."""

from __future__ import annotations

import pytest

from krowlspider.frontier.hosts.host_record import Tally
from krowlspider.frontier.store.store import StoreError
from tests.frontier.conftest import KeptMemoryStore, World, counted


@pytest.mark.parametrize("operation", ["add", "take over", "give up"])
def test_an_error_during_a_change_keeps_the_tally_correct(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """The tally decides when a crawl ends."""
    there = World(KeptMemoryStore, node="there")
    there.add("http://c.test/1", "http://c.test/2")
    world.add("http://a.test/1", "http://a.test/2", "http://b.test/")

    def fail(*_: object) -> None:
        raise StoreError("the disk")

    step, change = {
        "add": ("end_batch", lambda: world.add("http://a.test/3", "http://d.test/")),
        "take over": ("end_batch", lambda: there.hand_over("c.test", world)),
        "give up": ("forget", lambda: world.hand_over("a.test", there)),
    }[operation]
    with monkeypatch.context() as patch:
        patch.setattr(world.frontier.seen, step, fail)
        with pytest.raises(StoreError, match="the disk"):
            change()
    # Another change writes the records.
    assert world.fetch() is not None
    world.commit()
    assert Tally.read(world.store) == counted(world.store)
    world.crash()
    assert world.frontier.queued == counted(world.store).queued
