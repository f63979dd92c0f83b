"""All nodes of a cluster use one identity seed, whatever Consul has lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings

from krowlspider.cluster.consul.agent import Agent
from krowlspider.cluster.consul.seed import IdentitySeed
from krowlspider.cluster.membership import ClusterError
from krowlspider.crawl.folder import JobFolder
from krowlspider.crawl.nodes.consul import ConsulCluster
from tests.cluster.consul_nodes import (
    A,
    B,
    call,
    found,
    is_founded,
    joined,
    pending_nodes_in,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cluster.servers import Server

# Seconds; nodes that agree on a seed have no session yet, for which Consul takes 1 or more.
TTL = 0.3
ONE, OTHER = b"theseed8", b"another8"


@asynccontextmanager
async def seed_of(server: Server, cluster: str, ttl: float = TTL) -> AsyncIterator[IdentitySeed]:
    agent = Agent(server.url)
    try:
        yield IdentitySeed(agent, cluster, ttl)
    finally:
        agent.close()


def lose(server: Server, cluster: str) -> None:
    """Make Consul lose its data of the cluster."""
    call(server, "DELETE", f"/v1/kv/krowlspider/{cluster}/?recurse")


def test_new_nodes_make_one_seed_after_a_ttl(consul: Server, cluster: str):
    """They have waited as long as any lease, so that they need not wait for it again."""

    async def main() -> None:
        async with seed_of(consul, cluster) as one, seed_of(consul, cluster) as other:
            began = time.monotonic()
            seeds = await asyncio.gather(one.agree(), other.agree())
            assert time.monotonic() > began + TTL
            assert len(seeds[0]) == 8
            assert seeds[0] == seeds[1] == await other.agree()
            assert is_founded(consul, cluster)

    asyncio.run(main())


def test_seed_of_a_folder_wins_over_a_new_one(consul: Server, cluster: str):
    """Of two that are offered, one is taken, and the other node is refused with a way out."""

    async def main() -> None:
        # Twice as long with the same TTL; a busy machine may be late by that.
        async with seed_of(consul, cluster, 5.0) as new, seed_of(consul, cluster) as old:
            assert await asyncio.gather(new.agree(), old.agree(ONE)) == [ONE, ONE]
            assert not is_founded(consul, cluster)
            lose(consul, cluster)
            found(consul, cluster)
            offers = await asyncio.gather(new.agree(ONE), old.agree(OTHER), return_exceptions=True)
            (refused,) = (each for each in offers if isinstance(each, ClusterError))
            assert f"delete the key krowlspider/{cluster}/seed" in str(refused)

    asyncio.run(main())


def test_unreadable_seed_is_named(consul: Server, cluster: str):
    async def main() -> None:
        call(consul, "PUT", f"/v1/kv/krowlspider/{cluster}/seed", b"no seed")
        async with seed_of(consul, cluster) as seed:
            with pytest.raises(ClusterError, match="holds no seed of 8 bytes: delete it"):
                await seed.agree()

    asyncio.run(main())


def test_no_seed_is_made_while_others_have_one(consul: Server, cluster: str):
    """Neither beside a live node nor beside one with work on its disk."""

    async def main() -> None:
        async with seed_of(consul, cluster, 0.05) as seed:
            async with joined(consul, cluster, A):
                for own in (None, ONE):
                    with pytest.raises(ClusterError, match="nodes a have not written it"):
                        await seed.agree(own)
            with pytest.raises(ClusterError, match="scrapy ring --forget"):
                await seed.agree()
            # That one is not live: its JOBDIR, and that of any other node that ended, has the seed.
            assert await seed.agree(ONE) == ONE

    found(consul, cluster)
    asyncio.run(main())


def test_members_restore_a_lost_seed_and_refuse_another(consul: Server, cluster: str):
    async def main() -> None:
        key = f"/v1/kv/krowlspider/{cluster}/seed"
        async with joined(consul, cluster, A) as a:
            a.seed.value = ONE
            for _ in range(2):
                await a.beat({})
                assert call(consul, "GET", f"{key}?raw") == ONE.hex().encode()
                call(consul, "DELETE", key)
            call(consul, "PUT", key, OTHER.hex().encode())
            with pytest.raises(ClusterError, match="another identity seed"):
                await a.beat({})
            b_refused = joined(consul, cluster, B, seed=ONE)
            with pytest.raises(ClusterError, match="another identity seed"):
                await b_refused.__aenter__()
            assert pending_nodes_in(consul, cluster) == {"a"}

    found(consul, cluster)
    asyncio.run(main())


@pytest.mark.slow
def test_member_of_a_lost_register_is_refused_by_another_seed(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A, seed=ONE) as a:
            lose(consul, cluster)
            call(consul, "PUT", f"/v1/kv/krowlspider/{cluster}/seed", OTHER.hex().encode())
            await until(lambda: not a._tasks or a._tasks[0].done(), 5)
            with pytest.raises(ClusterError, match="another identity seed"):
                await a.beat({})

    found(consul, cluster)
    asyncio.run(main())


def test_folder_goes_on_in_a_register_that_lost_its_data(
    consul: Server, cluster: str, tmp_path: Path
):
    settings = Settings()
    settings.setmodule("krowlspider.settings")
    settings.setdict(
        {"KROWL_CONSUL": consul.url, "KROWL_CLUSTER": cluster, "REDIS_URL": "redis://127.0.0.1:1/0"}
    )
    seeds = []
    for _ in range(2):
        found(consul, cluster)
        folder, node = JobFolder(tmp_path / "job"), ConsulCluster(settings, "a")
        seed = node.prepare(folder.seed_of(node.place))
        seeds.append(folder.take(seed=seed, ring=node.place).seed)
        folder.leave()
        asyncio.run(node.close())
        lose(consul, cluster)
    assert seeds[0] == seeds[1]
