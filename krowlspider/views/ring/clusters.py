"""Query a cluster without joining it, by KROWL_CONSUL or by KROWL_STATIC_NODES."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.consul.calls import Agent
from krowlspider.cluster.consul.register import forget, read_register
from krowlspider.cluster.membership import ClusterError, UnansweredError, parse_ring
from krowlspider.cluster.ring.record import Record
from krowlspider.cluster.ring.ring import Ring
from krowlspider.cluster.signals import (
    ConsulBudget,
    ConsulSignals,
    RedisBoard,
    RedisBudget,
    RedisSignals,
)
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.errors import SettingsError
from krowlspider.views.ring.rows import register_rows, static_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.consul.register import Register
    from krowlspider.cluster.ring.record import Counters
    from krowlspider.cluster.ring.ring import Member
    from krowlspider.cluster.signals import Budget, Signals
    from krowlspider.views.ring.rows import Row


class Cluster(ABC):
    """A cluster by its ``name``.

    ``signals`` accesses its signal and ``budget`` its page budget. ``pages`` is the size of this
    budget, KROWL_CLUSTER_PAGES; 0 means no limit. Each method may raise UnansweredError, if a
    server does not answer.
    """

    signals: Signals
    budget: Budget

    def __init__(self, settings: BaseSettings) -> None:
        self.name: str = settings["KROWL_CLUSTER"]
        self.pages = settings.getint("KROWL_CLUSTER_PAGES")

    async def look(self) -> tuple[dict[str, Any], list[Row]]:
        """Return the state of the cluster as a dict, and a row for each node.

        If the signal or the budget cannot be read, the dict has the reason as "trouble".
        """
        head: dict[str, Any] = {"cluster": self.name}
        register, rows = await self._nodes()
        head |= register
        try:
            head["signal"] = str(await self.signals.look())
            if self.pages:
                head |= {"pages_taken": await self.budget.taken(), "pages": self.pages}
        except UnansweredError as error:
            head["trouble"] = str(error)
        return head, rows

    @abstractmethod
    async def _nodes(self) -> tuple[dict[str, Any], list[Row]]: ...

    @abstractmethod
    async def owner(self, domain: str) -> dict[str, str | None]:
        """Return the node ids of the ``owner`` and of the ``fetcher`` of a domain.

        The owner is None in a cluster without nodes. The fetcher is the node that may fetch the
        domain now; it is None during a hand-over.
        """

    @abstractmethod
    async def forget(self, node: str) -> None:
        """Remove a node from the pending nodes, so that the cluster waits for it no longer.

        :raises ClusterError: the node is not pending, or is live
        """


class _RingCluster(Cluster):
    """The members of KROWL_STATIC_NODES; the first member's Redis holds their shared state."""

    def __init__(self, settings: BaseSettings, members: list[Member], first: Redis) -> None:
        super().__init__(settings)
        self._ring = Ring(members)
        self._members = members
        self._board = RedisBoard(first, self.name)
        self.signals = RedisSignals(first, self.name)
        self.budget = RedisBudget(first, self.name, self.pages)

    async def _nodes(self) -> tuple[dict[str, Any], list[Row]]:
        said: Mapping[str, Counters] = {}
        # If this Redis does not answer, the row of the first member shows it.
        with suppress(UnansweredError):
            said = await self._board.read()
        records = [Record(each, (self._ring,), said.get(each.id, {})) for each in self._members]
        return {"ring": self._ring.checksum}, static_rows(records)

    async def owner(self, domain: str) -> dict[str, str | None]:
        owner = self._ring.owner(domain)
        return {"owner": owner, "fetcher": owner}

    async def forget(self, node: str) -> None:
        raise ClusterError(
            "the members of KROWL_STATIC_NODES are all waited for: none can be forgotten"
        )


class _ConsulCluster(Cluster):
    def __init__(self, settings: BaseSettings, agent: Agent) -> None:
        super().__init__(settings)
        self._agent = agent
        self.signals = ConsulSignals(agent, self.name)
        self.budget = ConsulBudget(agent, self.name, self.pages)

    async def register(self) -> Register:
        """Read the register of the cluster from Consul.

        :raises ClusterError: Consul knows no such cluster
        """
        register = await read_register(self._agent, self.name)
        if register is None:
            raise ClusterError(
                f"Consul at {self._agent.url} knows no cluster {self.name!r}: is KROWL_CLUSTER that of its nodes?"
            )
        return register

    async def _nodes(self) -> tuple[dict[str, Any], list[Row]]:
        register = await self.register()
        ring = register.ring
        head = {"epoch": register.epoch, "ring": ring.checksum if ring else None}
        return head, register_rows(register)

    async def owner(self, domain: str) -> dict[str, str | None]:
        register = await self.register()
        owner = register.ring.owner(domain) if register.ring else None
        return {"owner": owner, "fetcher": register.fetcher(domain)}

    async def forget(self, node: str) -> None:
        await forget(self._agent, self.name, node)


@asynccontextmanager
async def cluster_of(settings: BaseSettings) -> AsyncIterator[Cluster]:
    """Open the cluster that the settings name, and close its connection at the end.

    :raises SettingsError: the settings name no cluster, or a wrong URL of a Redis
    :raises ClusterError: Consul knows no such cluster
    """
    if settings["KROWL_CONSUL"]:
        agent = Agent(settings["KROWL_CONSUL"], settings["KROWL_CONSUL_TOKEN"] or None)
        try:
            cluster = _ConsulCluster(settings, agent)
            await cluster.register()
            yield cluster
        finally:
            agent.close()
        return
    members = parse_ring(settings.getlist("KROWL_STATIC_NODES"))
    if not members:
        raise SettingsError(
            'no cluster: give -s KROWL_CONSUL=http://127.0.0.1:8500, or -s KROWL_STATIC_NODES="a=redis://host:6379/0,b=..."'
        )
    try:
        client = redis_client(members[0].redis)
    except ValueError as error:
        raise SettingsError(f"KROWL_STATIC_NODES: {error}") from error
    async with client as first:
        yield _RingCluster(settings, members, first)
