"""Membership by Consul: what the node is and claims in a key of its own, the others' keys read as a whole."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from krowlspider.cluster.consul.calls import Agent, SessionGoneError, Step, coded
from krowlspider.cluster.consul.lease import Lease, in_use
from krowlspider.cluster.consul.pending_nodes import PendingNodes
from krowlspider.cluster.consul.service import Service
from krowlspider.cluster.membership import SEED_SIZE, ClusterError, UnansweredError, agreed
from krowlspider.cluster.ring.census import Census
from krowlspider.cluster.ring.record import BadRecordError, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krowlspider.cluster.ring.census import Entry
    from krowlspider.cluster.ring.claims import Claims
    from krowlspider.cluster.ring.record import Counters
    from krowlspider.cluster.ring.ring import Member

logger = logging.getLogger(__name__)

# Seconds between two looks at whether something is due, and from a failed call to the next.
_TICK = 1.0
# Seconds that a blocking query waits. A wire that was cut in silence is found after it, and threads end.
_WAIT = 5.0
# Seconds from a change to the reading of it, so that one reading sees those of many nodes.
_GATHER = 0.1


class ConsulMembership:
    """This node in the cluster ``cluster``, its lease ``ttl`` seconds (10 or more, Consul's least) at a time.

    ``agent`` may have other users; it is closed by its maker. A `publish` under way is to be cancelled before `leave`.
    """

    def __init__(
        self,
        agent: Agent,
        cluster: str,
        own: Member,
        *,
        ttl: int,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.own = own
        self.on_change = on_change
        self._agent = agent
        self._clock = clock
        self._cluster = cluster
        self._root = f"krowlspider/{cluster}"
        self._pending_nodes = PendingNodes(agent, self._root, own)
        self._lease = Lease(
            agent, self._root, own, ttl, clock=clock, pending_nodes=self._pending_nodes
        )
        self._census = Census(own.id, ttl)
        self._service = Service(agent, cluster, own, ttl)
        # Consul takes a value that is the same for no change; with another number in its flags it is one.
        self._numbers = count()
        self._told_good = False
        self._trouble: str | None = None
        self._reading = asyncio.Lock()
        self._publishing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def members(self) -> Mapping[str, Record]:
        return self._census.members

    @property
    def epoch(self) -> int:
        return self._census.epoch

    @property
    def pending_nodes(self) -> frozenset[str]:
        return frozenset(self._pending_nodes.known)

    @property
    def good_until(self) -> float:
        return self._lease.good_until

    async def start(self) -> None:
        try:
            await self._lease.take_first()
            if not await self._look():
                raise UnansweredError(self._trouble or "Consul forgets what it is told")
            await self._service.passed()
        except (UnansweredError, SessionGoneError) as error:
            await self.leave()
            raise ClusterError(f"the cluster {self._cluster} cannot be joined: {error}") from error
        self._tasks = [asyncio.create_task(self._keep()), asyncio.create_task(self._watch())]

    async def publish(self, claims: Claims, *, leaving: bool = False) -> None:
        record = Record(self.own, claims, leaving=leaving)
        async with self._publishing:
            # What a new session begins with, should this one end meanwhile.
            self._lease.claims, self._lease.leaving = claims, leaving
            while True:
                try:
                    if self._lease.confirmed and await self._store(record):
                        return
                except (UnansweredError, SessionGoneError) as error:
                    self._told(error)
                    await asyncio.sleep(_TICK)
                else:
                    await asyncio.sleep(_GATHER)

    async def beat(self, counters: Counters) -> None:
        if not self._lease.confirmed:
            return
        ours: Step = {
            "Verb": "lock",
            "Key": self._lease.beats_key,
            "Value": coded(json.dumps(dict(counters))),
            "Session": self._lease.session,
            "Flags": next(self._numbers),
        }
        beats, pending_nodes = f"{self._root}/beats/", self._pending_nodes.prefix
        all_: list[Step] = [
            {"Verb": "get-tree", "Key": prefix} for prefix in (beats, pending_nodes)
        ]
        with suppress(UnansweredError, SessionGoneError):
            found = await self._agent.transact(ours, *all_)
            if found is not None:
                # The first tells of the write.
                self._census.count([each for each in found[1:] if each.key.startswith(beats)])
                self._pending_nodes.heard(
                    each for each in found if each.key.startswith(pending_nodes)
                )

    async def dismiss(self) -> None:
        if not self._lease.confirmed:
            raise UnansweredError(f"node {self.own.id} has no lease")
        await self._pending_nodes.dismiss(self._lease.in_hand())

    async def leave(self) -> None:
        session = self._lease.session
        self._lease.lose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if session is not None:
            with suppress(UnansweredError, SessionGoneError):
                await self._lease.release(session)
                await self._service.gone()

    async def agree_seed(self, seed: bytes | None) -> bytes:
        key = f"{self._root}/seed"
        ours = seed or secrets.token_bytes(SEED_SIZE)
        try:
            await self._agent.call(lambda consul: consul.kv.put(key, ours.hex(), cas=0))
            entry = await self._agent.get(key)
        except UnansweredError as error:
            raise ClusterError(f"no seed for the cluster {self._cluster}: {error}") from error
        try:
            stored = bytes.fromhex(entry.value.decode()) if entry else b""
        except ValueError:
            stored = b""
        if len(stored) != SEED_SIZE:
            raise ClusterError(f"Consul's key {key} holds no seed of {SEED_SIZE} bytes: delete it")
        return agreed(stored, seed, self._cluster)

    async def _keep(self) -> None:
        """Renew the lease, or take it again."""
        while True:
            try:
                await self._tick()
            except UnansweredError as error:
                self._told(error)
            except SessionGoneError:
                self._forgotten()
            else:
                self._well()
            self._tell_lease()
            await asyncio.sleep(_TICK)

    async def _tick(self) -> None:
        renewing = self._lease.confirmed and self._lease.due
        if renewing:
            await self._lease.renew()
        elif not self._lease.confirmed:
            if holder := await self._lease.take():
                raise UnansweredError(in_use(self.own.id, holder))
            if self._lease.founding:
                await self._pending_nodes.restore()
            await self._look()
        await self._lease.found()
        if self._census.stale(self._clock()):
            await self._look()
        # Last: an operator's view of the node is less than the node.
        if renewing:
            await self._service.passed()

    async def _store(self, record: Record) -> bool:
        """Put the record into our key and read the view; False when the key is another than in the last reading.

        A store that Consul does only after it was given up finds a key that has changed since, or is done first.
        """
        cas: Step = {
            "Verb": "cas",
            "Key": self._lease.key,
            "Index": self._census.modified,
            "Value": coded(record.dumps()),
            "Flags": next(self._numbers),
        }
        stored = await self._agent.change(self._lease.in_hand(), cas)
        return await self._look() and stored

    async def _watch(self) -> None:
        """Read the view when something below ``nodes/`` has changed: the blocking query is but a bell."""
        index: str | None = None
        while True:
            try:
                rung = await self._bell(index)
                if rung != index:
                    await self._look()
                index = rung
            except UnansweredError:
                index = None
                await asyncio.sleep(_TICK)
            await asyncio.sleep(_GATHER)

    async def _bell(self, index: str | None) -> str:
        prefix, wait = f"{self._root}/nodes/", f"{_WAIT:g}s"
        found, _ = await self._agent.call(
            lambda consul: consul.kv.get(prefix, keys=True, index=index, wait=wait),
            wait=_WAIT if index else 0.0,
        )
        return str(found)

    async def _look(self) -> bool:
        """Read the view, after all that was read before; False when what came is no view of the cluster."""
        async with self._reading:
            session = self._lease.session
            epoch, entries = await self._agent.list(f"{self._root}/nodes/")
            # What was read before the lease was taken lacks us rightly.
            return (
                session is not None and session == self._lease.session and self._see(epoch, entries)
            )

    def _see(self, epoch: int, entries: Sequence[Entry]) -> bool:
        if not self._lease.holds(entries):
            self._forgotten()
            return False
        try:
            changed = self._census.take(epoch, entries, self._clock())
        except BadRecordError as error:
            # Whoever holds it may claim anything. The last view stands.
            self._told(error)
            return False
        self._lease.confirmed = True
        if changed:
            self.on_change()
        return True

    def _forgotten(self) -> None:
        if self._lease.lose():
            logger.warning("Consul has forgotten node %s: it registers again", self.own.id)
            self._tell_lease()

    def _tell_lease(self) -> None:
        good = self._clock() < self.good_until
        if good != self._told_good:
            self._told_good = good
            logger.info("The lease of node %s %s", self.own.id, "is good" if good else "has ended")
            self.on_change()

    def _told(self, error: Exception) -> None:
        if self._trouble != str(error):
            self._trouble = str(error)
            logger.warning("%s", error)

    def _well(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            logger.info("Consul answers again")
