"""Takes in what others have sent: from Redis lists, by a processing list, into the crawl. At least once, first in first out.

A message is moved to a processing list that only this node touches, stored, and then removed from there by its own bytes:
a removal that was held up in a frozen server or a cut network, and comes through later, can only take off what equals
a message that has been stored. A removal by count would take off another one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from redis.exceptions import ResponseError

from krowlspider.cluster.transport.message import (
    MAX_MESSAGE,
    TURN,
    BadMessage,
    Message,
    decode,
    decode_start,
)
from krowlspider.cluster.transport.redis_connection import (
    Backoff,
    RedisConnection,
    RedisTrouble,
    checked,
    trouble,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

# A turn is asked for fewer messages when it brought more bytes than these.
_TURN_BYTES = 4 << 20
# Messages of the first turn: nobody knows yet how long they are.
FIRST_TURN = 1000
# Messages that are decoded and decided in one step of the loop, 15 ms, and their bytes.
_STEP = 500
_STEP_BYTES = 1 << 20
# Chunks of hosts of one turn: 12 MB of the longest.
_CHUNKS = 64
# Bytes of a chunk: one may be of a single entry, with a long request in it. The worst JSON of so many takes 0.1 s to read.
MAX_CHUNK = 4 << 20
# Seconds between two looks at an empty list, or while paused. A look costs 0.1 ms.
_POLL = 0.2
# Seconds that a Redis in trouble is left alone.
_BACKOFF = (0.2, 5.0)
# Seconds for one message by itself, when larger turns had no answer in time: it may be hundreds of megabytes.
_LONG = 30.0
# Bytes of an unreadable message that are kept, and how many such messages.
DEAD_BYTES = 4096
DEAD_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """Messages in the lists of one inbox."""

    requests: int
    start_urls: int
    hosts: int
    processing: int
    dead: int


@dataclass(slots=True)
class InboxStats:
    """Of this start: messages stored, unreadable ones, those of them that no list kept; troubles by kind."""

    taken: int = 0
    dead: int = 0
    dead_lost: int = 0
    failed: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class _List:
    """``take`` gives a reason for each message that is to go to the dead list, ``settle`` makes durable what it took, where
    it does not do so itself. ``most`` are taken in one turn, of at most ``longest`` bytes each. ``waiting`` and ``left``
    are its length and that of its processing list, as Redis last told; None: to be asked."""

    key: str
    processing: str
    read: Callable[[bytes], Any]
    take: Callable[[list[Any]], Awaitable[Sequence[str | None]]]
    paused: Callable[[], bool]
    connection: RedisConnection
    settle: Callable[[], Awaitable[None]] | None = None
    most: int = TURN
    longest: int = MAX_MESSAGE
    waiting: int = 0
    left: int | None = None
    size: int = FIRST_TURN


def requests_key(spider: str) -> str:
    return f"{spider}:requests"


def hosts_key(spider: str) -> str:
    return f"{spider}:hosts"


def processing_key(key: str, node: str) -> str:
    """Where ``node`` keeps what it is taking in from the list ``key``."""
    return f"{key}:processing:{node}"


def _keys(spider: str) -> tuple[str, str, str, str]:
    return requests_key(spider), f"{spider}:start_urls", hosts_key(spider), f"{spider}:dead"


async def lengths(client: Redis, spider: str, node: str) -> Lengths:
    """Of the inbox of ``node``, in its own Redis.

    :raises RedisTrouble: it does not tell
    """
    *lists, dead_key = _keys(spider)
    connection = RedisConnection(client)
    try:
        keys = (*lists, *(processing_key(key, node) for key in lists), dead_key)
        found = checked(await connection.talk(*(("LLEN", key) for key in keys)))
    finally:
        await connection.close()
    requests, starts, hosts, *processing, dead = found
    return Lengths(requests, starts, hosts, sum(processing), dead)


class Inbox:
    """The lists ``{spider}:requests`` and ``{spider}:start_urls`` in this node's own Redis, and ``{spider}:hosts``, with the
    chunks of hosts that come from other nodes.

    ``take`` decides on messages, oldest first; those that it got twice look alike. ``settle`` returns when what was decided
    is durable. ``take_hosts`` does both with chunks, as parsed from JSON, and returns for each why it cannot be taken, or
    None; without it they are left. Nothing is asked for while ``paused`` says so, no chunks while ``hosts_paused`` does.
    What cannot be read or taken goes to ``{spider}:dead`` with its reason. ``turn`` is the most that is taken at once.
    ``wall`` gives the time in seconds since 1970.
    """

    def __init__(
        self,
        client: Redis,
        spider: str,
        node: str,
        take: Callable[[list[Message]], Awaitable[None]],
        *,
        settle: Callable[[], Awaitable[None]] | None = None,
        take_hosts: Callable[[list[Any]], Awaitable[Sequence[str | None]]] | None = None,
        paused: Callable[[], bool] = lambda: False,
        hosts_paused: Callable[[], bool] = lambda: False,
        turn: int = TURN,
        wall: Callable[[], float] = time.time,
        poll: float = _POLL,
    ) -> None:
        requests, starts, hosts, self._dead = _keys(spider)
        self._lists = [
            _List(
                key,
                processing_key(key, node),
                read,
                self._take_messages,
                paused,
                RedisConnection(client),
                settle,
                most=turn,
                size=min(FIRST_TURN, turn),
            )
            for key, read in ((requests, decode), (starts, decode_start))
        ]
        if take_hosts is not None:
            processing, connection = processing_key(hosts, node), RedisConnection(client)
            each = _List(
                hosts,
                processing,
                _chunk,
                take_hosts,
                hosts_paused,
                connection,
                most=_CHUNKS,
                longest=MAX_CHUNK,
                size=_CHUNKS,
            )
            self._lists.append(each)
        self._take = take
        self._taking = asyncio.Lock()
        self._wall = wall
        self._poll = poll
        self.stats = InboxStats()

    async def run(self) -> None:
        """Take in until cancelled, whatever becomes of Redis. What ``take`` raises comes out, in an ExceptionGroup."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in self._lists:
                    tasks.create_task(self._serve(each))
        finally:
            for each in self._lists:
                await each.connection.close()

    async def _serve(self, each: _List) -> None:
        backoff = Backoff(*_BACKOFF, random.random)
        is_failing = False
        while True:
            try:
                wait = 0.0 if not each.paused() and await self._turn(each) else self._poll
                backoff.worked()
                if is_failing:
                    logger.info("Redis gives %s again", each.key)
                is_failing = False
            except RedisTrouble as error:
                self.stats.failed[error.kind] += 1
                each.left = None
                if error.kind == "timeout":
                    each.size = max(each.size // 10, 1)
                if not is_failing:
                    logger.warning("Redis does not give %s: %s", each.key, error)
                is_failing = True
                wait = backoff.failed()
            if wait:
                await asyncio.sleep(wait)

    async def _turn(self, each: _List) -> bool:
        """Whether there was anything."""
        if each.left is None or not (each.waiting or each.left):
            sizes = await each.connection.talk(("LLEN", each.key), ("LLEN", each.processing))
            each.waiting, each.left = checked(sizes)
            if not (each.waiting or each.left):
                return False
        # What a former turn left is older than what waits.
        moves = [] if each.left else self._moves(each)
        messages = await self._oldest(each, each.processing, moves)
        if messages:
            await self._store(each, messages)
            await self._remove(each, each.processing, messages)
        # A Redis without room moves nothing, and gets room only by what is taken out of it.
        elif await self._is_full(each) and (messages := await self._oldest(each, each.key)):
            await self._store(each, messages)
            await self._remove(each, each.key, messages)
        return True

    def _moves(self, each: _List) -> list[bytes]:
        move = each.connection.pack("LMOVE", each.key, each.processing, "RIGHT", "LEFT")
        return [move] * min(each.size, each.waiting)

    async def _oldest(self, each: _List, key: str, before: Sequence[bytes] = ()) -> list[bytes]:
        """Up to ``size`` messages of a list, the oldest first, when the commands ``before`` have been executed."""
        packed = [
            *_unanswered(each.connection, before),
            each.connection.pack("LRANGE", key, -each.size, -1),
        ]
        messages: list[bytes] = (await self._send(each, packed, 2 if before else 1))[-1]
        if sum(map(len, messages)) > _TURN_BYTES:
            each.size = max(each.size // 2, 1)
        else:
            each.size = min(each.size * 2, each.most)
        return messages[::-1]

    async def _remove(self, each: _List, key: str, messages: list[bytes]) -> None:
        *most, last = each.connection.pack_each(("LREM", key, -1), messages)
        packed = [
            *_unanswered(each.connection, most),
            last,
            each.connection.pack("LLEN", each.key),
            each.connection.pack("LLEN", each.processing),
        ]
        _, each.waiting, each.left = (await self._send(each, packed, 4 if most else 3))[-3:]

    async def _send(self, each: _List, packed: Sequence[bytes], replies: int) -> Sequence[Any]:
        try:
            patience = _LONG if each.size == 1 else None
            return checked(await each.connection.send(packed, replies, patience))
        except RedisTrouble:
            # Where CLIENT is forbidden, what was to be unanswered was answered.
            await each.connection.close()
            raise

    async def _is_full(self, each: _List) -> bool:
        """Why nothing was moved.

        :raises RedisTrouble: it is not for want of room
        """
        (reply,) = await each.connection.talk(("LMOVE", each.key, each.processing, "RIGHT", "LEFT"))
        each.left = None
        if not isinstance(reply, ResponseError):
            return False
        error = trouble(reply)
        if error.kind != "full":
            raise error from reply
        return True

    async def _store(self, each: _List, messages: list[bytes]) -> None:
        good: list[tuple[bytes, Any]] = []
        bad: list[tuple[bytes, str]] = []
        size = 0
        for data in messages:
            try:
                good.append((data, each.read(data)))
            except BadMessage as error:
                bad.append((data, str(error)))
            size += min(len(data), each.longest)
            if size >= _STEP_BYTES or len(good) >= _STEP:
                await self._step(each, good, bad)
                good, bad, size = [], [], 0
        await self._step(each, good, bad)
        if each.settle is not None:
            await each.settle()

    async def _step(
        self, each: _List, good: list[tuple[bytes, Any]], bad: list[tuple[bytes, str]]
    ) -> None:
        if good:
            reasons = await each.take([message for _, message in good])
            bad += [
                (data, reason)
                for (data, _), reason in zip(good, reasons, strict=True)
                if reason is not None
            ]
        if bad:
            await self._bury(each, bad)
        await asyncio.sleep(0)

    async def _take_messages(self, messages: list[Message]) -> list[None]:
        async with self._taking:
            await self._take(messages)
        self.stats.taken += len(messages)
        return [None] * len(messages)

    async def _bury(self, each: _List, bad: Sequence[tuple[bytes, str]]) -> None:
        """Put unreadable messages on the dead list. Where it takes none, they are gone: they are of no use to anybody."""
        notes = [
            msgspec.json.encode(
                {
                    "message": data[:DEAD_BYTES].decode("utf-8", "backslashreplace"),
                    "reason": reason,
                    "time": round(self._wall(), 3),
                }
            )
            for data, reason in bad
        ]
        self.stats.dead += len(bad)
        logger.warning("%d messages of %s are unreadable: %r", len(bad), each.key, bad[0][1])
        replies = await each.connection.talk(
            ("LPUSH", self._dead, *notes), ("LTRIM", self._dead, 0, DEAD_MAX - 1)
        )
        if isinstance(replies[0], ResponseError):
            self.stats.dead_lost += len(bad)


def _chunk(data: bytes) -> Any:
    """:raises BadMessage: it is no JSON, or too long"""
    if len(data) > MAX_CHUNK:
        raise BadMessage(f"longer than {MAX_CHUNK} bytes")
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)[:200]) from error


def _unanswered(connection: RedisConnection, commands: Sequence[bytes]) -> list[bytes]:
    """Commands of which only one reply comes back: reading theirs would cost more than all the rest. None for none."""
    if not commands:
        return []
    off, on = connection.pack("CLIENT", "REPLY", "OFF"), connection.pack("CLIENT", "REPLY", "ON")
    return [off, *commands, on]
