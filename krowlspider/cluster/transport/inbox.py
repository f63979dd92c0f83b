"""Take in what people and other nodes send, from the lists in this node's own Redis.

Reads messages from one Redis list: at least once, first in, first out. Messages stay in the list
until they are stored. Then as many are removed, if their bytes are those that were read. So a
removal that a frozen server or a cut network delays can only remove what equals stored messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha1
from typing import TYPE_CHECKING, Any

import msgspec
from redis.exceptions import ResponseError

from krowlspider.cluster.transport.message import (
    TURN,
    BadMessage,
    Mark,
    Message,
    acknowledged_key,
    decode,
    decode_mark,
    decode_start,
    is_mark,
)
from krowlspider.cluster.transport.posts import decode_order, decode_robots
from krowlspider.cluster.transport.redis_connection import (
    Backoff,
    RedisConnection,
    RedisTrouble,
    checked,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from redis.asyncio import Redis

# Bytes after which a turn takes no more messages.
_TURN_BYTES = 4 << 20
# Return at most ARGV[1] of the oldest messages, the oldest first; none behind ARGV[2] bytes.
_READ = """
local found, bytes = {}, 0
local most, enough = tonumber(ARGV[1]), tonumber(ARGV[2])
while #found < most and bytes <= enough do
    local count = math.min(50, most - #found)
    local some = redis.call('LRANGE', KEYS[1], -#found - count, -#found - 1)
    for at = #some, 1, -1 do
        found[#found + 1] = some[at]
        bytes = bytes + #some[at]
        if bytes > enough then break end
    end
    if #some < count then break end
end
return found
"""
# Remove the ARGV[1] oldest messages if the SHA-1 of all of them, the newest first, is ARGV[2].
_REMOVE = """
local found = redis.call('LRANGE', KEYS[1], -ARGV[1], -1)
if redis.sha1hex(table.concat(found)) == ARGV[2] then
    redis.call('LTRIM', KEYS[1], 0, -ARGV[1] - 1)
end
"""


class ListReader:
    """Reads the list ``key``. Each call may raise RedisTrouble."""

    def __init__(self, client: Redis, key: str) -> None:
        self.key = key
        self.connection = RedisConnection(client)
        # Messages that are stored and perhaps still in the list.
        self._stored: list[bytes] = []

    async def read(self, most: int) -> list[bytes]:
        """Return the oldest messages, at most ``most``, oldest first. They stay until `remove`."""
        if self._stored:
            await self.remove(self._stored)
        found: list[bytes] = await self.connection.call(
            *("EVAL", _READ, 1, self.key, most, _TURN_BYTES), is_bulk=True
        )
        return found

    async def remove(
        self, messages: list[bytes], *before: Sequence[str | bytes | int]
    ) -> Sequence[Any]:
        """Remove the messages that `read` has returned last, and that are stored.

        Return the replies to the commands ``before``, which are done first. If it fails, the next
        `read` does it, without them.
        """
        self._stored = messages
        digest = sha1(b"".join(reversed(messages)), usedforsecurity=False).hexdigest()
        remove = ("EVAL", _REMOVE, 1, self.key, len(messages), digest)
        *replies, removed = await self.connection.call_all(*before, remove, is_bulk=True)
        checked([removed])
        self._stored = []
        return replies


logger = logging.getLogger(__name__)

# Messages in a node's inbox. When it is full, the other nodes keep theirs in their outbox.
INBOX_MAX = 1_000_000
# Messages, and their bytes, that are decoded and queued in one step of the event loop, 15 ms.
_STEP = 500
_STEP_BYTES = 1 << 20
# Chunks of hosts, messages about robots.txt, and orders of people, in one turn.
_CHUNKS = 256
_ROBOTS = 100
_ORDERS = 10
# Bytes of a chunk. A single entry may have a long request; the worst JSON takes 0.1 s to read.
MAX_CHUNK = 4 << 20
# Seconds between two looks at an empty list, or while paused.
_POLL = 0.2
# Least and most seconds to wait after a failed call.
_BACKOFF = (0.2, 5.0)
# Bytes kept of an unreadable message, and the number of such messages kept.
DEAD_BYTES = 4096
DEAD_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """The number of messages in the lists of one inbox."""

    requests: int
    start_urls: int
    hosts: int
    dead: int
    robots: int = 0
    orders: int = 0


@dataclass(slots=True)
class InboxStats:
    """Since this start: messages taken, unreadable ones, those that the dead list refused."""

    taken: int = 0
    dead: int = 0
    dead_lost: int = 0
    # Failed calls by kind.
    failed: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, eq=False)
class _List:
    """A list and what becomes of its messages; ``take`` is as ``take_hosts`` of the `Inbox`."""

    reader: ListReader
    decode: Callable[[bytes], Any]
    take: Callable[[list[Any]], Awaitable[Sequence[str | None]]]
    make_durable: Callable[[list[Mark]], Awaitable[Mapping[str, bytes]]]
    paused: Callable[[], bool]
    most: int


def requests_key(spider: str) -> str:
    return f"{spider}:requests"


def start_urls_key(spider: str) -> str:
    return f"{spider}:start_urls"


def hosts_key(spider: str) -> str:
    return f"{spider}:hosts"


def robots_key(spider: str) -> str:
    return f"{spider}:robots"


def orders_key(spider: str) -> str:
    return f"{spider}:orders"


def _keys(spider: str) -> tuple[str, str, str, str, str, str]:
    inboxes = (
        requests_key(spider),
        start_urls_key(spider),
        hosts_key(spider),
        robots_key(spider),
        orders_key(spider),
    )
    return *inboxes, f"{spider}:dead"


async def lengths(client: Redis, spider: str) -> Lengths:
    """Return the lengths of the lists of a node's inbox, which are in its own Redis.

    :raises RedisTrouble: the Redis does not answer
    """
    connection = RedisConnection(client)
    try:
        found = checked(await connection.call_all(*(("LLEN", key) for key in _keys(spider))))
    finally:
        await connection.close()
    requests, starts, hosts, robots, orders, dead = found
    return Lengths(requests, starts, hosts, dead, robots, orders)


async def waiting(client: Redis, spider: str) -> int:
    """Return how many messages wait in a node's inbox; -1 if its Redis does not answer."""
    try:
        found = await lengths(client, spider)
    except RedisTrouble:
        return -1
    return found.requests + found.start_urls + found.hosts + found.robots + found.orders


async def _nothing(_: list[Mark]) -> Mapping[str, bytes]:
    """Do nothing: what was taken is durable already."""
    return {}


class Inbox:
    """The inbox of a node for one spider.

    ``{spider}:requests`` and ``{spider}:start_urls`` have messages, ``{spider}:hosts`` chunks of
    hosts that other nodes hand over, ``{spider}:robots`` their messages about robots.txt, and
    ``{spider}:orders`` orders of people there. What cannot be read or taken goes to
    ``{spider}:dead``.

    ``take`` queues messages, oldest first; ``make_durable`` returns when they are durable. It is
    given the marks that stood behind them, and returns the acknowledgements to publish, by finder.
    ``take_hosts`` does both with chunks, and returns for each the reason why it cannot be taken, or
    None; without it, chunks are left. So do ``take_robots`` with messages about robots.txt, and
    ``take_orders`` with orders. ``turn`` is the most messages taken at a time. ``on_batch`` is
    called with the seconds from the reading of messages until they are durable and removed.
    """

    def __init__(
        self,
        client: Redis,
        spider: str,
        take: Callable[[list[Message]], Awaitable[None]],
        *,
        make_durable: Callable[[list[Mark]], Awaitable[Mapping[str, bytes]]] = _nothing,
        take_hosts: Callable[[list[Any]], Awaitable[Sequence[str | None]]] | None = None,
        take_robots: Callable[[list[Any]], Awaitable[Sequence[str | None]]] | None = None,
        take_orders: Callable[[list[Any]], Awaitable[Sequence[str | None]]] | None = None,
        paused: Callable[[], bool] = lambda: False,
        hosts_paused: Callable[[], bool] = lambda: False,
        turn: int = TURN,
        wall: Callable[[], float] = time.time,
        poll: float = _POLL,
        on_batch: Callable[[float], None] | None = None,
    ) -> None:
        requests, starts, hosts, robots, orders, self._dead = _keys(spider)
        self._acknowledged = acknowledged_key(spider)
        # Acknowledgements that Redis may not have, by finder.
        self._unpublished: dict[str, bytes] = {}
        self._take = take
        self._taking = asyncio.Lock()
        self._wall = wall
        self._poll = poll
        self._on_batch = on_batch
        self.stats = InboxStats()
        messages = (self._take_messages, make_durable, paused, turn)
        self._lists = [
            _List(ListReader(client, requests), _decode, *messages),
            _List(ListReader(client, starts), decode_start, *messages),
        ]
        if take_hosts is not None:
            reader = ListReader(client, hosts)
            self._lists.append(_List(reader, _chunk, take_hosts, _nothing, hosts_paused, _CHUNKS))
        if take_robots is not None:
            # A full frontier does not pause it: its hosts may wait for these answers.
            reader = ListReader(client, robots)
            of_robots = (decode_robots, take_robots, _nothing, hosts_paused, _ROBOTS)
            self._lists.append(_List(reader, *of_robots))
        if take_orders is not None:
            reader = ListReader(client, orders)
            of_orders = (decode_order, take_orders, _nothing, lambda: False, _ORDERS)
            self._lists.append(_List(reader, *of_orders))

    async def run(self) -> None:
        """Take messages until cancelled.

        :raises ExceptionGroup: ``take``, ``make_durable`` or ``take_hosts`` failed
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in self._lists:
                    tasks.create_task(self._serve(each))
        finally:
            for each in self._lists:
                await each.reader.connection.close()

    async def _serve(self, each: _List) -> None:
        name = f"Reading {each.reader.key} from Redis"
        backoff = Backoff(*_BACKOFF, name=name, failed=self.stats.failed)
        while True:
            try:
                wait = 0.0 if not each.paused() and await self._turn(each) else self._poll
                backoff.succeed()
            except RedisTrouble as error:
                wait = backoff.fail(error)
            await asyncio.sleep(wait)

    async def _turn(self, each: _List) -> bool:
        """Take the oldest messages of a list; return whether there were any."""
        messages = await each.reader.read(each.most)
        begun = time.monotonic()
        marks: list[Mark] = []
        for step in _steps(messages):
            marks += await self._store(each, step)
            await asyncio.sleep(0)
        if messages:
            self._unpublished.update(await each.make_durable(marks))
            await self._end_turn(each.reader, messages)
            if self._on_batch is not None:
                self._on_batch(time.monotonic() - begun)
        return bool(messages)

    async def _end_turn(self, reader: ListReader, messages: list[bytes]) -> None:
        """Publish what is durable, and remove messages that are."""
        news = dict(self._unpublished)
        if not news:
            await reader.remove(messages)
            return
        fields = [part for pair in news.items() for part in pair]
        replies = await reader.remove(messages, ("HSET", self._acknowledged, *fields))
        if not isinstance(replies[0], ResponseError):
            # Of another turn meanwhile, newer ones may wait.
            self._unpublished = dict(self._unpublished.items() - news.items())

    async def _store(self, each: _List, messages: list[bytes]) -> list[Mark]:
        """Queue messages, and put unusable ones aside; return the marks among them."""
        good: list[tuple[bytes, Any]] = []
        dead: list[tuple[bytes, str]] = []
        marks: list[Mark] = []
        for data in messages:
            try:
                found = each.decode(data)
            except BadMessage as error:
                dead.append((data, str(error)))
                continue
            if type(found) is Mark:
                marks.append(found)
            else:
                good.append((data, found))
        if good:
            reasons = await each.take([message for _, message in good])
            pairs = zip(good, reasons, strict=True)
            dead += [(data, reason) for (data, _), reason in pairs if reason is not None]
        if dead:
            await self._bury(each.reader, dead)
        return marks

    async def _take_messages(self, messages: list[Message]) -> list[None]:
        async with self._taking:
            await self._take(messages)
        self.stats.taken += len(messages)
        return [None] * len(messages)

    async def _bury(self, reader: ListReader, dead: list[tuple[bytes, str]]) -> None:
        """Put messages with their reasons on the dead list.

        If Redis refuses them, they are lost and counted in ``dead_lost``. If it does not answer,
        they are read again.
        """
        notes = [
            msgspec.json.encode(
                {
                    "message": data[:DEAD_BYTES].decode("utf-8", "backslashreplace"),
                    "reason": reason,
                    "time": round(self._wall(), 3),
                }
            )
            for data, reason in dead
        ]
        self.stats.dead += len(dead)
        logger.warning("Unusable messages of %s: %d, such as %r", reader.key, len(dead), dead[0][1])
        replies = await reader.connection.call_all(
            ("LPUSH", self._dead, *notes), ("LTRIM", self._dead, 0, DEAD_MAX - 1)
        )
        if isinstance(replies[0], ResponseError):
            self.stats.dead_lost += len(dead)


def _steps(messages: list[bytes]) -> Iterator[list[bytes]]:
    """Yield the messages in parts that take one step of the event loop each."""
    step: list[bytes] = []
    size = 0
    for data in messages:
        step.append(data)
        size += len(data)
        if len(step) >= _STEP or size >= _STEP_BYTES:
            yield step
            step, size = [], 0
    if step:
        yield step


def _decode(data: bytes) -> Message | Mark:
    """:raises BadMessage: it is neither"""
    return decode_mark(data) if is_mark(data) else decode(data)


def _chunk(data: bytes) -> bytes:
    """Return a chunk as it is: who takes it decodes it, in steps.

    :raises BadMessage: it is too long
    """
    if len(data) > MAX_CHUNK:
        raise BadMessage(f"longer than {MAX_CHUNK} bytes")
    return data
