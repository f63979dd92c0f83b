"""While nodes join, leave and die, never two of them may fetch a domain, and in the end one may."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.cluster.claims_world import DOMAINS, MARGIN, NEW, NODES, OLD, TTL, World
from tests.cluster.seeds import seeds

names = st.sampled_from(NODES)


class ClaimsModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(name=names, weight=st.sampled_from([0.25, 1, 2]))
    def join(self, name: str, weight: float) -> None:
        self.world.join(name, weight)

    @rule(
        name=names,
        what=st.sampled_from(
            [
                *("leave", "crash", "rejoin", "expire", "abandon", "grow"),
                *("begin_to_leave", "hand_over_and_leave"),
            ]
        ),
    )
    def go(self, name: str, what: str) -> None:
        getattr(self.world, what)(name)

    @rule(name=names, what=st.sampled_from(["read", "begin", "read_back", "confirm"]))
    def step(self, name: str, what: str) -> None:
        getattr(self.world, what)(name)

    @rule(name=names)
    def publish(self, name: str) -> None:
        """All steps of a publish, with nothing in between."""
        self.world._live_on(name)

    @rule(name=names, which=st.integers(0, 3))
    def show(self, name: str, which: int) -> None:
        self.world.show(name, which)

    @rule(which=st.integers(0, 3))
    def land(self, which: int) -> None:
        self.world.land(which)

    @rule(name=names, domain=st.sampled_from(DOMAINS))
    def pop(self, name: str, domain: str) -> None:
        self.world.pop(name, domain)

    @rule(name=names, domain=st.sampled_from(DOMAINS))
    def end(self, name: str, domain: str) -> None:
        self.world.end(name, domain)

    @rule(name=names, lag=st.integers(0, 3))
    def renew(self, name: str, lag: int) -> None:
        self.world.renew(name, lag)

    @rule(seconds=st.sampled_from([1, 3, MARGIN, TTL]))
    def tick(self, seconds: int) -> None:
        self.world.tick(seconds)

    @rule()
    def settle(self) -> None:
        self.world.settle()
        self.world.check_quiet()

    @invariant()
    def no_two_nodes_fetch_one_domain(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.settle()


TestClaims = ClaimsModel.TestCase
TestClaims.settings = settings(max_examples=30, stateful_step_count=60, deadline=None)


def test_late_publish_changes_nothing() -> None:
    """The register compares and sets: otherwise what a node fetches by its newest claims would be
    unlocked behind it."""
    world = World()
    for name in ("a", "b"):
        world.join(name, 1)
    world.settle()
    world.join("c", 1)
    for step in (world.read, world._show_all, world.begin, world.abandon):
        step("a")
    assert world.flying[0].claims == (NEW,)
    world.leave("c")
    for step in (world.read, world._show_all, world.begin):
        step("a")
    world.land(-1)
    world.read_back("a")
    world.confirm("a")
    domain = next(each for each in DOMAINS if (OLD.owner(each), NEW.owner(each)) == ("a", "c"))
    world.pop("a", domain)
    assert domain in world.nodes["a"].in_flight
    world.land(0)
    world.join("c", 1)
    world._live_on("c")
    assert world.users(domain) == ["a"]


class Walk:
    """Steps by chance: those of ordinary life often, joins and ends now and then."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = world = World()
        each = {
            world.read: 20,
            world.begin: 12,
            world.read_back: 12,
            world.confirm: 12,
            world.abandon: 3,
            world.expire: 5,
            world.rejoin: 3,
            world.grow: 2,
            world.leave: 0.2,
            world.begin_to_leave: 0.3,
            world.hand_over_and_leave: 3,
            world.crash: 0.3,
        }
        self.steps = {
            **{(lambda step=step: step(self.name())): often for step, often in each.items()},
            lambda: world.join(self.name(), self.chance.choice([0.25, 1, 2])): 3,
            lambda: world.show(self.name(), self.chance.choice([-1, -1, -1, 0])): 20,
            lambda: world.land(self.chance.choice([-1, -1, 0])): 10,
            lambda: world.pop(self.name(), self.domain()): 30,
            lambda: world.end(self.name(), self.domain()): 10,
            lambda: world.renew(self.name(), self.chance.randrange(4)): 12,
            lambda: world.tick(self.chance.choice([1, 1, 2, 4])): 4,
        }

    def name(self) -> str:
        return self.chance.choice(NODES)

    def domain(self) -> str:
        return self.chance.choice(DOMAINS)

    def take(self, steps: int) -> None:
        for step in self.chance.choices(
            list(self.steps), weights=list(self.steps.values()), k=steps
        ):
            step()
            self.world.check()


@seeds(quick=1, slow=9)
def test_no_two_nodes_fetch_one_domain_on_a_long_walk(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(8):
        walk.take(1000)
        walk.world.settle()
        walk.world.check_quiet()
