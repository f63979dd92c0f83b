"""A crawl of several nodes is over when, and only when, there was a moment at which nothing was left anywhere."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from krowlspider.cluster.quiet import Quiet, Word, crew


@dataclass
class Node:
    """A node that works off what it has, and sends some of it on. Its words go to a board that all read."""

    name: str
    start: int
    queued: int = 0
    beat: int = 0
    activity: int = 0
    over: int = 0
    quiet: Quiet = field(default_factory=Quiet)
    made: Word | None = None

    def word(self) -> Word:
        self.beat += 1
        return Word(self.start, self.beat, self.queued == 0, self.activity, self.over)


class World:
    """Nodes, messages under way, and a board. A word is made at one time and shown at a later one."""

    def __init__(self, nodes: int, work: int, chance: random.Random):
        self.chance = chance
        self.nodes = [Node(f"n{i}", chance.randrange(1, 1 << 52)) for i in range(nodes)]
        self.board: dict[str, Word | None] = {node.name: None for node in self.nodes}
        self.inboxes = [0] * nodes
        self.budget = work
        self.nodes[0].queued = 1

    @property
    def is_over(self) -> bool:
        return not any(self.inboxes) and not any(node.queued for node in self.nodes)

    def step(self) -> None:
        number = self.chance.randrange(len(self.nodes))
        node = self.nodes[number]
        what = self.chance.randrange(4)
        if what == 0 and node.queued:
            self._work(node)
        elif what == 1 and self.inboxes[number]:
            self.inboxes[number] -= 1
            node.queued += 1
            node.activity += 1
        elif what == 2 and node.made is None:
            # The inbox is looked at first: a node with something in it is not quiet.
            made = node.word()
            quiet = made.quiet and not self.inboxes[number]
            node.made = Word(made.start, made.beat, quiet, made.activity, made.over)
        elif what == 3 and node.made is not None:
            self.board[node.name], node.made = node.made, None
            node.over = node.quiet.hear(self.board)
            assert not node.over or self.is_over, "said to be over too early"

    def _work(self, node: Node) -> None:
        node.queued -= 1
        node.activity += 1
        for _ in range(self.chance.randrange(4)):
            if self.budget:
                self.budget -= 1
                self.inboxes[self.chance.randrange(len(self.nodes))] += 1


@pytest.mark.parametrize("seed", range(60))
def test_it_is_over_for_all_in_the_end_and_never_before(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance.randrange(1, 6), chance.randrange(0, 200), chance)
    for _ in range(20_000):
        world.step()
        if all(node.over for node in world.nodes):
            break
    assert world.is_over
    assert all(node.over for node in world.nodes)


def quiet(beat: int, *, start: int = 1, activity: int = 5, over: int = 0) -> Word:
    return Word(start, beat, quiet=True, activity=activity, over=over)


def test_one_word_of_each_is_not_enough_nor_the_next() -> None:
    ears = Quiet()
    assert ears.hear({"a": quiet(1), "b": quiet(1, start=2)}) == 0
    assert ears.hear({"a": quiet(2), "b": quiet(2, start=2)}) == 0
    assert ears.hear({"a": quiet(3), "b": quiet(2, start=2)}) == 0
    assert ears.hear({"a": quiet(3), "b": quiet(3, start=2)}) != 0


@pytest.mark.parametrize(
    "other",
    [quiet(3, activity=6), Word(1, 3, quiet=False, activity=5), quiet(3, start=9), None],
    ids=["has done something", "is at work", "was started anew", "has said nothing"],
)
def test_it_is_not_over_when_a_node(other: Word | None) -> None:
    ears = Quiet()
    assert ears.hear({"a": quiet(1), "b": quiet(1)}) == 0
    assert ears.hear({"a": quiet(3), "b": other}) == 0
    assert ears.hear({"a": quiet(4), "b": other and other}) == 0


def test_what_another_has_found_counts_for_these_processes_alone() -> None:
    mine, theirs = quiet(7), quiet(9, start=2)
    found = crew({"a": mine, "b": theirs})
    assert Quiet().hear({"a": mine, "b": quiet(9, start=2, over=found)}) == found
    assert Quiet().hear({"a": quiet(7, start=3), "b": quiet(9, start=2, over=found)}) == 0


def test_a_word_comes_back_from_its_counters() -> None:
    word = Word(12, 3, quiet=True, activity=44, over=99)
    assert Word.of(word.counters()) == word
    assert Word.of({}) is None


def test_those_that_have_left_are_not_waited_for() -> None:
    gone = Word(2, 4, quiet=False, activity=9, left=True)
    ears = Quiet()
    assert ears.hear({"a": quiet(1), "b": gone}) == 0
    assert ears.hear({"a": quiet(2), "b": gone}) == 0
    assert ears.hear({"a": quiet(3), "b": gone}) != 0
    assert Word.of(gone.counters()) == gone
