"""Keeps a node to its part of the ring: it fetches its own hosts and hands over all others.

When the ring changes, the order of these steps keeps every host with one node:

- The hand-over by the old ring stops.
- Links go by the new ring, and hosts of other nodes are no longer popped.
- The outbox messages and the hosts go to their new owners.
- When all of that is durable there, this node claims the new ring only.

The claims decide which hosts may be fetched meanwhile (`krowlspider.cluster.ring.claims`). A node
that joins or leaves a large crawl does so in steps, each a change of the ring.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Protocol

from krowlspider.cluster.membership import Membership, end, wait_for
from krowlspider.cluster.ring.claims import Claimant, ClusterView, RegisterReading
from krowlspider.cluster.ring.live_members import Steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from krowlspider.cluster.ring.ring import Claims, Weight

logger = logging.getLogger(__name__)

# Seconds between two checks of the lease, besides the checks at each change.
_LOOK = 1.0


class HandoverPort(Protocol):
    """Hands over what this node has."""

    def stop_handover(self) -> None:
        """Stop the hand-over before a new ring: hosts under way stay, unless they have arrived."""

    def ring_changed(self) -> None:
        """React to a change of domain owners, or of the domains that may be fetched."""

    def hang_up(self) -> None:
        """Close the connections of all requests in flight: other nodes may fetch their hosts."""

    async def hand_over(
        self, owner_of: Callable[[str], str | None], ranges: Sequence[tuple[int, int]]
    ) -> None:
        """Return when all that other nodes own is durable there, requests in flight included.

        ``owner_of`` decides: it returns the owner of a domain, None for what stays here. ``ranges``
        limits the search to the positions of others, as returned by `Ring.ranges_of_others`.
        """


class OwnershipController:
    """Decides which domains one node may fetch and what it hands over. Start it with `run`.

    Requests in flight may go on for ``grace`` seconds without a lease. While ``is_stopping``
    returns true, everything stays where it is, because the nodes that are gone will come back.
    """

    def __init__(
        self,
        membership: Membership,
        *,
        grace: float,
        is_stopping: Callable[[], Awaitable[bool]],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._membership = membership
        self._clock = clock
        self._grace = grace
        self._is_stopping = is_stopping
        self._claimant = Claimant(membership.own.id)
        self._steps = Steps(membership.own.weight)
        # The current view of the cluster, None before the first one, and an event set by that one.
        self.view: ClusterView | None = None
        self.known = asyncio.Event()
        # Whether this node hands its domains over in steps, and whether only the last one is left.
        self.shrinking = self.at_last_step = False
        self.leaving = False
        # The register's epoch from which all nodes can read that this node leaves.
        self.left_at: int | None = None
        # Whether the last check found a valid lease.
        self._had_lease = False
        # The checksum of the ring by which nothing is left to hand over here.
        self._handed_over_by: str | None = None
        self._last: RegisterReading | None = None
        # The checksum of the ring that was logged last, and whether all agreed on it.
        self._told: tuple[str, bool] | None = None
        self._changed = asyncio.Event()
        self._lease_changed = asyncio.Event()
        self._handing_over: asyncio.Task[None] | None = None
        self._publishing: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """React to a change of the members, the lease, or what is left to hand over."""
        self._changed.set()
        self._lease_changed.set()

    @property
    def has_lease(self) -> bool:
        return self._clock() < self._membership.good_until

    @property
    def agreed(self) -> bool:
        """Return whether all nodes live, and each has exactly what the ring gives it."""
        return self.settled and self.view is not None and self.view.agreed

    @property
    def settled(self) -> bool:
        """Return whether each live node has exactly what the ring gives it."""
        view = self.view
        return (
            view is not None
            and view.in_force == (view.ring,)
            and view.settled
            and self._has_handed_over(view)
        )

    @property
    def is_gone(self) -> bool:
        """Return whether this leaving node has nothing left, and all others know that it leaves."""
        view = self.view
        return (
            view is not None and view.leaving and not view.unaware and self._has_handed_over(view)
        )

    def _has_handed_over(self, view: ClusterView) -> bool:
        return self.has_lease and view.ring.checksum == self._handed_over_by

    def grow(self, urls: int) -> None:
        """Come to the full weight in steps. All nodes together have ``urls`` URLs."""
        self._steps = Steps.among(self._steps.target, urls)

    def begin_small(self, others: Weight) -> None:
        """Join with few domains first, because this node has none."""
        self._weigh(self._steps.after(0, others))

    def shrink(self, urls: int) -> None:
        """Hand the domains over in steps, while the remaining ones are fetched here.

        `at_last_step` is true when only the last step is left, which is `leave`. All nodes together
        have ``urls`` URLs.
        """
        self._steps = Steps.among(0, urls)
        self.shrinking = True
        view = self.view
        if view is None or self._steps.after(*self._weights(view)) == 0:
            self.at_last_step = True
        self._changed.set()

    def leave(self) -> None:
        """Start to give up everything. `is_gone` is true when other nodes have it."""
        self.leaving = True
        self._changed.set()

    def owner_of(self, domain: str) -> str | None:
        """Return the node that owns a domain, None for this node."""
        assert self.view is not None
        owner = self.view.ring.owner(domain)
        return None if owner == self._membership.own.id else owner

    def _taker_of(self, domain: str) -> str | None:
        """Return the live node that owns a domain; None for a dead one, which takes nothing."""
        assert self.view is not None
        owner = self.owner_of(domain)
        return None if owner in self.view.reading.dead else owner

    async def run(self, port: HandoverPort) -> None:
        """Run until cancelled. What the hand-over raises comes out."""
        self._port = port
        guard = asyncio.create_task(self._guard())
        try:
            while True:
                self._changed.clear()
                await self._check()
                if guard.done():
                    guard.result()
                await wait_for(self._changed, _LOOK)
        finally:
            await _end(guard)
            await self._stop_tasks()

    async def _guard(self) -> None:
        """Hang up in time, even while `_check` waits for something."""
        at = inf
        while True:
            self._lease_changed.clear()
            now, good_until = self._clock(), self._membership.good_until
            if now >= at:
                # Hang up even if the lease is valid again: this process was frozen meanwhile.
                at = inf
                self._port.hang_up()
            if now < good_until:
                at = good_until + self._grace
            elif at < inf:
                at = min(at, now + self._grace)
            await wait_for(self._lease_changed, min(_LOOK, at - now))

    async def _check(self) -> None:
        if self._handing_over is not None and self._handing_over.done():
            self._handing_over.result()
        if not self.has_lease:
            if self._had_lease:
                await self._lose_lease()
            return
        self._had_lease = True
        if self._begins_anew(self._read()):
            if self.view is not None and await self._is_stopping():
                return
            await _end(self._handing_over)
            self._port.stop_handover()
            self._handing_over = self._handed_over_by = None
        self._update()
        if self._handing_over is None and self.view is not None:
            self._handing_over = asyncio.create_task(self._hand_over(self.view))
        if self._publishing is None:
            self._publish()
        self._tell()

    def _tell(self) -> None:
        """Log a new ring, and when all nodes have agreed on it."""
        view = self.view
        if view is None or view.leaving:
            return
        last, self._told = self._told, (view.ring.checksum, self.agreed)
        count = len(view.ring.weights)
        if last is None or last[0] != view.ring.checksum:
            logger.info(
                "Nodes in the ring: %d; this one owns %.0f %% of the domains; hosts that change"
                " their node wait until they are handed over",
                *(count, 100 * view.ring.share(view.own)),
            )
        if self._told[1] and last != self._told:
            logger.info("All nodes in the ring agree (%d): no host waits", count)

    def _read(self) -> RegisterReading:
        return RegisterReading.of(self._membership.epoch, self._membership.members)

    def _begins_anew(self, reading: RegisterReading) -> bool:
        """Return whether the hand-over begins anew: by a new ring, or for other live takers."""
        view = self.view
        return (
            view is None
            or reading.ring(view.own) != view.ring
            or (view.leaving and reading.dead != view.reading.dead)
        )

    def _update(self) -> None:
        now, last = self._read(), self._last
        if self._publishing is not None and self._publishing.done():
            self._publishing.result()
            self._publishing, self._last = None, now
            self._claimant.confirm(now)
        # A new view has no cached answers, so make one only when something has changed.
        elif last is None or now != replace(last, epoch=now.epoch):
            self._last = now
            self._claimant.update(now)
        view = self._claimant.view
        if self.left_at is None and view is not None and view.leaving:
            self.left_at = now.epoch
        self._apply()

    async def _lose_lease(self) -> None:
        """Stop fetching, because other nodes may take over soon. Hosts under way stay here."""
        self._had_lease = False
        await self._stop_tasks()
        self._publishing = self._handing_over = self._handed_over_by = None
        self._last = self.left_at = None
        self._claimant.give_up()
        self._apply()

    async def _stop_tasks(self) -> None:
        await _end(self._publishing)
        await _end(self._handing_over)
        self._port.stop_handover()

    def _apply(self) -> None:
        view = self._claimant.view
        if view is not self.view:
            self.view = view
            self.known.set()
            self._port.ring_changed()

    async def _hand_over(self, view: ClusterView) -> None:
        owner_of = self._taker_of if view.leaving else self.owner_of
        await self._port.hand_over(owner_of, view.ring.ranges_of_others(view.own))
        self._handed_over_by = view.ring.checksum
        self._changed.set()

    def _publish(self) -> None:
        assert self.view is not None
        if self.leaving and not self.view.leaving:
            claims: Claims | None = self._claimant.leave()
        elif (claims := self._claimant.wanted(self._handed_over_by)) is not None:
            self._claimant.begin(claims)
        elif self._may_step(self.view):
            claims = self._step(self.view)
        if claims is not None:
            self._apply()
            self._publishing = asyncio.create_task(self._store(claims))

    def _may_step(self, view: ClusterView) -> bool:
        """Return whether the last step is over on all live nodes, and another one is left."""
        is_last = self.at_last_step or self._membership.own.weight == self._steps.target
        return not (is_last or view.leaving) and view.settled and self._has_handed_over(view)

    def _step(self, view: ClusterView) -> Claims | None:
        """Take the next weight. Return the claims to publish with it: the same; None if the next
        step is to leave."""
        weight = self._steps.next(*self._weights(view), self._clock())
        if not weight:
            self.at_last_step = True
            return None
        self._weigh(weight)
        self._claimant.begin(view.in_force)
        return view.in_force

    def _weights(self, view: ClusterView) -> tuple[Weight, Weight]:
        """Return the weights of this node and of all others."""
        others = sum(each for name, each in view.ring.weights if name != view.own)
        return self._membership.own.weight, others

    def _weigh(self, weight: Weight) -> None:
        self._membership.own = replace(self._membership.own, weight=weight)

    async def _store(self, claims: Claims) -> None:
        await self._membership.publish(claims, leaving=self.leaving)
        self._changed.set()


async def _end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end; raise its exception."""
    if task is not None:
        await end([task])
        if not task.cancelled():
            task.result()
