"""Members see each other and their claims; none fetches after others may think that it is gone.

``python -m tests.cluster.test_consul_membership URL CLUSTER NODE`` is a node to be killed. It
prints the end of its lease, again and again.
"""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from math import inf
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.consul.agent import Agent, Step
from krowlspider.cluster.consul.membership import ConsulMembership
from krowlspider.cluster.consul.pending_nodes import NodeInfo
from krowlspider.cluster.consul.register import Register
from krowlspider.cluster.consul.seed import IdentitySeed
from krowlspider.cluster.membership import ClusterError, UnansweredError
from krowlspider.cluster.ring.claims import Reading
from krowlspider.cluster.ring.record import Record
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.tasks import end
from tests.cluster.forwarding import LATE
from tests.support.crawling import ROOT

from .servers import consul_agent, free_port, relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from krowlspider.cluster.ring.claims import Claims

    from .servers import Server

# The least that Consul takes.
TTL = 10
# Of the TTL, in which the lease of a renewal is good.
LEASE = 0.8 * TTL
A = Member("a", 1, "redis://:secret@127.0.0.1:1/0", "a.example:1")
B = Member("b", 2, "redis://127.0.0.1:2/0", "b.example:2")
DEAD = Member("z", 1, "redis://127.0.0.1:3/0")
RING_A, RING_AB = Ring([A]), Ring([A, B])
SEED = b"theseed8"
# Keys of a cluster that a register may lose.
LOST = {"crew/z": b"{}", "seed": SEED.hex().encode(), "signal": b"PAUSED", "pages": b"7"}


