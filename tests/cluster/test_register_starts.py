"""Who may join a cluster in Consul, and how a node returns after it ended or lost its lease."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.membership import ClusterError, UnansweredError
from krowlspider.cluster.register.lease import IdentitySeed, NodeInfo
from krowlspider.cluster.register.membership import RegisteredMembership
from krowlspider.cluster.register.state import RegisterState
from krowlspider.cluster.registers import Agent
from krowlspider.cluster.ring.ring import Member, MemberRecord
from tests.cluster.register_nodes import (
    RING_A,
    RING_AB,
    TTL,
    A,
    B,
    die,
    end_session,
    found,
    good,
    joined,
    open_at,
    pending_nodes_in,
    put,
    reading,
    sessions,
    until,
    value_of,
    waiting,
)

from .servers import consul_agent, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from .register_nodes import Place
    from .servers import Server


def test_second_process_of_a_live_node_is_refused(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as a:
            agent = open_at(register)
            second = asyncio.create_task(RegisteredMembership(agent, cluster, A, ttl=TTL).start())
            while not second.done():
                await a.beat({"pages": 1})
                await asyncio.sleep(0.2)
            with pytest.raises(ClusterError, match=r"id a is in use .* at a\.example:1"):
                await second
            agent.close()
            assert good(a)
            assert a.members.keys() == {"a"}

    found(register, cluster)
    asyncio.run(asyncio.wait_for(main(), 10))


def test_node_that_left_may_return_immediately(register: Server | Place, cluster: str):
    async def main() -> None:
        for _ in range(2):
            async with joined(register, cluster, A) as a:
                assert good(a)

    found(register, cluster)
    asyncio.run(asyncio.wait_for(main(), 8))


def test_lost_session_is_replaced_with_the_same_state(register: Server | Place, cluster: str):
    """The claims of a node, that it leaves, or that it is no pending node any more."""

    async def main() -> None:
        leases: list[bool] = []
        async with (
            joined(register, cluster, A, lambda a: leases.append(good(a))) as a,
            joined(register, cluster, B) as b,
            joined(register, cluster, Member("c")) as c,
        ):
            await a.publish((RING_AB,))
            await b.publish((RING_AB,), leaving=True)
            await c.dismiss()
            await until(lambda: len(a.members) == 3 and a.members["b"].leaving, 2)
            del leases[:]
            lost = sessions(register, cluster)
            for session in lost.values():
                end_session(register, session)
            await until(lambda: not (good(a) or good(b) or good(c)), 5)
            assert a.members.keys() == {"a", "b", "c"}
            await until(lambda: good(a) and good(b) and good(c), 5)
            assert leases[0] is False
            assert not set(sessions(register, cluster).values()) & set(lost.values())
            for node in (a, b):
                await until(functools.partial(has_claims_of_all, node), 2)
                assert {member.id for member in reading(node).members} == {"a", "c"}
            assert pending_nodes_in(register, cluster) == {"a", "b"}

    found(register, cluster)
    asyncio.run(main())


def has_claims_of_all(node: RegisteredMembership) -> bool:
    return reading(node).claims == {"a": (RING_AB,), "b": (RING_AB,), "c": ()}


def test_refused_start_is_not_waited_for(register: Server | Place, cluster: str):
    """But a node that was pending before it was refused stays pending, with its own Redis."""
    twin = Member("b", 1, A.redis)

    async def refused() -> None:
        with pytest.raises(ClusterError, match="node a has the same REDIS_URL"):
            async with joined(register, cluster, twin):
                pass

    async def main() -> None:
        async with joined(register, cluster, A) as a:
            await refused()
            assert pending_nodes_in(register, cluster) == {"a"}
            # Of two that start at the same time, neither may see the other before it has joined.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RegisterState, "admit", lambda *_, **__: False)
                await refused()
            assert pending_nodes_in(register, cluster) == {"a"}
            async with joined(register, cluster, B):
                pass
            await refused()
            await a.beat({})
            assert a.pending_nodes | a.stopped == {"a", "b"}
            note = NodeInfo.loads(value_of(register, cluster, "crew/b") or b"")
            assert note.redis == B.redis
            await until(lambda: a.members.keys() == {"a"}, 2)
        # Nor may a node take the Redis of one that is gone and waited for.
        await refused()

    found(register, cluster)
    asyncio.run(main())


@pytest.mark.parametrize("gemini", [False, True])
def test_another_value_of_gemini_is_refused(
    register: Server | Place, cluster: str, *, gemini: bool
):
    """URLs that a node cannot read would be lost there. A node that is gone does not count: all
    may be stopped, and started again with another value."""

    async def refused() -> None:
        named = f"KROWL_GEMINI is {not gemini} here, and {gemini} at node a"
        with pytest.raises(ClusterError, match=named):
            async with joined(register, cluster, B, gemini=not gemini):
                pass

    async def main() -> None:
        async with joined(register, cluster, A, gemini=gemini) as a:
            await refused()
            # Of two that start at the same time, neither may see the other before it has joined.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RegisterState, "admit", lambda *_, **__: False)
                await refused()
            assert pending_nodes_in(register, cluster) == {"a"}
            async with joined(register, cluster, B, gemini=gemini):
                await until(lambda: len(a.members) == 2, 2)
            await until(lambda: a.members.keys() == {"a"}, 2)
        assert pending_nodes_in(register, cluster) >= {"a"}
        async with joined(register, cluster, B, gemini=not gemini):
            pass

    found(register, cluster)
    asyncio.run(main())


def test_unreadable_member_prevents_a_join(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as a, joined(register, cluster, B):
            await until(lambda: len(a.members) == 2, 2)
            put(register, cluster, "nodes/b", b"{")
            with pytest.raises(ClusterError, match="the record of b cannot be read"):
                async with joined(register, cluster, Member("c")):
                    pass
            assert good(a)
            assert a.members.keys() == {"a", "b"}
            assert sessions(register, cluster).keys() == {"a", "b"}

    found(register, cluster)
    asyncio.run(main())


def test_missing_agent_is_named_without_the_token():
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"

    async def main() -> None:
        agent = Agent(url, "the-token")
        with pytest.raises(ClusterError, match=url) as caught:
            await RegisteredMembership(agent, "c", A, ttl=TTL).start()
        assert "the-token" not in str(caught.value)
        with pytest.raises(ClusterError, match=url):
            await IdentitySeed(agent, "c", TTL).agree()
        agent.close()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_dead_node_keeps_its_place_and_takes_up_its_claims(register: Server | Place, cluster: str):
    """For nodes that join meanwhile too, and after a start of it that was refused."""

    def is_waited_for(node: RegisteredMembership) -> bool:
        return node.members.get("b") == MemberRecord(B, (RING_AB,), dead=True)

    async def main() -> None:
        async with waiting(register, cluster, A) as a, joined(register, cluster, B) as first:
            await first.publish((RING_AB,))
            await die(register, cluster, first)
            await until(lambda: is_waited_for(a), 2)
            async with waiting(register, cluster, Member("c")) as c:
                assert is_waited_for(c)
                await c.beat({})
                waits = json.loads(value_of(register, cluster, "beats/c") or b"")
                # A supervised node is waited for until it returns.
                assert 890 < waits.get("wait:b", 900) <= 900
                assert ("wait:b" in waits) is not open_at(register).is_supervised
            await refused(register, cluster, B)
            await until(lambda: is_waited_for(a), 2)
            async with joined(register, cluster, B) as second:
                assert second.members["b"] == MemberRecord(B, (RING_AB,))
                await until(lambda: a.members["b"] == second.members["b"], 2)
            await until(lambda: "b" not in a.members, 2)

    found(register, cluster)
    asyncio.run(main())


async def refused(server: Server | Place, cluster: str, own: Member) -> None:
    """It is refused after it has taken its key, because Consul does not answer any more."""

    async def look(_: RegisteredMembership) -> bool:
        raise UnansweredError("no answer")

    agent = open_at(server)
    node = RegisteredMembership(agent, cluster, own, ttl=TTL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RegisteredMembership, "_look", look)
        with pytest.raises(ClusterError, match="no answer"):
            await node.start()
    agent.close()


@pytest.mark.slow
def test_token_is_sent_with_every_call(tmp_path: Path, cluster: str):
    async def starts(node: RegisteredMembership) -> bool:
        try:
            await node.start()
        except ClusterError:
            return False
        return True

    acl = {
        "acl": {
            "enabled": True,
            "default_policy": "deny",
            "tokens": {"master": "the-token", "agent": "the-token"},
        },
        "primary_datacenter": "dc1",
    }

    async def main() -> None:
        with consul_agent(tmp_path / "agent", **acl) as server:
            agent = Agent(server.url, "the-token")
            node = RegisteredMembership(agent, cluster, A, ttl=TTL)
            # The agent makes its tokens after it has begun to answer.
            for _ in range(100):
                if await starts(node):
                    break
                await asyncio.sleep(0.1)
            await node.publish((RING_A,))
            await node.leave()
            agent.close()
            nobody = Agent(server.url)
            with pytest.raises(ClusterError, match=r"cannot be joined: .*Permission denied"):
                await RegisteredMembership(nobody, cluster, A, ttl=TTL).start()
            nobody.close()

    asyncio.run(asyncio.wait_for(main(), 30))
