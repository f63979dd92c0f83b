"""No two nodes may have one Redis: each would take the messages of the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings

from krowlspider.cluster.membership import ClusterError, Tasks
from krowlspider.cluster.ring.ring import Member
from krowlspider.cluster.transport.redis_connection import node_with_same_redis, redis_client
from krowlspider.job.nodes.cluster import Cluster
from tests.cluster.register_nodes import found, joined, pending_nodes_in

if TYPE_CHECKING:
    from .register_nodes import Place
    from .servers import Server


def test_same_redis_is_known_by_any_url(server: Server) -> None:
    bare = server.url.removesuffix("/0")

    async def same(*urls: str) -> str | None:
        own, *others = (redis_client(url) for url in urls)
        names = dict(zip("ab", others, strict=False))
        try:
            return await node_with_same_redis(own, names)
        finally:
            for client in (own, *others):
                await client.aclose()

    down = "redis://127.0.0.1:1/0"
    assert asyncio.run(same(bare, f"{bare}/1", server.url)) == "b"
    assert asyncio.run(same(bare, f"{bare}/1", down)) is None
    assert asyncio.run(same(down, down)) is None


def test_node_with_the_redis_of_another_does_not_join(
    register: Server | Place, server: Server, cluster: str
) -> None:
    settings = Settings()
    settings.setmodule("krowlspider.settings")
    redis = server.url.removesuffix("/0")
    settings.setdict({"KROWL_CONSUL": register.url, "KROWL_CLUSTER": cluster, "REDIS_URL": redis})

    async def main() -> None:
        async with joined(register, cluster, Member("a", 1, server.url)):
            node = Cluster(settings, "b")
            with pytest.raises(ClusterError, match="node a has the same REDIS_URL"):
                await node.join(Tasks(lambda _: None))
            await node.close()
            assert pending_nodes_in(register, cluster) == {"a"}

    found(register, cluster)
    asyncio.run(main())
