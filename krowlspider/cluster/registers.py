"""The register that a setting names: that of a Consul, or of a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.cluster.consul.agent import Agent
from krowlspider.cluster.consul.service import ConsulService
from krowlspider.cluster.local.client import LocalRegister

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from krowlspider.cluster.register.port import Register, Service
    from krowlspider.cluster.ring.ring import Member


def open_register(
    settings: BaseSettings, on_answer: Callable[[float], None] | None = None
) -> Register:
    """Return the register of KROWL_CONSUL; ``on_answer`` is called as by `Agent`."""
    url: str = settings["KROWL_CONSUL"]
    if url.startswith("unix:"):
        return LocalRegister(url)
    return Agent(url, settings["KROWL_CONSUL_TOKEN"] or None, on_answer=on_answer)


def service_in(register: Register, cluster: str, own: Member, ttl: int) -> Service | None:
    """Return the node as a service of Consul; None by another register."""
    return ConsulService(register, cluster, own, ttl) if isinstance(register, Agent) else None
