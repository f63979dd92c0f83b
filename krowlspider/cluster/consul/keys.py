"""The keys that all nodes of a cluster share, in Consul."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from krowlspider.cluster.consul.agent import step
from krowlspider.cluster.membership import UnansweredError

if TYPE_CHECKING:
    from krowlspider.cluster.consul.agent import Agent

# Tries to change a number that other nodes change at the same time.
_TRIES = 20
# Most seconds to wait before the next try, times the number of tries.
_WAIT = 0.01


class ConsulKeys:
    """`SharedKeys` below ``krowlspider/CLUSTER/``."""

    def __init__(self, agent: Agent, cluster: str) -> None:
        self._agent = agent
        self._root = f"krowlspider/{cluster}/"

    async def get(self, name: str) -> bytes | None:
        entry = await self._agent.get(self._root + name)
        return None if entry is None else entry.value

    async def put(self, name: str, value: str) -> None:
        await self._agent.call(lambda consul: consul.kv.put(self._root + name, value))

    async def delete(self, name: str) -> None:
        await self._agent.call(lambda consul: consul.kv.delete(self._root + name))

    async def add(self, name: str, number: int, limit: int) -> int:
        key = self._root + name
        for tries in range(1, _TRIES + 1):
            entry = await self._agent.get(key)
            try:
                before = int(entry.value) if entry else 0
            except ValueError as error:
                raise UnansweredError(f"Consul's key {key} holds no number") from error
            change = max(-before, min(number, max(0, limit - before)))
            cas = step("cas", key, str(before + change), Index=entry.modified if entry else 0)
            if change == 0 or await self._agent.change(cas):
                return change
            # A random wait: nodes that lost to the same one do not collide again.
            await asyncio.sleep(random.uniform(0, _WAIT * tries))
        raise UnansweredError(f"Consul's key {key} changes too fast")
