"""Nodes of a cluster in Consul, without a crawl, and what Consul has of them."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from krowlspider.cluster.consul.agent import Agent
from krowlspider.cluster.consul.membership import ConsulMembership
from krowlspider.cluster.ring.claims import Reading
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.tasks import end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .servers import Server

# The least that Consul takes.
TTL = 10
# Of the TTL, in which the lease of a renewal is good.
LEASE = 0.8 * TTL
A = Member("a", 1, "redis://:secret@127.0.0.1:1/0", "a.example:1")
B = Member("b", 2, "redis://127.0.0.1:2/0", "b.example:2")
RING_A, RING_AB = Ring([A]), Ring([A, B])


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


def reading(node: ConsulMembership) -> Reading:
    return Reading.of(node.epoch, node.members)


def good(node: ConsulMembership) -> bool:
    return time.monotonic() < node.good_until


def pending_nodes_in(agent: Server, cluster: str) -> set[str]:
    keys = json.loads(call(agent, "GET", f"/v1/kv/krowlspider/{cluster}/?keys"))
    return {key.rpartition("/")[2] for key in keys if "/crew/" in key}
