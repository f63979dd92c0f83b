"""How a node leaves a cluster with Consul: it hands everything over that other nodes can take."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from krowlspider.cluster.controller import OwnershipController
    from krowlspider.cluster.register.membership import RegisteredMembership
    from krowlspider.cluster.ring.record import Record
    from krowlspider.crawl.nodes.handover import CrawlPort

logger = logging.getLogger(__name__)

# Seconds to wait for messages still under way when the other nodes know that this node leaves.
_UNDER_WAY = 3.0
# Seconds between two checks whether everything is handed over.
_LOOK = 0.2
# Seconds of the time limit that are left for the last step.
_LAST_STEP = 60.0
# Seconds to wait for a dead node to return. Just after an outage of Consul, all nodes seem dead.
_RETURN = 15.0


def urls_of(records: Iterable[Record]) -> int:
    """Return how many URLs nodes have, queued or done, by their heartbeats."""
    counted = (record.counters.get(name, 0) for record in records for name in ("queued", "done"))
    return int(sum(counted))


class Leaving:
    """How this node leaves the cluster, within ``time_limit`` seconds from the first call. The last
    step has 60 of them, or as many after the last request in flight.

    ``is_drained``: other nodes have everything that was here, and know that this node leaves.
    ``not_handed_over`` counts the URLs that stay here although other nodes were there to take them.
    """

    def __init__(
        self,
        membership: RegisteredMembership,
        controller: OwnershipController,
        crawl: CrawlPort,
        is_inbox_empty: Callable[[], Awaitable[bool]],
        time_limit: float,
    ) -> None:
        self._membership = membership
        self._controller = controller
        self._crawl = crawl
        self._is_inbox_empty = is_inbox_empty
        self._time_limit = time_limit
        self._end = 0.0
        # The dead nodes, and when this set changed last.
        self._dead: frozenset[str] = frozenset()
        self._dead_since = 0.0
        self.is_drained = False
        self.not_handed_over = 0

    @property
    def others(self) -> list[Record]:
        """The other nodes that live."""
        own, members = self._membership.own.id, self._membership.members
        return [each for node, each in members.items() if node != own and not each.dead]

    @property
    def _has_takers(self) -> bool:
        own, members = self._membership.own.id, self._membership.members
        staying = [r for node, r in members.items() if node != own and not r.gives_away]
        return any(not (record.dead and self._has_dead) for record in staying)

    @property
    def _has_dead(self) -> bool:
        return bool(self._dead) and monotonic() >= self._dead_since + _RETURN

    async def _wait(self) -> None:
        await asyncio.sleep(_LOOK)
        members = self._membership.members.items()
        if (dead := frozenset(node for node, record in members if record.dead)) != self._dead:
            self._dead, self._dead_since = dead, monotonic()

    async def shrink(self) -> None:
        """Hand the domains over in steps, all but those of the last step.

        If the crawl goes on, a domain is fetched here until its step comes.
        """
        if not (self._time_limit and self._has_takers):
            return
        self._end = self._end or monotonic() + self._time_limit
        if self._time_limit <= _LAST_STEP:
            return
        controller = self._controller
        controller.shrink(urls_of(self._membership.members.values()))
        if not controller.at_last_step:
            what = counted(self._crawl.left, "URL")
            logger.info("Leaving the cluster in steps: handing over %s", what)
        # A step would wait for a dead node; the last one does not.
        while not controller.at_last_step and self._has_takers and not self._has_dead:
            if monotonic() >= self._end - _LAST_STEP:
                return
            await self._wait()

    async def drain(self) -> None:
        """Hand over everything, if there are nodes to take it."""
        if not (self._time_limit and self._has_takers):
            return
        await self._crawl.commit()
        if not self._controller.shrinking:
            await self.shrink()
        logger.info("Leaving the cluster: handing over %s", counted(self._crawl.left, "URL"))
        # Since the stop, requests in flight may have taken the time of the last step.
        last = min(self._time_limit, _LAST_STEP)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._end - monotonic(), last)):
                await self._drain()
        left = self._crawl.left + self._crawl.stays
        self.not_handed_over = left if self._has_takers else 0
        if left:
            logger.warning(
                "Not handed over: %s; what is left waits in the job folder for the next start of"
                " node %s",
                *(counted(left, "URL"), self._membership.own.id),
            )

    async def _drain(self) -> None:
        """Return when nothing is left here, or no live node is there to take what is left."""
        self._controller.leave()
        gone_since: float | None = None
        while self._has_takers:
            await self._wait()
            rests = not self._crawl.left or self._has_dead
            if not (self._is_gone() and rests and await self._is_inbox_empty()):
                gone_since = None
            elif gone_since is None:
                gone_since = monotonic()
            elif monotonic() >= gone_since + _UNDER_WAY:
                self.is_drained = True
                return

    def _is_gone(self) -> bool:
        """Return whether nothing is left here and all others use a ring without this node."""
        since = self._controller.left_at
        return (
            self._controller.is_gone
            and since is not None
            and all(record.counters.get("epoch", 0) >= since for record in self.others)
        )
