"""Hosts go from node to node through Redis whole and once."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.transport.inbox import lengths
from krowlspider.cluster.transport.redis_connection import RedisConnection
from krowlspider.frontier.moves.chunks import decode_chunk
from krowlspider.frontier.store.schema import seen_prefix
from krowlspider.frontier.store.store import records
from krowlspider.job.nodes.receiver import LoopShare, Time, arrived_key
from krowlspider.job.nodes.sender import WINDOW, HandoverStats, PeerHandover
from tests.cluster.forwarding import QUICK_TIME, SPIDER, clients, drive, eventually
from tests.cluster.servers import redis_server
from tests.job.handover.hosts import KEY, cut, fill, left_of, to_there
from tests.job.handover.nodes import (
    EVERYWHERE,
    content,
    frontier,
    pages,
    receiving,
    sender_of,
    urls,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.servers import Server
    from tests.frontier.conftest import World


def test_everything_of_every_host_arrives(
    server: Server, here: World, there: World, tmp_path: Path
) -> None:
    twin, handed = frontier(tmp_path / "twin", "here"), frontier(tmp_path / "twin", "there")
    for world in (here, twin):
        fill(world)
    names = [name for name, _ in records(twin.store)]
    for name in names:
        twin.hand_over(name, handed)

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client) as receiver:
            sender = sender_of(here, lambda _: client)
            await sender.send_all(to_there, EVERYWHERE)
            assert sender.stats.hosts == receiver.stats.hosts == len(names)
            assert sender.stats.chunks == receiver.stats.chunks > len(names)
            assert (sender.open, sum(here.departures.kept.values()), sender.stats.again) == (
                0,
                0,
                0,
            )
            assert not sender.stats.failed
            assert await client.keys(f"{SPIDER}:*") == []

    drive(main())
    assert content(there) == content(handed)
    assert there.frontier.deferred_queued == handed.frontier.deferred_queued > 0
    assert left_of(here) == {}
    assert (here.frontier.pending, here.frontier.schedule.host_count) == (0, 0)
    for world in (twin, handed):
        world.store.close()


def test_hosts_go_to_their_owners_and_ours_stay(tmp_path: Path, here: World, there: World) -> None:
    other = frontier(tmp_path, "other")
    here.add(*pages(60))
    owners = {
        f"h{host}.test": name
        for host in range(60)
        if (name := ("there", "other", None)[host % 3]) is not None
    }

    async def main(first: Server, second: Server) -> None:
        async with (
            clients(first.url, second.url) as (one, two),
            receiving(there, one),
            receiving(other, two),
        ):
            await sender_of(here, {"there": one, "other": two}.get).send_all(owners.get, EVERYWHERE)

    with redis_server(tmp_path / "first") as first, redis_server(tmp_path / "second") as second:
        drive(main(first, second))
    for rest, world in enumerate((there, other, here)):
        assert urls(world) == sorted(
            page for page in pages(60) if int(page[8:].partition(".")[0]) % 3 == rest
        )
    other.store.close()


def test_order_of_a_host_in_many_chunks_is_kept(server: Server, here: World, there: World) -> None:
    for page in range(200):
        here.add(f"http://a.test/{page}", priority=page % 3)
    before = here.queued("a.test")

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client):
            await sender_of(here, lambda _: client).send_all(to_there, EVERYWHERE)

    drive(main())
    assert there.queued("a.test") == before
    assert len(before) == 200


def test_stopped_hand_over_leaves_nothing_and_can_resume(
    server: Server, here: World, there: World
) -> None:
    here.add(*pages(150))

    async def main() -> None:
        reached = asyncio.Event()
        goal = 0

        def taken(count: int) -> None:
            if count >= goal:
                reached.set()

        async with clients(server.url) as (client,), receiving(there, client, taken):
            sender = sender_of(here, lambda _: client)
            for goal in (0, 1, 40, 90, 150, 220, 290):
                sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
                await (reached.wait() if goal else asyncio.sleep(0))
                reached.clear()
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
                here.departures.stop()
                assert not [task for task in asyncio.all_tasks() if "HandoverSender" in repr(task)]
                assert (sender.open, here.departures.under_way) == (0, {})
                # A URL in neither was removed here before it arrived there.
                assert set(urls(here)) | set(urls(there)) == set(pages(150))
            await sender.send_all(to_there, EVERYWHERE)

    drive(main())
    assert urls(there) == pages(150)
    assert urls(here) == []
    assert there.frontier.queued == 450


def test_half_sent_host_goes_whole_to_another_owner(
    tmp_path: Path, here: World, there: World
) -> None:
    other = frontier(tmp_path, "other")
    here.add(*(f"http://a.test/{page}" for page in range(30)))

    async def main(first: Server, second: Server) -> None:
        async with clients(first.url, second.url) as (one, two):
            reached = asyncio.Event()

            def taken(count: int) -> None:
                if count == 3:
                    reached.set()

            sender = sender_of(here, {"there": one, "other": two}.get)
            async with receiving(there, one, taken):
                sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
                await reached.wait()
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
            here.departures.stop()
            async with receiving(other, two):
                await sender.send_all(lambda _: "other", EVERYWHERE)
                # The first owner forwards its part to the new owner.
                back = sender_of(there, {"other": two}.get)
                await back.send_all(lambda _: "other", EVERYWHERE)

    with redis_server(tmp_path / "first") as first, redis_server(tmp_path / "second") as second:
        drive(main(first, second))
    assert other.queued("a.test") == [f"http://a.test/{page}" for page in range(30)]
    assert (urls(here), urls(there)) == ([], [])
    other.store.close()


def test_hosts_under_way_are_bounded(server: Server, here: World, there: World) -> None:
    count = WINDOW + 100
    here.add(*pages(count, 1))

    async def main() -> None:
        async with clients(server.url) as (client,):
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
            await eventually(lambda: sender.open == WINDOW)
            found = await lengths(client, SPIDER)
            assert found.hosts <= WINDOW
            assert here.frontier.queued == count
            # The place of one that has arrived is taken at once.
            first = json.loads((await client.lrange(KEY, -1, -1))[0])
            await client.set(arrived_key(SPIDER, first["host"], first["transfer"]), 1)
            await eventually(lambda: (sender.stats.hosts, sender.open) == (1, WINDOW))
            async with receiving(there, client):
                await sending
                assert sender.stats.hosts == count

    drive(main())
    assert urls(there) == pages(count, 1)


def test_begun_removal_ends_in_steps_when_cancelled(
    server: Server, tmp_path: Path, there: World
) -> None:
    """So `Departures.stop` never removes a host of a million marks in one step."""
    here = frontier(tmp_path, "here")
    for page in range(3500):
        here.frontier.seen.mark("a.test", [here.hasher.key(str(page))])
        # A mark of its own.
        here.frontier.seen.end_batch(batch := here.store.batch())
        batch.write()
    here.add("http://a.test/")
    here.departures.most = 3000
    # By this clock, each step is long enough to return to the loop.
    ticks = itertools.count()

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client):
            sender = sender_of(
                here, lambda _: client, time=Time(lambda: next(ticks) / 100, asyncio.sleep)
            )
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
            under_way = here.departures.under_way
            while not any(each.is_ending for each in under_way.values()):  # noqa: ASYNC110
                await asyncio.sleep(0)
            left = len(list(here.store.keys(seen_prefix("a.test"))))
            assert left > 1000
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending
            assert sending.cancelled()
            assert under_way == {}

    drive(main())
    assert left_of(here) == {}
    here.store.close()


def test_restarted_sender_skips_arrived_chunks_in_steps(
    server: Server, here: World, there: World
) -> None:
    here.add(*(f"http://a.test/{page}" for page in range(600)))
    for chunk in cut(here):
        there.arrivals.take(decode_chunk(chunk))
    ticks = itertools.count()

    class Counting(LoopShare):
        entered = 0

        async def __aenter__(self) -> None:
            Counting.entered += 1
            await super().__aenter__()

    async def main() -> None:
        async with clients(server.url) as (client,):
            peer = PeerHandover(
                "there",
                here.departures,
                SPIDER,
                share=Counting(lambda: 1.0, Time(lambda: next(ticks) / 100, asyncio.sleep)),
                stats=HandoverStats(),
                time=QUICK_TIME,
            )
            peer.waiting.append("a.test")
            connection = RedisConnection(client)
            await peer.run_round(connection)
            (host,) = peer.open.values()
            await client.set(host.key, 298)
            await client.delete(KEY)
            before = Counting.entered
            while Counting.entered == before:
                await asyncio.sleep(0.01)
                await peer.run_round(connection)
            await connection.close()
            assert Counting.entered - before > 280

    drive(main())


def test_chunk_is_acknowledged_when_it_is_durable(
    server: Server, here: World, there: World
) -> None:
    here.add(*pages(1, 1))
    arrivals: list[int] = []

    async def main() -> None:
        asked, may_go = asyncio.Event(), asyncio.Event()

        async def make_durable() -> None:
            asked.set()
            await may_go.wait()

        async with (
            clients(server.url) as (client,),
            receiving(
                there, client, make_durable=make_durable, on_arrival=lambda: arrivals.append(1)
            ),
        ):
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
            await asked.wait()
            assert await client.keys(f"{SPIDER}:arrived:*") == []
            assert await client.llen(KEY) == 1
            assert (arrivals, urls(here)) == ([], pages(1, 1))
            may_go.set()
            await sending
        assert arrivals == [1]

    drive(main())
    assert urls(there) == pages(1, 1)


def test_exception_of_the_frontier_propagates(server: Server, here: World, there: World) -> None:
    here.add(*pages(3))

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client):
            here.store.failure = OSError("the disk is gone")
            with pytest.raises(ExceptionGroup, match="unhandled") as caught:
                await sender_of(here, lambda _: client).send_all(to_there, EVERYWHERE)
            assert "the disk is gone" in repr(caught.value.exceptions)

    drive(main())
