"""Sends the messages in the outbox to the inboxes of their owners."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Protocol

from krowlspider.cluster.transport.redis_connection import Backoff, RedisConnection, RedisTrouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redis.asyncio import Redis

# Messages in one call, and their bytes.
BATCH = 500
_BATCH_BYTES = 1 << 20
# Seconds between two looks into the outbox: the longest that a URL waits here.
_FLUSH = 1.0
# Least and most seconds to wait after a failed call.
_BACKOFF = (1.0, 30.0)


class Outbox(Protocol):
    """A durable store of messages by owner, first in, first out."""

    def owners(self) -> Iterable[str]:
        """Return the nodes for which there are messages."""

    def head(self, owner: str, most: int) -> list[tuple[bytes, bytes]]:
        """Return key and message of an owner's oldest messages."""

    def remove(self, owner: str, keys: Sequence[bytes]) -> object:
        """Remove messages that `head` returned; those that are gone already are ignored."""


@dataclass(slots=True)
class ForwardStats:
    """Since this start: messages sent, in batches; looks at which an inbox was full."""

    sent: int = 0
    batches: int = 0
    inbox_full: int = 0
    # Failed calls by kind.
    failed: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class _Peer:
    """The way to one owner; ``inbox`` is the last known length of its inbox, if known."""

    client: Redis
    connection: RedisConnection
    backoff: Backoff
    inbox: int | None = None
    wait_until: float = -inf
    is_busy: bool = False


class Forwarder:
    """Removes messages from ``outbox`` once their owner's Redis has them.

    Each is sent at least once, in order while nothing fails, to the list ``key`` while that has
    less than ``inbox_max``. ``client_for`` returns the client of an owner, None for no member.
    ``what`` names the messages in the log.
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
        what: str = "URLs",
    ) -> None:
        self._outbox = outbox
        self._client_for = client_for
        self._key = key
        self._inbox_max = inbox_max
        self._paused = paused
        self._clock = clock
        self._flush = flush
        self._what = what
        self._peers: dict[str, _Peer] = {}
        self.stats = ForwardStats()

    async def run(self) -> None:
        """Forward until cancelled. A peer in trouble holds up no other.

        :raises ExceptionGroup: the outbox failed
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._close_outdated()
                    for owner in () if self._paused() else list(self._outbox.owners()):
                        peer = self._peer(owner)
                        if peer and not peer.is_busy and self._clock() >= peer.wait_until:
                            peer.is_busy = True
                            tasks.create_task(self._serve(owner, peer))
                    await asyncio.sleep(self._flush)
        finally:
            for peer in self._peers.values():
                await peer.connection.close()
            self._peers.clear()

    async def _close_outdated(self) -> None:
        """Close connections to a Redis that is not its owner's any more."""
        for owner, peer in list(self._peers.items()):
            if not peer.is_busy and self._client_for(owner) is not peer.client:
                del self._peers[owner]
                await peer.connection.close()

    def _peer(self, owner: str) -> _Peer | None:
        if owner not in self._peers and (client := self._client_for(owner)) is not None:
            name = f"Sending {self._what} to node {owner}"
            backoff = Backoff(*_BACKOFF, name=name, failed=self.stats.failed)
            self._peers[owner] = _Peer(client, RedisConnection(client), backoff)
        return self._peers.get(owner)

    async def _serve(self, owner: str, peer: _Peer) -> None:
        try:
            await self._send_all(owner, peer)
            peer.backoff.succeed()
        except RedisTrouble as error:
            peer.inbox = None
            peer.wait_until = self._clock() + peer.backoff.fail(error)
        finally:
            peer.is_busy = False

    async def _send_all(self, owner: str, peer: _Peer) -> None:
        if peer.inbox is None or peer.inbox >= self._inbox_max:
            peer.inbox = await peer.connection.call("LLEN", self._key)
        while not self._paused() and (entries := self._head(owner)):
            if (peer.inbox or 0) >= self._inbox_max:
                self.stats.inbox_full += 1
                return
            messages = [message for _, message in entries]
            # The first value is pushed first, so the owner pops it first. The reply is the length.
            peer.inbox = await peer.connection.call("LPUSH", self._key, *messages, is_bulk=True)
            self._outbox.remove(owner, [key for key, _ in entries])
            self.stats.sent += len(entries)
            self.stats.batches += 1

    def _head(self, owner: str) -> list[tuple[bytes, bytes]]:
        entries = self._outbox.head(owner, BATCH)
        left = _BATCH_BYTES
        for count, (_, message) in enumerate(entries):
            left -= len(message)
            if left < 0 and count:
                return entries[:count]
        return entries