def call(agent: Server, method: str, path: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(f"{agent.url}{path}", data=body, method=method)
    with urllib.request.urlopen(request, timeout=5) as answer:
        said: bytes = answer.read()
        return said


def found(agent: Server, cluster: str) -> None:
    """As if the cluster were old: leases begin at once."""
    call(agent, "PUT", f"/v1/kv/krowlspider/{cluster}/founded", b"1")


def is_founded(agent: Server, cluster: str) -> bool:
    keys = call(agent, "GET", f"/v1/kv/krowlspider/{cluster}/?keys")
    return f"krowlspider/{cluster}/founded" in json.loads(keys)


def sessions(agent: Server, cluster: str) -> dict[str, str]:
    """The id of the session of each node."""
    listed = json.loads(call(agent, "GET", f"/v1/kv/krowlspider/{cluster}/nodes/?recurse"))
    return {e["Key"].rpartition("/")[2]: e["Session"] for e in listed if "Session" in e}


def health(agent: Server, cluster: str) -> dict[str, str]:
    """The state of the service of each node."""
    name = f"krowlspider-{cluster}"
    listed = json.loads(call(agent, "GET", f"/v1/health/checks/{name}"))
    return {check["ServiceID"].removeprefix(f"{name}-"): check["Status"] for check in listed}


async def until(condition: Callable[[], bool], within: float) -> float:
    """Wait until something is so; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + within, f"it is not so after {within} s"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@asynccontextmanager
async def joined(
    server: Server,
    cluster: str,
    own: Member,
    on_change: Callable[[ConsulMembership], None] = lambda _: None,
    *,
    seed: bytes | None = None,
) -> AsyncIterator[ConsulMembership]:
    """A node that has started; it leaves if the test has not had it do so."""
    agent = Agent(server.url)
    node = ConsulMembership(agent, cluster, own, ttl=TTL)
    node.seed.value = seed
    try:
        await node.start(lambda: on_change(node))
        yield node
    finally:
        await node.leave()
        agent.close()


def reading(node: ConsulMembership) -> Reading:
    return Reading.of(node.epoch, node.members)


def stays_alone(node: ConsulMembership) -> bool:
    return reading(node).members == (A,)


def good(node: ConsulMembership) -> bool:
    return time.monotonic() < node.good_until


def test_node_reads_its_own_claims_and_counters(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as node:
            assert node.members["a"].member == node.own == A
            epoch = node.epoch
            await node.publish((RING_A, RING_AB))
            assert node.members["a"].claims == (RING_A, RING_AB)
            assert node.epoch >= epoch
            assert await node.beat({"pages": 3, "rate": 1.5})
            assert node.members["a"].counters == {"pages": 3, "rate": 1.5}
            assert node.members["a"].claims == (RING_A, RING_AB)

    asyncio.run(main())


def test_lease_is_valid_from_start_to_leave(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as node:
            assert good(node)
            await node.leave()
            assert node.good_until == -inf

    found(consul, cluster)
    asyncio.run(main())


def test_join_and_leave_are_seen_within_two_seconds(consul: Server, cluster: str):
    async def main() -> None:
        changes: list[set[str]] = []
        async with joined(consul, cluster, A, lambda a: changes.append(set(a.members))) as a:
            async with joined(consul, cluster, B) as b:
                assert b.members.keys() == {"a", "b"}
                await until(lambda: a.members.keys() == {"a", "b"}, 2)
                assert a.members["b"].member == B
                await b.publish((RING_AB,))
                await until(lambda: a.members["b"].claims == (RING_AB,), 2)
            await until(lambda: a.members.keys() == {"a"}, 2)
            assert {"a", "b"} in changes
            assert changes[-1] == {"a"}

    found(consul, cluster)
    asyncio.run(main())


def test_service_shows_no_password_and_goes_with_the_node(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            name = f"krowlspider-{cluster}"
            for where in (("", 0), ("10.0.0.7", 9410)):
                listed = json.loads(call(consul, "GET", f"/v1/health/service/{name}?passing"))
                (service,) = [each["Service"] for each in listed]
                assert (service["Address"], service["Port"]) == where
                redis, address = "redis://127.0.0.1:1/0", "a.example:1"
                own = {"node": "a", "weight": "1", "redis": redis, "address": address}
                assert service["Meta"] == own
                # Where Prometheus finds the node.
                a.service.serve_metrics("10.0.0.7", 9410)
                await a.service.renew()
        assert json.loads(call(consul, "GET", f"/v1/health/service/{name}")) == []

    asyncio.run(main())


def test_of_two_publishers_at_least_one_sees_the_other(consul: Server, cluster: str):
    rings = [Ring([A, Member(f"x{number}")]) for number in range(30)]

    async def main() -> None:
        async with joined(consul, cluster, A) as a, joined(consul, cluster, B) as b:
            for ring in rings:
                seen = {}

                async def publish(
                    node: ConsulMembership, other: str, seen: dict[str, bool], ring: Ring
                ) -> None:
                    await node.publish((ring,))
                    seen[other] = node.members[other].claims == (ring,)

                await asyncio.gather(publish(a, "b", seen, ring), publish(b, "a", seen, ring))
                assert any(seen.values())

    asyncio.run(main())


def test_claims_of_a_leaving_node_are_read_until_it_is_gone(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            async with joined(consul, cluster, B) as b:
                await b.publish((RING_AB,))
                await until(lambda: a.members.get("b") == Record(B, (RING_AB,)), 2)
                await b.publish((RING_AB,), leaving=True)
                for node in (a, b):
                    await until(functools.partial(stays_alone, node), 2)
                    assert reading(node).claims["b"] == (RING_AB,)
            await until(lambda: reading(a).claims.keys() == {"a"}, 2)

    asyncio.run(main())


def pending_nodes_in(agent: Server, cluster: str) -> set[str]:
    keys = json.loads(call(agent, "GET", f"/v1/kv/krowlspider/{cluster}/?keys"))
    return {key.rpartition("/")[2] for key in keys if "/crew/" in key}


def test_member_is_pending_until_it_is_dismissed(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            assert a.pending_nodes == {"a"}
            async with joined(consul, cluster, B) as b:
                assert pending_nodes_in(consul, cluster) == {"a", "b"}
                await a.beat({})
                assert a.pending_nodes == {"a", "b"}
            # It has gone without being dismissed, as after a crash.
            await a.beat({})
            assert a.pending_nodes == {"a", "b"}
            async with joined(consul, cluster, B) as b:
                await b.dismiss()
                await a.beat({})
                assert a.pending_nodes == {"a"}
        assert pending_nodes_in(consul, cluster) == {"a"}

    asyncio.run(main())


def test_key_of_a_pending_node_has_its_addresses(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A):
            note = NodeInfo.loads(call(consul, "GET", f"/v1/kv/krowlspider/{cluster}/crew/a?raw"))
            assert (note.redis, note.address) == (A.redis, A.address)

    asyncio.run(main())


def test_node_without_a_lease_cannot_be_dismissed(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            await a.leave()
            with pytest.raises(UnansweredError, match="node a has no lease"):
                await a.dismiss()
        assert pending_nodes_in(consul, cluster) == {"a"}

    asyncio.run(main())


def test_heartbeats_and_pending_nodes_are_of_one_moment(consul: Server, cluster: str):
    """A dismissed node is never seen with an older heartbeat than its last one."""

    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            listening, is_there = True, False

            async def listen() -> None:
                while listening:
                    await a.beat({})
                    # After it has left, its last heartbeat is no longer there to be read.
                    if is_there and "b" in a.members and "b" not in a.pending_nodes:
                        assert a.members["b"].counters.get("last") in {None, 1}

            task = asyncio.create_task(listen())
            for _ in range(5):
                async with joined(consul, cluster, B) as b:
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


class LateAgent(Agent):
    """Its transactions get no answer while ``holding``, and are done when the test says so."""

    holding = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.held: list[tuple[Step, ...]] = []

    async def change(self, *steps: Step) -> bool:
        if self.holding:
            self.held.append(steps)
            raise UnansweredError("no answer")
        return await super().change(*steps)


@pytest.mark.parametrize("later", [(RING_A, RING_AB), (RING_AB,)])
def test_abandoned_publish_is_not_stored_after_a_later_one(
    consul: Server, cluster: str, later: Claims
):
    async def main() -> None:
        agent = LateAgent(consul.url)
        a = ConsulMembership(agent, cluster, A, ttl=TTL)
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
        assert Record.loads("a", stored.value).claims == later
        await a.leave()
        agent.close()

    asyncio.run(main())


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


@asynccontextmanager
async def waiting(server: Server, cluster: str, own: Member) -> AsyncIterator[ConsulMembership]:
    """A node that waits for the dead."""
    agent = Agent(server.url)
    node = ConsulMembership(agent, cluster, own, ttl=TTL, delay=900.0)
    await node.start()
    yield node
    await node.leave()
    agent.close()


async def die(server: Server, cluster: str, node: ConsulMembership) -> None:
    """As if it was killed, and its session had ended."""
    await end(node._tasks)
    node._lease.lose()
    call(server, "PUT", f"/v1/session/destroy/{sessions(server, cluster)[node.own.id]}")


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


@contextmanager
def lag() -> Iterator[list[float]]:
    """The longest time in seconds that the loop was late."""
    longest = [0.0]

    async def measure() -> None:
        while True:
            due = time.monotonic() + 0.01
            await asyncio.sleep(0.01)
            longest[0] = max(longest[0], time.monotonic() - due)

    task = asyncio.get_running_loop().create_task(measure())
    yield longest
    task.cancel()


@contextmanager
def child(server: Server, cluster: str, node: str) -> Iterator[subprocess.Popen[str]]:
    """A node in a process of its own, which has a lease."""
    module = "tests.cluster.test_consul_membership"
    command = [sys.executable, "-m", module, server.url, cluster, node]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        assert process.stdout.readline().startswith("good until")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def restarted_agent_changes_nothing(cluster: str, _: Server, folder: Path) -> None:
    with consul_agent(folder / "agent") as server:
        found(server, cluster)
        async with joined(server, cluster, A) as a, joined(server, cluster, B) as b:
            await until(lambda: len(a.members) == 2, 2)
            before = sessions(server, cluster)
            server.kill()
            server.start()
            assert good(a)
            assert good(b)
            lease = a.good_until
            await until(lambda: a.good_until > lease, TTL)
            assert sessions(server, cluster) == before
            assert a.members.keys() == b.members.keys() == {"a", "b"}


async def frozen_agent_ends_leases_but_no_membership(cluster: str, _: Server, folder: Path) -> None:
    """It is frozen for longer than a TTL."""
    with consul_agent(folder / "agent") as server:
        found(server, cluster)
        async with joined(server, cluster, A) as a, joined(server, cluster, B) as b:
            await until(lambda: len(a.members) == 2, 2)
            with lag() as longest, server.frozen():
                frozen = time.monotonic()
                await until(lambda: not good(a) and not good(b), LEASE + 1)
                while time.monotonic() < frozen + 1.2 * TTL:
                    assert a.members.keys() == b.members.keys() == {"a", "b"}
                    await asyncio.sleep(0.05)
                # Heartbeats do nothing, and calls end.
                assert not await a.beat({"pages": 1})
                with pytest.raises(UnansweredError):
                    await Agent(server.url, timeout=0.2).get("any")
            await until(lambda: good(a) and good(b), 10)
            assert a.members.keys() == b.members.keys() == {"a", "b"}
            assert longest[0] < LATE


async def register_without_its_data_gives_no_lease_for_a_ttl(
    cluster: str, _: Server, folder: Path
) -> None:
    """Nor a smaller ring; seed, signal, page budget and the nodes that are away are restored, among
    them one that has been dead for longer than a lease."""
    with consul_agent(folder / "agent") as server:
        found(server, cluster)
        async with waiting(server, cluster, A) as a, waiting(server, cluster, B) as b:
            async with joined(server, cluster, DEAD) as dead:
                await dead.publish((Ring([A, B, DEAD]),))
                await die(server, cluster, dead)
            await until(lambda: len(a.members) == len(b.members) == 3, 2)
            await asyncio.sleep(1.1 * TTL)
            await a.publish((RING_AB,))
            for node in (a, b):
                node.seed.value = SEED
            for name, value in LOST.items():
                call(server, "PUT", f"/v1/kv/krowlspider/{cluster}/{name}", value)
            await a.beat({})
            server.kill()
            server.wipe()
            server.start()
            back = time.monotonic()
            # A node with a new JOBDIR waits for the seed of the live ones.
            agent = Agent(server.url)
            assert await IdentitySeed(agent, cluster, TTL).agree() == SEED
            agent.close()
            await until(lambda: not good(a) and not good(b), LEASE)
            while time.monotonic() < back + TTL:
                assert a.members.keys() == b.members.keys() == {"a", "b", "z"}
                assert not good(a)
                assert not good(b)
                await asyncio.sleep(0.05)
            await until(lambda: good(a) and good(b), TTL)
            assert sessions(server, cluster).keys() == {"a", "b"}
            assert b.members["a"].claims == (RING_AB,)
            assert a.members["z"] == Record(DEAD, (Ring([A, B, DEAD]),), dead=True)
            assert pending_nodes_in(server, cluster) == {"a", "b", "z"}
            for name, value in LOST.items():
                assert call(server, "GET", f"/v1/kv/krowlspider/{cluster}/{name}?raw") == value
            # A node that joins once that has been noted, within a second, need not wait.
            await until(lambda: is_founded(server, cluster), 3)
            async with joined(server, cluster, Member("c")) as c:
                assert good(c)


async def cut_off_node_stops_before_others_see_it_gone(
    cluster: str, consul: Server, folder: Path
) -> None:
    with relay(consul, folder / "wire") as wire:
        async with joined(consul, cluster, A) as a, joined(wire, cluster, B) as b:
            await b.publish((RING_AB,))
            await until(lambda: len(a.members) == 2, 2)
            with wire.frozen():
                await until(lambda: "b" not in a.members, 4 * TTL)
                gone = time.monotonic()
                assert b.good_until < gone - TTL
                assert good(a)
                assert b.members.keys() == {"a", "b"}
            await until(lambda: good(b) and "b" in a.members, 15)


async def cut_off_node_keeps_its_place_under_the_delay(
    cluster: str, consul: Server, folder: Path
) -> None:
    """So no domain moves, and it goes on where it was."""
    with relay(consul, folder / "wire") as wire:
        async with waiting(consul, cluster, A) as a, waiting(wire, cluster, B) as b:
            await b.publish((RING_AB,))
            await until(lambda: len(a.members) == 2, 2)
            with wire.frozen():
                await until(lambda: a.members["b"].dead, 2 * TTL + 4)
                dead = time.monotonic()
                while time.monotonic() < dead + 1.2 * TTL:
                    assert a.members["b"] == Record(B, (RING_AB,), dead=True)
                    await asyncio.sleep(0.05)
            await until(lambda: good(b) and not a.members["b"].dead, 15)
            assert a.members["b"] == b.members["b"] == Record(B, (RING_AB,))


async def killed_node_is_gone_after_its_lease(cluster: str, consul: Server, _: Path) -> None:
    """Within three TTLs; its service is critical after one."""
    both = {"a": "passing", "b": "critical"}
    async with joined(consul, cluster, A) as a:
        with child(consul, cluster, "b") as process:
            await until(lambda: "b" in a.members, 2)
            process.kill()
            killed = time.monotonic()
            assert process.stdout
            lease = [float(line.split()[-1]) for line in process.stdout] or [killed]
        # It was passing for a TTL from its last renewal on. The service of a live node is renewed.
        assert await until(lambda: health(consul, cluster) == both, TTL + 1) > TTL / 2
        await until(lambda: "b" not in a.members, 2 * TTL + 4)
        assert health(consul, cluster) == both
        assert max(lease) < time.monotonic() - TTL


async def restarted_node_waits_for_its_own_old_lease(cluster: str, consul: Server, _: Path) -> None:
    with child(consul, cluster, "a"):
        pass
    killed = time.monotonic()
    async with joined(consul, cluster, A) as a:
        assert good(a)
        assert killed + LEASE < time.monotonic() < killed + 2 * TTL + 5


# Each waits for leases to end, so they run at the same time.
SCENARIOS = (
    cut_off_node_stops_before_others_see_it_gone,
    cut_off_node_keeps_its_place_under_the_delay,
    killed_node_is_gone_after_its_lease,
    restarted_node_waits_for_its_own_old_lease,
    register_without_its_data_gives_no_lease_for_a_ttl,
    frozen_agent_ends_leases_but_no_membership,
    restarted_agent_changes_nothing,
)


@pytest.fixture(scope="module")
def outcomes(
    consul: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[object, Future[None]]]:
    """The scenarios, each in a thread with an event loop of its own."""

    def run(scenario: Callable[[str, Server, Path], Coroutine[None, None, None]]) -> None:
        name = scenario.__name__.replace("_", "-")[:30]
        found(consul, name)
        asyncio.run(scenario(name, consul, tmp_path_factory.mktemp(name)))

    with ThreadPoolExecutor(len(SCENARIOS)) as threads:
        yield {scenario: threads.submit(run, scenario) for scenario in SCENARIOS}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_leases_end_before_others_take_over(
    scenario: object, outcomes: dict[object, Future[None]]
) -> None:
    outcomes[scenario].result()


async def _be_node(url: str, cluster: str, node: str) -> None:
    membership = ConsulMembership(Agent(url), cluster, Member(node), ttl=TTL)
    await membership.start()
    await membership.publish((Ring([membership.own]),))
    while True:
        print("good until", membership.good_until, flush=True)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(_be_node(*sys.argv[1:]))
