"""The node as a service of Consul, with a check. Only operators and their tools read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.transport.redis_connection import shown

if TYPE_CHECKING:
    from krowlspider.cluster.consul.agent import Agent
    from krowlspider.cluster.ring.ring import Member

# Time after which Consul removes the service of a node that has died.
_REMOVE_AFTER = "10m"


class ConsulService:
    """The service ``krowlspider-CLUSTER``, critical after ``ttl`` seconds without `renew`."""

    def __init__(self, agent: Agent, cluster: str, own: Member, ttl: int) -> None:
        self._agent = agent
        self._name = f"krowlspider-{cluster}"
        self._id = f"{self._name}-{own.id}"
        self._check = {"TTL": f"{ttl}s", "DeregisterCriticalServiceAfter": _REMOVE_AFTER}
        # Without the password: everybody who may list Consul's services sees it.
        redis = shown(own.redis)
        self._meta = {
            "node": own.id,
            "weight": str(own.weight),
            "redis": redis,
            "address": own.address,
        }
        # Where Prometheus finds this node: address and port of the metrics; and whether the
        # registered service has them.
        self._metrics: tuple[str | None, int | None] = (None, None)
        self._is_current = True

    def serve_metrics(self, host: str, port: int) -> None:
        """Have the next `renew` register the address of the metrics as that of the service."""
        self._metrics = host, port
        self._is_current = False

    async def renew(self) -> None:
        """Pass the check; register the service first if the agent does not know it as it is."""
        try:
            is_known = self._is_current and await self._pass()
        except UnansweredError:
            # By version, Consul answers 404 or 500 for a check that it does not know.
            is_known = False
        if not is_known:
            host, port = self._metrics
            self._is_current = True
            await self._agent.call(
                lambda consul: consul.agent.service.register(
                    self._name,
                    service_id=self._id,
                    address=host,
                    port=port,
                    check=self._check,
                    meta=self._meta,
                )
            )
            await self._pass()

    async def _pass(self) -> bool:
        check = f"service:{self._id}"
        return bool(await self._agent.call(lambda consul: consul.agent.check.ttl_pass(check)))

    async def remove(self) -> None:
        await self._agent.call(lambda consul: consul.agent.service.deregister(self._id))
