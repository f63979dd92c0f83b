"""Of all nodes that come, go and lose their leases at any moment, at most one may fetch a domain,
and in the end its owner."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from krowlspider.cluster.controller import OwnershipController
from krowlspider.cluster.ring.ring import Claims, Member, MemberRecord
from tests.cluster.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest


DOMAINS = [f"site{number}.test" for number in range(24)]


@dataclass
class Register:
    """What Consul would keep, in this process: records of live nodes, each change of it another
    epoch."""

    chance: random.Random
    records: dict[str, MemberRecord] = field(default_factory=dict)
    epoch: int = 0
    places: list[Place] = field(default_factory=list)

    def put(self, node: str, record: MemberRecord | None) -> None:
        self.epoch += 1
        if record is None:
            self.records.pop(node, None)
        else:
            self.records[node] = record

    async def wait_a_little(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)


class Place:
    """A node's membership in a `Register`: `read` shows it what stands there, when that comes."""

    def __init__(self, node: str, register: Register):
        self.own = Member(node)
        self.members: Mapping[str, MemberRecord] = {}
        self.epoch = 0
        self.good_until = -1.0
        self.on_change: Callable[[], None] = lambda: None
        self._register = register
        register.places.append(self)

    async def start(self) -> None:
        old = self._register.records.get(self.own.id)
        self._register.put(self.own.id, old or MemberRecord(self.own))
        self.good_until = 1.0
        self.read()

    def read(self) -> None:
        if self.own.id in self._register.records:
            self.members = dict(self._register.records)
            self.epoch = self._register.epoch
            self.on_change()

    def lose_lease(self) -> None:
        """The lease ends; the others hear of it later."""
        self.good_until = -1.0
        self.on_change()

    async def publish(self, claims: Claims, *, leaving: bool = False) -> None:
        await self._register.wait_a_little()
        while self.good_until < 0:  # noqa: ASYNC110 - turns of the loop are the model's time
            await asyncio.sleep(0)
        self._register.put(self.own.id, MemberRecord(self.own, claims, leaving=leaving))
        await self._register.wait_a_little()
        self.read()


class Hosts:
    """The hosts of a node, which are domains: it keeps each until another node has it."""

    def __init__(self, node: str, register: Register, all_hosts: dict[str, Hosts]):
        self.has: set[str] = set()
        self.steps: list[str] = []
        self.takes: Callable[[str], bool] = lambda _: False
        # What it has cannot be handed over while this is not set.
        self.free = asyncio.Event()
        self.free.set()
        self._node = node
        self._register = register
        self._all_hosts = all_hosts

    def stop_handover(self) -> None:
        self.steps.append("stop")

    def hang_up(self) -> None:
        self.steps.append("hang up")

    def ring_changed(self) -> None:
        self.steps.append("ring")

    async def hand_over(self, owner_of: Callable[[str], str | None], _: object) -> None:
        self.steps.append("hand over")
        await self.free.wait()
        for domain in sorted(self.has):
            owner = owner_of(domain)
            if owner is None:
                continue
            await self._register.wait_a_little()
            while not self._taken(owner, domain):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
            self.has.discard(domain)
        await self._register.wait_a_little()

    def _taken(self, owner: str, domain: str) -> bool:
        hosts = self._all_hosts.get(owner)
        if hosts is None or not hosts.takes(domain):
            return False
        hosts.has.add(domain)
        return True


@dataclass
class Node:
    place: Place
    hosts: Hosts
    controller: OwnershipController
    task: asyncio.Task[None]

    def may_fetch(self, domain: str) -> bool:
        view = self.controller.view
        return self.controller.has_lease and view is not None and view.may_fetch(domain)


