"""The state that nodes share in one Redis: keys, and the board of a static list of nodes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from redis.exceptions import RedisError

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.ring.record import BadRecordError, Counters, load_counters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from redis.asyncio import Redis


# Seconds for a call.
_TIMEOUT = 2.0
# The change of `SharedKeys.add`: ARGV is the number to add, and the limit.
_ADD = """
local before = tonumber(redis.call('GET', KEYS[1]) or '0')
local number, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local change = math.max(-before, math.min(number, math.max(0, limit - before)))
if change ~= 0 then redis.call('INCRBY', KEYS[1], change) end
return change
"""

# Messages in a node's inbox. When it is full, the other nodes keep theirs in their outbox.
INBOX_MAX = 1_000_000


class RedisKeys:
    """`SharedKeys` below ``krowlspider:CLUSTER:``."""

    def __init__(self, client: Redis, cluster: str) -> None:
        self._client = client
        self._root = f"krowlspider:{cluster}:"

    async def get(self, name: str) -> bytes | None:
        found: bytes | None = await _answer(self._client.get(self._root + name))
        return found

    async def put(self, name: str, value: str) -> None:
        await _answer(self._client.set(self._root + name, value))

    async def delete(self, name: str) -> None:
        await _answer(self._client.delete(self._root + name))

    async def add(self, name: str, number: int, limit: int) -> int:
        return int(await _answer(self._client.eval(_ADD, 1, self._root + name, number, limit)))


class RedisBoard:
    """The counters of the nodes of a static list, in a hash of one Redis."""

    def __init__(self, client: Redis, cluster: str) -> None:
        self._client = client
        self.key = f"krowlspider:{cluster}:beats"

    async def exchange(
        self, node: str, counters: Counters
    ) -> tuple[Mapping[str, Counters], Mapping[str, Counters]]:
        """Write the counters of a node. Return what all had written before that, and after it.

        :raises UnansweredError: they may be written or not
        """
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.hgetall(self.key)
            pipe.hset(self.key, node, msgspec.json.encode(counters))
            pipe.hgetall(self.key)
            before, _, after = await _answer(pipe.execute())
        return _counters(before), _counters(after)

    async def read(self) -> Mapping[str, Counters]:
        """Return what all nodes have written.

        :raises UnansweredError: the Redis does not answer
        """
        return _counters(await _answer(self._client.hgetall(self.key)))


def _counters(found: Mapping[bytes, bytes]) -> Mapping[str, Counters]:
    counters: dict[str, Counters] = {}
    for name, text in found.items():
        with suppress(BadRecordError, UnicodeDecodeError):
            counters[name.decode()] = load_counters(text)
    return counters


async def _answer(call: Awaitable[Any]) -> Any:
    """:raises UnansweredError: the call failed, or took too long"""
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await call
    except (RedisError, OSError) as error:
        raise UnansweredError(f"Redis: {error}") from error
