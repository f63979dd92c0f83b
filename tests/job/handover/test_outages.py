"""A hand-over goes on when Redis was away, full or without its data."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.transport.inbox import lengths
from tests.cluster.forwarding import LATE, SPIDER, clients, drive, eventually, lag
from tests.cluster.servers import redis_server
from tests.job.handover.hosts import to_there
from tests.job.handover.nodes import EVERYWHERE, pages, receiving, sender_of, urls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.servers import Server
    from tests.frontier.conftest import World


def freeze(server: Server) -> None:
    server.freeze()


def kill(server: Server) -> None:
    server.kill()


@pytest.mark.parametrize(("begin", "kind"), [(freeze, "timeout"), (kill, "down")])
def test_hand_over_goes_on_after_an_outage(
    own_server: Server, here: World, there: World, begin: Callable[[Server], None], kind: str
) -> None:
    here.add(*pages(300))

    async def main() -> None:
        async with clients(own_server.url, timeout=0.1) as (client,):
            sender = sender_of(here, lambda _: client)

            def taken(count: int) -> None:
                if count == 30:
                    begin(own_server)

            async with receiving(there, client, taken), lag() as late:
                sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
                await eventually(lambda: sender.stats.failed[kind] > 1)
                assert not sending.done()
                assert here.frontier.queued > 0
                if begin is freeze:
                    own_server.thaw()
                else:
                    await asyncio.to_thread(own_server.start)
                await sending
        assert late[0] < LATE

    drive(main())
    assert urls(there) == pages(300)
    assert urls(here) == []


def test_chunks_that_redis_lost_are_sent_again(server: Server, here: World, there: World) -> None:
    here.add(*pages(100))

    async def main() -> None:
        async with clients(server.url) as (client,):
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
            await eventually(lambda: sender.open == 100 and sender.stats.chunks > 0)
            await client.flushall()
            async with receiving(there, client) as receiver:
                await sending
                assert sender.stats.again > 0
                assert receiver.stats.refused == 0

    drive(main())
    assert urls(there) == pages(100)
    assert urls(here) == []


def test_hand_over_waits_for_a_full_redis(tmp_path: Path, here: World, there: World) -> None:
    here.add(*pages(100))

    async def main(server: Server) -> None:
        async with clients(server.url) as (client,), receiving(there, client):
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
            await eventually(lambda: sender.stats.failed["full"] > 0)
            assert urls(here) == pages(100)
            await client.config_set("maxmemory", "0")
            await sending

    with redis_server(tmp_path / "redis", "--maxmemory", "1") as server:
        drive(main(server))
    assert urls(there) == pages(100)


def test_refused_acknowledgements_hold_up_nothing_else(
    own_server: Server, here: World, there: World
) -> None:
    here.add(*pages(20))

    async def main() -> None:
        async with clients(own_server.url) as (client,):
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
            await eventually(lambda: sender.open == 20)
            await client.config_set("maxmemory", "1")
            async with receiving(there, client) as receiver:
                await eventually(lambda: receiver.stats.failed["full"] > 0)
                while (await lengths(client, SPIDER)).hosts:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert urls(here) == pages(20)
                await client.config_set("maxmemory", "0")
                await sending

    drive(main())
    assert urls(there) == pages(20)