class World:
    def __init__(self, seed: int):
        self.chance = random.Random(seed)
        self.register = Register(self.chance)
        self.nodes: dict[str, Node] = {}
        self.all_hosts: dict[str, Hosts] = {}
        # The dead are waited for: what is fetched has been handed over.
        self.in_order = False
        self.dead: set[str] = set()
        self.is_stopping = False

    async def join(self, name: str, is_stopping: Callable[[], bool] = lambda: False) -> Node:
        async def is_stopping_now() -> bool:
            return is_stopping()

        place = Place(name, self.register)
        hosts = self.all_hosts.setdefault(name, Hosts(name, self.register, self.all_hosts))
        controller = OwnershipController(
            place, grace=inf, is_stopping=is_stopping_now, clock=lambda: 0.0
        )
        place.on_change = controller.changed
        hosts.takes = lambda domain: (
            controller.view is not None and controller.view.may_take(domain)
        )
        if (old := self.register.records.get(name)) is not None:
            # It takes up its claims, and does not leave any more.
            self.register.put(name, MemberRecord(place.own, old.claims))
        self.dead.discard(name)
        await place.start()
        node = Node(place, hosts, controller, asyncio.create_task(controller.run(hosts)))
        self.nodes[name] = node
        return node

    async def end(self, name: str) -> None:
        """A node is gone, or dies and is not waited for."""
        await self._end_process(name)
        self.register.put(name, None)
        self.all_hosts.pop(name, None)

    async def die(self, name: str) -> None:
        """A node dies: its place and its hosts wait for it."""
        await self._end_process(name)
        self.register.put(name, replace(self.register.records[name], dead=True))
        self.all_hosts[name].takes = lambda _: False
        self.dead.add(name)

    async def _end_process(self, name: str) -> None:
        node = self.nodes.pop(name)
        node.task.cancel()
        with suppress(asyncio.CancelledError):
            await node.task

    def claims(self, name: str) -> Claims:
        return self.register.records[name].claims

    async def go_on(self, turns: int) -> None:
        for _ in range(turns):
            if self.chance.random() < 0.3 and self.nodes:
                self.chance.choice(list(self.nodes.values())).place.read()
            await asyncio.sleep(0)
            self.check()

    def check(self) -> None:
        for domain in DOMAINS:
            found = [name for name, node in self.nodes.items() if node.may_fetch(domain)]
            assert len(found) <= 1, f"{domain} may be fetched by {found}"
            for name in found:
                if self.in_order:
                    others = {each for each, hosts in self.all_hosts.items() if domain in hosts.has}
                    assert others <= {name}, f"{name} fetches {domain}, which is with {others}"
                self.nodes[name].hosts.has.add(domain)

    async def until_agreed(self) -> None:
        for _ in range(5000):
            for node in self.nodes.values():
                node.place.read()
                node.controller.changed()
                assert not node.task.done() or node.task.result() is None
            # What they have been shown, they take in by the next turns.
            for _ in range(10):
                await asyncio.sleep(0)
                self.check()
            if all(node.controller.agreed for node in self.nodes.values()):
                return
        raise AssertionError("they never agree")


@seeds(quick=8, slow=22)
def test_at_most_one_node_may_fetch_a_domain(seed: int) -> None:
    async def main() -> None:
        world = World(seed)
        chance = world.chance
        await world.join("n0")
        names = iter(f"n{number}" for number in range(1, 100))
        for _ in range(25):
            await world.go_on(chance.randrange(40))
            some = chance.choice(list(world.nodes))
            deed = chance.random()
            if deed < 0.4 and len(world.nodes) < 6:
                await world.join(next(names))
            elif deed < 0.6:
                world.nodes[some].place.lose_lease()
                await world.go_on(chance.randrange(30))
                await world.nodes[some].place.start()
            elif deed < 0.8 and len(world.nodes) > 1:
                # Others hear of a death when its lease is over.
                world.nodes[some].place.lose_lease()
                await world.go_on(3)
                await world.end(some)
            elif len(world.nodes) > 1 and not world.nodes[some].controller.leaving:
                await leave(world, some)
        await world.until_agreed()
        for domain in DOMAINS:
            found = [name for name, node in world.nodes.items() if node.may_fetch(domain)]
            assert len(found) == 1
            node = world.nodes[found[0]]
            assert node.controller.owner_of(domain) is None
        for name in list(world.nodes):
            await world.end(name)

    asyncio.run(main())


