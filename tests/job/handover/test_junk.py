"""Chunks and acknowledgements that no node wrote do no harm."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.transport.inbox import MAX_CHUNK, lengths
from krowlspider.job.nodes.receiver import arrived_key
from tests.cluster.forwarding import LATE, SPIDER, clients, drive, lag
from tests.job.handover.hosts import DEAD, KEY, cut, to_there
from tests.job.handover.nodes import EVERYWHERE, pages, receiving, sender_of, urls

if TYPE_CHECKING:
    from tests.cluster.servers import Server
    from tests.frontier.conftest import World


def test_repeated_and_unordered_chunks_change_nothing(
    server: Server, here: World, there: World
) -> None:
    here.add(*pages(30, 7))
    found = cut(here)

    async def main() -> None:
        async with clients(server.url) as (client,):
            await client.lpush(KEY, *found[::-1], *found[::2], *found[10:])
            async with receiving(there, client):
                await sender_of(here, lambda _: client).send_all(to_there, EVERYWHERE)

    drive(main())
    assert urls(there) == pages(30, 7)
    assert there.frontier.queued == 210


def test_junk_chunks_go_to_the_dead_list(server: Server, here: World, there: World) -> None:
    here.add(*pages(20))
    junk = [
        b"junk",
        b"\xff",
        b"[" * 100_000,
        b"5",
        b"{}",
        b'{"host": "a.test", "transfer": "00", "number": 0, "last": true}',
        b'{"host": "a.test", "transfer": ["0000000000000000"], "number": 0, "last": true}',
        b'{"host": "a.test", "transfer": "0000000000000000", "number": -1, "last": true}',
        b'"' + b"x" * MAX_CHUNK + b'"',
    ]

    async def main() -> None:
        async with clients(server.url) as (client,), lag() as late:
            await client.lpush(KEY, *junk)
            async with receiving(there, client) as receiver:
                await sender_of(here, lambda _: client).send_all(to_there, EVERYWHERE)
                found = await lengths(client, SPIDER)
                assert (found.hosts, found.dead) == (0, len(junk))
                assert receiver.stats.refused == 8
            notes = [json.loads(note) for note in await client.lrange(DEAD, 0, -1)]
            assert all(0 < len(note["reason"]) <= 200 for note in notes)
            assert await client.get(arrived_key(SPIDER, "a.test", "0" * 16)) == b"-"
        assert late[0] < LATE

    drive(main())
    assert urls(there) == pages(20)


def test_junk_acknowledgements_are_ignored(server: Server, here: World, there: World) -> None:
    here.add(*pages(1))
    transfer = json.loads(cut(here)[0])["transfer"]

    async def main() -> None:
        async with clients(server.url) as (client,):
            sender = sender_of(here, lambda _: client)
            for junk in ("soon", "-1", "9" * 5000, "1.0"):
                await client.set(arrived_key(SPIDER, "h0.test", transfer), junk)
                sent = sender.stats.again
                sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
                while sender.stats.again == sent:
                    await client.delete(KEY)
                    await asyncio.sleep(0.01)
                assert urls(here) == pages(1)
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
                here.departures.stop()
            async with receiving(there, client):
                await sender_of(here, lambda _: client).send_all(to_there, EVERYWHERE)

    drive(main())
    assert urls(there) == pages(1)


@pytest.mark.parametrize("count", ["999999999", "40"])
def test_acknowledgement_of_too_many_chunks_is_not_believed(
    server: Server, here: World, there: World, count: str
) -> None:
    here.add(*(f"http://a.test/{page}" for page in range(30)))
    found = cut(here)
    assert len(found) < 40
    transfer = json.loads(found[0])["transfer"]

    async def main() -> None:
        async with clients(server.url) as (client,):
            key = arrived_key(SPIDER, "a.test", transfer)
            await client.set(key, count)
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
            # It was read and removed.
            while await client.exists(key):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert len(urls(here)) == 30
            async with receiving(there, client):
                await sending

    drive(main())
    assert there.queued("a.test") == [f"http://a.test/{page}" for page in range(30)]
    assert urls(here) == []
