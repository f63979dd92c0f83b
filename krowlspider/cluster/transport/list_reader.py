"""Reads messages from one Redis list: at least once, first in, first out.

A message is moved to a processing list of this node, stored, and then removed from there by its own
bytes. A removal that a frozen server or a cut network delays can then only remove what equals a
stored message; a removal by count could remove another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.cluster.transport.redis_connection import RedisConnection, RedisTrouble

if TYPE_CHECKING:
    from redis.asyncio import Redis

# Bytes after which a turn takes no more messages.
_TURN_BYTES = 4 << 20
# Messages read from a Redis without room, where nothing bounds their bytes.
_FROM_FULL = 100
# Fill the processing list, if it is empty, with at most ARGV[1] messages. Return it, newest first.
_TAKE = """
if redis.call('EXISTS', KEYS[2]) == 0 then
    local bytes = 0
    for _ = 1, ARGV[1] do
        local message = redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT')
        bytes = bytes + #(message or '')
        if not message or bytes > tonumber(ARGV[2]) then break end
    end
end
return redis.call('LRANGE', KEYS[2], -ARGV[1], -1)
"""
_REMOVE = "for _, message in ipairs(ARGV) do redis.call('LREM', KEYS[1], -1, message) end"


def processing_key(key: str, node: str) -> str:
    """Return the key of the messages that ``node`` is taking from the list ``key``."""
    return f"{key}:processing:{node}"


class ListReader:
    """Reads the list ``key`` for ``node``. Each call may raise RedisTrouble."""

    def __init__(self, client: Redis, key: str, node: str) -> None:
        self.key = key
        self.connection = RedisConnection(client)
        self._processing = processing_key(key, node)
        # The list from which the last messages must be removed.
        self._source = self._processing

    async def read(self, most: int) -> list[bytes]:
        """Return the oldest messages, at most ``most``, oldest first. They stay until `remove`."""
        keys, self._source = (self.key, self._processing), self._processing
        try:
            newest_first: list[bytes] = await self.connection.call(
                *("EVAL", _TAKE, 2, *keys, most, _TURN_BYTES), is_bulk=True
            )
        except RedisTrouble as error:
            if error.kind != "full":
                raise
            # A full Redis moves nothing. It has room again only when something is removed.
            self._source = self.key
            newest_first = await self.connection.call(
                "LRANGE", self.key, -min(most, _FROM_FULL), -1, is_bulk=True
            )
        return newest_first[::-1]

    async def remove(self, messages: list[bytes]) -> None:
        """Remove messages that `read` has returned last."""
        await self.connection.call("EVAL", _REMOVE, 1, self._source, *messages, is_bulk=True)
