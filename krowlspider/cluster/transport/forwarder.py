"""Sends what is in the outbox to the inboxes of its owners."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Protocol

from krowlspider.cluster.transport.redis_connection import (
    Backoff,
    RedisConnection,
    RedisTrouble,
    checked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

# Messages in one call, and their bytes: what a peer takes in a millisecond, and this loop packs in two.
BATCH = 500
_BATCH_BYTES = 1 << 20
# Seconds between two looks into the outbox: the longest that a URL waits here, and few small batches.
_FLUSH = 1.0
# Seconds that a peer in trouble is left alone.
_BACKOFF = (1.0, 30.0)
# Seconds after which a connection that nothing was sent over is closed.
_IDLE = 60.0


class Outbox(Protocol):
    """A durable store of messages by owner, first in, first out. Its calls are short: they run on the event loop."""

    def owners(self) -> Iterable[str]:
        """Those with messages."""

    def head(self, owner: str, count: int) -> list[tuple[bytes, bytes]]:
        """(key, message) of the oldest, at most ``count``."""

    def remove(self, owner: str, keys: Sequence[bytes]) -> object:
        """Those of ``keys`` that are still there."""


@dataclass(slots=True)
class ForwardStats:
    """Of this start: messages that peers took, calls that took them; troubles by kind; times that a full inbox held
    messages back."""

    sent: int = 0
    batches: int = 0
    held: int = 0
    failed: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class _Peer:
    """``inbox`` is the length of its inbox as it last told, None when it has to be asked."""

    client: Redis
    connection: RedisConnection
    backoff: Backoff
    used: float
    batch: int = BATCH
    inbox: int | None = None
    wait_until: float = -inf
    is_busy: bool = False
    is_failing: bool = False


class Forwarder:
    """Takes messages out of ``outbox`` when their owner's Redis has them: at least once, in order while nothing fails.

    ``client_for`` gives the client of an owner, None while it is no member: its messages wait. They go to the list
    ``key``, until it has ``inbox_max`` messages; beyond that they wait here, on disk, and while ``paused``.
    """

    def __init__(
        self,
        outbox: Outbox,
        client_for: Callable[[str], Redis | None],
        key: str,
        *,
        inbox_max: int,
        paused: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        flush: float = _FLUSH,
    ) -> None:
        self._outbox = outbox
        self._client_for = client_for
        self._key = key
        self._inbox_max = inbox_max
        self._paused = paused
        self._clock = clock
        self._flush = flush
        self._peers: dict[str, _Peer] = {}
        self.stats = ForwardStats()

    async def run(self) -> None:
        """Forward until cancelled, which loses nothing: what was not acknowledged is sent again at the next start.

        A peer in trouble holds up no other. What the outbox raises comes out, in an ExceptionGroup.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    for owner, peer in await self._due():
                        peer.is_busy = True
                        tasks.create_task(self._serve(owner, peer))
                    await self._prune()
                    await asyncio.sleep(self._flush)
        finally:
            for peer in self._peers.values():
                await peer.connection.close()
            self._peers.clear()

    async def _due(self) -> list[tuple[str, _Peer]]:
        if self._paused():
            return []
        now = self._clock()
        found = [(owner, await self._peer(owner, now)) for owner in list(self._outbox.owners())]
        return [
            (owner, peer)
            for owner, peer in found
            if peer is not None and not peer.is_busy and now >= peer.wait_until
        ]

    async def _peer(self, owner: str, now: float) -> _Peer | None:
        client = self._client_for(owner)
        peer = self._peers.get(owner)
        if peer is not None and peer.client is not client:
            if peer.is_busy:
                return None
            await self._peers.pop(owner).connection.close()
            peer = None
        if peer is None and client is not None:
            peer = _Peer(client, RedisConnection(client), Backoff(*_BACKOFF, random.random), now)
            self._peers[owner] = peer
        return peer

    async def _prune(self) -> None:
        now = self._clock()
        idle = [
            owner
            for owner, peer in self._peers.items()
            if not peer.is_busy and now - max(peer.used, peer.wait_until) > _IDLE
        ]
        for owner in idle:
            await self._peers.pop(owner).connection.close()

    async def _serve(self, owner: str, peer: _Peer) -> None:
        try:
            await self._send_all(owner, peer)
        except RedisTrouble as error:
            self._failed(owner, peer, error)
        else:
            self._worked(owner, peer)
        finally:
            peer.used = self._clock()
            peer.is_busy = False

    async def _send_all(self, owner: str, peer: _Peer) -> None:
        if peer.inbox is None or peer.inbox >= self._inbox_max:
            (peer.inbox,) = checked(await peer.connection.talk(("LLEN", self._key)))
        while not self._paused() and (entries := self._head(owner, peer)):
            if peer.inbox >= self._inbox_max:
                self.stats.held += 1
                return
            messages = [message for _, message in entries]
            # The first value is pushed first, so it is the first that the owner pops. The reply is the list's length.
            (peer.inbox,) = checked(await peer.connection.talk(("LPUSH", self._key, *messages)))
            self._outbox.remove(owner, [key for key, _ in entries])
            peer.batch = min(peer.batch * 2, BATCH)
            self.stats.sent += len(entries)
            self.stats.batches += 1

    def _head(self, owner: str, peer: _Peer) -> list[tuple[bytes, bytes]]:
        entries = self._outbox.head(owner, peer.batch)
        left = _BATCH_BYTES
        for count, (_, message) in enumerate(entries):
            left -= len(message)
            if left < 0 and count:
                return entries[:count]
        return entries

    def _failed(self, owner: str, peer: _Peer, error: RedisTrouble) -> None:
        self.stats.failed[error.kind] += 1
        peer.inbox = None
        peer.wait_until = self._clock() + peer.backoff.failed()
        if error.kind == "timeout":
            # A slow way may have taken all of it but the reply: less at a time gets through, and repeats less.
            peer.batch = max(peer.batch // 2, 1)
        if not peer.is_failing:
            logger.warning("What belongs to node %s waits in the outbox: %s", owner, error)
        peer.is_failing = True

    def _worked(self, owner: str, peer: _Peer) -> None:
        peer.backoff.worked()
        if peer.is_failing:
            logger.info("Node %s takes what belongs to it again", owner)
        peer.is_failing = False
