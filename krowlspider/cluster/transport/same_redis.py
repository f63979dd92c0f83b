"""Recognise the Redis of another node, whatever URL leads to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.redis_connection import RedisConnection, RedisTrouble

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redis.asyncio import Redis

# The line of Redis's answer to INFO that names the process.
_RUN_ID = b"run_id:"


async def node_with_same_redis(own: Redis, others: Mapping[str, Redis]) -> str | None:
    """Return the first node whose Redis and database are those of ``own``, None if there is none.

    A Redis that does not answer, or not to INFO, is taken for another one.
    """
    mine, *theirs = await asyncio.gather(*map(_identity, (own, *others.values())))
    same = (node for node, each in zip(others, theirs, strict=True) if each and each == mine)
    return next(same, None)


async def _identity(client: Redis) -> tuple[bytes, int] | None:
    connection = RedisConnection(client)
    try:
        found: bytes = await connection.call("INFO", "server")
    except RedisTrouble:
        return None
    finally:
        await connection.close()
    run_id = next((line for line in found.splitlines() if line.startswith(_RUN_ID)), b"")
    return run_id, client.get_connection_kwargs().get("db", 0)
