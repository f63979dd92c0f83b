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
    static_seed,
)
from krowlspider.cluster.ring import Ring
from krowlspider.cluster.signals import RedisBoard, RedisBudget, RedisSignals
from krowlspider.node import BEAT, Crawl, Node

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.membership import Counters
    from krowlspider.cluster.quiet import Word

# Heartbeats in which another process of this id, were there one, would have been heard.
_LISTENING = 2.5
# Times that a last word is said, when nobody seems to hear it.
_LAST_WORDS = 3


class StaticNode(Node):
    """A member of KROWL_RING.

    :raises ClusterError: this node is not among the members, or a URL of theirs is wrong
    """

    def __init__(self, settings: BaseSettings, spider: str):
        super().__init__(settings, spider)
        members = parse_ring(settings.getlist("KROWL_RING"))
        self.seed = int.from_bytes(static_seed(settings["KROWL_CLUSTER"]), "big")
        try:
            self._of = {member.id: self._client(member.redis) for member in members}
        except ClusterError as error:
            raise ClusterError(f"KROWL_RING: {error}") from error
        # What each says of itself is shown in one Redis: the first member's.
        self._board = RedisBoard(self._of[members[0].id], settings["KROWL_CLUSTER"])
        self.membership: StaticMembership = StaticMembership(
            self.own, members, settings["KROWL_CLUSTER"], board=self._board
        )
        self.signals = RedisSignals(self._of[members[0].id], settings["KROWL_CLUSTER"])
        if self.pages:
            self.budget = RedisBudget(
                self._of[members[0].id], settings["KROWL_CLUSTER"], self.pages
            )
        # The claim of each is this ring, for ever.
        self._view = View(self.own, reading(self.membership), (Ring(members),))
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
            self._of[self.own], self._spider, self.own, crawl.take_in, paused=lambda: crawl.full
        )

    async def _join(self) -> None:
        """:raises DuplicateNodeError: another process of this id is telling how it goes"""
        before = await self._said()
        if before is None:
            return
        await asyncio.sleep(_LISTENING * BEAT)
        if (await self._said() or before) != before:
            raise self._double()

    def _double(self) -> DuplicateNodeError:
        return DuplicateNodeError(
            f"another process is node {self.own} of this ring: give one of them a KROWL_NODE_ID of its own, or stop it"
        )

    async def _said(self) -> Counters | None:
        """What a process of this id has said last; None when nobody knows."""
        try:
            return (await self._board.read()).get(self.own)
        except UnansweredError:
            return None

    async def _check(self) -> None:
        said = await self._said() if self._beat else None
        if said is not None and said.get("start") != self._start:
            raise self._double()

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
                if await self._said() is not None:
                    break
        await self.membership.leave()