@seeds(quick=8, slow=17)
def test_domain_is_fetched_after_its_hand_over(
    seed: int,
) -> None:
    """Nodes that die come back in the end, and are waited for."""

    async def main() -> None:
        world = World(seed)
        world.in_order = True
        chance = world.chance
        await world.join("n0")
        names = iter(f"n{number}" for number in range(1, 100))
        for _ in range(25):
            await world.go_on(chance.randrange(60))
            staying = [name for name, node in world.nodes.items() if not node.controller.leaving]
            if staying and chance.random() < 0.3:
                # A lapse that the others do not see.
                lapsed = world.nodes[chance.choice(staying)]
                lapsed.place.lose_lease()
                await world.go_on(chance.randrange(30))
                await lapsed.place.start()
            if chance.random() < 0.2 and len(world.nodes) > 1:
                await world.die(chance.choice([n for n in world.nodes if world.claims(n)]))
            elif chance.random() < 0.4 and world.dead:
                await world.join(min(world.dead))
            elif chance.random() < 0.5 and len(staying) < 5:
                await world.join(next(names))
            elif len(staying) > 1:
                world.nodes[chance.choice(staying)].controller.leave()
            await end_gone_nodes(world)
        for name in list(world.dead):
            await world.join(name)
        for _ in range(80):
            await world.go_on(10)
            await end_gone_nodes(world)
        assert not [name for name, node in world.nodes.items() if node.controller.leaving]
        for name in list(world.nodes):
            await world.end(name)

    asyncio.run(main())


async def goes_on() -> bool:
    """The cluster is not stopping."""
    return False


async def end_gone_nodes(world: World) -> None:
    for name in [name for name, node in world.nodes.items() if node.controller.is_gone]:
        node = world.nodes[name]
        assert node.controller.view is not None
        left = {node.controller.owner_of(domain) for domain in node.hosts.has}
        assert left <= node.controller.view.reading.dead
        if not left:
            await world.end(name)


async def leave(world: World, name: str) -> None:
    """It is gone when it has nothing left, and others know."""
    node = world.nodes[name]
    node.controller.leave()
    await go_on_until(world, lambda: node.controller.is_gone)
    assert node.hosts.has == set()
    await world.end(name)


async def go_on_until(world: World, condition: Callable[[], bool]) -> None:
    for _ in range(5000):
        for each in world.nodes.values():
            each.place.read()
            each.controller.changed()
        await asyncio.sleep(0)
        world.check()
        if condition():
            return
    raise AssertionError("the condition never held")


def test_leaving_node_keeps_only_what_belongs_to_the_dead() -> None:
    """If a dead node comes back in time, it gets that too."""

    async def main() -> None:
        world = World(1)
        for name in ("n0", "n1", "n2"):
            await world.join(name)
        await world.until_agreed()
        await world.go_on(1)
        await world.die("n2")
        node = world.nodes["n0"]
        node.controller.leave()
        await go_on_until(world, lambda: node.controller.is_gone)
        left = {node.controller.owner_of(domain) for domain in node.hosts.has}
        assert left == {"n2"}
        await world.join("n2")
        await go_on_until(world, lambda: node.controller.is_gone and not node.hosts.has)
        for name in list(world.nodes):
            await world.end(name)

    asyncio.run(main())


def test_hand_over_stops_before_a_new_ring_applies() -> None:
    async def main() -> None:
        world = World(1)
        first = await world.join("n0")
        await world.until_agreed()
        assert first.hosts.steps[0] == "stop"
        await world.join("n1")
        del first.hosts.steps[:]
        await world.until_agreed()
        assert first.hosts.steps[:2] == ["stop", "ring"]
        assert "hand over" in first.hosts.steps
        for name in list(world.nodes):
            await world.end(name)

    asyncio.run(main())


