"""URLs reach their owner's disk whatever a real Redis loses on the way."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.transport import forwarder as streams
from krowlspider.cluster.transport.forwarder import Forwarder, Streams
from krowlspider.cluster.transport.inbox import Inbox, requests_key
from krowlspider.cluster.transport.message import (
    Acknowledgement,
    Mark,
    Message,
    acknowledged_key,
    encode_mark,
)
from krowlspider.frontier.outbox import Finders, Outbox
from krowlspider.frontier.store.store import LevelStore
from tests.cluster.forwarding import SPIDER, clients, drive, eventually, messages, running, urls
from tests.cluster.servers import redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from redis.asyncio import Redis

    from tests.cluster.servers import Server

KEY = requests_key(SPIDER)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Server]:
    """A Redis without a file: what it has is lost when it ends."""
    with redis_server(tmp_path / "plain", "--appendonly", "no") as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_WAIT", (0.2, 1.0))


class Finder:
    """Node ``a``, whose outbox is on disk."""

    def __init__(self, folder: Path) -> None:
        self.store = LevelStore(folder, create=True)
        self.outbox = Outbox(self.store, 0, None)

    def put(self, found: list[bytes]) -> None:
        batch = self.store.batch()
        for message in found:
            self.outbox.put("b", "h.test", message, batch)
        batch.write()

    def forwarder(self, client: Redis) -> Forwarder:
        self.streams = Streams(self.outbox, "a", SPIDER)
        return Forwarder(
            self.streams, {"b": client}.get, KEY, inbox_max=10**6, flush=0.01, what="URLs"
        )


class Owner:
    """Node ``b``. ``urls`` are on its disk; nothing is while ``disk`` is not set."""

    def __init__(self, folder: Path) -> None:
        self.store = LevelStore(folder, create=True)
        self.finders = Finders(self.store)
        self.urls: list[str] = []
        self.taken: list[str] = []
        self.disk = asyncio.Event()
        self.disk.set()

    async def take(self, found: list[Message]) -> None:
        self.taken += [message.url for message in found]

    async def make_durable(self, marks: list[Mark]) -> dict[str, bytes]:
        batch = self.store.batch(sync=True)
        found = {}
        for mark in marks:
            arrived, has_gap = self.finders.take("a", mark.stream, mark.number, mark.last, batch)
            found["a"] = encode_mark(Acknowledgement(mark.stream, arrived.last, has_gap))
        await self.disk.wait()
        batch.write()
        self.urls += self.taken
        self.taken.clear()
        return found

    def inbox(self, client: Redis) -> Inbox:
        return Inbox(client, SPIDER, self.take, make_durable=self.make_durable, poll=0.01)


@asynccontextmanager
async def both(
    server: Server, finder: Finder, owner: Owner
) -> AsyncIterator[tuple[Forwarder, Redis]]:
    async with AsyncExitStack() as stack:
        (client,) = await stack.enter_async_context(clients(server.url))
        forwarder = finder.forwarder(client)
        await stack.enter_async_context(running(owner.inbox(client)))
        await stack.enter_async_context(running(forwarder))
        yield forwarder, client


def test_entry_stays_until_its_owner_has_synced_it(plain: Server, tmp_path: Path) -> None:
    async def main() -> None:
        finder, owner = Finder(tmp_path / "a"), Owner(tmp_path / "b")
        finder.put(messages(3))
        owner.disk.clear()
        async with both(plain, finder, owner) as (forwarder, client):
            await eventually(lambda: forwarder.stats.sent == 3 and len(owner.taken) == 3)
            await asyncio.sleep(0.1)
            assert finder.outbox.depth == 3
            assert await client.hgetall(acknowledged_key(SPIDER)) == {}
            owner.disk.set()
            await eventually(lambda: not finder.outbox.depth)
        assert owner.urls == urls(3)

    drive(main())


def test_power_cuts_of_redis_lose_nothing(plain: Server, tmp_path: Path) -> None:
    """Each takes what is in the list, and what the owner has said; others bring news meanwhile."""

    async def main() -> None:
        finder, owner = Finder(tmp_path / "a"), Owner(tmp_path / "b")
        count = 0
        async with both(plain, finder, owner) as (forwarder, client):
            for cut in range(4):
                finder.put(messages(2000, count))
                count += 2000
                await eventually(lambda: not finder.outbox.depth)
                owner.disk.clear()
                # The owner's turn has one message, and ends when its disk is back.
                finder.put(messages(1, count))
                await eventually(lambda: bool(owner.taken))
                # Nothing, one batch, two and three are lost.
                finder.put(messages(500 * cut, count + 1))
                count += 1 + 500 * cut
                await eventually(lambda: forwarder.stats.sent >= count)  # noqa: B023
                plain.kill()
                plain.wipe()
                plain.start()
                await client.connection_pool.disconnect()
                await client.lpush(KEY, *messages(5, 10**6))
                owner.disk.set()
                await eventually(lambda: not finder.outbox.depth)
            assert finder.streams.again > 0
        assert set(urls(count)) <= set(owner.urls)

    drive(main())


@pytest.mark.parametrize("is_new", [False, True])
def test_owner_that_starts_again_has_everything(
    plain: Server, tmp_path: Path, is_new: bool
) -> None:
    """A turn was under way; with a new disk, it lacks also what Redis has no more."""

    async def main() -> None:
        finder, owner = Finder(tmp_path / "a"), Owner(tmp_path / "b")
        async with both(plain, finder, owner):
            finder.put(messages(700))
            await eventually(lambda: not finder.outbox.depth)
            owner.disk.clear()
            finder.put(messages(700, 700))
            # The turn may have begun before the second batch came.
            await eventually(lambda: len(owner.taken) >= 500)
        finder.put(messages(100, 1400))
        owner.store.close()
        after = Owner(tmp_path / ("new" if is_new else "b"))
        async with both(plain, finder, after):
            await eventually(lambda: not finder.outbox.depth)
        assert set(after.urls) == set(urls(800, 700))

    drive(main())


def test_lost_acknowledgement_is_asked_for(plain: Server, tmp_path: Path) -> None:
    """Nothing is sent again for it."""

    async def main() -> None:
        finder, owner = Finder(tmp_path / "a"), Owner(tmp_path / "b")
        async with clients(plain.url) as (client,):
            worker = finder.forwarder(client)
            async with running(worker):
                finder.put(messages(3))
                await eventually(lambda: worker.stats.sent == 3)
            async with running(owner.inbox(client)):
                await eventually(lambda: len(owner.urls) == 3)
            await client.flushall()
            async with running(owner.inbox(client)), running(worker):
                await eventually(lambda: not finder.outbox.depth)
        assert (owner.urls, finder.streams.again) == (urls(3), 0)

    drive(main())
