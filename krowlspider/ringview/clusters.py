"""A cluster as commands ask it, without a place in it: by KROWL_CONSUL, or by KROWL_RING."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.consulcalls import Agent
from krowlspider.cluster.membership import ClusterError, Record, UnansweredError, parse_ring
from krowlspider.cluster.redisio import redis_client
from krowlspider.cluster.register import forget, read_register
from krowlspider.cluster.ring import Ring
from krowlspider.cluster.signals import (
    ConsulBudget,
    ConsulSignals,
    RedisBoard,
    RedisBudget,
    RedisSignals,
)
from krowlspider.errors import SettingsError
from krowlspider.ringview.rows import register_rows, static_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.membership import Counters
    from krowlspider.cluster.register import Register
    from krowlspider.cluster.ring import Member
    from krowlspider.cluster.signals import Budget, Signals
    from krowlspider.ringview.rows import Row


class Cluster(ABC):
    """Its ``name``, and where its signal and its ``budget`` of ``pages`` are kept. All calls raise UnansweredError."""

    signals: Signals
    budget: Budget

    def __init__(self, settings: BaseSettings) -> None:
        self.name: str = settings["KROWL_CLUSTER"]
        self.pages = settings.getint("KROWL_CLUSTER_PAGES")

    async def look(self) -> tuple[dict[str, Any], list[Row]]:
        """What is so for all, and a row for each node."""
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
        """The ``owner`` of a domain, None in a cluster without nodes, and the ``fetcher``, who may fetch it now; None
        while it is handed over."""

    @abstractmethod
    async def forget(self, node: str) -> None:
        """:raises ClusterError: the node is not one that is waited for, or is live"""


class _RingCluster(Cluster):
    """The members of KROWL_RING; what is for all of them is in the first one's Redis."""

    def __init__(self, settings: BaseSettings, members: list[Member], first: Redis) -> None:
        super().__init__(settings)
        self._ring = Ring(members)
        self._members = members
        self._board = RedisBoard(first, self.name)
        self.signals = RedisSignals(first, self.name)
        self.budget = RedisBudget(first, self.name, self.pages)

    async def _nodes(self) -> tuple[dict[str, Any], list[Row]]:
        said: Mapping[str, Counters] = {}
        # That it does not answer is told in the first member's row.
        with suppress(UnansweredError):
            said = await self._board.read()
        records = [Record(each, (self._ring,), said.get(each.id, {})) for each in self._members]
        return {"ring": self._ring.checksum}, static_rows(records)

    async def owner(self, domain: str) -> dict[str, str | None]:
        owner = self._ring.owner(domain)
        return {"owner": owner, "fetcher": owner}

    async def forget(self, node: str) -> None:
        raise ClusterError("the members of KROWL_RING are all waited for: none can be forgotten")


class _ConsulCluster(Cluster):
    def __init__(self, settings: BaseSettings, agent: Agent) -> None:
        super().__init__(settings)
        self._agent = agent
        self.signals = ConsulSignals(agent, self.name)
        self.budget = ConsulBudget(agent, self.name, self.pages)

    async def register(self) -> Register:
        """:raises ClusterError: Consul knows no such cluster"""
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
    """The one that the settings name.

    :raises SettingsError: they name none
    :raises ClusterError: there is none
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
    members = parse_ring(settings.getlist("KROWL_RING"))
    if not members:
        raise SettingsError(
            'no cluster: give -s KROWL_CONSUL=http://127.0.0.1:8500, or -s KROWL_RING="a=redis://host:6379/0,b=..."'
        )
    try:
        client = redis_client(members[0].redis)
    except ValueError as error:
        raise SettingsError(f"KROWL_RING: {error}") from error
    async with client as first:
        yield _RingCluster(settings, members, first)
