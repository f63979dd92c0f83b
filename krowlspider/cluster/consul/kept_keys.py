"""Keys of the whole cluster that its nodes bring back to a register that has lost its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.cluster.allowance import PAGES
from krowlspider.cluster.consul.agent import step
from krowlspider.cluster.signals import SIGNAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krowlspider.cluster.consul.agent import Agent
    from krowlspider.cluster.ring.live_members import RegisterEntry


class KeptKeys:
    """The signal of the cluster and its taken pages; ``known`` has them as last read."""

    def __init__(self, root: str) -> None:
        self.keys = (f"{root}/{SIGNAL}", f"{root}/{PAGES}")
        self.known: Mapping[str, bytes] = {}

    def update(self, entries: Iterable[RegisterEntry]) -> None:
        self.known = {entry.key: entry.value for entry in entries if entry.key in self.keys}


async def restore(agent: Agent, lost: Mapping[str, bytes]) -> None:
    """Write keys with their values, except those that exist.

    :raises UnansweredError: they may be written or not
    """
    for key, value in lost.items():
        # Refused if the key exists.
        await agent.change(step("cas", key, value, Index=0))
