"""No node fetches after others may think that it is gone, whatever happens to Consul.

``python -m tests.cluster.test_consul_leases URL CLUSTER NODE`` is a node to be killed. It prints
the end of its lease, again and again.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.lease import IdentitySeed
from krowlspider.cluster.register.membership import RegisteredMembership
from krowlspider.cluster.registers import Agent, ConsulService
from krowlspider.cluster.ring.ring import Member, MemberRecord, Ring
from tests.cluster.forwarding import LATE
from tests.cluster.register_nodes import (
    LEASE,
    RING_AB,
    TTL,
    A,
    B,
    call,
    die,
    found,
    good,
    is_founded,
    joined,
    pending_nodes_in,
    sessions,
    until,
    waiting,
)
from tests.support.crawling import ROOT

from .servers import consul_agent, relay

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from .servers import Server

DEAD = Member("z", 1, "redis://127.0.0.1:3/0")
SEED = b"theseed8"
# Keys of a cluster that a register may lose.
LOST = {"crew/z": b"{}", "seed": SEED.hex().encode(), "signal": b"PAUSED", "pages": b"7"}


def health(agent: Server, cluster: str) -> dict[str, str]:
    """The state of the service of each node."""
    name = f"krowlspider-{cluster}"
    listed = json.loads(call(agent, "GET", f"/v1/health/checks/{name}"))
    return {check["ServiceID"].removeprefix(f"{name}-"): check["Status"] for check in listed}


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
    module = "tests.cluster.test_consul_leases"
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
            assert a.members["z"] == MemberRecord(DEAD, (Ring([A, B, DEAD]),), dead=True)
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
                    assert a.members["b"] == MemberRecord(B, (RING_AB,), dead=True)
                    await asyncio.sleep(0.05)
            await until(lambda: good(b) and not a.members["b"].dead, 15)
            assert a.members["b"] == b.members["b"] == MemberRecord(B, (RING_AB,))


async def killed_node_is_gone_after_its_lease(cluster: str, consul: Server, _: Path) -> None:
    """Within three TTLs; its service is critical after one."""
    both = {"a": "passing", "b": "critical"}
    service = ConsulService(Agent(consul.url), cluster, A, TTL)
    async with joined(consul, cluster, A, service=service) as a:
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
    agent, own = Agent(url), Member(node)
    service = ConsulService(agent, cluster, own, TTL)
    membership = RegisteredMembership(agent, cluster, own, ttl=TTL, service=service)
    await membership.start()
    await membership.publish((Ring([membership.own]),))
    while True:
        print("good until", membership.good_until, flush=True)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(_be_node(*sys.argv[1:]))
