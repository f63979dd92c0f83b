"""Who may have work on its disk, live or not: a key of its own that outlasts the node's lease.

It is written with the lease, in one transaction, and deleted by who has nothing left, so that no member is without one.
A crawl is not over while one of the crew is away (`quiet`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from krowlspider.cluster.consul.calls import Agent, SessionGoneError, Step, coded
from krowlspider.cluster.membership import UnansweredError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from krowlspider.cluster.ring.census import Entry
    from krowlspider.cluster.ring.ring import Member


class NodeInfo(msgspec.Struct, frozen=True):
    """Where a node of the crew has its inbox, where a person finds it, and when its process began, in seconds since 1970."""

    redis: str = ""
    address: str = ""
    time: float = 0


class PendingNodes:
    """Of the cluster below ``root``; ``known`` has what each key said when they were read last, by id."""

    def __init__(
        self, agent: Agent, root: str, own: Member, wall: Callable[[], float] = time.time
    ) -> None:
        self.prefix = f"{root}/crew/"
        self._agent = agent
        self._own = own.id
        self._note = msgspec.json.encode(NodeInfo(own.redis, own.address, round(wall())))
        self.known: Mapping[str, bytes] = {own.id: self._note}
        self._dismissed = False

    def steps(self) -> list[Step]:
        """What a transaction does besides that makes this node a member."""
        if self._dismissed:
            return []
        return [{"Verb": "set", "Key": self.prefix + self._own, "Value": coded(self._note)}]

    def heard(self, entries: Iterable[Entry]) -> None:
        """All keys of the crew, as they have been read."""
        self.known = {entry.node: entry.value for entry in entries}

    async def restore(self) -> None:
        """Write again what a register has lost that lost all: those who are away cannot do it.

        :raises UnansweredError:
        """
        for node, note in self.known.items():
            if node != self._own:
                await self._put(node, note)

    async def _put(self, node: str, note: bytes) -> None:
        # 0: not over one that is there.
        await self._agent.call(lambda consul: consul.kv.put(self.prefix + node, note, cas=0))

    async def dismiss(self, in_hand: Step) -> None:
        """Take this node out; ``in_hand`` holds while the lease does, so that no later lease puts it in again.

        :raises UnansweredError: it may be in or not
        """
        delete: Step = {"Verb": "delete", "Key": self.prefix + self._own}
        try:
            if not await self._agent.change(in_hand, delete):
                raise UnansweredError(f"node {self._own} has no lease by which to leave the crew")
        except SessionGoneError as error:
            raise UnansweredError(str(error)) from error
        self._dismissed = True


def node_info_of(text: bytes) -> NodeInfo:
    """What a key of the crew says; empty where it cannot be read, as its id is enough to wait for."""
    try:
        return msgspec.json.decode(text, type=NodeInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NodeInfo()
