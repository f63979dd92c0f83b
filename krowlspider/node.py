"""This process as one node of a cluster: whose a domain is, what goes out to other nodes, and what comes in from them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.claims import Claimant
from krowlspider.cluster.forwarder import Forwarder
from krowlspider.cluster.inbox import Inbox, lengths, requests_key
from krowlspider.cluster.membership import StaticMembership, parse_ring, reading, static_seed
from krowlspider.cluster.quiet import Quiet, Word
from krowlspider.cluster.redisio import RedisTrouble, redis_client
from krowlspider.cluster.signals import RedisBoard
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.claims import View
    from krowlspider.cluster.forwarder import Outbox
    from krowlspider.cluster.membership import Counters
    from krowlspider.cluster.message import Message

logger = logging.getLogger(__name__)

# Seconds between two heartbeats: the end of a crawl is seen after three.
_BEAT = 1.0


class Node:
    """A member of the cluster that KROWL_RING names: ``own`` is its id, ``seed`` that of the identities of all.

    ``on_over`` is called when the crawl of all nodes is over, ``on_failure`` when this one cannot go on.

    :raises ClusterError: this node is not among the members
    """

    def __init__(self, settings: BaseSettings, spider: str):
        members = parse_ring(settings.getlist("KROWL_RING"))
        self.own: str = settings["KROWL_NODE_ID"] or socket.gethostname()
        self.seed = int.from_bytes(static_seed(settings["KROWL_CLUSTER"]), "big")
        self._spider = spider
        self._inbox_max = settings.getint("KROWL_INBOX_MAX")
        self._redis = {member.id: member.redis for member in members}
        self._clients: dict[str, Redis] = {}
        # What each says of itself is shown in one Redis: the first member's.
        board = RedisBoard(redis_client(members[0].redis), settings["KROWL_CLUSTER"])
        self.membership = StaticMembership(
            self.own, members, settings["KROWL_CLUSTER"], board=board
        )
        claimant = Claimant(self.own)
        claimant.see(reading(self.membership))
        assert claimant.view is not None
        # The claims of a static ring are that ring, for ever.
        claimant.begin((claimant.view.ring,))
        claimant.confirm(reading(self.membership))
        self.view: View = claimant.view
        self._quiet = Quiet()
        self._start = secrets.randbits(52)
        self._beat = 0
        # The processes for which the crawl is over.
        self._crew = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.on_over: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda _: None

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
        rests: Callable[[], bool],
        activity: Callable[[], int],
        figures: Callable[[], Counters],
    ) -> None:
        """Forward what is in ``outbox``, and have ``take`` store what comes in, but while ``paused``. ``rests`` says that
        frontier and outbox are empty and nothing is in transit, ``activity`` counts all that was ever done here,
        ``figures`` are for people."""
        self.forwarder = Forwarder(
            outbox, self._client, requests_key(self._spider), inbox_max=self._inbox_max
        )
        self.inbox = Inbox(self._client(self.own), self._spider, self.own, take, paused=paused)
        self._rests = rests
        self._activity = activity
        self._figures = figures
        self._tasks = [
            asyncio.create_task(self._watched(work))
            for work in (self.forwarder.run(), self.inbox.run(), self._keep_telling())
        ]

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - without it URLs would neither go nor come
            self.on_failure(error)

    async def _keep_telling(self) -> None:
        """Say how it goes, and hear the others, until the crawl of all is over."""
        while not self._crew:
            await asyncio.sleep(_BEAT)
            await self._tell()
            words = {
                name: Word.of(record.counters) for name, record in self.membership.members.items()
            }
            self._crew = self._quiet.hear(words)
        # Those who have not found it yet hear it from this one, which will not be there to say more.
        await self._tell()
        self.on_over()

    async def _tell(self) -> None:
        # What was done is read first, and the inbox before the frontier: what moves from the one to the other
        # meanwhile is seen in one of them, or as activity.
        activity = self._activity()
        quiet = await self._is_inbox_empty() and self._rests() and activity == self._activity()
        self._beat += 1
        word = Word(self._start, self._beat, quiet, activity, self._crew)
        await self.membership.beat({**self._figures(), **word.counters()})

    async def _is_inbox_empty(self) -> bool:
        try:
            found = await lengths(self._client(self.own), self._spider, self.own)
        except RedisTrouble:
            return False
        return not (found.requests or found.start_urls or found.processing)

    def _client(self, node: str) -> Redis:
        client = self._clients.get(node)
        if client is None:
            client = self._clients[node] = redis_client(self._redis[node])
        return client

    async def stop(self) -> None:
        """Forward and take no more. What has not been sent stays in the outbox."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks = []
        await self.membership.leave()
        for client in self._clients.values():
            await client.aclose()
