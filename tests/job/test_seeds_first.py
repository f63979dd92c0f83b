"""When links wait for the seeds of other nodes."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

from krowlspider.frontier.schedule.transitions import SeedTurns
from krowlspider.job.limits import PageBudget, SeedsFirst


class Place:
    """A node without seeds of its own; ``others_have`` is what the other nodes say."""

    def __init__(self, *, is_limited: bool = True):
        self.now = 2e9
        self.others_have = False
        self.turns = SeedTurns(lambda _: None)  # type: ignore[arg-type, return-value]
        # The due time of the next host in the heap.
        self.next_due = inf
        due = SimpleNamespace(next_due=lambda: self.next_due)
        frontier: Any = SimpleNamespace(
            schedule=SimpleNamespace(seed_turns=self.turns, due=due), now=lambda: self.now
        )
        self.first = SeedsFirst(
            frontier,
            PageBudget(None, is_limited=is_limited),
            lambda: None,
            lambda: self.others_have,
        )

    def after(self, seconds: float) -> bool:
        """Return whether links must wait after some seconds."""
        self.now += seconds
        return self.first.only()


def test_links_wait_until_no_other_node_has_seeds() -> None:
    place = Place()
    place.others_have = True
    assert place.after(1)
    assert place.after(100)
    assert place.first.next_end() <= place.now + 1
    place.others_have = False
    assert not place.after(1)


def test_other_nodes_have_time_to_take_their_seeds_in() -> None:
    """Seeds read here may be on their way, again when more come."""
    place = Place()
    assert not place.after(1)
    for _ in range(2):
        place.turns.begin()
        assert place.after(50)
        place.turns.end()
        assert place.after(1)
        assert place.after(2)
        assert not place.after(1)


def test_own_seeds_do_not_count_as_a_wait_for_others() -> None:
    """A node gives its part of the page limit back only while it waits for others."""
    place = Place()
    place.others_have = True
    place.turns.begin()
    assert place.first.has_own()
    assert not place.first.waits_for_others()


def test_a_seed_that_was_not_popped_yet_is_the_first_to_go() -> None:
    """Two nodes that wait for each other would spend the limit on links."""
    place = Place()
    place.others_have = True
    place.next_due = place.turns.next_at_front()
    assert place.first.has_own()
    assert not place.first.waits_for_others()


def test_nobody_waits_without_a_limit() -> None:
    place = Place(is_limited=False)
    place.others_have = True
    assert not place.after(1)
