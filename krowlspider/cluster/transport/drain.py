"""Moves the messages in the Redis of a dead node to the nodes that own their URLs now."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.transport.inbox import requests_key, start_urls_key
from krowlspider.cluster.transport.list_reader import ListReader
from krowlspider.cluster.transport.message import TURN, decode, decode_start
from krowlspider.cluster.transport.meta import BadMessage
from krowlspider.cluster.transport.redis_connection import RedisConnection, RedisTrouble
from krowlspider.urls.host import domain_of, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redis.asyncio import Redis

    from krowlspider.cluster.transport.message import Message

# Seconds to wait for a full inbox to have room, and between two looks at it.
_PATIENCE = 60.0
_LOOK = 1.0


class Drain:
    """Moves messages to ``clients``, the Redis of each live node by id; ``moved`` counts them.

    ``owner_of`` returns the owner of a domain. An inbox takes no more than ``inbox_max``.
    """

    def __init__(
        self, clients: Mapping[str, Redis], owner_of: Callable[[str], str], inbox_max: int
    ) -> None:
        self.moved: Counter[str] = Counter()
        self._owner_of = owner_of
        self._inbox_max = inbox_max
        self._peers = {node: RedisConnection(client) for node, client in clients.items()}

    async def run(self, dead: Redis, spider: str, node: str) -> None:
        """Move all messages of ``node``, a dead one, whose Redis is ``dead``.

        Each is removed there once its new owner's Redis has it. Host chunks stay: the node that
        sent them has the hosts until they have arrived.

        :raises RedisTrouble: the dead node's Redis does not answer
        :raises UnansweredError: an owner's Redis does not answer, or has no room
        """
        readers = {
            requests_key(spider): decode,
            start_urls_key(spider): decode_start,
        }
        try:
            for key, read in readers.items():
                reader = ListReader(dead, key, node)
                try:
                    while messages := await reader.read(TURN):
                        await self._send(key, messages, read)
                        await reader.remove(messages)
                finally:
                    await reader.connection.close()
        finally:
            for peer in self._peers.values():
                await peer.close()

    async def _send(
        self, key: str, messages: list[bytes], read: Callable[[bytes], Message]
    ) -> None:
        by_owner: dict[str, list[bytes]] = {}
        for message in messages:
            by_owner.setdefault(self._owner(message, read), []).append(message)
        for owner, theirs in by_owner.items():
            await self._push(owner, key, theirs)
            self.moved[owner] += len(theirs)

    def _owner(self, message: bytes, read: Callable[[bytes], Message]) -> str:
        try:
            return self._owner_of(domain_of(host_of(read(message).url)))
        except (BadMessage, ValueError):
            # Any node puts it into its dead list, with the reason.
            return min(self._peers)

    async def _push(self, owner: str, key: str, messages: list[bytes]) -> None:
        peer = self._peers[owner]
        try:
            async with asyncio.timeout(_PATIENCE):
                while await peer.call("LLEN", key) >= self._inbox_max:  # noqa: ASYNC110 - in Redis
                    await asyncio.sleep(_LOOK)
            await peer.call("LPUSH", key, *messages, is_bulk=True)
        except TimeoutError as error:
            raise UnansweredError(
                f"the inbox of node {owner} is full: wait until it has taken in its messages, then"
                " do this again"
            ) from error
        except RedisTrouble as error:
            raise UnansweredError(
                f"the Redis of node {owner} does not take messages ({error}): do this again when"
                " it does"
            ) from error
