"""A node's lease in Consul: a session, which holds the key that says what the node is and claims.

Two walls stand between a node that has lost touch and those that take its domains over. The node stops fetching when
its TTL is over, less a margin, counted from the *start* of its last renewal. And the others keep a member that vanished
without a goodbye for a TTL after the first reading that lacks it (`census`). Consul's own promise, that a session lives
as long as it is renewed, would not do: it ends at once when an agent leaves, is reaped, or has lost its data.
A new node remembers nobody; so in a register that may have forgotten somebody nobody fetches for a TTL
(the key ``founded`` says that this is over).
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING

from krowlspider.cluster.consul.calls import Agent, Step, coded
from krowlspider.cluster.membership import DuplicateNodeError
from krowlspider.cluster.ring.record import BadRecordError, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.cluster.consul.pending_nodes import PendingNodes
    from krowlspider.cluster.ring.census import Entry
    from krowlspider.cluster.ring.claims import Claims
    from krowlspider.cluster.ring.ring import Member

logger = logging.getLogger(__name__)

# Of the TTL, by which the node stops before its time: clocks of two machines run at different speeds, and a leader of
# Consul that was deposed answers renewals for up to 2.5 s more.
_MARGIN = 1 / 5
# Renewals in a TTL: two may fail.
_RENEWALS = 3
# Consul ends a session at twice its TTL (structs.SessionTTLMultiplier); seconds on top of that.
_SLACK = 5.0
# Seconds between two looks at a key that another process holds.
_LOOK = 1.0


class Lease:
    """Of ``ttl`` seconds at a time; the key of the node ``own`` is below ``root``/nodes/.

    ``session`` holds the key, None while it is to be taken (again). ``confirmed``: a reading of the register has shown
    that; without it the lease is not good. ``claims`` and ``leaving`` are what the next `take` puts into the key, and
    ``pending_nodes`` gives what it does besides.
    """

    def __init__(
        self,
        agent: Agent,
        root: str,
        own: Member,
        ttl: int,
        *,
        clock: Callable[[], float],
        pending_nodes: PendingNodes,
    ) -> None:
        self.key = f"{root}/nodes/{own.id}"
        self.beats_key = f"{root}/beats/{own.id}"
        self.session: str | None = None
        self.confirmed = False
        self.claims: Claims = ()
        self.leaving = False
        self._pending_nodes = pending_nodes
        self._agent = agent
        self._root = root
        self._own = own
        self._ttl = ttl
        self._clock = clock
        # Our sessions that may hold the key: the last one, and those of which no answer came.
        self._lost: set[str] = set()
        # The start of the last renewal that Consul has confirmed.
        self._renewed = -inf
        # The lease begins no earlier; None once the register is known to be older than any lease.
        self._founding: float | None = None

    @property
    def good_until(self) -> float:
        if not self.confirmed or (self._founding is not None and self._clock() < self._founding):
            return -inf
        return self._renewed + self._ttl * (1 - _MARGIN)

    @property
    def due(self) -> bool:
        """Whether to renew."""
        return self._clock() >= self._renewed + self._ttl / _RENEWALS

    @property
    def founding(self) -> bool:
        """Whether the register may have forgotten what it knew."""
        return self._founding is not None

    def in_hand(self) -> Step:
        """The step of a transaction that holds if the key is ours."""
        return {"Verb": "check-session", "Key": self.key, "Session": self.session}

    def holds(self, entries: Iterable[Entry]) -> bool:
        """Whether the key is ours, by a reading."""
        return any(e.key == self.key and e.session == self.session for e in entries)

    def lose(self) -> bool:
        """The session has ended, or the key is not ours; whether it was."""
        was, self.session, self.confirmed = self.confirmed, None, False
        return was

    async def take_first(self) -> None:
        """Take the key; who holds it may be an earlier process of this node, and then its session ends.

        :raises DuplicateNodeError: it does not, or shows signs of life
        """
        end = self._clock() + 2 * self._ttl + _SLACK
        seen: list[int] | None = None
        while holder := await self.take():
            beat = await self._agent.get(self.beats_key)
            signs = [holder.modified, beat.modified if beat else 0]
            if (seen or signs) != signs or self._clock() > end:
                raise DuplicateNodeError(in_use(self._own.id, holder))
            if seen is None:
                logger.info(
                    "Waiting for the lease of an earlier process of node %s to end", self._own.id
                )
            seen = signs
            await asyncio.sleep(_LOOK)

    async def take(self) -> Entry | None:
        """Take the key with a new session; or the entry of who holds it.

        An earlier session of ours may have been named in a call that Consul gets only now: it is not used again.
        """
        entry = await self._agent.get(self.key)
        if entry and entry.session in self._lost:
            lost = entry.session
            await self._agent.call(lambda consul: consul.session.destroy(lost))
            entry = await self._agent.get(self.key)
        if entry and entry.session:
            return entry
        began = self._clock()
        session = await self._open()
        self._lost.add(session)
        if await self._lock(entry, session):
            founded = await self._agent.get(f"{self._root}/founded")
            self._founding = None if founded else self._clock() + self._ttl
            self._lost = {session}
            self.session, self._renewed = session, began
        return None

    async def renew(self) -> None:
        """:raises SessionGoneError: too late"""
        began, session = self._clock(), self.session
        await self._agent.call(lambda consul: consul.session.renew(session))
        self._renewed = began

    async def found(self) -> None:
        """Say that the register is older than any lease, once that is so."""
        if self._founding is None or not self.confirmed or self._clock() < self._founding:
            return
        founded: Step = {"Verb": "set", "Key": f"{self._root}/founded", "Value": coded("1")}
        # In a register that has forgotten us it would be too early.
        if await self._agent.change(self.in_hand(), founded):
            self._founding = None

    async def release(self, session: str) -> None:
        """The key stays, held by nobody: a goodbye that those who look later see too."""
        said = Record(self._own).dumps()
        await self._agent.call(lambda c: c.kv.put(self.key, said, release=session))
        await self._agent.call(lambda c: c.session.destroy(session))

    async def _open(self) -> str:
        # No check: Consul's own one would end it when other agents do not see this one. No delay for the
        # next holder of the key: both walls above are higher.
        session: str = await self._agent.call(
            lambda consul: consul.session.create(
                f"krowlspider {self._own.id}",
                checks=[],
                lock_delay=0,
                behavior="delete",
                ttl=self._ttl,
            )
        )
        return session

    async def _lock(self, found: Entry | None, session: str) -> bool:
        """Put our record into the key, which has been ``found`` free; False when it changed meanwhile."""
        as_found: Step = {"Verb": "check-not-exists", "Key": self.key}
        if found:
            as_found = {"Verb": "check-index", "Key": self.key, "Index": found.modified}
        record = Record(self._own, self.claims, leaving=self.leaving).dumps()
        lock: Step = {"Verb": "lock", "Key": self.key, "Value": coded(record), "Session": session}
        return await self._agent.change(as_found, lock, *self._pending_nodes.steps())


def in_use(node: str, holder: Entry) -> str:
    """What is told when another process holds the key of ``node``."""
    try:
        address = Record.loads(node, holder.value).member.address or "an unknown address"
    except BadRecordError:
        address = "an unknown address"
    return f"the node id {node} is in use by a live process at {address}: set another KROWL_NODE_ID"
