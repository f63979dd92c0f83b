"""An inbox takes messages in order, and removes them once they are durable."""

import asyncio
import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from krowlspider.cluster.transport.inbox import Inbox, Lengths, lengths
from krowlspider.cluster.transport.message import MAX_MESSAGE, TURN, Mark, Message, encode

from .forwarding import (
    LATE,
    SPIDER,
    Sink,
    clients,
    consumer,
    drive,
    eventually,
    lag,
    messages,
    running,
    stored,
    urls,
)
from .inboxes import EMPTY, HOSTS, KEY, STARTS, emptied, inbox, push
from .servers import Server


def has_stored(file: Path, least: int) -> bool:
    return len(stored(file)) >= least


def test_messages_are_taken_in_order(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            await push(client, messages(2 * TURN + 7))
            worker = inbox(client, sink)
            async with running(worker):
                await eventually(lambda: len(sink.urls) == 2 * TURN + 7)
                await push(client, messages(5, 9999))
                await eventually(lambda: len(sink.urls) == 2 * TURN + 12)
                assert await emptied(client) == EMPTY
        assert sink.urls == [*urls(2 * TURN + 7), *urls(5, 9999)]
        assert max(map(len, sink.held)) <= TURN
        assert worker.stats.taken == 2 * TURN + 12

    drive(main())


def test_message_leaves_redis_only_after_it_was_taken(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        sink.gate.clear()
        async with clients(server.url) as (client,):
            await push(client, messages(3))
            async with running(inbox(client, sink)):
                await eventually(lambda: bool(sink.held))
                assert await lengths(client, SPIDER) == Lengths(3, 0, 0, 0)
                sink.gate.set()
                await emptied(client)
        assert sink.urls == urls(3)

    drive(main())


def test_turn_leaves_redis_after_it_was_made_durable(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        begun, may_end = asyncio.Event(), asyncio.Event()
        turns: list[int] = []

        async def make_durable(_: list[Mark]) -> dict[str, bytes]:
            turns.append(len(sink.urls))
            begun.set()
            await may_end.wait()
            return {}

        async with clients(server.url) as (client,):
            await push(client, messages(7003))
            async with running(inbox(client, sink, make_durable=make_durable, turn=3000)):
                await begun.wait()
                assert (await lengths(client, SPIDER)).requests == 7003
                may_end.set()
                await emptied(client)
        assert turns == [3000, 6000, 7003]
        # Other tasks run meanwhile.
        assert max(map(len, sink.held)) <= 500

    drive(main())


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["before", "after"])
def test_kill_loses_nothing_and_repeats_one_batch_at_most(
    server: Server, tmp_path: Path, stop: str
) -> None:
    file = tmp_path / "stored"
    count = 2 * TURN + 100

    async def main() -> None:
        async with clients(server.url) as (client,):
            await push(client, messages(count))
            with consumer(server.url, file, stop):
                pass
            kept = stored(file)
            assert kept == ([] if stop == "before" else urls(TURN))
            with consumer(server.url, file):
                assert await emptied(client) == EMPTY
            assert stored(file) == [*kept, *urls(count)]

    drive(main())


@pytest.mark.slow
def test_kills_at_any_time_lose_nothing(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "stored"
    kills, count = 5, 60_000

    async def main() -> None:
        async with clients(server.url) as (client,):
            await push(client, messages(count))
            for kill in range(kills):
                # Each dies at another place: as soon as it has stored one turn, two ...
                least = len(stored(file)) + kill * TURN + 1
                with consumer(server.url, file):
                    await eventually(functools.partial(has_stored, file, least))
            with consumer(server.url, file):
                assert await emptied(client) == EMPTY

    drive(main())
    times = Counter(stored(file))
    assert set(times) == set(urls(count))
    assert times.total() - count <= kills * TURN


def test_late_removal_removes_only_stored_messages(
    own_server: Server,
) -> None:
    """The first inbox stands for what a frozen own_server or a cut network still has of one that is
    gone."""

    async def main() -> None:
        stuck: list[list[Message]] = []
        thaw = asyncio.Event()

        async def take_late(batch: list[Message]) -> None:
            stuck.append(batch)
            await (thaw if len(stuck) == 1 else asyncio.Event()).wait()

        sink = Sink()
        async with clients(own_server.url) as (client,):
            await push(client, messages(3))
            late = Inbox(client, SPIDER, take_late, poll=0.01)
            async with running(late):
                await eventually(lambda: bool(stuck))
                worker = inbox(client, sink)
                async with running(worker):
                    await emptied(client)
                    sink.gate.clear()
                    await push(client, messages(3, 100))
                    await eventually(lambda: len(sink.held) == 2)
                    # Now "remove the three oldest" comes through, and three others are the oldest.
                    thaw.set()
                    await eventually(lambda: len(stuck) == 2)
                    assert (await lengths(client, SPIDER)).requests == 3
                # The second one has died before it stored them.
                assert sink.urls == urls(3)
            async with running(inbox(client, final := Sink())):
                await emptied(client)
            assert set(final.urls) == set(urls(3, 100))

    drive(main())


def test_start_urls_are_taken_as_scrapy_redis_users_push_them(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            worker = inbox(client, sink)
            async with running(worker):
                await client.lpush(STARTS, "http://a.test/1")
                second = {"url": "http://a.test/2", "depth": 1, "priority": 5, "meta": {"x": 1}}
                await client.lpush(STARTS, json.dumps(second))
                await client.lpush(STARTS, "b.test")
                await emptied(client)
        assert sink.messages == [
            Message("http://a.test/1"),
            Message("http://a.test/2", depth=1, priority=5, meta={"x": 1}),
            Message("https://b.test/", bare=True),
        ]

    drive(main())


def test_nothing_is_taken_while_paused(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        asked = 0
        is_paused = True

        def paused() -> bool:
            nonlocal asked
            asked += 1
            return is_paused

        async with clients(server.url) as (client,):
            await push(client, messages(3))
            async with running(inbox(client, sink, paused=paused)):
                await eventually(lambda: asked > 10)
                assert await lengths(client, SPIDER) == Lengths(3, 0, 0, 0)
                is_paused = False
                await emptied(client)
        assert sink.urls == urls(3)

    drive(main())


def test_turn_ends_after_four_megabytes(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        turns: list[int] = []

        async def make_durable(_: list[Mark]) -> dict[str, bytes]:
            turns.append(len(sink.urls))
            return {}

        async with clients(server.url) as (client,):
            await push(client, messages(3))
            await client.lpush(KEY, b"x" * (8 << 20))
            await push(client, messages(3, 3))
            worker = inbox(client, sink, make_durable=make_durable)
            async with running(worker), lag() as late:
                left = await emptied(client)
        assert left.dead == 1
        assert turns == [3, 6]
        assert sink.urls == urls(6)
        assert late[0] < LATE

    drive(main())


def test_long_messages_are_taken_in_small_steps(server: Server) -> None:
    found = [encode(Message(url, meta={"x": "x" * (MAX_MESSAGE - 500)})) for url in urls(200)]

    async def main() -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            await push(client, found)
            async with running(inbox(client, sink)), lag() as late:
                await emptied(client)
        assert sink.urls == urls(200)
        assert max(map(len, sink.held)) <= 17
        assert late[0] < LATE

    drive(main())


def test_key_of_another_type_does_not_hold_up_other_lists(server: Server) -> None:
    """As when scrapy-redis's start URLs are a set."""

    async def main() -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            await client.sadd(STARTS, "http://a.test/")
            worker = inbox(client, sink)
            async with running(worker):
                await eventually(lambda: worker.stats.failed["type"] >= 2)
                await push(client, messages(3))
                await eventually(lambda: sink.urls == urls(3))

    drive(main())


def test_exception_of_take_propagates_and_messages_stay(server: Server) -> None:
    async def fail(_: list[Message]) -> None:
        raise OSError("disk")

    async def main() -> None:
        async with clients(server.url) as (client,):
            await push(client, messages(3))
            with pytest.raises(ExceptionGroup) as caught:
                await Inbox(client, SPIDER, fail).run()
            assert caught.group_contains(OSError, match="disk")
            assert await lengths(client, SPIDER) == Lengths(3, 0, 0, 0)

    drive(main())


def test_chunks_stay_without_a_taker_and_while_paused(server: Server) -> None:
    async def main() -> None:
        asked = 0

        async def refuse(chunks: list[Any]) -> list[str | None]:
            raise AssertionError(chunks)

        def paused() -> bool:
            nonlocal asked
            asked += 1
            return True

        async with clients(server.url) as (client,):
            await push(client, [b"{}"] * 3, HOSTS)
            await push(client, messages(3))
            sink = Sink()
            for options in ({}, {"take_hosts": refuse, "hosts_paused": paused}):
                async with running(inbox(client, sink, **options)):
                    await eventually(lambda: len(sink.urls) >= 3)
                    await eventually(lambda options=options: not options or asked > 10)
            assert await lengths(client, SPIDER) == Lengths(0, 0, 3, 0)

    drive(main())


def test_chunks_do_not_hold_up_messages(server: Server) -> None:
    async def main() -> None:
        is_taking, may_end = asyncio.Event(), asyncio.Event()

        async def take(chunks: list[Any]) -> list[str | None]:
            is_taking.set()
            await may_end.wait()
            return [None] * len(chunks)

        sink = Sink()
        async with clients(server.url) as (client,):
            await push(client, [b"{}"] * 3, HOSTS)
            async with running(inbox(client, sink, take_hosts=take)):
                await is_taking.wait()
                await push(client, messages(3))
                await eventually(lambda: sink.urls == urls(3))
                assert await lengths(client, SPIDER) == Lengths(0, 0, 3, 0)
                may_end.set()
                assert await emptied(client) == EMPTY

    drive(main())
