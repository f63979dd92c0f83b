"""A node's lease: a session of the register that holds the key with the node's record.

Two margins separate a node that has lost touch from those that take over its domains. The node
stops fetching before its TTL is over, counted from the *start* of its last renewal. The others keep
a member without a session for one more TTL at least (`krowlspider.cluster.ring.live_members`).
Consul's own promise is not enough: a session ends immediately when an agent leaves or has lost its
data.

The key of a dead node stays, with its claims: its domains wait for it. It takes up these claims
again, so it hands over what it does not own any more before others fetch that.

A new node knows of no former members. So while the register may have lost some, nobody fetches for
one TTL. The key ``founded`` says that this time is over.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.register.port import step, unchanged
from krowlspider.cluster.ring.live_members import dead_record
from krowlspider.cluster.ring.record import BadRecordError, Claims, Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.cluster.register.pending_nodes import PendingNodes
    from krowlspider.cluster.register.port import Register, Step
    from krowlspider.cluster.register.seed import IdentitySeed
    from krowlspider.cluster.ring.live_members import RegisterEntry
    from krowlspider.cluster.ring.ring import Member

logger = logging.getLogger(__name__)

# Part of the TTL by which the lease ends early: clocks of two machines run at different speeds, and
# a deposed leader of Consul answers renewals for up to 2.5 s more.
_MARGIN = 1 / 5
# Renewals in a TTL: two may fail.
_RENEWALS = 3
# Consul ends a session at twice its TTL (structs.SessionTTLMultiplier); seconds on top of that.
_SLACK = 5.0
# Seconds between two looks at a key that another process holds.
_LOOK = 1.0


class Lease:
    """The lease of node ``own``, renewed for ``ttl`` seconds at a time.

    ``session`` holds the key, None if the key must be taken. ``confirmed``: a reading of the
    register has shown that. `take` writes ``own``, ``claims`` and ``leaving`` into the key.
    """

    def __init__(
        self,
        register: Register,
        root: str,
        own: Member,
        ttl: int,
        *,
        pending_nodes: PendingNodes,
        seed: IdentitySeed,
    ) -> None:
        self.key = f"{root}/nodes/{own.id}"
        self.beats_key = f"{root}/beats/{own.id}"
        self.session: str | None = None
        self.confirmed = False
        self.claims: Claims = ()
        self.leaving = False
        self._register = register
        self._founded_key = f"{root}/founded"
        self.own, self._full = own, own.weight
        self._ttl = ttl
        self._pending_nodes = pending_nodes
        self._seed = seed
        # Our sessions that may hold the key: the last one, and those whose call got no answer.
        self._sessions: set[str] = set()
        # The start of the last renewal that the register has confirmed.
        self._renewed = -inf
        # The lease begins no earlier; None once the register is known to be older than any lease.
        self._founding: float | None = None

    @property
    def good_until(self) -> float:
        """The end of the lease as monotonic time, -inf without one."""
        if not self.confirmed or (self._founding is not None and monotonic() < self._founding):
            return -inf
        return self._renewed + self._ttl * (1 - _MARGIN)

    @property
    def due(self) -> bool:
        return monotonic() >= self._renewed + self._ttl / _RENEWALS

    @property
    def founding(self) -> bool:
        """Return whether the register may have lost its data."""
        return self._founding is not None

    def check(self) -> Step:
        """Return a step of a transaction that is refused if the key is not ours."""
        return step("check-session", self.key, Session=self.session)

    def is_in(self, entries: Iterable[RegisterEntry]) -> bool:
        return any(e.key == self.key and e.session == self.session for e in entries)

    def lose(self) -> bool:
        """Forget the session. Return whether the lease was confirmed."""
        was_confirmed, self.session, self.confirmed = self.confirmed, None, False
        return was_confirmed

    async def take_first(self) -> None:
        """Take the key at the start. An earlier process of this node may hold it for a while.

        :raises ClusterError: another live process holds it, or as of `take`
        """
        end = monotonic() + 2 * self._ttl + _SLACK
        first: list[int] | None = None
        while holder := await self.take():
            beat = await self._register.get(self.beats_key)
            changes = [holder.modified, beat.modified if beat else 0]
            if first and (beat is None or beat.session is None):
                # The lease may have ended after the key was read; that changes the beat too.
                changes[1] = first[1]
            if (first or changes) != changes or monotonic() > end:
                raise ClusterError(in_use(self.own.id, holder))
            if first is None:
                logger.info("Waiting for the lease of node %s's last process to end", self.own.id)
            first = changes
            await asyncio.sleep(_LOOK)

    async def take(self) -> RegisterEntry | None:
        """Take the key with a new session. Return the key's entry if another session holds it.

        An earlier session is not used again: a late call of ours may still name it.

        :raises ClusterError: the register has another identity seed than this node
        """
        entry = await self._register.get(self.key)
        if entry and entry.session in self._sessions:
            await self._register.end_session(entry.session)
            entry = await self._register.get(self.key)
        if entry and entry.session:
            return entry
        if entry and not self.claims and (last := dead_record(entry)):
            self.claims = last.claims
            # It may have died while it grew to its full weight.
            self.own = replace(self.own, weight=min(self._full, last.member.weight))
        began = monotonic()
        session = await self._register.open_session(self.own.id, self._ttl)
        self._sessions.add(session)
        record = Record(self.own, self.claims, leaving=self.leaving).dumps()
        lock = step("lock", self.key, record, Session=session)
        join_steps = *self._pending_nodes.join_steps, *await self._seed.join_steps()
        if await self._register.change(unchanged(self.key, entry), lock, *join_steps):
            founded = await self._register.get(self._founded_key)
            self._founding = None if founded else monotonic() + self._ttl
            self._sessions = {session}
            self.session, self._renewed = session, began
        return None

    async def renew(self) -> None:
        """:raises SessionGoneError: the session has ended"""
        assert self.session is not None
        began = monotonic()
        await self._register.renew_session(self.session)
        self._renewed = began

    async def found(self) -> None:
        """Write the key ``founded`` once the register is older than any lease."""
        if self._founding is None or not self.confirmed or monotonic() < self._founding:
            return
        # Not without the lease: in a register that has lost our key it would be too early.
        if await self._register.change(self.check(), step("set", self._founded_key, "1")):
            self._founding = None

    async def release(self, session: str, claims: Claims) -> None:
        """End the session. The key stays, without a session: with claims this node is waited for,
        without any it has left."""
        record = Record(self.own, claims).dumps()
        await self._register.change(step("unlock", self.key, record, Session=session))
        await self._register.end_session(session)


def in_use(node: str, holder: RegisterEntry) -> str:
    """Return the error text for a node id whose key another process holds."""
    try:
        address = Record.loads(node, holder.value).member.address
    except BadRecordError:
        address = ""
    return (
        f"the node id {node} is in use by a live process at {address or 'an unknown address'}:"
        " set another KROWL_NODE_ID"
    )
