"""Members see each other, their claims and their counters, and the pending nodes."""

from __future__ import annotations

import asyncio
import functools
import json
from math import inf
from typing import TYPE_CHECKING, ClassVar

import pytest

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.lease import NodeInfo
from krowlspider.cluster.register.membership import RegisteredMembership
from krowlspider.cluster.registers import Agent, ConsulService
from krowlspider.cluster.ring.ring import Member, MemberRecord, Ring
from tests.cluster.register_nodes import (
    RING_A,
    RING_AB,
    TTL,
    A,
    B,
    call,
    found,
    good,
    joined,
    open_at,
    pending_nodes_in,
    reading,
    until,
    value_of,
)

if TYPE_CHECKING:
    from krowlspider.cluster.register.port import Step
    from krowlspider.cluster.ring.claims import Claims

    from .register_nodes import Place
    from .servers import Server


def stays_alone(node: RegisteredMembership) -> bool:
    return reading(node).members == (A,)


def test_node_reads_its_own_claims_and_counters(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as node:
            assert node.members["a"].member == node.own == A
            epoch = node.epoch
            await node.publish((RING_A, RING_AB))
            assert node.members["a"].claims == (RING_A, RING_AB)
            assert node.epoch >= epoch
            assert await node.beat({"pages": 3, "rate": 1.5})
            assert node.members["a"].counters == {"pages": 3, "rate": 1.5}
            assert node.members["a"].claims == (RING_A, RING_AB)

    asyncio.run(main())


def test_lease_is_valid_from_start_to_leave(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as node:
            assert good(node)
            await node.leave()
            assert node.good_until == -inf

    found(register, cluster)
    asyncio.run(main())


def test_join_and_leave_are_seen_within_two_seconds(register: Server | Place, cluster: str):
    async def main() -> None:
        changes: list[set[str]] = []
        async with joined(register, cluster, A, lambda a: changes.append(set(a.members))) as a:
            async with joined(register, cluster, B) as b:
                assert b.members.keys() == {"a", "b"}
                await until(lambda: a.members.keys() == {"a", "b"}, 2)
                assert a.members["b"].member == B
                await b.publish((RING_AB,))
                await until(lambda: a.members["b"].claims == (RING_AB,), 2)
            await until(lambda: a.members.keys() == {"a"}, 2)
            assert {"a", "b"} in changes
            assert changes[-1] == {"a"}

    found(register, cluster)
    asyncio.run(main())


def test_service_shows_no_password_and_goes_with_the_node(consul: Server, cluster: str):
    async def main() -> None:
        agent = Agent(consul.url)
        service = ConsulService(agent, cluster, A, TTL)
        async with joined(consul, cluster, A, service=service):
            name = f"krowlspider-{cluster}"
            for where in (("", 0), ("10.0.0.7", 9410)):
                listed = json.loads(call(consul, "GET", f"/v1/health/service/{name}?passing"))
                (shown,) = [each["Service"] for each in listed]
                assert (shown["Address"], shown["Port"]) == where
                redis, address = "redis://127.0.0.1:1/0", "a.example:1"
                own = {"node": "a", "weight": "1", "redis": redis, "address": address}
                assert shown["Meta"] == own
                # Where Prometheus finds the node.
                service.serve_metrics("10.0.0.7", 9410)
                await service.renew()
        assert json.loads(call(consul, "GET", f"/v1/health/service/{name}")) == []
        agent.close()

    asyncio.run(main())


def test_of_two_publishers_at_least_one_sees_the_other(register: Server | Place, cluster: str):
    rings = [Ring([A, Member(f"x{number}")]) for number in range(30)]

    async def main() -> None:
        async with joined(register, cluster, A) as a, joined(register, cluster, B) as b:
            for ring in rings:
                seen = {}

                async def publish(
                    node: RegisteredMembership, other: str, seen: dict[str, bool], ring: Ring
                ) -> None:
                    await node.publish((ring,))
                    seen[other] = node.members[other].claims == (ring,)

                await asyncio.gather(publish(a, "b", seen, ring), publish(b, "a", seen, ring))
                assert any(seen.values())

    asyncio.run(main())


def test_claims_of_a_leaving_node_are_read_until_it_is_gone(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as a:
            async with joined(register, cluster, B) as b:
                await b.publish((RING_AB,))
                await until(lambda: a.members.get("b") == MemberRecord(B, (RING_AB,)), 2)
                await b.publish((RING_AB,), leaving=True)
                for node in (a, b):
                    await until(functools.partial(stays_alone, node), 2)
                    assert reading(node).claims["b"] == (RING_AB,)
            await until(lambda: reading(a).claims.keys() == {"a"}, 2)

    asyncio.run(main())


def test_domains_of_a_node_that_returns_wait_for_it(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as a, joined(register, cluster, B) as b:
            await b.publish((RING_AB,))
            await b.leave(returns=True)
            await until(lambda: a.members.get("b") == MemberRecord(B, (RING_AB,), dead=True), 2)

    asyncio.run(main())


def test_member_is_pending_until_it_is_dismissed(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as a:
            assert a.pending_nodes == {"a"}
            async with joined(register, cluster, B) as b:
                assert pending_nodes_in(register, cluster) == {"a", "b"}
                await a.beat({})
                assert a.pending_nodes == {"a", "b"}
            # It was stopped without being dismissed. A supervisor starts it again when all ended.
            await a.beat({})
            assert a.pending_nodes | a.stopped == {"a", "b"}
            assert a.stopped == ({"b"} if open_at(register).is_supervised else set())
            async with joined(register, cluster, B) as b:
                await b.dismiss()
                await a.beat({})
                assert a.pending_nodes == {"a"}
        assert pending_nodes_in(register, cluster) == {"a"}

    asyncio.run(main())


def test_key_of_a_pending_node_has_its_addresses(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A):
            note = NodeInfo.loads(value_of(register, cluster, "crew/a") or b"")
            assert (note.redis, note.address) == (A.redis, A.address)

    asyncio.run(main())


def test_node_without_a_lease_cannot_be_dismissed(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as a:
            await a.leave()
            with pytest.raises(UnansweredError, match="node a has no lease"):
                await a.dismiss()
        assert pending_nodes_in(register, cluster) == {"a"}

    asyncio.run(main())


def test_heartbeats_and_pending_nodes_are_of_one_moment(register: Server | Place, cluster: str):
    """A dismissed node is never seen with an older heartbeat than its last one."""

    async def main() -> None:
        async with joined(register, cluster, A) as a:
            listening, is_there = True, False

            async def listen() -> None:
                while listening:
                    await a.beat({})
                    # After it has left, its last heartbeat is no longer there to be read.
                    if is_there and "b" in a.members and "b" not in a.pending_nodes:
                        assert a.members["b"].counters.get("last") in {None, 1}

            task = asyncio.create_task(listen())
            for _ in range(5):
                async with joined(register, cluster, B) as b:
                    await until(lambda: "b" in a.members, 5)
                    is_there = True
                    for last in (0, 0, 0, 1):
                        await b.beat({"last": last})
                    await b.dismiss()
                    await until(lambda: "b" not in a.pending_nodes, 5)
                    is_there = False
                await until(lambda: "b" not in a.members, 5)
            listening = False
            await task

    asyncio.run(main())


@pytest.mark.parametrize("later", [(RING_A, RING_AB), (RING_AB,)])
def test_abandoned_publish_is_not_stored_after_a_later_one(
    register: Server | Place, cluster: str, later: Claims
):
    class Late(type(open_at(register))):  # type: ignore[misc]
        """Its transactions get no answer while ``holding``, and are done when the test says so."""

        holding = False
        held: ClassVar[list[tuple[Step, ...]]] = []

        async def change(self, *steps: Step) -> bool:
            if self.holding:
                self.held.append(steps)
                raise UnansweredError("no answer")
            changed: bool = await super().change(*steps)
            return changed

    async def main() -> None:
        agent = Late(register.url)
        a = RegisteredMembership(agent, cluster, A, ttl=TTL)
        await a.start()
        await a.publish((RING_A, RING_AB))
        agent.holding = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(a.publish((RING_A,)), 0.2)
        agent.holding = False
        await a.publish(later)
        assert [await agent.change(*steps) for steps in agent.held] == [False]
        stored = await agent.get(f"krowlspider/{cluster}/nodes/a")
        assert stored
        assert MemberRecord.loads("a", stored.value).claims == later
        await a.leave()
        agent.close()

    asyncio.run(main())
