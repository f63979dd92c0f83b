"""A node's lease, the identity seed, and the nodes that are waited for: keys of the register.

The nodes with work that may be on their disks: each has a key that outlasts its lease. A node
writes its key in the transaction that makes it a member, and deletes it when it has nothing left.
The crawl is not over while one is not live (`krowlspider.cluster.ring.live_members`).

The identity seed of a cluster in its register: one node writes it, all nodes use it. A JOBDIR is of
use only with the seed that it was begun with. So a register that has lost its data gets the seed
back from the nodes: live members write it again, and a node that starts offers that of its JOBDIR.
A node with a new JOBDIR makes one only when a whole TTL has passed without either.

A node's lease: a session of the register that holds the key with the node's record. Two margins
separate a node that has lost touch from those that take over its domains. The node stops fetching
before its TTL is over, counted from the *start* of its last renewal. The others keep a member
without a session for one more TTL at least (`krowlspider.cluster.ring.live_members`). Consul's own
promise is not enough: a session ends immediately when an agent leaves or has lost its data.

The key of a dead node stays, with its claims: its domains wait for it. It takes up these claims
again, so it hands over what it does not own any more before others fetch that.

A new node knows of no former members. So while the register may have lost some, nobody fetches for
one TTL. The key ``founded`` says that this time is over.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from krowlspider.cluster.membership import SEED_SIZE, ClusterError, UnansweredError
from krowlspider.cluster.register.port import Register, Step, step, unchanged
from krowlspider.cluster.ring.live_members import RegisterEntry, dead_record
from krowlspider.cluster.ring.ring import BadRecordError, Claims, Member, MemberRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The part of a cluster's register in which their keys are.
PENDING = "crew"


class NodeInfo(msgspec.Struct, frozen=True):
    """Where a pending node has its inbox, and where a person finds it.

    ``stopped``: it has ended as it was told, and what it has waits for its next start. ``gemini``:
    it crawls Gemini too.
    """

    redis: str = ""
    address: str = ""
    stopped: bool = False
    gemini: bool = False

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

    def __init__(self, register: Register, root: str, own: Member, *, gemini: bool = False) -> None:
        self.prefix = f"{root}/{PENDING}/"
        self._register = register
        self._own = own.id
        self._info = NodeInfo(own.redis, own.address, gemini=gemini)
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


logger = logging.getLogger(__name__)

# Parts of the TTL: between two looks at a register without a seed, and until nodes that have it are
# given up.
_LOOK = 1 / 30
_GIVE_UP = 3
# The key of a register that was found without a seed.
_MARK = "empty"
# Part of the TTL to wait before the seed of a JOBDIR is offered. Live members write theirs within a
# few seconds; a node with a new JOBDIR waits a whole TTL.
_OFFER = 1 / 2


class IdentitySeed:
    """The seed of ``cluster``, 8 bytes; ``value`` is None before `agree` has returned."""

    def __init__(self, register: Register, cluster: str, ttl: float) -> None:
        self.value: bytes | None = None
        self.key = f"krowlspider/{cluster}/seed"
        self._register = register
        self._cluster = cluster
        self._root = f"krowlspider/{cluster}/"
        self._ttl = ttl

    async def agree(self, own: bytes | None = None) -> bytes:
        """Return the seed of all nodes; ``own`` is that of this node's JOBDIR, None for a new one.

        Write it if the register has none and no live member brings it back.

        :raises ClusterError: the register does not answer, has another seed than ``own``, or
            its key holds no seed
        """
        try:
            self.value = await self._agree(own)
        except UnansweredError as error:
            raise ClusterError(f"the cluster {self._cluster} cannot be joined: {error}") from error
        return self.value

    async def _agree(self, own: bytes | None) -> bytes:
        patience = self._ttl if own is None else self._ttl * _OFFER
        end = monotonic() + _GIVE_UP * self._ttl
        # The mark of this register: one that loses its data meanwhile loses it too.
        mark, since, is_told = None, monotonic(), False
        while True:
            keys = await self._keys()
            if found := keys.get("seed"):
                return self._checked(found, own)
            holders = _holders(keys, with_pending=own is None)
            if holders and monotonic() >= end:
                raise ClusterError(self._missing(holders))
            if mark is None or mark != keys.get(_MARK):
                mark, since = keys.get(_MARK), monotonic()
            has_waited = mark is not None and monotonic() >= since + patience
            if not holders and (has_waited or "founded" in keys):
                await self._write(own, mark, is_old=has_waited and own is None)
                continue
            if not is_told:
                is_told = True
                logger.info("%s", self._waiting(holders, patience))
            if mark is None:
                await self._register.change(
                    unchanged(self._root + _MARK, None), step("set", self._root + _MARK, "1")
                )
            await asyncio.sleep(self._ttl * _LOOK)

    def _waiting(self, holders: list[str], patience: float) -> str:
        if holders:
            return f"Waiting for nodes {', '.join(holders)} to write the cluster's identity seed"
        return (
            f"{self._register.name} has no data of the cluster {self._cluster}: waiting"
            f" {patience:g} s for nodes that had joined before"
        )

    def _missing(self, holders: list[str]) -> str:
        return (
            f"The register's key {self.key} is missing, and nodes {', '.join(holders)} have not"
            " written it: start them before this one, or give up those that are dead with"
            " scrapy ring --forget"
        )

    async def _keys(self) -> Mapping[str, RegisterEntry]:
        _, entries = await self._register.list(self._root)
        return {entry.key.removeprefix(self._root): entry for entry in entries}

    async def _write(self, own: bytes | None, mark: RegisterEntry | None, *, is_old: bool) -> None:
        """Write a seed, unless another node has written one or the register lost its data.

        ``is_old``: the register has been without members for longer than any lease.
        """
        seed = own or secrets.token_bytes(SEED_SIZE)
        steps = [unchanged(self.key, None), unchanged(self._root + _MARK, mark)]
        steps.append(step("set", self.key, seed.hex()))
        if mark is not None:
            steps.append(step("delete", self._root + _MARK))
        if is_old:
            steps.append(step("set", f"{self._root}founded", "1"))
        await self._register.change(*steps)

    async def join_steps(self) -> list[Step]:
        """Return steps that let a node join only a register with its seed; they write a lost one.

        :raises ClusterError: the register has another seed
        """
        if self.value is None:
            return []
        found = await self._register.get(self.key)
        if found is not None:
            self._checked(found, self.value)
            return [unchanged(self.key, found)]
        return [unchanged(self.key, None), step("set", self.key, self.value.hex())]

    async def keep(self, entries: Iterable[RegisterEntry]) -> None:
        """Write the seed again if it is not among the entries that were read.

        :raises ClusterError: the register has another seed
        :raises UnansweredError: it may be written or not
        """
        if self.value is None:
            return
        found = next((entry for entry in entries if entry.key == self.key), None)
        if found is not None:
            self._checked(found, self.value)
        else:
            logger.warning(
                "%s has lost the key %s: writing it again", self._register.name, self.key
            )
            await self._register.change(*await self.join_steps())

    def _checked(self, found: RegisterEntry, own: bytes | None) -> bytes:
        try:
            stored = bytes.fromhex(found.value.decode())
        except ValueError:
            stored = b""
        if len(stored) != SEED_SIZE:
            raise ClusterError(
                f"the register's key {self.key} holds no seed of {SEED_SIZE} bytes: delete it"
            )
        if own not in {None, stored}:
            raise ClusterError(
                f"this node's JOBDIR has another identity seed than the cluster {self._cluster} by"
                f" {self._register.name}, which lost its data or has another crawl of this"
                " name; nothing is lost: give the KROWL_CLUSTER with which JOBDIR was begun, or"
                f" stop all nodes, delete the key {self.key} and start this node first"
            )
        return stored


def _holders(keys: Mapping[str, RegisterEntry], *, with_pending: bool) -> list[str]:
    """Return the nodes that have the seed: the live ones, and those with work on their disks."""
    return sorted(
        {
            entry.node
            for name, entry in keys.items()
            if (name.startswith("nodes/") and entry.session)
            or (with_pending and name.startswith(f"{PENDING}/"))
        }
    )


# Part of the TTL by which the lease ends early: clocks of two machines run at different speeds, and
# a deposed leader of Consul answers renewals for up to 2.5 s more.
_MARGIN = 1 / 5
# Renewals in a TTL: two may fail.
_RENEWALS = 3
# Consul ends a session at twice its TTL (structs.SessionTTLMultiplier); seconds on top of that.
_SLACK = 5.0
# Seconds between two looks at a key that another process holds.
_LOOK_AT_LEASE = 1.0


class MemberLease:
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
            await asyncio.sleep(_LOOK_AT_LEASE)

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
        record = MemberRecord(self.own, self.claims, leaving=self.leaving).dumps()
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
        record = MemberRecord(self.own, claims).dumps()
        await self._register.change(step("unlock", self.key, record, Session=session))
        await self._register.end_session(session)


def in_use(node: str, holder: RegisterEntry) -> str:
    """Return the error text for a node id whose key another process holds."""
    try:
        address = MemberRecord.loads(node, holder.value).member.address
    except BadRecordError:
        address = ""
    return (
        f"the node id {node} is in use by a live process at {address or 'an unknown address'}:"
        " set another KROWL_NODE_ID"
    )
