"""Reads messages from one Redis list: at least once, first in, first out.

Messages stay in the list until they are stored. Then as many are removed, if their bytes are those
that were read. So a removal that a frozen server or a cut network delays can only remove what
equals stored messages.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.transport.redis_connection import RedisConnection, checked

if TYPE_CHECKING:
    from collections.abc import Sequence

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
