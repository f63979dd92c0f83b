"""Sends messages to the inboxes of their owners."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from krowlspider.cluster.transport.redis_connection import (
    Backoff,
    RedisConnection,
    RedisTrouble,
    checked,
)

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


class Source(Protocol):
    """Messages that wait by owner, first in, first out."""

    def owners(self) -> Iterable[str]:
        """Return the nodes for which there are messages."""

    def next(self, owner: str, most: int) -> tuple[Sequence[Any], list[bytes]]:
        """Return keys and messages to push next."""

    def mark(self, owner: str, keys: Sequence[Any]) -> bytes | None:
        """Return what to push behind the messages with these keys, if anything."""

    def pushed(self, owner: str, keys: Sequence[Any]) -> None:
        """Note that messages are in the list of their owner."""

    def question(self) -> tuple[str, ...]:
        """Return a command for the Redis of each owner, whose reply `hear` takes; empty: none."""

    async def hear(self, owner: str, reply: Any) -> None: ...


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
    """Sends the messages of ``source``.

    Each is sent at least once, in order while nothing fails, to the list ``key`` while that has
    less than ``inbox_max``. ``client_for`` returns the client of an owner, None for no member.
    ``what`` names the messages in the log.
    """

    def __init__(
        self,
        source: Source,
        client_for: Callable[[str], Redis | None],
        key: str,
        *,
        inbox_max: int,
        paused: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        flush: float = _FLUSH,
        what: str = "URLs",
    ) -> None:
        self._source = source
        self._client_for = client_for
        self._key = key
        self._inbox_max = inbox_max
        self._paused = paused
        self._clock = clock
        self._flush = flush
        self._what = what
        self._question = source.question()
        self._peers: dict[str, _Peer] = {}
        self.stats = ForwardStats()

    async def run(self) -> None:
        """Forward until cancelled. A peer in trouble holds up no other.

        :raises ExceptionGroup: the source failed
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._close_outdated()
                    for owner in () if self._paused() else list(self._source.owners()):
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
            await self._look(owner, peer)
        has_heard = False
        while not self._paused():
            keys, messages = self._next(owner)
            mark = self._source.mark(owner, keys)
            if not messages and mark is None:
                break
            if messages and (peer.inbox or 0) >= self._inbox_max:
                self.stats.inbox_full += 1
                return
            await self._push(owner, peer, keys, messages if mark is None else [*messages, mark])
            has_heard = True
        if self._question and not has_heard:
            await self._look(owner, peer)

    async def _look(self, owner: str, peer: _Peer) -> None:
        await self._hear(owner, await self._call(peer, ("LLEN", self._key)))

    async def _push(
        self, owner: str, peer: _Peer, keys: Sequence[Any], values: list[bytes]
    ) -> None:
        # The first value is pushed first, so the owner pops it first. The reply is the length.
        replies = await self._call(peer, ("LPUSH", self._key, *values), is_bulk=True)
        self._source.pushed(owner, keys)
        self.stats.sent += len(keys)
        self.stats.batches += bool(keys)
        await self._hear(owner, replies)

    async def _call(
        self, peer: _Peer, command: tuple[str | bytes, ...], *, is_bulk: bool = False
    ) -> Sequence[Any]:
        """Do a command that returns the length of the list; return the reply to the question."""
        commands = [command, self._question] if self._question else [command]
        replies = checked(await peer.connection.call_all(*commands, is_bulk=is_bulk))
        peer.inbox = replies[0]
        return replies[1:]

    async def _hear(self, owner: str, replies: Sequence[Any]) -> None:
        for reply in replies:
            await self._source.hear(owner, reply)

    def _next(self, owner: str) -> tuple[Sequence[Any], list[bytes]]:
        keys, messages = self._source.next(owner, BATCH)
        left = _BATCH_BYTES
        for count, message in enumerate(messages):
            left -= len(message)
            if left < 0 and count:
                return keys[:count], messages[:count]
        return keys, messages
