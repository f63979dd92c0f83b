"""The node as a service of Consul, with a check: for its operators, their tools and dashboards. Nothing here reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.cluster.consul.calls import Agent, SessionGoneError
from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.transport.redis_connection import shown

if TYPE_CHECKING:
    from krowlspider.cluster.ring.ring import Member

# After which Consul forgets the service of a node that has died.
_FORGET = "10m"


class Service:
    """``krowlspider-CLUSTER`` with the id ``krowlspider-CLUSTER-NODE``; critical after ``ttl`` seconds of silence."""

    def __init__(self, agent: Agent, cluster: str, own: Member, ttl: int) -> None:
        self._agent = agent
        self._name = f"krowlspider-{cluster}"
        self._id = f"{self._name}-{own.id}"
        self._check = {"TTL": f"{ttl}s", "DeregisterCriticalServiceAfter": _FORGET}
        # Everybody who may see Consul's services sees it: no password.
        redis = shown(own.redis)
        self._meta = {"weight": str(own.weight), "redis": redis, "address": own.address}

    async def passed(self) -> None:
        """The node lives; register it if the agent does not know it.

        :raises UnansweredError:
        """
        try:
            known = await self._agent.call(
                lambda consul: consul.agent.check.ttl_pass(f"service:{self._id}")
            )
        except (SessionGoneError, UnansweredError):
            # By version, Consul answers 404 or 500 for a check that it does not know.
            known = False
        if not known:
            await self._agent.call(
                lambda consul: consul.agent.service.register(
                    self._name, service_id=self._id, check=self._check, meta=self._meta
                )
            )
            await self._agent.call(
                lambda consul: consul.agent.check.ttl_pass(f"service:{self._id}")
            )

    async def gone(self) -> None:
        """:raises UnansweredError:"""
        await self._agent.call(lambda consul: consul.agent.service.deregister(self._id))
