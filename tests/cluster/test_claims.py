"""While nodes join, leave and die, never two of them may fetch a domain, and in the end one may."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from krowlspider.cluster.ring.claims import CLAIMS_MAX, Claimant, Reading, View, next_claims
from krowlspider.cluster.ring.ring import Member, Ring
from tests.cluster.seeds import seeds

if TYPE_CHECKING:
    from krowlspider.cluster.ring.record import Claims

NODES = ["a", "b", "c", "d"]
DOMAINS = [f"site{number}.test" for number in range(24)]
# Seconds: the register keeps a record for TTL after its last renewal, at least; a node's own lease
# ends before.
TTL, MARGIN = 15, 5


def ring(*names: str) -> Ring:
    return Ring(Member(name) for name in names)


def reading(epoch: int, *, leaving: str = "", **claims: Claims) -> Reading:
    """``leaving`` has those who do not stay, by their letters."""
    return Reading(epoch, tuple(Member(n) for n in claims if n not in leaving), claims)


def moving(old: Ring, new: Ring, node: str) -> list[str]:
    """Domains that the old ring gives to a node, and the new one does not."""
    return [d for d in (f"m{i}.test" for i in range(300)) if new.owner(d) != node == old.owner(d)]


def staying(old: Ring, new: Ring, node: str) -> list[str]:
    return [d for d in (f"m{i}.test" for i in range(300)) if new.owner(d) == node == old.owner(d)]


def settled(own: str, *names: str, epoch: int = 1) -> Claimant:
    """A node among others, all of which claim the one ring."""
    claimant = Claimant(own)
    claimant.update(reading(0, **{name: () if name == own else (ring(*names),) for name in names}))
    claimant.begin((ring(*names),))
    claimant.confirm(reading(epoch, **{name: (ring(*names),) for name in names}))
    return claimant


def view(claimant: Claimant) -> View:
    assert claimant.view is not None
    return claimant.view


OLD, NEW = ring("a", "b"), ring("a", "b", "c")
GOING = moving(OLD, NEW, "a")
KEPT = staying(OLD, NEW, "a")


def test_claim_is_in_force_after_store_and_reading() -> None:
    node = Claimant("a")
    assert node.wanted(None) is None
    node.update(reading(1, a=(), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])
    assert node.wanted(None) == (OLD,)
    node.begin((OLD,))
    node.update(reading(2, a=(OLD,), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])
    node.confirm(reading(2, a=(OLD,), b=(OLD,)))
    assert view(node).may_fetch(KEPT[0])
    assert node.wanted(None) is None
    assert view(node).agreed


def test_join_keeps_old_claim_until_the_hand_over_is_done() -> None:
    node = settled("a", "a", "b")
    node.update(reading(2, a=(OLD,), b=(OLD,), c=()))
    going = GOING[0]
    assert view(node).owner(going) == "c"
    assert not view(node).may_fetch(going)
    assert view(node).may_fetch(KEPT[0])
    # The old claim locks what the new ring gives us: nothing to publish until the hand-over is
    # done.
    assert node.wanted(None) is None
    assert node.wanted(OLD.checksum) is None
    assert node.wanted(NEW.checksum) == (NEW,)
    node.begin((NEW,))
    assert view(node).may_fetch(KEPT[0])
    node.confirm(reading(3, a=(NEW,), b=(OLD,), c=()))
    assert view(node).may_fetch(KEPT[0])
    assert not view(node).agreed


def test_new_owner_waits_for_all_former_owners() -> None:
    node = settled("c", "a", "b", "c")
    node.update(reading(2, a=(OLD,), b=(NEW,), c=(NEW,)))
    from_b = moving(OLD, NEW, "b")
    assert not any(view(node).may_fetch(domain) for domain in GOING)
    assert all(view(node).may_fetch(domain) for domain in from_b)
    node.update(reading(3, a=(NEW,), b=(NEW,), c=(NEW,)))
    assert all(view(node).may_fetch(domain) for domain in GOING + from_b)


def test_gone_node_frees_its_domains_after_a_publish() -> None:
    node = settled("a", "a", "b", "c")
    node.update(reading(2, a=(NEW,), b=(NEW,)))
    assert all(view(node).may_fetch(domain) for domain in KEPT)
    assert not any(view(node).may_fetch(domain) for domain in GOING)
    assert node.wanted(None) == (OLD,)
    node.begin((OLD,))
    assert all(view(node).may_fetch(domain) for domain in KEPT)
    node.confirm(reading(3, a=(OLD,), b=(NEW,)))
    assert all(view(node).may_fetch(domain) for domain in KEPT + GOING)


def test_older_reading_is_ignored() -> None:
    node = settled("a", "a", "b", epoch=5)
    node.update(reading(4, a=(NEW,), b=(NEW,), c=(NEW,)))
    assert view(node).ring == OLD
    assert view(node).reading.epoch == 5


@pytest.mark.parametrize("others", [{}, {"b": (OLD,)}])
def test_reading_without_us_keeps_the_ring_and_ends_our_claims(others: dict[str, Claims]) -> None:
    node = settled("a", "a", "b", epoch=5)
    node.update(reading(6, **others))
    assert view(node).ring == OLD
    assert not view(node).may_fetch(KEPT[0])
    # The register of before may have been lost, and count anew.
    node.update(reading(1, a=(OLD,), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])
    assert node.wanted(None) == (OLD,)
    node.begin((OLD,))
    node.confirm(reading(2, a=(OLD,), b=(OLD,)))
    assert view(node).may_fetch(KEPT[0])


def test_claim_that_the_register_lost_is_not_in_force() -> None:
    node = settled("a", "a", "b")
    node.update(reading(2, a=(), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])
    assert node.wanted(None) == (OLD,)


def test_publish_of_unknown_outcome_is_repeated() -> None:
    node = settled("a", "a", "b", "c")
    node.update(reading(2, a=(NEW,), b=(NEW,)))
    node.begin((OLD,))
    node.update(reading(3, a=(OLD,), b=(NEW,)))
    assert not any(view(node).may_fetch(domain) for domain in GOING)
    assert node.wanted(None) == (OLD,)


def test_confirming_with_an_older_reading_keeps_the_newer() -> None:
    node = settled("a", "a", "b", "c")
    node.update(reading(2, a=(NEW,), b=(NEW,)))
    node.begin((OLD,))
    node.update(reading(5, a=(OLD,), b=(NEW,), c=(NEW,)))
    node.confirm(reading(3, a=(OLD,), b=(NEW,)))
    assert view(node).reading.epoch == 5
    assert not any(view(node).may_fetch(domain) for domain in GOING)


def test_publish_confirmed_after_the_lease_ended_is_void() -> None:
    node = settled("a", "a", "b")
    node.begin((OLD,))
    node.give_up()
    node.confirm(reading(9, a=(OLD,), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])


def test_number_of_claims_is_bounded() -> None:
    # Each time another node joins while one leaves, so that no ring makes another superfluous.
    rings = [ring("a", f"n{number}") for number in range(CLAIMS_MAX + 3)]
    held: Claims = ()
    for now in rings:
        held = next_claims("a", held, now, handed_over=None)
    assert held == tuple(rings[:CLAIMS_MAX])
    assert next_claims("a", held, rings[-1], handed_over=rings[-1].checksum) == (rings[-1],)


def test_domains_of_a_leaving_node_rest_until_it_is_gone() -> None:
    node = settled("a", "a", "b", "c")
    node.update(reading(2, leaving="c", a=(NEW,), b=(NEW,), c=(NEW,)))
    assert view(node).ring == OLD
    assert node.wanted(NEW.checksum) == (OLD,)
    node.begin((OLD,))
    node.confirm(reading(3, leaving="c", a=(OLD,), b=(OLD,), c=(NEW,)))
    assert not view(node).agreed
    assert all(view(node).may_fetch(domain) for domain in KEPT)
    assert not any(view(node).may_fetch(domain) for domain in GOING)
    node.update(reading(4, a=(OLD,), b=(OLD,)))
    assert all(view(node).may_fetch(domain) for domain in KEPT + GOING)


def test_leaving_node_owns_nothing_and_keeps_its_claims() -> None:
    node = settled("c", "a", "b", "c")
    assert node.leave() == (NEW,)
    node.confirm(reading(2, leaving="c", a=(NEW,), b=(NEW,), c=(NEW,)))
    going = moving(NEW, OLD, "c")
    assert view(node).leaving
    assert view(node).ring == OLD
    assert view(node).in_force == (NEW,)
    assert not any(view(node).may_fetch(domain) for domain in going)
    assert {view(node).owner(domain) for domain in going + DOMAINS} == {"a", "b"}
    for moved in (None, OLD.checksum):
        assert node.wanted(moved) is None


def test_domains_of_a_dead_node_rest_and_nothing_is_agreed() -> None:
    node = settled("a", "a", "b")
    assert view(node).agreed
    node.update(replace(reading(2, a=(OLD,), b=(OLD,)), dead=frozenset("b")))
    assert not view(node).agreed
    assert all(view(node).may_fetch(each) == (OLD.owner(each) == "a") for each in DOMAINS)


def test_leaving_node_knows_which_nodes_are_unaware() -> None:
    node = settled("c", "a", "b", "c")
    node.leave()
    node.confirm(reading(2, leaving="c", a=(NEW,), b=(NEW, OLD), c=(NEW,)))
    assert view(node).unaware == ("a",)
    node.update(reading(3, leaving="c", a=(OLD,), b=(OLD,), c=(NEW,)))
    assert view(node).unaware == ()


def test_all_nodes_leaving_keep_what_they_have() -> None:
    node = settled("a", "a", "b")
    node.leave()
    node.confirm(reading(2, leaving="ab", a=(OLD,), b=(OLD,)))
    assert view(node).leaving
    assert {view(node).owner(domain) for domain in DOMAINS} == {"a"}
    assert not any(view(node).may_fetch(domain) for domain in KEPT + GOING)
    assert node.wanted(None) is None
    # One more comes while they go: what is here is its.
    node.update(reading(3, leaving="ab", a=(OLD,), b=(OLD,), c=()))
    assert view(node).owner(KEPT[0]) == "c"


def test_leaving_without_a_lease_publishes_the_stored_claims() -> None:
    node = settled("a", "a", "b")
    node.give_up()
    assert node.leave() == (OLD,)
    node.confirm(reading(1, leaving="a", a=(OLD,), b=(OLD,)))
    assert view(node).in_force == (OLD,)
    assert not view(node).may_fetch(KEPT[0])


def test_leaving_during_a_publish_keeps_what_both_lock() -> None:
    node = settled("a", "a", "b")
    node.update(reading(2, a=(OLD,), b=(OLD,), c=()))
    node.begin((NEW,))
    assert node.leave() == (NEW,)
    node = settled("a", "a", "b", "c")
    node.update(reading(2, a=(NEW,), b=(NEW,)))
    node.begin((OLD,))
    assert node.leave() == (NEW,)


@dataclass
class Record:
    """A node's place in the register: the session that holds it, until when at least, and its last
    change."""

    member: Member
    session: int
    expires: int
    changed: int
    claims: Claims = ()
    leaving: bool = False


@dataclass
class Register:
    """A linearizable register with sessions: Consul, as far as the claims are concerned."""

    index: int = 0
    records: dict[str, Record] = field(default_factory=dict)

    def read(self) -> Reading:
        members = tuple(record.member for record in self.records.values() if not record.leaving)
        claims = {name: record.claims for name, record in self.records.items()}
        return Reading(self.index, members, claims)

    def enter(self, node: Node, expires: int) -> None:
        assert node.member.id not in self.records
        self.index += 1
        # As last published: claims that are not in force any more still lock.
        self.records[node.member.id] = Record(
            node.member, node.session, expires, self.index, node.published, node.leaving
        )

    def remove(self, name: str) -> None:
        self.index += 1
        del self.records[name]

    def store(self, publish: Publish) -> bool:
        record = self.records.get(publish.member.id)
        if record is None or (record.session, record.changed) != (
            publish.session,
            publish.based_on,
        ):
            return False
        self.index += 1
        record.claims, record.changed = publish.claims, self.index
        record.member, record.leaving = publish.member, publish.leaving
        return True


@dataclass(eq=False)
class Publish:
    """A write on its way to the register; ``based_on`` is the change of the record that it
    replaces."""

    member: Member
    session: int
    based_on: int
    claims: Claims
    leaving: bool = False
    stored: bool = False


@dataclass(eq=False)
class Node:
    """A process: its claims, its lease by its own reckoning, domains in flight, and what is on its
    way to it."""

    member: Member
    session: int
    claimant: Claimant
    good_until: int
    in_flight: set[str] = field(default_factory=set)
    readings: list[Reading] = field(default_factory=list)
    publish: Publish | None = None
    read_back: Reading | None = None
    # What it has published last, or tried to.
    published: Claims = ()
    leaving: bool = False

    def may_fetch(self, domain: str, now: int) -> bool:
        seen = self.claimant.view
        return now < self.good_until and seen is not None and seen.may_fetch(domain)

    def moved(self) -> str | None:
        """The hand-over is done when no request of a domain of another node is in flight."""
        seen = self.claimant.view
        if seen is None or any(seen.owner(domain) != self.member.id for domain in self.in_flight):
            return None
        return seen.ring.checksum


class World:
    """Nodes and their register, each step of theirs by itself: what happens between two steps is
    anybody's."""

    def __init__(self) -> None:
        self.now = self.sessions = 0
        self.register = Register()
        self.nodes: dict[str, Node] = {}
        self.flying: list[Publish] = []

    def join(self, name: str, weight: float) -> None:
        if name not in self.nodes and name not in self.register.records:
            member = Member(name, weight)
            self.nodes[name] = Node(member, 0, Claimant(name), 0)
            self._enter(self.nodes[name])

    def rejoin(self, name: str) -> None:
        """A node finds its session gone: what it had claimed is nobody's, or another's."""
        node = self.nodes.get(name)
        if node and not self._registered(node) and name not in self.register.records:
            node.in_flight.clear()
            node.publish = None
            node.claimant.give_up()
            self._enter(node)

    def _enter(self, node: Node) -> None:
        self.sessions += 1
        node.session = self.sessions
        self.register.enter(node, self.now + TTL)
        node.good_until = self.now + TTL - MARGIN

    def _registered(self, node: Node) -> bool:
        record = self.register.records.get(node.member.id)
        return record is not None and record.session == node.session

    def leave(self, name: str) -> None:
        """At once; what it has goes to nobody."""
        node = self.nodes.get(name)
        if node and self._registered(node):
            self.register.remove(name)
            del self.nodes[name]

    def begin_to_leave(self, name: str) -> None:
        """A publish under way is given up for it."""
        node = self.nodes.get(name)
        if node and self._registered(node) and node.claimant.view is not None:
            node.leaving = True
            self._publish(node, node.claimant.leave())

    def hand_over_and_leave(self, name: str) -> None:
        node = self.nodes.get(name)
        seen = node.claimant.view if node else None
        if node and seen and seen.leaving and node.publish is None and not node.in_flight:
            self.leave(name)

    def crash(self, name: str) -> None:
        self.nodes.pop(name, None)

    def tick(self, seconds: int) -> None:
        self.now += seconds
        for node in self.nodes.values():
            if self.now >= node.good_until:
                node.in_flight.clear()

    def renew(self, name: str, lag: int) -> None:
        """The lease counts from the start of the renewal, the session from its arrival."""
        node = self.nodes.get(name)
        if node and self._registered(node):
            self.register.records[name].expires = self.now + TTL
            node.good_until = max(node.good_until, self.now - lag + TTL - MARGIN)

    def expire(self, name: str) -> None:
        record = self.register.records.get(name)
        if record and record.expires <= self.now:
            self.register.remove(name)

    def read(self, name: str) -> None:
        if name in self.nodes:
            node = self.nodes[name]
            node.readings = [*node.readings[-5:], self.register.read()]

    def show(self, name: str, which: int) -> None:
        node = self.nodes.get(name)
        if node and node.readings:
            node.claimant.update(node.readings.pop(which % len(node.readings)))

    def begin(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None or node.publish is not None or not self._registered(node):
            return
        wanted = node.claimant.leave() if node.leaving else node.claimant.wanted(node.moved())
        if wanted is not None:
            node.claimant.begin(wanted)
            self._publish(node, wanted)

    def grow(self, name: str) -> None:
        """A node with what its ring gives it takes a greater weight, and the same claims."""
        node = self.nodes.get(name)
        seen = node.claimant.view if node else None
        if (
            node
            and seen
            and not node.leaving
            and node.publish is None
            and self._registered(node)
            and node.member.weight < 2
            and node.claimant.wanted(node.moved()) is None
        ):
            weight = 2 * node.member.weight
            whole = int(weight) if weight >= 1 else weight
            node.member = Member(name, whole)
            node.claimant.begin(seen.in_force)
            self._publish(node, seen.in_force)

    def _publish(self, node: Node, claims: Claims) -> None:
        name = node.member.id
        changed = self.register.records[name].changed
        node.publish = Publish(node.member, node.session, changed, claims, node.leaving)
        node.published, node.read_back = claims, None
        self.flying.append(node.publish)

    def land(self, which: int) -> None:
        if self.flying:
            publish = self.flying.pop(which % len(self.flying))
            publish.stored = self.register.store(publish)

    def read_back(self, name: str) -> None:
        node = self.nodes.get(name)
        if node and node.publish and node.publish.stored:
            node.read_back = self.register.read()

    def confirm(self, name: str) -> None:
        node = self.nodes.get(name)
        if node and node.publish and node.read_back:
            node.claimant.confirm(node.read_back)
            node.publish = node.read_back = None

    def abandon(self, name: str) -> None:
        """The answer to a publish is lost; it may still be stored, and later."""
        if name in self.nodes:
            self.nodes[name].publish = None

    def pop(self, name: str, domain: str) -> None:
        node = self.nodes.get(name)
        if node and node.may_fetch(domain, self.now):
            node.in_flight.add(domain)

    def end(self, name: str, domain: str) -> None:
        if name in self.nodes:
            self.nodes[name].in_flight.discard(domain)

    def users(self, domain: str) -> list[str]:
        """The nodes that fetch a domain, or may."""
        return [
            name
            for name, node in self.nodes.items()
            if domain in node.in_flight or node.may_fetch(domain, self.now)
        ]

    def check(self) -> None:
        for domain in DOMAINS:
            assert len(self.users(domain)) <= 1, domain

    def settle(self) -> None:
        """Nothing joins or dies any more, and what is on its way arrives."""
        while self.flying:
            self.land(0)
        for _ in range(8):
            self.tick(MARGIN)
            for name in NODES:
                self._live_on(name)
            self.check()

    def _live_on(self, name: str) -> None:
        self.renew(name, 0)
        self.rejoin(name)
        self.expire(name)
        self.abandon(name)
        for domain in DOMAINS:
            self.end(name, domain)
        for step in (self.read, self._show_all, self.begin):
            step(name)
        self.land(0)
        self.read_back(name)
        self.confirm(name)
        self.hand_over_and_leave(name)

    def _show_all(self, name: str) -> None:
        while name in self.nodes and self.nodes[name].readings:
            self.show(name, 0)

    def check_quiet(self) -> None:
        for domain in DOMAINS if self.nodes else ():
            assert len(self.users(domain)) == 1, domain
        for node in self.nodes.values():
            seen = view(node.claimant)
            assert seen.agreed
            assert [member.id for member in seen.ring.members] == sorted(self.nodes)


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
