"""All nodes of a cluster use one identity seed, whatever Consul has lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings

from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.register.lease import IdentitySeed
from krowlspider.job.folder import JobFolder
from krowlspider.job.nodes.cluster import Cluster
from tests.cluster.register_nodes import (
    A,
    B,
    delete,
    entries_in,
    found,
    is_founded,
    joined,
    open_at,
    pending_nodes_in,
    put,
    until,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cluster.register_nodes import Place
    from tests.cluster.servers import Server

# Seconds; nodes that agree on a seed have no session yet, for which Consul takes 1 or more.
TTL = 0.3
ONE, OTHER = b"theseed8", b"another8"


@asynccontextmanager
async def seed_of(
    server: Server | Place, cluster: str, ttl: float = TTL
) -> AsyncIterator[IdentitySeed]:
    agent = open_at(server)
    try:
        yield IdentitySeed(agent, cluster, ttl)
    finally:
        agent.close()


def lose(server: Server | Place, cluster: str) -> None:
    """Make the register lose its data of the cluster."""
    for entry in entries_in(server, cluster):
        delete(server, cluster, entry.key.removeprefix(f"krowlspider/{cluster}/"))


def test_new_nodes_make_one_seed_after_a_ttl(register: Server | Place, cluster: str):
    """They have waited as long as any lease, so that they need not wait for it again."""

    async def main() -> None:
        async with seed_of(register, cluster) as one, seed_of(register, cluster) as other:
            began = time.monotonic()
            seeds = await asyncio.gather(one.agree(), other.agree())
            assert time.monotonic() > began + TTL
            assert len(seeds[0]) == 8
            assert seeds[0] == seeds[1] == await other.agree()
            assert is_founded(register, cluster)

    asyncio.run(main())


def test_seed_of_a_folder_wins_over_a_new_one(register: Server | Place, cluster: str):
    """Of two that are offered, one is taken, and the other node is refused with a way out."""

    async def main() -> None:
        # Twice as long with the same TTL; a busy machine may be late by that.
        async with seed_of(register, cluster, 5.0) as new, seed_of(register, cluster) as old:
            assert await asyncio.gather(new.agree(), old.agree(ONE)) == [ONE, ONE]
            assert not is_founded(register, cluster)
            lose(register, cluster)
            found(register, cluster)
            offers = await asyncio.gather(new.agree(ONE), old.agree(OTHER), return_exceptions=True)
            (refused,) = (each for each in offers if isinstance(each, ClusterError))
            assert f"delete the key krowlspider/{cluster}/seed" in str(refused)

    asyncio.run(main())


def test_unreadable_seed_is_named(register: Server | Place, cluster: str):
    async def main() -> None:
        put(register, cluster, "seed", b"no seed")
        async with seed_of(register, cluster) as seed:
            with pytest.raises(ClusterError, match="holds no seed of 8 bytes: delete it"):
                await seed.agree()

    asyncio.run(main())


def test_no_seed_is_made_while_others_have_one(register: Server | Place, cluster: str):
    """Neither beside a live node nor beside one with work on its disk."""

    async def main() -> None:
        async with seed_of(register, cluster, 0.05) as seed:
            async with joined(register, cluster, A):
                for own in (None, ONE):
                    with pytest.raises(ClusterError, match="nodes a have not written it"):
                        await seed.agree(own)
            with pytest.raises(ClusterError, match="scrapy ring --forget"):
                await seed.agree()
            # That one is not live: its JOBDIR, and that of any other node that ended, has the seed.
            assert await seed.agree(ONE) == ONE

    found(register, cluster)
    asyncio.run(main())


def test_members_restore_a_lost_seed_and_refuse_another(register: Server | Place, cluster: str):
    async def main() -> None:
        async with joined(register, cluster, A) as a:
            a.seed.value = ONE
            for _ in range(2):
                await a.beat({})
                assert value_of(register, cluster, "seed") == ONE.hex().encode()
                delete(register, cluster, "seed")
            put(register, cluster, "seed", OTHER.hex().encode())
            with pytest.raises(ClusterError, match="another identity seed"):
                await a.beat({})
            b_refused = joined(register, cluster, B, seed=ONE)
            with pytest.raises(ClusterError, match="another identity seed"):
                await b_refused.__aenter__()
            assert pending_nodes_in(register, cluster) == {"a"}

    found(register, cluster)
    asyncio.run(main())


@pytest.mark.slow
def test_member_of_a_lost_register_is_refused_by_another_seed(
    register: Server | Place, cluster: str
):
    async def main() -> None:
        async with joined(register, cluster, A, seed=ONE) as a:
            lose(register, cluster)
            put(register, cluster, "seed", OTHER.hex().encode())
            await until(lambda: not a._tasks or a._tasks[0].done(), 5)
            with pytest.raises(ClusterError, match="another identity seed"):
                await a.beat({})

    found(register, cluster)
    asyncio.run(main())


def test_folder_goes_on_in_a_register_that_lost_its_data(
    register: Server | Place, cluster: str, tmp_path: Path
):
    settings = Settings()
    settings.setmodule("krowlspider.settings")
    settings.setdict(
        {
            "KROWL_CONSUL": register.url,
            "KROWL_CLUSTER": cluster,
            "REDIS_URL": "redis://127.0.0.1:1/0",
        }
    )
    seeds = []
    for _ in range(2):
        found(register, cluster)
        folder, node = JobFolder(tmp_path / "job"), Cluster(settings, "a")
        seed = node.prepare(folder.seed_of(node.place))
        seeds.append(folder.take(seed=seed, ring=node.place).seed)
        folder.leave()
        asyncio.run(node.close())
        lose(register, cluster)
    assert seeds[0] == seeds[1]
