"""The heartbeats of a node, and the end of the crawl as found from those of all nodes."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from krowlspider.cluster.ring.termination import Heartbeat, TerminationDetector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from krowlspider.cluster.register.membership import RegisteredMembership
    from krowlspider.cluster.ring.record import Counters

logger = logging.getLogger(__name__)

# Seconds between two heartbeats. The end of a crawl is found after three of them.
BEAT = 1.0
# Most heartbeats after the end, so that other nodes learn of it and need not find it themselves.
_AFTER_THE_END = 5


class Heartbeats:
    """Sends a heartbeat every second, until the crawl is over on all nodes.

    ``is_idle`` returns whether nothing is left on this node, ``activity`` a number that grows with
    everything done here, ``figures`` other counters for the heartbeat.
    """

    def __init__(
        self,
        members: RegisteredMembership,
        *,
        is_idle: Callable[[], Awaitable[bool]],
        activity: Callable[[], int],
        figures: Callable[[], Counters],
    ):
        self._members = members
        # It tells apart the processes that have had this node's id.
        self._start = secrets.randbits(52)
        self._is_idle = is_idle
        self._activity = activity
        self._figures = figures
        self._detector = TerminationDetector()
        self._beat = 0
        # The `run_number` for which the crawl is over, 0 while it is not.
        self._over = 0
        # Set when the heartbeats of all nodes were read.
        self.heard = asyncio.Event()
        self._missing: tuple[str, ...] = ()
        # The last heartbeat of each node, when it was first seen, and its age at the last look, in
        # seconds of the event loop.
        self._heard: dict[str, tuple[Heartbeat | None, float]] = {}
        self._silences: dict[str, float] = {}
        # The last activity of each node, and when it was first seen.
        self._acted: dict[str, tuple[tuple[int, int] | None, float]] = {}
        self._inactive: dict[str, float] = {}

    def inactive(self, node: str) -> float:
        """Return for how many seconds a node has done nothing, as far as is known here."""
        return self._inactive.get(node, 0.0)

    def silence(self, node: str) -> float:
        """Return for how many seconds a node has sent no heartbeat."""
        return self._silences.get(node, 0.0)

    def _listen(self, now: float) -> None:
        for node, heartbeat in self._latest().items():
            if self._heard.get(node, (None, 0.0))[0] != heartbeat or node not in self._heard:
                self._heard[node] = heartbeat, now
            self._silences[node] = now - self._heard[node][1]
            activity = (heartbeat.start, heartbeat.activity) if heartbeat else None
            if node not in self._acted or self._acted[node][0] != activity:
                self._acted[node] = activity, now
            self._inactive[node] = now - self._acted[node][1]

    @property
    def over(self) -> bool:
        """Return whether no node has anything left to fetch."""
        return bool(self._over)

    async def run(self) -> None:
        """Send heartbeats; return when the crawl is over on all nodes.

        :raises ClusterError: another process conflicts with this node
        """
        while not self._over:
            await asyncio.sleep(BEAT)
            self._listen(asyncio.get_running_loop().time())
            # A node with something left does not look for the end.
            if await self._send():
                self._over = self._detector.update(self._latest(), self._members.pending_nodes)
            self._warn_of_missing(self._detector.waiting_for)
        for _ in range(_AFTER_THE_END):
            await self._send()
            if all(each and each.over for each in self._latest().values()):
                return
            await asyncio.sleep(BEAT)

    async def _send(self) -> bool:
        """Send a heartbeat; return whether nothing is left on this node."""
        heartbeat = await self._next()
        if await self._members.beat({**self._figures(), **heartbeat.counters()}):
            self.heard.set()
        return heartbeat.idle

    async def _next(self) -> Heartbeat:
        # Activity is read first and last: whatever moves between inbox and frontier meanwhile is
        # seen in one of them, or as activity.
        activity = self._activity()
        idle = await self._is_idle() and activity == self._activity()
        self._beat += 1
        return Heartbeat(self._start, self._beat, idle, activity, self._over)

    def _latest(self) -> dict[str, Heartbeat | None]:
        """Return the last heartbeats of the nodes that live or have work on their disks."""
        members, pending = self._members.members, self._members.pending_nodes
        return {
            node: Heartbeat.of(record.counters)
            for node, record in members.items()
            if not record.dead or node in pending
        }

    def _warn_of_missing(self, nodes: tuple[str, ...]) -> None:
        if nodes and nodes != self._missing:
            states = (f"{node} ({self._members.state(node)})" for node in nodes)
            logger.warning(
                "All URLs are done except those on the disks of nodes %s: start them again, or"
                " give them up with scrapy ring --forget NODE",
                ", ".join(states),
            )
        self._missing = nodes
