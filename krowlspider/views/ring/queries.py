"""Query a cluster without joining it, by KROWL_CONSUL or by KROWL_STATIC_NODES."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from krowlspider.cluster.allowance import pages_taken
from krowlspider.cluster.consul.agent import Agent, ConsulKeys
from krowlspider.cluster.consul.register import Register, check_forgettable, forget, read_register
from krowlspider.cluster.membership import ClusterError, UnansweredError, parse_ring
from krowlspider.cluster.ring.record import Counters, Record
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.signals import Signals
from krowlspider.cluster.transport.drain import Drain
from krowlspider.cluster.transport.redis_connection import RedisTrouble, redis_client, shown
from krowlspider.cluster.transport.redis_keys import INBOX_MAX, RedisBoard, RedisKeys
from krowlspider.errors import SettingsError
from krowlspider.frontier.admin.words import counted
from krowlspider.views.ring.rows import Row, may_be_silent, register_rows, static_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

# Seconds in which a node sends several heartbeats.
_HEARTBEATS = 3.0


class StaticQuery:
    """The members of KROWL_STATIC_NODES; the first member's Redis holds their shared state."""

    def __init__(self, cluster: str, members: list[Member], first: Redis) -> None:
        self._ring = Ring(members)
        self._members = members
        self._board = RedisBoard(first, cluster)
        self.keys = RedisKeys(first, cluster)

    async def nodes(self) -> tuple[dict[str, Any], list[Row]]:
        shown: Mapping[str, Counters] = {}
        # If this Redis does not answer, the row of the first member shows it.
        with suppress(UnansweredError):
            shown = await self._board.read()
        records = [Record(each, (self._ring,), shown.get(each.id, {})) for each in self._members]
        return {"ring": self._ring.checksum}, static_rows(records)

    async def owner(self, domain: str) -> dict[str, str | None]:
        owner = self._ring.owner(domain)
        return {"owner": owner, "fetcher": owner}

    async def forget(self, node: str, *, spider: str) -> str:
        raise ClusterError(
            "the members of KROWL_STATIC_NODES are all waited for: none can be forgotten"
        )


class ConsulQuery:
    """The nodes that are registered in Consul. Each method may raise UnansweredError."""

    def __init__(self, cluster: str, agent: Agent) -> None:
        self._cluster = cluster
        self._agent = agent
        self.keys = ConsulKeys(agent, cluster)

    async def register(self) -> Register:
        """:raises ClusterError: Consul knows no such cluster"""
        register = await read_register(self._agent, self._cluster)
        if register is None:
            raise ClusterError(
                f"Consul at {self._agent.url} knows no cluster {self._cluster!r}: is KROWL_CLUSTER"
                " that of its nodes?"
            )
        return register

    async def nodes(self) -> tuple[dict[str, Any], list[Row]]:
        """Return the state of the ring as a dict, and a row for each node."""
        register = await self.register()
        ring = register.ring
        head = {"epoch": register.epoch, "ring": ring.checksum if ring else None}
        return head, register_rows(register)

    async def owner(self, domain: str) -> dict[str, str | None]:
        """Return the ``owner`` of a domain, and its ``fetcher``: None during a hand-over."""
        register = await self.register()
        owner = register.ring.owner(domain) if register.ring else None
        return {"owner": owner, "fetcher": register.fetcher(domain)}

    async def forget(self, node: str, *, spider: str) -> str:
        """Move what waits in a dead node's Redis to the owners, then forget the node.

        Return what is saved of its work and what is not, as sentences.

        :raises ClusterError: the node is live, or not pending
        :raises UnansweredError: Consul, or the Redis of an owner, does not answer: the node is
            still waited for, and no message is lost
        """
        register = await self.register()
        check_forgettable(register, self._cluster, node)
        saved = await _drained(register, node, spider)
        await forget(self._agent, self._cluster, node)
        return (
            f"Node {node} is forgotten: nobody waits for it. {saved} What only its disk has is not"
            " fetched, unless the node is started again with its JOBDIR."
        )


async def _drained(register: Register, node: str, spider: str) -> str:
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
        drain = Drain(clients, ring.owner, INBOX_MAX)
        try:
            async with redis_client(url) as dead:
                await drain.run(dead, spider, node)
        except (RedisTrouble, ValueError) as error:
            return f"Its Redis does not answer ({error}), so what waits {stays}"
    owners = ", ".join(f"{owner}: {count:,}" for owner, count in sorted(drain.moved.items()))
    moved = counted(drain.moved.total(), "message")
    return f"{moved} in its Redis went to the owners{f' ({owners})' if owners else ''}."


ClusterQuery: TypeAlias = ConsulQuery | StaticQuery


async def look(query: ClusterQuery, settings: BaseSettings) -> tuple[dict[str, Any], list[Row]]:
    """Return the state of the cluster as a dict, and a row for each node.

    If the signal or the page budget cannot be read, the dict has the reason as "trouble". A node
    that seems to have sent no heartbeat for SILENT_AFTER seconds is looked at twice, as clocks
    differ: without a heartbeat in between, it is "silent".
    """
    head, rows = await query.nodes()
    if any(map(may_be_silent, rows)):
        await asyncio.sleep(_HEARTBEATS)
        before = {row["id"]: row for row in rows if may_be_silent(row)}
        head, rows = await query.nodes()
        for row in rows:
            if row["id"] in before and row["seconds_ago"] > before[row["id"]]["seconds_ago"]:
                row["state"] = "silent"
    head = {"cluster": settings["KROWL_CLUSTER"], **head}
    try:
        head["signal"] = str(await Signals(query.keys).read())
        if pages := settings.getint("KROWL_CLUSTER_PAGES"):
            head |= {"pages_taken": await pages_taken(query.keys), "pages": pages}
    except UnansweredError as error:
        head["trouble"] = str(error)
    return head, rows


@asynccontextmanager
async def open_query(settings: BaseSettings) -> AsyncIterator[ClusterQuery]:
    """Connect to the cluster that the settings name; disconnect at the end.

    :raises SettingsError: the settings name no cluster, or a wrong URL of a Redis
    :raises ClusterError: Consul knows no such cluster
    """
    cluster: str = settings["KROWL_CLUSTER"]
    if settings["KROWL_CONSUL"]:
        agent = Agent(settings["KROWL_CONSUL"], settings["KROWL_CONSUL_TOKEN"] or None)
        try:
            query = ConsulQuery(cluster, agent)
            await query.register()
            yield query
        finally:
            agent.close()
        return
    members = parse_ring(settings.getlist("KROWL_STATIC_NODES"))
    if not members:
        raise SettingsError(
            "no cluster: give -s KROWL_CONSUL=http://127.0.0.1:8500, or"
            ' -s KROWL_STATIC_NODES="a=redis://host:6379/0,b=..."'
        )
    try:
        client = redis_client(members[0].redis)
    except ValueError as error:
        raise SettingsError(f"KROWL_STATIC_NODES: {error}") from error
    async with client as first:
        yield StaticQuery(cluster, members, first)
