"""``scrapy ring --forget``: give up a dead node, and save what its Redis still has."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from krowlspider.cluster.consul.register import check_forgettable, forget
from krowlspider.cluster.transport.drain import Drain
from krowlspider.cluster.transport.redis_connection import RedisTrouble, redis_client, shown
from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from krowlspider.cluster.consul.agent import Agent
    from krowlspider.cluster.consul.register import Register


async def give_up(
    agent: Agent, cluster: str, register: Register, node: str, *, spider: str, inbox_max: int
) -> str:
    """Move what waits in the node's Redis to the owners, then forget the node.

    Return what is saved and what is not, as sentences.

    :raises ClusterError: the node is live, or not pending
    :raises UnansweredError: Consul, or the Redis of an owner, does not answer: the node is still
        waited for, and no message is lost
    """
    check_forgettable(register, cluster, node)
    saved = await _drained(register, node, spider, inbox_max)
    await forget(agent, cluster, node)
    return (
        f"Node {node} is forgotten: nobody waits for it. {saved} What only its disk has is not"
        " fetched, unless the node is started again with its JOBDIR."
    )


async def _drained(register: Register, node: str, spider: str, inbox_max: int) -> str:
    url, ring = register.ended[node].redis, register.live_ring
    if not url:
        return "Its Redis is unknown."
    stays = f"in its Redis {shown(url)} stays there: start the node again to save it."
    if ring is None:
        return f"No other node is live, so what waits {stays}"
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(redis_client(register.members[name].member.redis))
            for name, _ in ring.weights
        }
        drain = Drain(clients, ring.owner, inbox_max)
        try:
            dead = await stack.enter_async_context(redis_client(url))
            await drain.run(dead, spider, node)
        except (RedisTrouble, ValueError) as error:
            return f"Its Redis does not answer ({error}), so what waits {stays}"
    owners = ", ".join(f"{owner}: {count:,}" for owner, count in sorted(drain.moved.items()))
    moved = counted(drain.moved.total(), "message")
    return f"{moved} in its Redis went to the owners{f' ({owners})' if owners else ''}."
