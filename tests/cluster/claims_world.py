"""A register and its nodes, each step of theirs by itself, to be driven by tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from krowlspider.cluster.ring.claims import Claimant, ClusterView, RegisterReading
from krowlspider.cluster.ring.ring import Claims, Member, Ring

NODES = ["a", "b", "c", "d"]
DOMAINS = [f"site{number}.test" for number in range(24)]
# Seconds: the register keeps a record for TTL after its last renewal, at least; a node's own lease
# ends before.
TTL, MARGIN = 15, 5


def ring(*names: str) -> Ring:
    return Ring(Member(name) for name in names)


def view(claimant: Claimant) -> ClusterView:
    assert claimant.view is not None
    return claimant.view


OLD, NEW = ring("a", "b"), ring("a", "b", "c")


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

    def read(self) -> RegisterReading:
        members = tuple(record.member for record in self.records.values() if not record.leaving)
        claims = {name: record.claims for name, record in self.records.items()}
        return RegisterReading(self.index, members, claims)

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
    readings: list[RegisterReading] = field(default_factory=list)
    publish: Publish | None = None
    read_back: RegisterReading | None = None
    # What it has published last, or tried to.
    published: Claims = ()
    leaving: bool = False

    def may_fetch(self, domain: str, now: int) -> bool:
        seen = self.claimant.view
        return now < self.good_until and seen is not None and seen.may_fetch(domain)

    def moved(self) -> str | None:
        """The hand-over is done when no request of a domain of another node is in flight."""
        seen = self.claimant.view
        if seen is None:
            return None
        ring = seen.ring
        if any(ring.owner(domain) != self.member.id for domain in self.in_flight):
            return None
        return ring.checksum


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
