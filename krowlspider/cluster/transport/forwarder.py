"""Forward the messages of an outbox to the inboxes of their owners, in numbered batches.

The forwarding of an outbox on disk: what to push to each owner, and what it has acknowledged. An
owner is sent a stream of numbered batches, each with its mark. Only the owner says what is missing:
its acknowledgement then has a gap, and all that it has not acknowledged is sent again, in a new
stream. While it acknowledges nothing, a mark without messages asks it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from krowlspider.cluster.transport.message import (
    LIMIT,
    Mark,
    acknowledged_key,
    decode_acknowledgement,
    encode_mark,
)
from krowlspider.cluster.transport.redis_connection import (
    Backoff,
    RedisConnection,
    RedisTrouble,
    checked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

# Least and most seconds without an acknowledgement after which an owner is asked by a mark, and
# before messages are sent again that were lost again.
_WAIT = (3.0, 60.0)


class DurableOutbox(Protocol):
    """Messages on disk by owner, in the order of their sequences, as `frontier.outbox.Outbox`."""

    def owners(self) -> Iterable[str]: ...
    def after(self, owner: str, sequence: int, most: int) -> list[tuple[int, bytes]]: ...
    def note_sent(self, owner: str, sequence: int) -> None: ...
    def acknowledge(self, owner: str, last: int) -> Iterator[int]: ...


@dataclass(slots=True, eq=False)
class _Stream:
    """What one owner was sent: ``number`` batches of the stream ``id``, up to ``sent``.

    Up to ``acknowledged`` all is durable there. ``furthest`` is the last sequence of any stream.
    """

    id: int = field(default_factory=lambda: secrets.randbelow(LIMIT))
    number: int = 0
    sent: int = -1
    acknowledged: int = -1
    furthest: int = -1
    # When to ask, and how often this was done since the last acknowledgement.
    ask_at: float = 0.0
    asked: int = 0
    # How often messages were lost since the last acknowledgement; nothing is sent before ``since``.
    lost: int = 0
    since: float = 0.0


def _wait(times: int) -> float:
    least, most = _WAIT
    return min(most, least * (1 << min(times, 10)))


class Streams:
    """The `MessageSource` of a `Forwarder` that sends ``outbox`` to the lists of ``spider``.

    ``own`` is the node that sends. ``again`` counts messages that were sent before.
    """

    def __init__(
        self,
        outbox: DurableOutbox,
        own: str,
        spider: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._own = own
        self._key = acknowledged_key(spider)
        self._clock = clock
        self._streams: dict[str, _Stream] = {}
        self.owners = outbox.owners
        self.again = 0

    def next(self, owner: str, most: int) -> tuple[Sequence[int], list[bytes]]:
        """Return sequences and messages to push now. Without any, a mark may be due."""
        stream = self._stream(owner)
        if self._clock() < stream.since:
            return (), []
        found = self._outbox.after(owner, stream.sent, most)
        return [sequence for sequence, _ in found], [message for _, message in found]

    def mark(self, owner: str, sequences: Sequence[int]) -> bytes | None:
        """Return the mark to push behind messages; None if there are no messages, and it is not
        time to ask."""
        stream = self._stream(owner)
        if not sequences and not (
            stream.acknowledged < stream.sent and self._clock() >= stream.ask_at
        ):
            return None
        last = sequences[-1] if sequences else stream.sent
        return encode_mark(Mark(self._own, owner, stream.id, stream.number, last))

    def pushed(self, owner: str, sequences: Sequence[int]) -> None:
        """Note that messages, and their mark, are in the list of their owner."""
        stream = self._stream(owner)
        stream.number += 1
        if not sequences:
            stream.asked += 1
            stream.ask_at = self._clock() + _wait(stream.asked)
            return
        if stream.acknowledged == stream.sent:
            stream.ask_at = self._clock() + _wait(0)
        self.again += sum(sequence <= stream.furthest for sequence in sequences)
        stream.sent = sequences[-1]
        stream.furthest = max(stream.furthest, stream.sent)
        self._outbox.note_sent(owner, stream.sent)

    def question(self) -> tuple[str, ...]:
        """Return the command whose reply `hear` takes."""
        return "HGET", self._key, self._own

    async def hear(self, owner: str, reply: Any) -> None:
        """Take an acknowledgement: remove what is durable at its owner."""
        stream = self._stream(owner)
        heard = decode_acknowledgement(reply)
        if heard is None or heard.stream != stream.id:
            return
        last = min(heard.last, stream.sent)
        if last > stream.acknowledged:
            stream.acknowledged, stream.asked, stream.lost = last, 0, 0
            stream.ask_at = self._clock() + _wait(0)
            for _ in self._outbox.acknowledge(owner, last):
                await asyncio.sleep(0)
        if heard.has_gap:
            self._begin_again(owner, stream)

    def _begin_again(self, owner: str, stream: _Stream) -> None:
        logger.warning(
            "Sending URLs to node %s again: some have not reached it, as when its Redis crashes",
            owner,
        )
        self._outbox.note_sent(owner, stream.acknowledged)
        since = self._clock() + _wait(stream.lost - 1) if stream.lost else 0.0
        self._streams[owner] = _Stream(
            sent=stream.acknowledged,
            acknowledged=stream.acknowledged,
            furthest=stream.furthest,
            lost=stream.lost + 1,
            since=since,
        )

    def _stream(self, owner: str) -> _Stream:
        if owner not in self._streams:
            self._streams[owner] = _Stream()
        return self._streams[owner]


# Messages in one call, and their bytes.
BATCH = 500
_BATCH_BYTES = 1 << 20
# Seconds between two looks into the outbox: the longest that a URL waits here.
_FLUSH = 1.0
# Least and most seconds to wait after a failed call.
_BACKOFF = (1.0, 30.0)


class MessageSource(Protocol):
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
        source: MessageSource,
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
