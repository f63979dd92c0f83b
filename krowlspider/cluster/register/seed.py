"""The identity seed of a cluster in its register: one node writes it, all nodes use it.

A JOBDIR is of use only with the seed that it was begun with. So a register that has lost its data
gets the seed back from the nodes: live members write it again, and a node that starts offers that
of its JOBDIR. A node with a new JOBDIR makes one only when a whole TTL has passed without either.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from time import monotonic
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import SEED_SIZE, ClusterError, UnansweredError
from krowlspider.cluster.register.pending_nodes import PENDING
from krowlspider.cluster.register.port import step, unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krowlspider.cluster.register.port import Register, Step
    from krowlspider.cluster.ring.live_members import RegisterEntry

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
