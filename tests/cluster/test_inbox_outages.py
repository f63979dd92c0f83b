"""The inbox loses nothing while its Redis is frozen, full, restarted or replaced."""

import logging
from pathlib import Path

import pytest
import redis

from krowlspider.cluster.transport.inbox import lengths
from krowlspider.cluster.transport.message import TURN, Message, encode
from krowlspider.cluster.transport.redis_connection import RedisTrouble

from .forwarding import LATE, SPIDER, Sink, clients, drive, eventually, lag, messages, running, urls
from .inboxes import KEY, emptied, inbox, push
from .servers import Server, redis_server


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
                        await lengths(client, SPIDER)
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
        # The turn that was stored when Redis died is only removed.
        assert sink.urls == urls(2 * TURN)

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
                await push(client, messages(3, 10))
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
                # They are removed when it may be written.
                assert sink.urls == urls(3)
                await client.replicaof("NO", "ONE")
                await emptied(client)
        assert sink.urls == urls(3)
        assert set(worker.stats.failed) == {"readonly"}

    with redis_server(tmp_path / "first", "--repl-diskless-sync-delay", "0") as first:
        follow = ("--replicaof", f"{first.host} {first.port}")
        with redis_server(tmp_path / "replica", *follow) as replica:
            drive(main(first, replica))


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
