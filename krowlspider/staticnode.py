"""A node of a ring that a setting names: all its members are there for ever, the whole crawl long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from krowlspider.cluster.claims import View
from krowlspider.cluster.inbox import Inbox
from krowlspider.cluster.membership import (
    ClusterError,
    DuplicateNodeError,
    StaticMembership,
    UnansweredError,
    parse_ring,
    reading,
    seal_of,
    static_seed,
)
from krowlspider.cluster.ring import Ring
from krowlspider.cluster.signals import RedisBoard, RedisBudget, RedisSignals
from krowlspider.node import BEAT, Crawl, Node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.membership import Counters
    from krowlspider.cluster.quiet import Word

# Heartbeats in which another process, were there one, would have been heard.
_LISTENING = 2.5
# The KROWL_RING_SECRET of a ring that was begun when there was none.
_NO_SECRET = "none"  # noqa: S105 - it says that there is none
# Times that a last word is said, when nobody seems to hear it.
_LAST_WORDS = 3


class StaticNode(Node):
    """A member of KROWL_RING.

    :raises ClusterError: this node is not among the members, or a URL of theirs is wrong
    """

    def __init__(self, settings: BaseSettings, spider: str):
        super().__init__(settings, spider)
        members = parse_ring(settings.getlist("KROWL_RING"))
        secret: str = settings["KROWL_RING_SECRET"]
        seed = static_seed(settings["KROWL_CLUSTER"], "" if secret == _NO_SECRET else secret)
        self.seed = int.from_bytes(seed, "big")
        self._seal = seal_of(seed)
        self.may_begin = bool(secret)
        try:
            self._of = {member.id: self._client(member.redis) for member in members}
        except ClusterError as error:
            raise ClusterError(f"KROWL_RING: {error}") from error
        # What each says of itself is shown in one Redis: the first member's.
        self._cluster: str = settings["KROWL_CLUSTER"]
        self._board = RedisBoard(self._of[members[0].id], self._cluster)
        self._heard: Mapping[str, Counters] = {}
        self.membership: StaticMembership = StaticMembership(
            self.own, members, self._cluster, board=self._board
        )
        self.signals = RedisSignals(self._of[members[0].id], self._cluster)
        if self.pages:
            self.budget = RedisBudget(self._of[members[0].id], self._cluster, self.pages)
        # The claim of each is this ring, for ever.
        ring = Ring(members)
        self._number = ring.number
        self._view = View(self.own, reading(self.membership), (ring,))
        self.known.set()

    @property
    def place(self) -> str:
        return f"{self.own} of {self._view.ring.checksum}"

    @property
    def view(self) -> View:
        return self._view

    def may_fetch(self, domain: str) -> bool:
        return self._view.may_fetch(domain)

    @property
    def knows(self) -> bool:
        return True

    def prepare(self) -> None: ...

    def client_of(self, node: str) -> Redis | None:
        return self._of.get(node)

    def _make_inbox(self, crawl: Crawl) -> Inbox:
        return Inbox(
            self._of[self.own],
            self._spider,
            self.own,
            crawl.take_in,
            settle=crawl.make_durable,
            paused=lambda: crawl.full,
            turn=crawl.turn,
        )

    def _figures(self) -> Counters:
        return {**super()._figures(), "ring": self._number, "seed": self._seal}

    async def _join(self) -> None:
        """:raises ClusterError: another process has this id, or a process of this cluster another ring"""
        # Nodes of another ring may have their board elsewhere.
        boards = [RedisBoard(client, self._cluster) for client in self._of.values()]
        before = await asyncio.gather(*map(_read, boards))
        if not any(self._is_amiss(node, said) for heard in before for node, said in heard.items()):
            return
        await asyncio.sleep(_LISTENING * BEAT)
        for earlier, now in zip(before, await asyncio.gather(*map(_read, boards)), strict=True):
            self._refuse(earlier, now)

    def _is_amiss(self, node: str, said: Counters) -> bool:
        return node == self.own or not (self._has_our_ring(said) and self._has_our_seed(said))

    def _has_our_ring(self, said: Counters) -> bool:
        return said.get("ring", self._number) == self._number

    def _has_our_seed(self, said: Counters) -> bool:
        return said.get("seed", self._seal) == self._seal

    def _refuse(self, before: Mapping[str, Counters], now: Mapping[str, Counters]) -> None:
        """:raises ClusterError: a process that ought not to be there has said something more"""
        for node, said in now.items():
            was = before.get(node, said)
            # What comes back with a Redis that was restored is an older word, of a process that is gone.
            is_newer = said.get("beat", 0) > was.get("beat", 0)
            goes_on = is_newer and was.get("start") == said.get("start") and not said.get("left")
            if not goes_on or not self._is_amiss(node, said):
                continue
            if not self._has_our_seed(said):
                raise ClusterError(
                    f"node {node} of the cluster {self._cluster!r} has another KROWL_RING_SECRET: give all nodes the same"
                )
            if self._has_our_ring(said):
                raise self._double()
            raise ClusterError(
                f"node {node} of the cluster {self._cluster!r} has another KROWL_RING, so that both may fetch one domain: give all"
                " nodes the same members with the same weights, or this one a KROWL_CLUSTER of its own"
            )

    def _double(self) -> DuplicateNodeError:
        return DuplicateNodeError(
            f"another process is node {self.own} of this ring: give one of them a KROWL_NODE_ID of its own, or stop it"
        )

    async def _check(self) -> None:
        if not (heard := await _read(self._board)):
            return
        before, self._heard = self._heard, heard
        others = {node: said for node, said in heard.items() if said.get("start") != self._start}
        self._refuse(before, others)

    def _hear(self, words: dict[str, Word | None]) -> None:
        self._crew = self._quiet.hear(words) if self._was_quiet else 0
        self.left = sorted(
            name for name, word in words.items() if word is not None and word.left and not word.over
        )

    async def part(self, *, drain: bool) -> None: ...

    async def _depart(self) -> None:
        if self.joined:
            # Those who have not found that all is over hear it from this one, which will not be there to say more.
            for _ in range(_LAST_WORDS):
                await self._tell(left=True)
                if self.own in await _read(self._board):
                    break
        await self.membership.leave()


async def _read(board: RedisBoard) -> Mapping[str, Counters]:
    """What is on a board; nothing when it cannot be read."""
    try:
        return await board.read()
    except UnansweredError:
        return {}
