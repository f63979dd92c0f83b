"""The nodes with work that may be on their disks: each has a key that outlasts its lease.

A node writes its key in the transaction that makes it a member, and deletes it when it has nothing
left. The crawl is not over while one is not live (`krowlspider.cluster.ring.termination`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.port import step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krowlspider.cluster.register.port import Register, Step
    from krowlspider.cluster.ring.live_members import RegisterEntry
    from krowlspider.cluster.ring.ring import Member

# The part of a cluster's register in which their keys are.
PENDING = "crew"


class NodeInfo(msgspec.Struct, frozen=True):
    """Where a pending node has its inbox, and where a person finds it.

    ``stopped``: it has ended as it was told, and what it has waits for its next start.
    """

    redis: str = ""
    address: str = ""
    stopped: bool = False

    @property
    def state(self) -> str:
        """How it ended if it is not live."""
        return "stopped" if self.stopped else "dead"

    @classmethod
    def loads(cls, text: bytes) -> NodeInfo:
        """Return what a key says; empty if it cannot be read, as the id is enough to wait for."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (ValueError, RecursionError):
            return cls()


class PendingNodes:
    """The pending nodes of the cluster below ``root``.

    ``known`` has their keys' values by node id, as last read. ``join_steps`` belong into the
    transaction that makes this node a member.
    """

    def __init__(self, register: Register, root: str, own: Member) -> None:
        self.prefix = f"{root}/{PENDING}/"
        self._register = register
        self._own = own.id
        self._info = NodeInfo(own.redis, own.address)
        info = msgspec.json.encode(self._info)
        self.known: Mapping[str, bytes] = {own.id: info}
        self.join_steps: list[Step] = [step("set", self.prefix + own.id, info)]

    def update(self, entries: Iterable[RegisterEntry]) -> None:
        self.known = {entry.node: entry.value for entry in entries}

    def others(self) -> dict[str, bytes]:
        """Return the keys of the other pending nodes, and their values, as last read."""
        return {self.prefix + node: info for node, info in self.known.items() if node != self._own}

    async def note_stop(self, check_lease: Step) -> None:
        """Note that this node ends as it was told, if it is still pending.

        :raises UnansweredError: it may be noted or not
        """
        if self.join_steps:
            info = msgspec.json.encode(msgspec.structs.replace(self._info, stopped=True))
            await self._register.change(check_lease, step("set", self.prefix + self._own, info))

    async def dismiss(self, check_lease: Step) -> None:
        """Remove this node, so that nobody waits for it.

        ``check_lease`` fails without the lease, so that no later lease can have put the node back.

        :raises UnansweredError: it may be removed or not
        """
        if not await self._register.change(check_lease, step("delete", self.prefix + self._own)):
            raise UnansweredError(f"node {self._own} has no lease, so it stays a pending node")
        self.join_steps = []
