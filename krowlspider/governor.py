"""Has a node fetch what the ring gives it, and hand over what it does not, while members come and go.

The order of steps at a new ring keeps every host with one node: the hand-over under way ends, with the old ring; then
links go by the new one, and hosts that are not ours are popped no more; then what waits in the outbox goes to its new
owners, and the hosts to theirs; and when all of that is theirs durably, nothing is claimed here but by the new ring. What
may be fetched meanwhile is told by the claims (`krowlspider.cluster.claims`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Protocol

from krowlspider.cluster.claims import Claimant
from krowlspider.cluster.membership import reading
from krowlspider.cluster.ring import Member, Ring
from krowlspider.cluster.tasks import end

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.claims import Claims, Reading, View
    from krowlspider.cluster.membership import Membership

logger = logging.getLogger(__name__)

# Seconds between two looks at the lease, besides those at each change.
_LOOK = 1.0


class Household(Protocol):
    """What this node has, and how it is given away. ``owner_of`` says who owns a domain, None for us."""

    def stop_moving(self) -> None:
        """Hosts on their way stay, but those that have arrived; before anything is done by a new ring."""

    def ring_changed(self) -> None:
        """Whose a domain is, or whether it may be fetched, may be told otherwise now."""

    def hang_up(self) -> None:
        """End what is in transit: others may send to its hosts from now on."""

    async def move(self, owner_of: Callable[[str], str | None]) -> None:
        """Hand over all that is not ours, to the last request in transit; return when it is others' durably."""


class Governor:
    """Of one node. `run` it; ``view`` is what it goes by, None before the first. What is in transit may go on for
    ``patience`` seconds without a lease."""

    def __init__(
        self,
        membership: Membership,
        household: Household,
        clock: Callable[[], float] = time.monotonic,
        patience: float = inf,
    ):
        self._membership = membership
        self._patience = patience
        self._household = household
        self._clock = clock
        self._claimant = Claimant(membership.own.id)
        self.view: View | None = None
        # Whether the lease is good, and this node is on its way out.
        self.leased = False
        self.leaving = False
        # The register's epoch at which all can read that this node leaves.
        self.left_at: int | None = None
        # The checksum of the ring by which nothing is left here to hand over.
        self.moved: str | None = None
        self._last: Reading | None = None
        self._changed = asyncio.Event()
        self._lease_changed = asyncio.Event()
        # Set when there is a view.
        self.seen = asyncio.Event()
        self._moving: asyncio.Task[None] | None = None
        self._publishing: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """The members, the lease or what is left to hand over has changed."""
        self._changed.set()
        self._lease_changed.set()

    def may_fetch(self, domain: str) -> bool:
        """Whether a host of the domain may be popped, while the node `holds` its lease."""
        return self.view is not None and self.view.may_fetch(domain)

    @property
    def holds(self) -> bool:
        """Whether the lease is good, by the clock."""
        return self._clock() < self._membership.good_until

    @property
    def settled(self) -> bool:
        """Whether this node has all that the ring gives it, and nothing else, as far as it knows."""
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
        """Whether this node, which is leaving, has nothing left, and all others know that it goes."""
        view = self.view
        return (
            self.holds
            and view is not None
            and view.leaving
            and view.ring.checksum == self.moved
            and not view.unaware
        )

    def leave(self) -> None:
        """Give up all that this node has; it is `gone` when others have it."""
        self.leaving = True
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled. What handing over raises comes out."""
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
            self._household.stop_moving()

    async def _guard(self) -> None:
        """Hang up in time, whatever `_look` waits for."""
        at = inf
        while True:
            self._lease_changed.clear()
            now, good_until = self._clock(), self._membership.good_until
            if now >= at:
                # Though the lease may be good again: this process was frozen.
                at = inf
                self._household.hang_up()
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
            self._household.stop_moving()
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
        # A new view is asked of each host anew, so there is one for what is new only.
        elif self._last is None or _content(now) != _content(self._last):
            self._last = now
            self._claimant.see(now)
        view = self._claimant.view
        if self.left_at is None and view is not None and view.leaving:
            self.left_at = now.epoch
        self._apply()

    async def _fenced(self) -> None:
        """Others may take over soon: nothing is fetched, and what is on its way stays."""
        self.leased = False
        await _end(self._publishing)
        await _end(self._moving)
        self._household.stop_moving()
        self._publishing = self._moving = self.moved = self._last = self.left_at = None
        self._claimant.give_up()
        self._apply()

    def _apply(self) -> None:
        view = self._claimant.view
        if view is not self.view:
            self.view = view
            self.seen.set()
            self._household.ring_changed()

    async def _move(self, ring: Ring) -> None:
        await self._household.move(self.owner_of)
        self.moved = ring.checksum
        self._changed.set()

    def owner_of(self, domain: str) -> str | None:
        """The node that owns a domain, None for this one."""
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
    """Cancel a task, and wait for its end. What it has failed with comes out."""
    if task is not None:
        await end([task])
        if not task.cancelled():
            task.result()
