"""What waits in the Redis of a dead node goes to the nodes that own its URLs now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.transport.drain import Drain
from krowlspider.cluster.transport.message import Message, encode
from krowlspider.cluster.transport.redis_connection import redis_client

if TYPE_CHECKING:
    from .servers import Server

ONE, TWO, THREE = (encode(Message(f"http://{name}.test/")) for name in ("one", "two", "three"))


def owner(domain: str) -> str:
    return "c" if domain == "two.test" else "a"


async def drain(dead: str, a: str, c: str) -> dict[str, int]:
    async with redis_client(dead) as client, redis_client(a) as first, redis_client(c) as other:
        moving = Drain({"a": first, "c": other}, owner, 100)
        await moving.run(client, "broad", "b")
        return dict(moving.moved)


def test_messages_of_a_dead_node_go_to_their_owners(server: Server, own_server: Server) -> None:
    """Its Redis is full; what it was taking in when it died goes first."""
    a, c = f"{server.url[:-1]}1", f"{server.url[:-1]}2"
    with (
        Redis.from_url(own_server.url) as dead,
        Redis.from_url(a) as first,
        Redis.from_url(c) as other,
    ):
        dead.lpush("broad:requests:processing:b", ONE)
        dead.lpush("broad:requests", TWO, THREE, b"junk")
        dead.lpush("broad:start_urls", "http://two.test/seed")
        dead.config_set("maxmemory", 1)
        assert asyncio.run(drain(own_server.url, a, c)) == {"a": 3, "c": 2}
        assert dead.keys("*") == []
        # The oldest is taken first, from the right. The owner puts the unreadable one aside.
        assert first.lrange("broad:requests", 0, -1) == [b"junk", THREE, ONE]
        assert other.lrange("broad:requests", 0, -1) == [TWO]
        assert other.lrange("broad:start_urls", 0, -1) == [b"http://two.test/seed"]


def test_message_stays_while_its_owner_takes_none(server: Server) -> None:
    with Redis.from_url(server.url) as dead:
        dead.lpush("broad:requests", TWO)
        with pytest.raises(UnansweredError, match="the Redis of node c does not take messages"):
            asyncio.run(drain(server.url, f"{server.url[:-1]}1", "redis://127.0.0.1:1/0"))
        found = [dead.lrange(key, 0, -1) for key in dead.keys("*")]
        assert found == [[TWO]]
