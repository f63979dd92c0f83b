"""The Redis clients of the members of a cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.transport.redis_connection import redis_client, shown

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from krowlspider.cluster.ring.record import Record

logger = logging.getLogger(__name__)


class RedisClients:
    """One client for each URL of a Redis; None for URLs of other nodes that are invalid."""

    def __init__(self) -> None:
        self._clients: dict[str, Redis | None] = {}

    def open(self, url: str) -> Redis:
        """:raises ClusterError: ``url`` is not the URL of a Redis"""
        client = self._clients.get(url)
        if client is None:
            try:
                client = self._clients[url] = redis_client(url)
            except ValueError as error:
                raise ClusterError(f"{shown(url)}: {error}") from error
        return client

    def of_member(self, record: Record | None) -> Redis | None:
        """Return the client of a node, None if it takes no messages."""
        # A node that leaves may not read messages that arrive now.
        if record is None or record.leaving:
            return None
        url = record.member.redis
        if url not in self._clients:
            try:
                self.open(url)
            except ClusterError as error:
                name = record.member.id
                logger.error("What belongs to node %s waits in the outbox: %s", name, error)
                self._clients[url] = None
        return self._clients[url]

    async def close(self) -> None:
        for client in self._clients.values():
            if client is not None:
                await client.aclose()
