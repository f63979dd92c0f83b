"""Membership by a register: a node writes its record into its own key and reads the keys of all."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import count
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from krowlspider.cluster.membership import SIGNAL, ClusterError, UnansweredError, end
from krowlspider.cluster.register.lease import (
    IdentitySeed,
    MemberLease,
    NodeInfo,
    PendingNodes,
    in_use,
)
from krowlspider.cluster.register.port import PAGES, Register, Service, SessionGoneError, step
from krowlspider.cluster.register.state import WAIT, read_register, refuse_same_redis, remove_dead
from krowlspider.cluster.ring.live_members import LiveMembers, RegisterEntry
from krowlspider.cluster.ring.ring import BadRecordError, Claims, Counters, Member, MemberRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


logger = logging.getLogger(__name__)

# Seconds between two checks whether something is due, and after a failed call.
_TICK = 1.0
# Seconds of a blocking query: a connection that was cut silently is found after it.
_WAIT = 5.0
# Seconds from a change to its reading, so that one reading has the changes of many nodes.
_GATHER = 0.1


class RegisteredMembership:
    """Node ``own`` in a cluster, with a lease of ``ttl`` seconds.

    A dead node is replaced after ``delay`` seconds, ``ttl`` at least; never by a register that is
    supervised. All live nodes have the same ``gemini``: whether they crawl Gemini too. ``service``
    is renewed with the lease. The caller closes ``register``, and cancels a
    `publish` under way before `leave`.
    """

    def __init__(
        self,
        register: Register,
        cluster: str,
        own: Member,
        *,
        ttl: int,
        delay: float = 0.0,
        gemini: bool = False,
        service: Service | None = None,
    ) -> None:
        self._on_change: Callable[[], None] = lambda: None
        self._register = register
        self._cluster = cluster
        self._root = f"krowlspider/{cluster}"
        self.seed = IdentitySeed(register, cluster, ttl)
        self._gemini = gemini
        self._pending = PendingNodes(register, self._root, own, gemini=gemini)
        # Keys of the whole cluster, with their values as last read.
        self._shared = (f"{self._root}/{SIGNAL}", f"{self._root}/{PAGES}")
        self._kept: Mapping[str, bytes] = {}
        self._lease = MemberLease(
            register, self._root, own, ttl, pending_nodes=self._pending, seed=self.seed
        )
        self._live = LiveMembers(own.id, ttl, inf if register.is_supervised else delay)
        self._service = service
        # Consul takes an unchanged value for no change, unless its flags differ.
        self._flags = count()
        self._was_valid = False
        self._trouble: str | None = None
        # What to write again if the register has lost its data.
        self._lost: Mapping[str, bytes] = {}
        # Why this node cannot be a member any more.
        self._refused: ClusterError | None = None
        self._reading = asyncio.Lock()
        self._publishing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def own(self) -> Member:
        return self._lease.own

    @own.setter
    def own(self, member: Member) -> None:
        self._lease.own = member

    @property
    def members(self) -> Mapping[str, MemberRecord]:
        return self._live.members

    @property
    def epoch(self) -> int:
        return self._live.epoch

    @property
    def pending_nodes(self) -> frozenset[str]:
        """Nodes with work that may be on their disks, as read with the last heartbeat. Those that
        have `stopped` are not waited for."""
        return frozenset(self._pending.known) - self.stopped

    @property
    def stopped(self) -> frozenset[str]:
        """Nodes that have ended with work on their disks as they were told, while a supervisor
        starts none of them again before all have ended."""
        if not self._register.is_supervised:
            return frozenset()
        known = self._pending.known
        return frozenset(node for node in known if NodeInfo.loads(known[node]).stopped)

    def state(self, node: str) -> str:
        """Return how a pending node that is not live ended: stopped, or dead."""
        return NodeInfo.loads(self._pending.known.get(node, b"")).state

    @property
    def good_until(self) -> float:
        return self._lease.good_until

    async def start(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Join the cluster and read the first view.

        ``on_change`` is called after a change of ``members`` in more than counters, and when the
        lease ends or begins.

        :raises ClusterError: another live process has this id, another node this Redis or another
            ``gemini``, or the register does not answer; the register is as before
        """
        self._on_change = on_change
        try:
            register = await read_register(self._register, self._cluster)
            is_pending = register is not None and register.admit(self.own, gemini=self._gemini)
            try:
                await self._lease.take_first()
                if not await self._look():
                    raise UnansweredError(self._trouble or f"{self._register.name} keeps nothing")
                # Two nodes may have started at the same time.
                refuse_same_redis(self.own, self.members)
                if (register := await read_register(self._register, self._cluster)) is not None:
                    register.refuse_other_gemini(self.own, gemini=self._gemini)
                await self._renew_service()
            except (ClusterError, UnansweredError):
                await self._undo(is_pending=is_pending)
                raise
        except UnansweredError as error:
            raise ClusterError(f"the cluster {self._cluster} cannot be joined: {error}") from error
        self._tasks = [asyncio.create_task(self._keep()), asyncio.create_task(self._watch())]

    async def _undo(self, *, is_pending: bool) -> None:
        """Leave after a refused start, with the register as before: nobody waits for a node that
        was not pending, and its domains still wait for one that was dead."""
        with suppress(UnansweredError):
            if self._lease.session is not None and not is_pending:
                await self._pending.dismiss(self._lease.check())
        await self._leave(self._lease.claims)

    async def publish(self, claims: Claims, *, leaving: bool = False) -> None:
        record = MemberRecord(self.own, claims, leaving=leaving)
        async with self._publishing:
            # A new session begins with these, should this one end meanwhile.
            self._lease.claims, self._lease.leaving = claims, leaving
            while True:
                try:
                    if self._lease.confirmed and await self._store(record):
                        return
                except UnansweredError as error:
                    self._report(error)
                    await asyncio.sleep(_TICK)
                else:
                    await asyncio.sleep(_GATHER)

    async def beat(self, counters: Counters) -> bool:
        """Write this node's counters; read all nodes' and the pending nodes, as of one moment.

        Return False if nothing has changed: without an answer, or without a lease.

        :raises ClusterError: the register has another identity seed than this node
        """
        if self._refused is not None:
            raise self._refused
        if not self._lease.confirmed:
            return False
        beats, pending = f"{self._root}/beats/", self._pending.prefix
        session = {"Session": self._lease.session, "Flags": next(self._flags)}
        waits = {f"{WAIT}{node}": left for node, left in self._live.waits(monotonic()).items()}
        body = msgspec.json.encode({**counters, **waits})
        own = step("lock", self._lease.beats_key, body, **session)
        trees = (beats, pending, *self._shared, self.seed.key)
        all_ = [step("get-tree", tree) for tree in trees]
        try:
            found = await self._register.transact(own, *all_)
            if found is None:
                return False
            await self.seed.keep(found)
        except UnansweredError:
            return False
        # The first entry is the one written.
        self._live.count([each for each in found[1:] if each.key.startswith(beats)])
        self._pending.update(each for each in found if each.key.startswith(pending))
        self._kept = {each.key: each.value for each in found if each.key in self._shared}
        return True

    async def dismiss(self) -> None:
        """Remove this node from the pending nodes: nothing is left on its disk.

        :raises UnansweredError: it may be removed or not
        """
        if not self._lease.confirmed:
            raise UnansweredError(f"node {self.own.id} has no lease")
        await self._pending.dismiss(self._lease.check())

    async def leave(self, *, returns: bool = False) -> None:
        """Give up the lease and tell the others.

        They take over immediately, unless this node ``returns``: then its domains wait for it.
        """
        await self._leave(self._lease.claims if returns else ())

    async def _leave(self, claims: Claims) -> None:
        session, check = self._lease.session, self._lease.check()
        self._lease.lose()
        await end(self._tasks)
        if session is not None:
            with suppress(UnansweredError):
                await self._pending.note_stop(check)
                await self._lease.release(session, claims)
                if self._service is not None:
                    await self._service.remove()

    async def _renew_service(self) -> None:
        if self._service is not None:
            await self._service.renew()

    async def _keep(self) -> None:
        while True:
            try:
                await self._tick()
            except SessionGoneError:
                self._lose_lease()
            except UnansweredError as error:
                self._report(error)
            except ClusterError as error:
                self._refused = error
                return
            else:
                self._report(None)
            self._report_lease()
            await asyncio.sleep(_TICK)

    async def _tick(self) -> None:
        renewing = self._lease.confirmed and self._lease.due
        if renewing:
            await self._lease.renew()
        elif not self._lease.confirmed:
            # Now, because the next heartbeat may read a register without its data.
            self._lost = self._lost or self._known()
            if holder := await self._lease.take():
                raise UnansweredError(in_use(self.own.id, holder))
            if self._lease.founding:
                for key, value in self._lost.items():
                    # Refused if the key exists.
                    await self._register.change(step("cas", key, value, Index=0))
            self._lost = {}
            await self._look()
        await self._lease.found()
        for node, index in self._live.overdue(monotonic()).items():
            await remove_dead(self._register, self._root, node, index)
        if self._live.is_stale(monotonic()):
            await self._look()
        # Last, because the crawl does not depend on it.
        if renewing:
            await self._renew_service()

    def _known(self) -> dict[str, bytes]:
        """Return what other nodes need of the register, as last read.

        The members come back without a session: dead until they take their keys.
        """
        others = (r for node, r in self.members.items() if node != self.own.id and r.claims)
        records = {f"{self._root}/nodes/{r.member.id}": r.dumps() for r in others}
        return {**records, **self._pending.others(), **self._kept}

    async def _store(self, record: MemberRecord) -> bool:
        """Write the record into our key and read the view; False if the key has changed before.

        So a store that the register does after it was given up comes before a later one, or fails.
        """
        index, flags = self._live.modified, next(self._flags)
        cas = step("cas", self._lease.key, record.dumps(), Index=index, Flags=flags)
        stored = await self._register.change(self._lease.check(), cas)
        return await self._look() and stored

    async def _watch(self) -> None:
        """Read the view whenever a key below ``nodes/`` has changed."""
        index: str | None = None
        while True:
            try:
                new = await self._register.wait_for_change(f"{self._root}/nodes/", index, _WAIT)
                if new != index:
                    await self._look()
                index = new
            except UnansweredError:
                index = None
                await asyncio.sleep(_TICK)
            await asyncio.sleep(_GATHER)

    async def _look(self) -> bool:
        """Read the view; return False if what was read is no view of this cluster."""
        async with self._reading:
            session = self._lease.session
            epoch, entries = await self._register.list(f"{self._root}/nodes/")
            # A reading that began before the lease was taken lacks this node rightly. One of a
            # register that lost its data lacks the dead until they are restored.
            is_ours = session is not None and session == self._lease.session and not self._lost
            return is_ours and self._update(epoch, entries)

    def _update(self, epoch: int, entries: Sequence[RegisterEntry]) -> bool:
        if not self._lease.is_in(entries):
            self._lose_lease()
            return False
        before = self._live.members
        try:
            changed = self._live.update(epoch, entries, monotonic())
        except BadRecordError as error:
            # That member may claim anything, so the last view stays.
            self._report(error)
            return False
        self._lease.confirmed = True
        self._tell(before)
        if changed:
            self._on_change()
        return True

    def _tell(self, before: Mapping[str, MemberRecord]) -> None:
        names = ", ".join(sorted(self.members))
        if not before:
            logger.info("Joined the cluster %s; its nodes: %s", self._cluster, names)
        for sentence in self._live.news(before):
            logger.info("%s; nodes now: %s", sentence, names)

    def _lose_lease(self) -> None:
        if self._lease.lose():
            logger.warning(
                "%s has lost the session of node %s: registering again",
                *(self._register.name, self.own.id),
            )
            self._report_lease()

    def _report_lease(self) -> None:
        is_valid = monotonic() < self.good_until
        if is_valid == self._was_valid:
            return
        self._was_valid = is_valid
        if is_valid:
            logger.info("Lease of node %s is valid: fetching may begin", self.own.id)
        else:
            cause = self._trouble or f"{self._register.name} has lost its session"
            logger.warning("Lease of node %s lost: fetching stops (%s)", self.own.id, cause)
        self._on_change()

    def _report(self, error: Exception | None) -> None:
        trouble = None if error is None else str(error)
        if trouble is None and self._trouble is not None:
            logger.info("%s answers again", self._register.name)
        elif trouble != self._trouble:
            logger.warning("%s", trouble)
        self._trouble = trouble
