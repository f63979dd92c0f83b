"""This process as one node of a cluster: whose a domain is, what goes out to other nodes, and what comes in from them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.claims import View
from krowlspider.cluster.forwarder import Forwarder
from krowlspider.cluster.inbox import Inbox, lengths, requests_key
from krowlspider.cluster.membership import (
    ClusterError,
    DuplicateNodeError,
    StaticMembership,
    UnansweredError,
    parse_ring,
    reading,
    static_seed,
)
from krowlspider.cluster.quiet import Quiet, Word
from krowlspider.cluster.redisio import RedisTrouble, redis_client
from krowlspider.cluster.ring import Ring
from krowlspider.cluster.signals import RedisBoard
from krowlspider.errors import KrowlError
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.settings import BaseSettings

    from krowlspider.cluster.forwarder import Outbox
    from krowlspider.cluster.membership import Counters
    from krowlspider.cluster.message import Message

logger = logging.getLogger(__name__)

# Seconds between two heartbeats: the end of a crawl is seen after three.
_BEAT = 1.0
# Heartbeats in which another process of this id, were there one, would have been heard.
_LISTENING = 2.5
# Times that a last word is said, when nobody seems to hear it.
_LAST_WORDS = 3


class Node:
    """A member of the cluster that KROWL_RING names: ``own`` is its id, ``seed`` that of the identities of all.

    Nothing is to be popped before it has ``joined``, which takes some seconds: no other process has its id then.
    ``on_change`` is called at that, ``on_over`` when the crawl is over for all nodes that have not ``left``, and
    ``on_failure`` when this one cannot go on.

    :raises ClusterError: this node is not among the members, or a URL of theirs is wrong
    """

    def __init__(self, settings: BaseSettings, spider: str):
        members = parse_ring(settings.getlist("KROWL_RING"))
        self.own: str = settings["KROWL_NODE_ID"] or socket.gethostname()
        self.seed = int.from_bytes(static_seed(settings["KROWL_CLUSTER"]), "big")
        self._spider = spider
        self._inbox_max = settings.getint("KROWL_INBOX_MAX")
        try:
            self._clients = {member.id: redis_client(member.redis) for member in members}
        except ValueError as error:
            raise ClusterError(f"KROWL_RING: {error}") from error
        # What each says of itself is shown in one Redis: the first member's.
        self._board = RedisBoard(self._clients[members[0].id], settings["KROWL_CLUSTER"])
        self.membership = StaticMembership(
            self.own, members, settings["KROWL_CLUSTER"], board=self._board
        )
        # The claim of each is this ring, for ever.
        self.view = View(self.own, reading(self.membership), (Ring(members),))
        self._quiet = Quiet()
        self._start = secrets.randbits(52)
        self._beat = 0
        # The processes for which the crawl is over.
        self._crew = 0
        self._tasks: list[asyncio.Task[None]] = []
        # Whether it has been begun, and whether it may fetch.
        self.running = self.joined = False
        # Those that ended before all was over.
        self.left: list[str] = []
        self.on_change: Callable[[], None] = lambda: None
        self.on_over: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda _: None

    @property
    def place(self) -> str:
        """This node in this ring, in a word."""
        return f"{self.own} of {self.view.ring.checksum}"

    def may_fetch(self, domain: str) -> bool:
        """Whether a domain is ours: errands for robots.txt too may lead to others."""
        return self.view.may_fetch(domain)

    def others(self, hosts: list[str]) -> list[str | None]:
        """The node that owns each host, None for one of ours."""
        own, owner_of = self.own, self.view.owner
        return [None if (owner := owner_of(domain_of(host))) == own else owner for host in hosts]

    @property
    def over(self) -> bool:
        """Whether nothing is left to fetch at any node."""
        return bool(self._crew)

    def run(
        self,
        outbox: Outbox,
        take: Callable[[list[Message]], Awaitable[None]],
        *,
        paused: Callable[[], bool],
        stalled: Callable[[], bool],
        rests: Callable[[], bool],
        activity: Callable[[], int],
        figures: Callable[[], Counters],
    ) -> None:
        """Join, forward what is in ``outbox`` but while it is ``stalled``, and have ``take`` store what comes in, but while
        ``paused``. ``rests`` says that frontier and outbox are empty and nothing is in transit, ``activity`` counts all
        that was ever done here, ``figures`` are for people."""
        self.forwarder = Forwarder(
            outbox,
            self._clients.get,
            requests_key(self._spider),
            inbox_max=self._inbox_max,
            paused=stalled,
        )
        self.inbox = Inbox(self._clients[self.own], self._spider, self.own, take, paused=paused)
        self._rests = rests
        self._activity = activity
        self._figures = figures
        self.running = True
        self._tasks = [asyncio.create_task(self._watched(self._work()))]

    async def _work(self) -> None:
        await self._be_alone()
        self.joined = True
        self.on_change()
        async with asyncio.TaskGroup() as tasks:
            for work in (self.forwarder.run(), self.inbox.run(), self._keep_telling()):
                tasks.create_task(work)

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            # Without it URLs would neither go nor come.
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                (error,) = error.exceptions
            if not isinstance(error, KrowlError):
                logger.critical("This node of the cluster cannot go on", exc_info=error)
            self.on_failure(error)

    async def _be_alone(self) -> None:
        """:raises DuplicateNodeError: another process of this id is telling how it goes"""
        before = await self._said()
        if before is None:
            return
        await asyncio.sleep(_LISTENING * _BEAT)
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

    async def _keep_telling(self) -> None:
        """Say how it goes, and hear the others, until the crawl of all is over."""
        while not self._crew:
            await asyncio.sleep(_BEAT)
            said = await self._said() if self._beat else None
            if said is not None and said.get("start") != self._start:
                raise self._double()
            await self._tell()
            words = {
                name: Word.of(record.counters) for name, record in self.membership.members.items()
            }
            self._crew = self._quiet.hear(words)
            self.left = sorted(
                name
                for name, word in words.items()
                if word is not None and word.left and not word.over
            )
        self.on_over()

    async def _tell(self, *, left: bool = False) -> None:
        # What was done is read first, and the inbox before the frontier: what moves from the one to the other
        # meanwhile is seen in one of them, or as activity.
        activity = self._activity()
        quiet = await self._is_inbox_empty() and self._rests() and activity == self._activity()
        self._beat += 1
        word = Word(self._start, self._beat, quiet, activity, self._crew, left)
        figures = {**self._figures(), "time": round(time.time())}
        await self.membership.beat({**figures, **word.counters()})

    async def _is_inbox_empty(self) -> bool:
        try:
            found = await lengths(self._clients[self.own], self._spider, self.own)
        except RedisTrouble:
            return False
        return not (found.requests or found.start_urls or found.processing)

    async def stop(self) -> None:
        """Forward and take no more, and say so. What has not been sent stays in the outbox."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self.joined:
            # Those who have not found that all is over hear it from this one, which will not be there to say more.
            for _ in range(_LAST_WORDS):
                await self._tell(left=True)
                if await self._said() is not None:
                    break
        self._tasks = []
        await self.membership.leave()
        for client in self._clients.values():
            await client.aclose()
