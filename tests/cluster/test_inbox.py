from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import redis

from krowlspider.cluster.transport.inbox import (
    DEAD_BYTES,
    Inbox,
    Lengths,
    hosts_key,
    lengths,
    requests_key,
    robots_key,
    waiting,
)
from krowlspider.cluster.transport.message import MAX_MESSAGE, TURN, Message, encode
from krowlspider.cluster.transport.redis_connection import RedisTrouble
from krowlspider.cluster.transport.robots_message import encode_ask

from .forwarding import (
    LATE,
    NODE,
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
from .servers import redis_server
from .test_message import BAD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redis.asyncio import Redis

    from .servers import Server

KEY = requests_key(SPIDER)
STARTS = f"{SPIDER}:start_urls"
HOSTS = hosts_key(SPIDER)
ROBOTS = robots_key(SPIDER)
DEAD = f"{SPIDER}:dead"
PROCESSING = f"{KEY}:processing:{NODE}"
EMPTY = Lengths(requests=0, start_urls=0, hosts=0, processing=0, dead=0)


def inbox(client: Redis, sink: Sink, **options: Any) -> Inbox:
    return Inbox(client, SPIDER, NODE, sink.take, poll=0.01, **options)


async def push(client: Redis, found: Sequence[bytes], key: str = KEY) -> None:
    for start in range(0, len(found), 1000):
        await client.lpush(key, *found[start : start + 1000])


async def emptied(client: Redis) -> Lengths:
    while True:
        found = await lengths(client, SPIDER, NODE)
        waiting = found.requests, found.start_urls, found.hosts, found.robots, found.processing
        if not any(waiting):
            return found
        await asyncio.sleep(0.01)


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
                assert await lengths(client, SPIDER, NODE) == Lengths(0, 0, 0, 3, 0)
                sink.gate.set()
                await emptied(client)
        assert sink.urls == urls(3)

    drive(main())


def test_turn_leaves_redis_after_it_was_made_durable(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        begun, may_end = asyncio.Event(), asyncio.Event()
        turns: list[int] = []

        async def make_durable() -> None:
            turns.append(len(sink.urls))
            begun.set()
            await may_end.wait()

        async with clients(server.url) as (client,):
            await push(client, messages(7003))
            async with running(inbox(client, sink, make_durable=make_durable, turn=3000)):
                await begun.wait()
                found = await lengths(client, SPIDER, NODE)
                assert (found.requests, found.processing) == (4003, 3000)
                may_end.set()
                await emptied(client)
        assert turns == [3000, 6000, 7003]
        # Other tasks run meanwhile.
        assert max(map(len, sink.held)) <= 500

    drive(main())


def test_messages_of_a_former_process_are_taken_first(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            await push(client, messages(2500), PROCESSING)
            await push(client, messages(10, 2500))
            async with running(inbox(client, sink)):
                await emptied(client)
        assert sink.urls == urls(2510)

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
            late = Inbox(client, SPIDER, NODE, take_late, poll=0.01)
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
                    assert (await lengths(client, SPIDER, NODE)).processing == 3
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
                assert await lengths(client, SPIDER, NODE) == Lengths(3, 0, 0, 0, 0)
                is_paused = False
                await emptied(client)
        assert sink.urls == urls(3)

    drive(main())


class Bomb:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._path}",)


def test_junk_goes_to_the_dead_list_with_its_reason(server: Server, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    junk = [*BAD, bomb, pickle.dumps({"url": "http://a.test/"}), b"\x00" * (8 << 20)]
    good = messages(len(junk))

    async def main() -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            await push(client, [each for pair in zip(junk, good, strict=True) for each in pair])
            worker = inbox(client, sink, wall=lambda: 1234.5678)
            async with running(worker), lag() as late:
                left = await emptied(client)
            assert left.dead == len(junk)
            notes = [json.loads(note) for note in await client.lrange(DEAD, 0, -1)][::-1]
        assert late[0] < LATE
        assert sink.urls == urls(len(junk))
        assert worker.stats.dead == len(junk)
        assert not worker.stats.dead_lost
        assert not worker.stats.failed
        for note, data in zip(notes, junk, strict=True):
            assert note["message"] == data[:DEAD_BYTES].decode("utf-8", "backslashreplace")
            assert 0 < len(note["reason"]) <= 200
            assert note["time"] == 1234.568
        assert not (tmp_path / "exploded").exists()

    drive(main())


def test_dead_list_keeps_the_newest_up_to_its_cap(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krowlspider.cluster.transport.inbox.DEAD_MAX", 10)

    async def main() -> None:
        async with clients(server.url) as (client,):
            await push(client, [b"bad %d" % n for n in range(25)])
            worker = inbox(client, Sink())
            async with running(worker):
                assert (await emptied(client)).dead == 10
            assert json.loads(await client.lindex(DEAD, 0))["message"] == "bad 24"
            assert worker.stats.dead == 25

    drive(main())


def test_turn_ends_after_four_megabytes(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        sink.gate.clear()
        async with clients(server.url) as (client,):
            await push(client, messages(3))
            await client.lpush(KEY, b"x" * (8 << 20))
            await push(client, messages(3, 3))
            worker = inbox(client, sink)
            async with running(worker), lag() as late:
                await eventually(lambda: bool(sink.held))
                assert (await lengths(client, SPIDER, NODE)).processing == 4
                sink.gate.set()
                left = await emptied(client)
        assert left.dead == 1
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


def test_frozen_redis_holds_up_nothing_else(own_server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        async with clients(own_server.url, timeout=0.05) as (client,):
            await push(client, messages(4000))
            worker = inbox(client, sink)
            async with running(worker), lag() as late:
                await eventually(lambda: bool(sink.held))
                with own_server.frozen():
                    await eventually(lambda: worker.stats.failed["timeout"] >= 2)
                    with pytest.raises(RedisTrouble) as caught:
                        await lengths(client, SPIDER, NODE)
                    assert caught.value.kind == "timeout"
                async with clients(own_server.url) as (patient,):
                    await emptied(patient)
        assert set(sink.urls) == set(urls(4000))
        assert late[0] < LATE

    drive(main())


def test_restarted_redis_loses_nothing(own_server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        sink.gate.clear()
        async with clients(own_server.url) as (client,):
            await push(client, messages(2 * TURN))
            worker = inbox(client, sink)
            async with running(worker):
                await eventually(lambda: bool(sink.held))
                own_server.kill()
                sink.gate.set()
                await eventually(lambda: worker.stats.failed["down"] >= 2)
                own_server.start()
                await emptied(client)
        # The turn that was stored when Redis died comes again, before the rest.
        assert sink.urls == [*urls(TURN), *urls(2 * TURN)]

    drive(main())


def test_redis_restarted_between_two_calls_is_noticed(own_server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        async with clients(own_server.url) as (client,):
            worker = inbox(client, sink)
            async with running(worker):
                for turn in range(3):
                    await push(client, messages(5, turn * 5))
                    await emptied(client)
                    own_server.kill()
                    own_server.start()
                    await client.connection_pool.disconnect()
        # What it had not written to its log yet comes again: a removal, never what was pushed and
        # then seen gone.
        assert list(dict.fromkeys(sink.urls)) == urls(15)

    drive(main())


def test_flushed_redis_gives_no_trouble(server: Server) -> None:
    async def main() -> None:
        sink = Sink()
        sink.gate.clear()
        async with clients(server.url) as (client,):
            await push(client, messages(3))
            worker = inbox(client, sink)
            async with running(worker):
                await eventually(lambda: bool(sink.held))
                await client.flushall()
                # These must not be taken off in place of those that the flush took.
                await push(client, messages(3, 10), PROCESSING)
                sink.gate.set()
                await emptied(client)
        assert sink.urls == [*urls(3), *urls(3, 10)]
        assert not worker.stats.failed

    drive(main())


def test_full_redis_is_drained(tmp_path: Path) -> None:
    """It refuses to move anything, and has room again only by what is taken out."""

    long = [encode(Message(url, meta={"x": "x" * 900})) for url in urls(5000)]

    async def main(server: Server) -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            with pytest.raises(redis.OutOfMemoryError):
                await push(client, long)
            sent = await client.llen(KEY)
            worker = inbox(client, sink)
            async with running(worker):
                await emptied(client)
        assert sink.urls == urls(sent)
        assert not worker.stats.failed

    with redis_server(tmp_path / "redis", "--maxmemory", "2mb") as server:
        drive(main(server))


def test_full_redis_with_junk_is_drained(tmp_path: Path) -> None:
    async def main(server: Server) -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            await push(client, [b"junk", *messages(2000)])
            await client.config_set("maxmemory", "1mb")
            worker = inbox(client, sink)
            async with running(worker):
                await emptied(client)
        assert sink.urls == urls(2000)
        assert (worker.stats.dead, worker.stats.dead_lost) == (1, 1)

    with redis_server(tmp_path / "redis") as server:
        drive(main(server))


def test_promoted_replica_is_read(
    tmp_path: Path,
) -> None:
    async def main(server: Server, replica: Server) -> None:
        sink = Sink()
        async with clients(server.url, replica.url) as (first, client):
            await push(first, messages(3))
            await first.wait(1, 0)
            worker = inbox(client, sink)
            async with running(worker):
                await eventually(lambda: worker.stats.failed["readonly"] >= 2)
                assert not sink.held
                await client.replicaof("NO", "ONE")
                await emptied(client)
        assert sink.urls == urls(3)
        assert set(worker.stats.failed) == {"readonly"}

    with redis_server(tmp_path / "first", "--repl-diskless-sync-delay", "0") as first:
        follow = ("--replicaof", f"{first.host} {first.port}")
        with redis_server(tmp_path / "replica", *follow) as replica:
            drive(main(first, replica))


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


def test_outage_is_logged_once_and_so_is_its_end(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "krowlspider")

    async def main() -> None:
        sink = Sink()
        async with clients(own_server.url) as (client,):
            worker = inbox(client, sink)
            async with running(worker):
                own_server.kill()
                await eventually(lambda: worker.stats.failed["down"] >= 4)
                own_server.start()
                await push(client, messages(1))
                await emptied(client)
                await eventually(lambda: caplog.text.count("works again") == 2)

    drive(main())
    assert caplog.text.count("from Redis failed") == 2


def test_exception_of_take_propagates_and_messages_stay(server: Server) -> None:
    async def fail(_: list[Message]) -> None:
        raise OSError("disk")

    async def main() -> None:
        async with clients(server.url) as (client,):
            await push(client, messages(3))
            with pytest.raises(ExceptionGroup) as caught:
                await Inbox(client, SPIDER, NODE, fail).run()
            assert caught.group_contains(OSError, match="disk")
            assert await lengths(client, SPIDER, NODE) == Lengths(0, 0, 0, 3, 0)

    drive(main())


def test_refused_chunks_go_to_the_dead_list(
    server: Server,
) -> None:
    async def main() -> None:
        found: list[int] = []

        async def take(chunks: list[bytes]) -> list[str | None]:
            found.extend(map(int, chunks))
            return ["odd" if int(chunk) % 2 else None for chunk in chunks]

        async with clients(server.url) as (client,):
            await push(client, [b"%d" % n for n in range(300)], HOSTS)
            worker = inbox(client, Sink(), take_hosts=take)
            async with running(worker):
                await eventually(lambda: len(found) == 300)
                left = await emptied(client)
            assert left == Lengths(0, 0, 0, 0, 150)
            notes = [json.loads(note) for note in await client.lrange(DEAD, 0, -1)][::-1]
        assert found == list(range(300))
        assert [int(note["message"]) for note in notes] == list(range(1, 300, 2))
        assert {note["reason"] for note in notes} == {"odd"}
        assert (worker.stats.taken, worker.stats.dead) == (0, 150)

    drive(main())


def test_unreadable_robots_messages_go_to_the_dead_list(server: Server) -> None:
    """They count as waiting until they are taken, also while the frontier is full."""

    async def main() -> None:
        taken: list[Any] = []

        async def take(found: list[Any]) -> list[None]:
            taken.extend(found)
            return [None] * len(found)

        async with clients(server.url) as (client,):
            good = encode_ask("a", 7, "http://b.test/robots.txt")
            await push(client, [b"{}", good, good.replace(b":1", b":2", 1)], ROBOTS)
            assert await waiting(client, SPIDER, NODE) > 0
            options = {"take_robots": take, "paused": lambda: True}
            async with running(inbox(client, Sink(), **options)):
                await eventually(lambda: bool(taken))
                assert (await emptied(client)).dead == 2
            assert await waiting(client, SPIDER, NODE) == 0
            assert [message.number for message in taken] == [7]

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
            assert await lengths(client, SPIDER, NODE) == Lengths(0, 0, 3, 0, 0)

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
                assert await lengths(client, SPIDER, NODE) == Lengths(0, 0, 0, 3, 0)
                may_end.set()
                assert await emptied(client) == EMPTY

    drive(main())
