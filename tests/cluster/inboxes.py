"""Helpers for tests of the inbox: its lists, and what is pushed to them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from krowlspider.cluster.transport.inbox import (
    Inbox,
    Lengths,
    hosts_key,
    lengths,
    requests_key,
    robots_key,
)

from .forwarding import SPIDER, Sink

KEY = requests_key(SPIDER)
STARTS = f"{SPIDER}:start_urls"
HOSTS = hosts_key(SPIDER)
ROBOTS = robots_key(SPIDER)
DEAD = f"{SPIDER}:dead"
EMPTY = Lengths(requests=0, start_urls=0, hosts=0, dead=0)


def inbox(client: Redis, sink: Sink, **options: Any) -> Inbox:
    return Inbox(client, SPIDER, sink.take, poll=0.01, **options)


async def push(client: Redis, found: Sequence[bytes], key: str = KEY) -> None:
    for start in range(0, len(found), 1000):
        await client.lpush(key, *found[start : start + 1000])


async def emptied(client: Redis) -> Lengths:
    while True:
        found = await lengths(client, SPIDER)
        waiting = found.requests, found.start_urls, found.hosts, found.robots
        if not any(waiting):
            return found
        await asyncio.sleep(0.01)
