"""Keeps a node to its part of the ring: it fetches its own hosts and hands over all others.

When the ring changes, the order of these steps keeps every host with one node:

- The hand-over for the old ring ends.
- Links go by the new ring, and hosts of other nodes are no longer popped.
- The outbox messages and the hosts go to their new owners.
- When all of it is durable there, this node claims the new ring only.

The claims decide which hosts may be fetched meanwhile (`krowlspider.cluster.ring.claims`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Protocol

from krowlspider.cluster.membership import reading
from krowlspider.cluster.ring.claims import Claimant
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.tasks import end

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.membership import Membership
    from krowlspider.cluster.ring.claims import Claims, Reading, View

logger = logging.getLogger(__name__)

# Seconds between two checks of the lease, besides the checks at each change.
_LOOK = 1.0


class HandoverPort(Protocol):
    """Hands over what this node has.

    ``owner_of`` returns the owner of a domain, None for this node.
    """

    def stop_moving(self) -> None:
        """Stop the hand-over: hosts under way stay here, except those that have arrived.

        It is called before any step by a new ring.
        """

    def ring_changed(self) -> None:
        """React to a change of domain owners, or of the domains that may be fetched."""

    def hang_up(self) -> None:
        """Close the connections of all requests in flight.

        Other nodes may fetch from their hosts from now on.
        """

    async def move(self, owner_of: Callable[[str], str | None]) -> None:
        """Hand over everything of other nodes, including requests in flight.

        Return when all of it is durable at its new owners.
        """


class OwnershipController:
    """Decides which domains one node may fetch and what it hands over. Start it with `run`.

    ``view`` is the current view of the cluster, None before the first one. Requests in flight may
    go on for ``patience`` seconds without a lease.
    """

    def __init__(
        self,
        membership: Membership,
        handover: HandoverPort,
        clock: Callable[[], float] = time.monotonic,
        patience: float = inf,
    ):
        self._membership = membership
        self._patience = patience
        self._handover = handover
        self._clock = clock
        self._claimant = Claimant(membership.own.id)
        self.view: View | None = None
        # ``leased``: the last check found a valid lease. ``leaving``: this node is leaving the
        # cluster.
        self.leased = False
        self.leaving = False
        # The register's epoch from which all nodes can read that this node leaves.
        self.left_at: int | None = None
        # The checksum of the ring by which nothing is left to hand over here.
        self.moved: str | None = None
        self._last: Reading | None = None
        self._changed = asyncio.Event()
        self._lease_changed = asyncio.Event()
        # Set when there is a first view.
        self.seen = asyncio.Event()
        self._moving: asyncio.Task[None] | None = None
        self._publishing: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """React to a change of the members, the lease, or what is left to hand over."""
        self._changed.set()
        self._lease_changed.set()

    def may_fetch(self, domain: str) -> bool:
        """Return whether a host of the domain may be popped, as long as `holds` is true."""
        return self.view is not None and self.view.may_fetch(domain)

    @property
    def holds(self) -> bool:
        """Return whether the lease is valid at this moment."""
        return self._clock() < self._membership.good_until

    @property
    def settled(self) -> bool:
        """Return whether this node has exactly what the ring assigns to it, as far as it knows."""
        view = self.view
        return (
            self.holds
            and view is not None
            and view.ring.checksum == self.moved
            and view.held == (view.ring,)
            and not view.behind
        )

    @property
    def gone(self) -> bool:
        """Return whether this leaving node has nothing left, and all others know that it leaves."""
        view = self.view
        return (
            self.holds
            and view is not None
            and view.leaving
            and view.ring.checksum == self.moved
            and not view.unaware
        )

    def leave(self) -> None:
        """Start to give up everything this node has. `gone` is true when other nodes have it."""
        self.leaving = True
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled. An exception of the hand-over is raised here."""
        guard = asyncio.create_task(self._guard())
        try:
            while True:
                self._changed.clear()
                await self._look()
                if guard.done():
                    guard.result()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await self._changed.wait()
        finally:
            await _end(guard)
            await _end(self._publishing)
            await _end(self._moving)
            self._handover.stop_moving()

    async def _guard(self) -> None:
        """Hang up in time, even while `_look` waits for something."""
        at = inf
        while True:
            self._lease_changed.clear()
            now, good_until = self._clock(), self._membership.good_until
            if now >= at:
                # Hang up even if the lease is valid again: this process was frozen meanwhile.
                at = inf
                self._handover.hang_up()
            if now < good_until:
                at = good_until + self._patience
            elif at < inf:
                at = min(at, now + self._patience)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK, at - now)):
                    await self._lease_changed.wait()

    async def _look(self) -> None:
        if self._moving is not None and self._moving.done():
            self._moving.result()
        if not self.holds:
            if self.leased:
                await self._fenced()
            return
        self.leased = True
        if self._is_new_ring():
            await _end(self._moving)
            self._handover.stop_moving()
            self._moving = self.moved = None
        self._see()
        if self._moving is None and self.view is not None:
            self._moving = asyncio.create_task(self._move(self.view.ring))
        if self._publishing is None:
            self._publish()

    def _is_new_ring(self) -> bool:
        members = reading(self._membership).members or (Member(self._membership.own.id),)
        return self.view is None or Ring(members) != self.view.ring

    def _see(self) -> None:
        now = reading(self._membership)
        if self._publishing is not None and self._publishing.done():
            self._publishing.result()
            self._publishing, self._last = None, now
            self._claimant.confirm(now)
        # A new view discards all cached answers, so make one only when something has changed.
        elif self._last is None or _content(now) != _content(self._last):
            self._last = now
            self._claimant.see(now)
        view = self._claimant.view
        if self.left_at is None and view is not None and view.leaving:
            self.left_at = now.epoch
        self._apply()

    async def _fenced(self) -> None:
        """Stop fetching, because other nodes may take over soon. Hosts under way stay here."""
        self.leased = False
        await _end(self._publishing)
        await _end(self._moving)
        self._handover.stop_moving()
        self._publishing = self._moving = self.moved = self._last = self.left_at = None
        self._claimant.give_up()
        self._apply()

    def _apply(self) -> None:
        view = self._claimant.view
        if view is not self.view:
            self.view = view
            self.seen.set()
            self._handover.ring_changed()

    async def _move(self, ring: Ring) -> None:
        await self._handover.move(self.owner_of)
        self.moved = ring.checksum
        self._changed.set()

    def owner_of(self, domain: str) -> str | None:
        """Return the node that owns a domain, None for this node."""
        assert self.view is not None
        owner = self.view.owner(domain)
        return None if owner == self._membership.own.id else owner

    def _publish(self) -> None:
        assert self.view is not None
        if self.leaving and not self.view.leaving:
            claims: Claims | None = self._claimant.leave()
        elif (claims := self._claimant.wanted(self.moved)) is not None:
            self._claimant.begin(claims)
        if claims is not None:
            self._apply()
            self._publishing = asyncio.create_task(self._store(claims))

    async def _store(self, claims: Claims) -> None:
        await self._membership.publish(claims, leaving=self.leaving)
        self._changed.set()


def _content(now: Reading) -> tuple[object, object]:
    return now.members, now.claims


async def _end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end.

    If the task has failed, its exception is raised.
    """
    if task is not None:
        await end([task])
        if not task.cancelled():
            task.result()
