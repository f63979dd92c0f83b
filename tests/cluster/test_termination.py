"""A crawl of several nodes is over when, and only when, there was a moment at which nothing was
left anywhere."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.ring.live_members import Heartbeat, TerminationDetector, run_number
from tests.cluster.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Node:
    """A node that works off what it has and sends some of it on. All read its heartbeats."""

    name: str
    start: int
    queued: int = 0
    beat: int = 0
    activity: int = 0
    over: int = 0
    detector: TerminationDetector = field(default_factory=TerminationDetector)
    made: Heartbeat | None = None

    def heartbeat(self) -> Heartbeat:
        self.beat += 1
        return Heartbeat(self.start, self.beat, self.queued == 0, self.activity, self.over)


class World:
    """Nodes, messages under way, and a board. A heartbeat is made before it is shown."""

    def __init__(self, nodes: int, work: int, chance: random.Random):
        self.chance = chance
        self.nodes = [Node(f"n{i}", chance.randrange(1, 1 << 52)) for i in range(nodes)]
        self.board: dict[str, Heartbeat | None] = {node.name: None for node in self.nodes}
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
            # The inbox is looked at first: a node with a message in it is not idle.
            made = node.heartbeat()
            idle = made.idle and not self.inboxes[number]
            node.made = Heartbeat(made.start, made.beat, idle, made.activity, made.over)
        elif what == 3 and node.made is not None:
            self.board[node.name], node.made = node.made, None
            node.over = node.detector.update(self.board)
            assert not node.over or self.is_over, "said to be over too early"

    def _work(self, node: Node) -> None:
        node.queued -= 1
        node.activity += 1
        for _ in range(self.chance.randrange(4)):
            if self.budget:
                self.budget -= 1
                self.inboxes[self.chance.randrange(len(self.nodes))] += 1


@seeds(quick=20, slow=40)
def test_static_crawl_is_over_in_the_end_and_never_before(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance.randrange(1, 6), chance.randrange(0, 200), chance)
    for _ in range(20_000):
        world.step()
        if all(node.over for node in world.nodes):
            break
    assert world.is_over
    assert all(node.over for node in world.nodes)


def idle(beat: int, *, start: int = 1, activity: int = 5, over: int = 0) -> Heartbeat:
    return Heartbeat(start, beat, idle=True, activity=activity, over=over)


def test_two_later_heartbeats_of_each_node_are_needed() -> None:
    detector = TerminationDetector()
    assert detector.update({"a": idle(1), "b": idle(1, start=2)}) == 0
    assert detector.update({"a": idle(2), "b": idle(2, start=2)}) == 0
    assert detector.update({"a": idle(3), "b": idle(2, start=2)}) == 0
    assert detector.update({"a": idle(3), "b": idle(3, start=2)}) != 0


@pytest.mark.parametrize(
    "other",
    [idle(3, activity=6), Heartbeat(1, 3, idle=False, activity=5), idle(3, start=9), None],
    ids=["has done something", "is at work", "was started anew", "has said nothing"],
)
def test_crawl_is_not_over_when_a_node(other: Heartbeat | None) -> None:
    detector = TerminationDetector()
    assert detector.update({"a": idle(1), "b": idle(1)}) == 0
    assert detector.update({"a": idle(3), "b": other}) == 0
    assert detector.update({"a": idle(4), "b": other and other}) == 0


def test_over_of_another_node_counts_for_these_processes() -> None:
    mine, theirs = idle(7), idle(9, start=2)
    found = run_number({"a": mine, "b": theirs})
    assert TerminationDetector().update({"a": mine, "b": idle(9, start=2, over=found)}) == found
    assert (
        TerminationDetector().update({"a": idle(7, start=3), "b": idle(9, start=2, over=found)})
        == 0
    )


def test_heartbeat_round_trip() -> None:
    heartbeat = Heartbeat(12, 3, idle=True, activity=44, over=99)
    assert Heartbeat.of(heartbeat.counters()) == heartbeat
    assert Heartbeat.of({}) is None


def test_crawl_is_not_over_without_a_pending_node() -> None:
    detector, pending_nodes = TerminationDetector(), frozenset("ab")
    for beat in (1, 3, 5):
        assert detector.update({"a": idle(beat)}, pending_nodes) == 0
    assert detector.waiting_for == ("b",)
    assert detector.update({"a": idle(6), "b": None}, pending_nodes) == 0
    assert detector.waiting_for == ()


def test_missing_nodes_are_not_named_while_others_have_work() -> None:
    detector, pending_nodes = TerminationDetector(), frozenset("abc")
    for beat in (1, 3, 5):
        assert (
            detector.update({"a": Heartbeat(1, beat, idle=False, activity=beat)}, pending_nodes)
            == 0
        )
        assert detector.waiting_for == ()


def test_over_of_another_node_needs_all_pending_nodes() -> None:
    mine, theirs = idle(7), idle(9, start=2)
    found = run_number({"a": mine, "b": theirs})
    heartbeats = {"a": mine, "b": idle(9, start=2, over=found)}
    assert TerminationDetector().update(heartbeats, frozenset("abc")) == 0
    assert TerminationDetector().update(heartbeats, frozenset("ab")) == found
    assert TerminationDetector().update(heartbeats, frozenset()) == found


def test_idle_heartbeat_of_a_dead_node_does_not_count() -> None:
    detector, pending_nodes = TerminationDetector(), frozenset("ab")
    for beat in range(1, 9):
        assert detector.update({"a": idle(beat), "b": idle(4, start=2)}, pending_nodes) == 0
    assert detector.update({"a": idle(9)}, pending_nodes) == 0
    # It is back, and has sent no new heartbeat yet.
    assert detector.update({"a": idle(11), "b": idle(4, start=2)}, pending_nodes) == 0
    for beat in (1, 2):
        assert detector.update({"a": idle(12 + beat), "b": idle(beat, start=3)}, pending_nodes) == 0
    assert detector.update({"a": idle(15), "b": idle(3, start=3)}, pending_nodes) != 0


def test_node_that_hears_nothing_new_does_not_find_the_end() -> None:
    detector, heartbeats = TerminationDetector(), {"a": idle(5), "b": idle(7, start=2)}
    for _ in range(5):
        assert detector.update(heartbeats, frozenset("ab")) == 0


@pytest.mark.parametrize("then", ["a", "abc"], ids=["one is dismissed", "one joins"])
def test_detection_restarts_when_pending_nodes_change(then: str) -> None:
    detector = TerminationDetector()
    assert detector.update({"a": idle(1)}, frozenset("ab")) == 0
    assert detector.update({"a": idle(3)}, frozenset(then)) == 0
    assert detector.waiting_for == ()


@dataclass(eq=False)
class Process:
    """A node of a ring whose members come and go: it works, sends to those who are in the ring as
    it saw it last, and ends when it has handed over all it had, when the crawl is over, or at once.
    """

    name: str
    start: int
    ring: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    queued: int = 0
    outbox: list[str] = field(default_factory=list)
    beat: int = 0
    activity: int = 0
    over: int = 0
    is_cut_off: bool = False
    leaving: bool = False
    detector: TerminationDetector = field(default_factory=TerminationDetector)
    made: Heartbeat | None = None
    heartbeats: dict[str, Heartbeat | None] = field(default_factory=dict)
    pending_nodes: frozenset[str] = frozenset()


class Cluster:
    """Consul, Redis and disks, and processes that come and go, in random steps."""

    NAMES = ("a", "b", "c", "d")

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.running: dict[str, Process] = {}
        # Consul: who is registered, the processes' last heartbeats, and the pending nodes.
        self.registered: dict[str, Process] = {}
        self.board: dict[str, Heartbeat] = {}
        self.pending_nodes: set[str] = set()
        # Redis, and what a process that has ended left on its disk.
        self.inboxes = dict.fromkeys(self.NAMES, 0)
        self.disks: dict[str, tuple[int, list[str]]] = {}
        self.budget = 60
        # Of a page: many at once, or one at a time, so that nearly all are idle while one is at
        # work.
        self.links = chance.choice([(0, 1, 2, 3), (1, 1, 1, 1, 1, 1, 0)])
        # Steps so far; the last after which nothing was left anywhere; and at which each process
        # joined.
        self.now = self.empty = 0
        self.joined: dict[int, int] = {}
        self.ended = 0
        self.steps = {
            self.work: 12,
            self.deliver: 12,
            self.take: 12,
            self.say: 30,
            self.show: 30,
            self.look: 15,
            self.join: 1,
            self.crash: 0.3,
            self.expire: 2,
            self.cut: 0.3,
            self.mend: 2,
            self.begin_to_leave: 0.5,
            self.hand_over: 8,
            self.leave: 8,
            self.forget: 0.1,
        }

    @property
    def is_empty(self) -> bool:
        return not (
            any(self.inboxes.values())
            or any(self.disks[name] != (0, []) for name in self.disks)
            or any(each.queued or each.outbox for each in self.running.values())
        )

    def run(self, steps: int) -> None:
        each = list(self.steps)
        for step in self.chance.choices(each, weights=list(self.steps.values()), k=steps):
            self.once(step, self.chance.choice(self.NAMES))

    def once(self, step: Callable[[str], None], name: str) -> None:
        self.now += 1
        if step in {self.join, self.expire, self.forget} or name in self.running:
            step(name)
        if self.is_empty:
            self.empty = self.now

    def join(self, name: str) -> None:
        """With what is on its disk, and with seeds when nothing is; an earlier process's lease has
        ended before."""
        if name in self.running or name in self.registered:
            return
        self.pending_nodes.add(name)
        process = Process(name, self.chance.randrange(1, 1 << 52))
        process.queued, process.outbox = self.disks.pop(name, (self.chance.randrange(2), []))
        self.running[name] = self.registered[name] = process
        self.joined[process.start] = self.now
        self.look(name)

    def crash(self, name: str) -> None:
        self._end(name)

    def expire(self, name: str) -> None:
        process = self.registered.get(name)
        if process and (process.is_cut_off or self.running.get(name) is not process):
            self._unregister(name)

    def cut(self, name: str) -> None:
        self.running[name].is_cut_off = True

    def mend(self, name: str) -> None:
        process = self.running[name]
        process.is_cut_off = False
        if name not in self.registered:
            self.registered[name] = process
            self.pending_nodes.add(name)
        self.look(name)

    def work(self, name: str) -> None:
        process = self.running[name]
        if process.queued and not process.leaving and not process.is_cut_off:
            process.queued -= 1
            process.activity += 1
            for _ in range(self.chance.choice(self.links)):
                if self.budget:
                    self.budget -= 1
                    process.outbox.append(self.chance.choice(sorted(process.ring)))

    def deliver(self, name: str) -> None:
        """Not without a lease: who has left may be in an old ring."""
        process = self.running[name]
        if process.outbox and name in self.registered and not process.is_cut_off:
            self.inboxes[process.outbox.pop(0)] += 1
            process.activity += 1

    def take(self, name: str) -> None:
        """A node that leaves forwards what comes in."""
        process = self.running[name]
        if self.inboxes[name]:
            self.inboxes[name] -= 1
            process.queued += 1
            process.activity += 1

    def say(self, name: str) -> None:
        process = self.running[name]
        if process.made is None:
            process.beat += 1
            idle = not (self.inboxes[name] or process.queued or process.outbox)
            process.made = Heartbeat(
                process.start, process.beat, idle, process.activity, process.over
            )

    def show(self, name: str) -> None:
        """The heartbeat: it is written, and all are read with the pending nodes. In an outage those
        of the last one stand."""
        process = self.running[name]
        if process.made is None:
            return
        if not process.is_cut_off and name in self.registered:
            self.board[name] = process.made
            process.heartbeats = dict(self.board)
            process.pending_nodes = frozenset(self.pending_nodes)
        process.made = None
        heartbeats = {member: process.heartbeats.get(member) for member in process.members}
        process.over = process.detector.update(heartbeats, process.pending_nodes)
        if process.over:
            starts = [each.start for each in heartbeats.values() if each]
            assert self.empty >= max(self.joined[start] for start in starts), "over too early"
            assert process.pending_nodes <= heartbeats.keys()
            # As any other that leaves: one that has joined since may send it something.
            self.begin_to_leave(name)

    def look(self, name: str) -> None:
        """Read the members; messages for nodes that are gone go elsewhere."""
        process = self.running[name]
        if process.is_cut_off or name not in self.registered:
            return
        process.members = frozenset(self.registered)
        staying = {n for n, other in self.registered.items() if not other.leaving}
        process.ring = frozenset(staying or {name})
        process.outbox = [
            node if node in process.ring else self.chance.choice(sorted(process.ring))
            for node in process.outbox
        ]

    def begin_to_leave(self, name: str) -> None:
        if name in self.registered:
            self.running[name].leaving = True
            self.look(name)

    def hand_over(self, name: str) -> None:
        """A host is the new owner's as soon as it is in its Redis, and only then no more here."""
        process = self.running[name]
        others = sorted(process.ring - {name})
        if process.leaving and process.queued and others:
            process.queued -= 1
            process.outbox.append(self.chance.choice(others))
            process.activity += 1

    def leave(self, name: str) -> None:
        """Once nothing is here, and nobody can send anything here any more; or with what is here,
        when nobody stays."""
        process = self.running[name]
        others = [other for other in self.registered.values() if other is not process]
        unaware = any(name in other.ring for other in others)
        rest = unaware or process.queued or process.outbox or self.inboxes[name]
        if process.leaving and name in self.registered and not (rest and process.ring != {name}):
            self._finish(name)

    def forget(self, name: str) -> None:
        """By hand: what a node has that is gone is left out, once nobody sends it anything any
        more."""
        rings = [other.ring for other in self.registered.values()]
        if (
            name in self.pending_nodes
            and name not in self.running
            and not any(name in r for r in rings)
        ):
            self.pending_nodes.remove(name)
            self.disks.pop(name, None)
            self.inboxes[name] = 0

    def _finish(self, name: str) -> None:
        process = self.running[name]
        if name in self.registered and not process.is_cut_off:
            if not (process.queued or process.outbox or self.inboxes[name]):
                self.pending_nodes.discard(name)
            self._unregister(name)
        self.ended += 1
        self._end(name)

    def _end(self, name: str) -> None:
        process = self.running.pop(name)
        if process.queued or process.outbox:
            self.disks[name] = (process.queued, process.outbox)

    def _unregister(self, name: str) -> None:
        del self.registered[name]
        self.board.pop(name, None)

    def settle(self) -> None:
        """Run to the end: nobody joins or dies any more, and missing nodes are restarted."""
        for step in (self.crash, self.cut, self.begin_to_leave, self.forget, self.join):
            self.steps[step] = 0
        for _ in range(400):
            self.run(100)
            for name in self.NAMES:
                self.once(self.expire, name)
                if name in self.pending_nodes:
                    self.once(self.join, name)
            if not (self.running or self.pending_nodes):
                break
        assert not self.running, "it does not end"
        assert not self.pending_nodes
        assert self.is_empty


@seeds(quick=20, slow=40)
def test_crawl_of_changing_nodes_ends_and_never_too_early(
    seed: int,
) -> None:
    cluster = Cluster(random.Random(seed))
    cluster.join("a")
    cluster.run(3000)
    cluster.settle()