def test_new_ring_is_logged_and_when_it_is_in_force(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        world = World(1)
        for name in ("n0", "n1"):
            await world.join(name)
            await world.until_agreed()
        for name in list(world.nodes):
            await world.end(name)

    asyncio.run(main())
    assert "Nodes in the ring: 1; this one owns 100 % of the domains" in caplog.text
    assert "Nodes in the ring: 2; this one owns 4" in caplog.text
    # Each once, by each of its nodes.
    assert caplog.text.count("All nodes in the ring agree (1)") == 1
    assert caplog.text.count("All nodes in the ring agree (2)") == 2


def test_node_without_a_lease_fetches_nothing() -> None:
    async def main() -> None:
        world = World(1)
        node = await world.join("n0")
        await world.until_agreed()
        assert node.may_fetch("site0.test")
        node.place.lose_lease()
        assert not node.may_fetch("site0.test")
        await world.go_on(5)
        await node.place.start()
        await world.until_agreed()
        assert node.may_fetch("site0.test")
        await world.end("n0")

    asyncio.run(main())


def test_former_ring_that_returns_is_handed_over_again() -> None:
    async def main() -> None:
        world = World(1)
        first = await world.join("n0")
        await world.until_agreed()
        first.hosts.free.clear()
        second = await world.join("n1")
        await world.go_on(100)
        assert {first.controller.owner_of(domain) for domain in DOMAINS} == {None, "n1"}
        await world.end("n1")
        first.place.read()
        await world.go_on(100)
        assert {first.controller.owner_of(domain) for domain in DOMAINS} == {None}
        assert not first.controller.agreed
        assert second.task.done()
        first.hosts.free.set()
        await world.until_agreed()
        await world.end("n0")

    asyncio.run(main())


def test_ring_stays_while_the_cluster_stops() -> None:
    """A node that obeys STOP first is gone for the others before they have heard the signal."""

    async def main() -> None:
        world = World(1)
        first = await world.join("n0", is_stopping=lambda: world.is_stopping)
        await world.join("n1")
        await world.until_agreed()
        before = {domain: first.controller.owner_of(domain) for domain in DOMAINS}
        assert set(before.values()) == {None, "n1"}
        world.is_stopping = True
        await world.end("n1")
        first.place.read()
        await world.go_on(100)
        assert {domain: first.controller.owner_of(domain) for domain in DOMAINS} == before
        assert not any(first.may_fetch(domain) for domain, owner in before.items() if owner)
        world.is_stopping = False
        await world.until_agreed()
        assert {first.controller.owner_of(domain) for domain in DOMAINS} == {None}
        await world.end("n0")

    asyncio.run(main())


def test_hangs_up_before_others_may_take_over() -> None:
    async def main() -> None:
        now = 0.0
        register = Register(random.Random(1))
        place = Place("n0", register)
        hosts = Hosts("n0", register, {})
        controller = OwnershipController(place, grace=10.0, is_stopping=goes_on, clock=lambda: now)

        async def looked(at: float) -> int:
            nonlocal now
            now = at
            controller.changed()
            for _ in range(20):
                await asyncio.sleep(0)
            return hosts.steps.count("hang up")

        place.on_change = controller.changed
        await place.start()
        place.good_until = 100.0
        task = asyncio.create_task(controller.run(hosts))
        assert await looked(50) == 0
        # It comes back in time, once.
        assert [await looked(at) for at in (101, 109)] == [0, 0]
        place.good_until = 200.0
        assert [await looked(at) for at in (109.5, 190)] == [0, 0]
        assert [await looked(at) for at in (201, 209, 210, 230, 300)] == [0, 0, 1, 1, 1]
        # One that is lost at once has no longer.
        place.good_until = 400.0
        assert await looked(310) == 1
        place.good_until = -1.0
        assert [await looked(at) for at in (320, 329, 330, 340)] == [1, 1, 2, 2]
        # A process that was frozen has it again when it wakes.
        place.good_until = 500.0
        assert await looked(450) == 2
        place.good_until = 600.0
        assert [await looked(at) for at in (511, 550)] == [3, 3]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_hangs_up_in_time_while_a_hand_over_ends() -> None:
    """A host that is half removed is removed to its end, which may take long."""

    async def main() -> None:
        now = 0.0
        register = Register(random.Random(1))
        place, over = Place("n0", register), asyncio.Event()

        class Slow(Hosts):
            async def hand_over(self, owner_of: Callable[[str], str | None], _: object) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    await over.wait()

        hosts = Slow("n0", register, {})
        controller = OwnershipController(place, grace=10.0, is_stopping=goes_on, clock=lambda: now)
        place.on_change = controller.changed
        await place.start()
        place.good_until = 100.0
        task = asyncio.create_task(controller.run(hosts))
        for then in (50.0, 101.0, 111.0):
            now = then
            controller.changed()
            for _ in range(20):
                await asyncio.sleep(0)
        assert hosts.steps.count("hang up") == 1
        over.set()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
