"""Who may join a cluster in Consul, and how a node returns after it ended or lost its lease."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.consul.agent import Agent
from krowlspider.cluster.consul.membership import ConsulMembership
from krowlspider.cluster.consul.pending_nodes import NodeInfo
from krowlspider.cluster.consul.register import Register
from krowlspider.cluster.consul.seed import IdentitySeed
from krowlspider.cluster.membership import ClusterError, UnansweredError
from krowlspider.cluster.ring.record import Record
from krowlspider.cluster.ring.ring import Member
from tests.cluster.consul_nodes import (
    RING_A,
    RING_AB,
    TTL,
    A,
    B,
    call,
    die,
    found,
    good,
    joined,
    pending_nodes_in,
    reading,
    sessions,
    until,
    waiting,
)

from .servers import consul_agent, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from .servers import Server


def test_second_process_of_a_live_node_is_refused(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            agent = Agent(consul.url)
            second = asyncio.create_task(ConsulMembership(agent, cluster, A, ttl=TTL).start())
            while not second.done():
                await a.beat({"pages": 1})
                await asyncio.sleep(0.2)
            with pytest.raises(ClusterError, match=r"id a is in use .* at a\.example:1"):
                await second
            agent.close()
            assert good(a)
            assert a.members.keys() == {"a"}

    found(consul, cluster)
    asyncio.run(asyncio.wait_for(main(), 10))


def test_node_that_left_may_return_immediately(consul: Server, cluster: str):
    async def main() -> None:
        for _ in range(2):
            async with joined(consul, cluster, A) as a:
                assert good(a)

    found(consul, cluster)
    asyncio.run(asyncio.wait_for(main(), 8))


def test_lost_session_is_replaced_with_the_same_state(consul: Server, cluster: str):
    """The claims of a node, that it leaves, or that it is no pending node any more."""

    async def main() -> None:
        leases: list[bool] = []
        async with (
            joined(consul, cluster, A, lambda a: leases.append(good(a))) as a,
            joined(consul, cluster, B) as b,
            joined(consul, cluster, Member("c")) as c,
        ):
            await a.publish((RING_AB,))
            await b.publish((RING_AB,), leaving=True)
            await c.dismiss()
            await until(lambda: len(a.members) == 3 and a.members["b"].leaving, 2)
            del leases[:]
            lost = sessions(consul, cluster)
            for session in lost.values():
                call(consul, "PUT", f"/v1/session/destroy/{session}")
            await until(lambda: not (good(a) or good(b) or good(c)), 5)
            assert a.members.keys() == {"a", "b", "c"}
            await until(lambda: good(a) and good(b) and good(c), 5)
            assert leases[0] is False
            assert not set(sessions(consul, cluster).values()) & set(lost.values())
            for node in (a, b):
                await until(functools.partial(has_claims_of_all, node), 2)
                assert {member.id for member in reading(node).members} == {"a", "c"}
            assert pending_nodes_in(consul, cluster) == {"a", "b"}

    found(consul, cluster)
    asyncio.run(main())


def has_claims_of_all(node: ConsulMembership) -> bool:
    return reading(node).claims == {"a": (RING_AB,), "b": (RING_AB,), "c": ()}


def test_refused_start_is_not_waited_for(consul: Server, cluster: str):
    """But a node that was pending before it was refused stays pending, with its own Redis."""
    twin = Member("b", 1, A.redis)

    async def refused() -> None:
        with pytest.raises(ClusterError, match="node a has the same REDIS_URL"):
            async with joined(consul, cluster, twin):
                pass

    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            await refused()
            assert pending_nodes_in(consul, cluster) == {"a"}
            # Of two that start at the same time, neither may see the other before it has joined.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Register, "admit", lambda *_: False)
                await refused()
            assert pending_nodes_in(consul, cluster) == {"a"}
            async with joined(consul, cluster, B):
                pass
            await refused()
            await a.beat({})
            assert a.pending_nodes == {"a", "b"}
            note = NodeInfo.loads(call(consul, "GET", f"/v1/kv/krowlspider/{cluster}/crew/b?raw"))
            assert note.redis == B.redis
            await until(lambda: a.members.keys() == {"a"}, 2)
        # Nor may a node take the Redis of one that is gone and waited for.
        await refused()

    found(consul, cluster)
    asyncio.run(main())


def test_unreadable_member_prevents_a_join(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a, joined(consul, cluster, B):
            await until(lambda: len(a.members) == 2, 2)
            call(consul, "PUT", f"/v1/kv/krowlspider/{cluster}/nodes/b", b"{")
            with pytest.raises(ClusterError, match="the record of b cannot be read"):
                async with joined(consul, cluster, Member("c")):
                    pass
            assert good(a)
            assert a.members.keys() == {"a", "b"}
            assert sessions(consul, cluster).keys() == {"a", "b"}

    found(consul, cluster)
    asyncio.run(main())


def test_missing_agent_is_named_without_the_token():
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"

    async def main() -> None:
        agent = Agent(url, "the-token")
        with pytest.raises(ClusterError, match=url) as caught:
            await ConsulMembership(agent, "c", A, ttl=TTL).start()
        assert "the-token" not in str(caught.value)
        with pytest.raises(ClusterError, match=url):
            await IdentitySeed(agent, "c", TTL).agree()
        agent.close()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_dead_node_keeps_its_place_and_takes_up_its_claims(consul: Server, cluster: str):
    """For nodes that join meanwhile too, and after a start of it that was refused."""

    def is_waited_for(node: ConsulMembership) -> bool:
        return node.members.get("b") == Record(B, (RING_AB,), dead=True)

    async def main() -> None:
        async with waiting(consul, cluster, A) as a, joined(consul, cluster, B) as first:
            await first.publish((RING_AB,))
            await die(consul, cluster, first)
            await until(lambda: is_waited_for(a), 2)
            async with waiting(consul, cluster, Member("c")) as c:
                assert is_waited_for(c)
                await c.beat({})
                stored = call(consul, "GET", f"/v1/kv/krowlspider/{cluster}/beats/c?raw")
                assert 890 < json.loads(stored)["wait:b"] <= 900
            await refused(consul, cluster, B)
            await until(lambda: is_waited_for(a), 2)
            async with joined(consul, cluster, B) as second:
                assert second.members["b"] == Record(B, (RING_AB,))
                await until(lambda: a.members["b"] == second.members["b"], 2)
            await until(lambda: "b" not in a.members, 2)

    found(consul, cluster)
    asyncio.run(main())


async def refused(server: Server, cluster: str, own: Member) -> None:
    """It is refused after it has taken its key, because Consul does not answer any more."""

    async def look(_: ConsulMembership) -> bool:
        raise UnansweredError("no answer")

    agent = Agent(server.url)
    node = ConsulMembership(agent, cluster, own, ttl=TTL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsulMembership, "_look", look)
        with pytest.raises(ClusterError, match="no answer"):
            await node.start()
    agent.close()


@pytest.mark.slow
def test_token_is_sent_with_every_call(tmp_path: Path, cluster: str):
    async def starts(node: ConsulMembership) -> bool:
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
            node = ConsulMembership(agent, cluster, A, ttl=TTL)
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
                await ConsulMembership(nobody, cluster, A, ttl=TTL).start()
            nobody.close()

    asyncio.run(asyncio.wait_for(main(), 30))
