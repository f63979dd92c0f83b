from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import redis
import trustme
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as NoConnection
from scrapy import Request, Spider
from scrapy_redis.queue import FifoQueue

from krowlspider.cluster.transport import message
from krowlspider.cluster.transport.forwarder import BATCH, Forwarder, Streams
from krowlspider.cluster.transport.inbox import requests_key
from krowlspider.cluster.transport.message import Message, encode, is_mark
from krowlspider.cluster.transport.queues import MessageQueue
from krowlspider.cluster.transport.redis_connection import (
    Backoff,
    RedisTrouble,
    redis_client,
    shown,
    trouble,
)
from tests.support.tables import table

from .forwarding import (
    LATE,
    SPIDER,
    MemoryOutbox,
    clients,
    drive,
    eventually,
    lag,
    messages,
    quick_clock,
    running,
    urls,
)
from .servers import free_port, redis_server, relay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redis.asyncio import Redis

    from .servers import Server

KEY = requests_key(SPIDER)


def forwarder(
    outbox: MemoryOutbox,
    peers: dict[str, Redis],
    inbox_max: int = 10**6,
    clock: Callable[[], float] = quick_clock,
) -> Forwarder:
    """A forwarder to nodes that acknowledge nothing."""
    streams = Streams(outbox, "a", SPIDER, clock=clock)
    return Forwarder(streams, peers.get, KEY, inbox_max=inbox_max, clock=clock, flush=0.01)


def is_all_sent(worker: Forwarder, outbox: MemoryOutbox) -> bool:
    return worker.stats.sent >= sum(map(outbox.depth, outbox.owners()))


def in_order_of_popping(server: Server) -> list[bytes]:
    """Return the messages in the list, without marks."""
    with redis.Redis.from_url(server.url) as client:
        found: list[bytes] = client.lrange(KEY, 0, -1)
        return [message for message in found[::-1] if not is_mark(message)]


def test_messages_arrive_in_order(server: Server) -> None:
    sent = messages(3 * BATCH + 7)

    async def main() -> None:
        outbox = MemoryOutbox()
        outbox.put("b", sent)
        async with clients(server.url) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: is_all_sent(worker, outbox))
                outbox.put("b", messages(1, 9999))
                await eventually(lambda: is_all_sent(worker, outbox))
            assert worker.stats.sent == len(sent) + 1
            assert worker.stats.batches == 5

    drive(main())
    assert in_order_of_popping(server) == [*sent, *messages(1, 9999)]


def test_stock_scrapy_redis_queue_pops_forwarded_messages(server: Server) -> None:
    async def main() -> None:
        outbox = MemoryOutbox()
        outbox.put("b", [encode(Message(url, depth=2)) for url in urls(3)])
        async with clients(server.url) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: is_all_sent(worker, outbox))

    drive(main())
    spider = Spider(name=SPIDER)
    with redis.Redis.from_url(server.url) as client:
        stock = FifoQueue(client, spider, "%(spider)s:requests", serializer=message)
        popped = [stock.pop() for _ in range(3)]
        assert [request.url for request in popped] == urls(3)
        assert [request.meta for request in popped] == [{"depth": 2}] * 3
        stock.push(Request("http://a.test/", priority=4))
        # The next one in the list is the mark behind the three.
        assert is_mark(client.lindex(KEY, -1))
        again = MessageQueue(client, spider, "%(spider)s:requests").pop()
        assert (again.url, again.priority) == ("http://a.test/", 4)


def test_messages_wait_for_a_node_that_is_no_member(
    server: Server,
) -> None:
    async def main() -> None:
        outbox = MemoryOutbox()
        outbox.put("b", messages(2))
        outbox.put("c", messages(2, 50))
        async with clients(server.url) as (client,):
            peers = {"c": client}
            worker = forwarder(outbox, peers)
            async with running(worker):
                await eventually(lambda: worker.stats.sent == 2)
                peers["b"] = client
                await eventually(lambda: is_all_sent(worker, outbox))

    drive(main())


def test_full_inbox_keeps_messages_in_the_outbox(server: Server) -> None:
    async def main() -> None:
        outbox = MemoryOutbox()
        outbox.put("b", messages(4 * BATCH))
        async with clients(server.url) as (client,):
            worker = forwarder(outbox, {"b": client}, inbox_max=BATCH)
            async with running(worker):
                await eventually(lambda: worker.stats.inbox_full > 3)
                assert worker.stats.sent == BATCH
                await client.delete(KEY)
                await eventually(lambda: worker.stats.sent == 2 * BATCH)
        assert not worker.stats.failed

    drive(main())


def test_no_call_carries_more_than_a_megabyte(server: Server) -> None:
    large = [encode(Message(url, meta={"x": "x" * 60_000})) for url in urls(40)]

    async def main() -> None:
        outbox = MemoryOutbox()
        outbox.put("b", large)
        async with clients(server.url) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: is_all_sent(worker, outbox))
        assert worker.stats.batches == 3

    drive(main())
    assert in_order_of_popping(server) == large


def test_frozen_peer_holds_up_nothing_and_loses_nothing(tmp_path: Path, own_server: Server) -> None:
    sent = messages(2 * BATCH)

    async def main(other: Server) -> None:
        outbox = MemoryOutbox()
        async with clients(own_server.url, other.url, timeout=0.1) as (b, c):
            worker = forwarder(outbox, {"b": b, "c": c})
            async with running(worker), lag() as late:
                with own_server.frozen():
                    outbox.put("b", sent)
                    await eventually(lambda: worker.stats.failed["timeout"] >= 3)
                    outbox.put("c", sent)
                    await eventually(lambda: worker.stats.sent == len(sent))
                await eventually(lambda: is_all_sent(worker, outbox))
        assert late[0] < LATE

    with redis_server(tmp_path / "other") as other:
        drive(main(other))
    # A push that timed out may still have arrived, at any time.
    assert set(in_order_of_popping(own_server)) == set(sent)


def test_restarted_peer_gets_everything(own_server: Server) -> None:
    first, second = messages(700), messages(700, 700)

    async def main() -> None:
        outbox = MemoryOutbox()
        outbox.put("b", first)
        async with clients(own_server.url) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: is_all_sent(worker, outbox))
                own_server.kill()
                outbox.put("b", second)
                await eventually(lambda: worker.stats.failed["down"] >= 2)
                own_server.start()
                await eventually(lambda: is_all_sent(worker, outbox))

    drive(main())
    assert in_order_of_popping(own_server) == [*first, *second]


def test_batch_whose_reply_is_lost_is_sent_again(tmp_path: Path, own_server: Server) -> None:
    sent = messages(BATCH)

    async def main(wire: Server) -> None:
        outbox = MemoryOutbox()
        async with clients(wire.url, own_server.url, timeout=0.1) as (through, direct):
            worker = forwarder(outbox, {"b": through})
            async with running(worker):
                outbox.put("b", messages(1, 9999))
                await eventually(lambda: worker.stats.sent == 1)
                # The server reads the batch when it goes on; by then the wire is cut.
                with own_server.frozen():
                    outbox.put("b", sent)
                    await eventually(lambda: worker.stats.failed["timeout"] >= 1)
                    wire.kill()
                await eventually(lambda: worker.stats.failed["down"] >= 1)
                wire.start()
                await eventually(lambda: is_all_sent(worker, outbox))
            assert await direct.llen(KEY) >= BATCH + 1

    with relay(own_server, tmp_path / "wire") as wire:
        drive(main(wire))
    assert list(dict.fromkeys(in_order_of_popping(own_server))) == [*messages(1, 9999), *sent]


def test_batch_has_ten_times_the_usual_time(own_server: Server) -> None:
    """As on a slow network: a whole batch gets through where a small call has no answer."""

    async def main() -> None:
        outbox = MemoryOutbox()
        async with clients(own_server.url, timeout=0.1) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                outbox.put("b", messages(1))
                await eventually(lambda: is_all_sent(worker, outbox))
                with own_server.frozen():
                    outbox.put("b", messages(BATCH))
                    await asyncio.sleep(0.3)
                await eventually(lambda: is_all_sent(worker, outbox))
            assert not worker.stats.failed

    drive(main())


def test_messages_wait_for_a_full_redis(tmp_path: Path) -> None:
    sent = [encode(Message(url, meta={"x": "x" * 300})) for url in urls(20 * BATCH)]

    async def main(server: Server) -> None:
        outbox = MemoryOutbox()
        outbox.put("b", sent)
        async with clients(server.url) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: worker.stats.failed["full"] >= 2)
                assert worker.stats.sent < len(sent)
                await client.config_set("maxmemory", 0)
                await eventually(lambda: is_all_sent(worker, outbox))
        assert set(worker.stats.failed) == {"full"}

    with redis_server(tmp_path / "redis", "--maxmemory", "2mb") as server:
        drive(main(server))
        assert in_order_of_popping(server) == sent


def test_messages_wait_for_a_read_only_replica(tmp_path: Path, server: Server) -> None:
    async def main(replica: Server) -> None:
        outbox = MemoryOutbox()
        outbox.put("b", messages(3))
        async with clients(replica.url) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: worker.stats.failed["readonly"] >= 1)
                assert not worker.stats.sent
                await client.replicaof("NO", "ONE")
                await eventually(lambda: is_all_sent(worker, outbox))

    follow = ("--replicaof", f"{server.host} {server.port}")
    with redis_server(tmp_path / "replica", *follow) as replica:
        drive(main(replica))
        assert in_order_of_popping(replica) == messages(3)


def test_key_without_a_list_is_a_failure_of_kind_type(server: Server) -> None:
    """As when scrapy-redis's priority queue has been used under the same name."""

    async def main() -> None:
        outbox = MemoryOutbox()
        outbox.put("b", messages(3))
        async with clients(server.url) as (client,):
            await client.zadd(KEY, {"x": 1})
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: worker.stats.failed["type"] >= 1)
        assert not worker.stats.sent

    drive(main())


def test_password_is_used_and_never_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main(server: Server) -> None:
        outbox = MemoryOutbox()
        outbox.put("b", messages(3))
        right = server.url.replace("//", "//default:open-sesame@")
        wrong = server.url.replace("//", "//:shut-sesame@")
        async with clients(server.url, wrong, right) as made:
            peers = {"b": made[0]}
            worker = forwarder(outbox, peers)
            async with running(worker):
                await eventually(lambda: worker.stats.failed["auth"] >= 1)
                peers["b"] = made[1]
                await eventually(lambda: worker.stats.failed["auth"] >= 3)
                peers["b"] = made[2]
                await eventually(lambda: is_all_sent(worker, outbox))
            assert all("sesame" not in repr(client) for client in made)

    with redis_server(tmp_path / "redis", "--requirepass", "open-sesame") as server:
        drive(main(server))
    assert "Sending URLs to node b failed" in caplog.text
    assert "sesame" not in caplog.text


def test_url_is_shown_without_password_and_query_is_refused() -> None:
    assert shown("redis://user:secret@h.test:1/2") == "redis://h.test:1/2"
    assert shown("rediss://h.test?password=secret") == "rediss://h.test"
    with pytest.raises(ValueError, match="query") as caught:
        redis_client("redis://:secret@h.test/0?socket_timeout=1e9&password=secret")
    assert "secret" not in str(caught.value)


def test_tls_needs_a_trusted_certificate(
    tmp_path: Path, own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert(own_server.host)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    port = free_port(own_server.host)
    own = str(tmp_path / "own.pem")
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("tls-auth-clients", "no")
        client.config_set("tls-ca-cert-file", str(tmp_path / "ca.pem"))
        client.config_set("tls-cert-file", own, "tls-key-file", own)
        client.config_set("tls-port", port)

    async def main() -> None:
        outbox = MemoryOutbox()
        outbox.put("b", messages(3))
        url = f"rediss://{own_server.host}:{port}/0"
        async with clients(url) as (client,):
            # No second try: asyncio leaves the socket of a handshake open that is cancelled in its
            # first moment.
            worker = forwarder(outbox, {"b": client}, clock=lambda: 0.0)
            async with running(worker):
                await eventually(lambda: worker.stats.failed["down"] >= 1)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        async with clients(url) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: is_all_sent(worker, outbox))

    drive(main())
    assert in_order_of_popping(own_server) == messages(3)


@table(
    ("text", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "full"),
        ("READONLY You can't write against a read only replica.", "readonly"),
        ("LOADING Redis is loading the dataset in memory", "loading"),
        ("NOAUTH Authentication required.", "auth"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "auth"),
        ("NOPERM User x has no permissions to run the 'lpush' command", "auth"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "type"),
        ("MISCONF Redis is configured to save RDB snapshots, but it's unable to", "disk"),
        ("ERR unknown command", "other"),
    ],
)
def test_redis_errors_have_kinds(text: str, kind: str) -> None:
    assert trouble(BaseParser.parse_error(text)).kind == kind


def test_timeout_and_lost_connection_have_kinds() -> None:
    assert trouble(TimeoutError()).kind == "timeout"
    assert trouble(redis.TimeoutError("x")).kind == "timeout"
    assert trouble(ConnectionResetError()).kind == "down"
    assert trouble(NoConnection("x")).kind == "down"
    assert trouble(socket.gaierror()).kind == "down"


def test_backoff_doubles_and_chance_takes_up_to_half() -> None:
    def backoff(chance: float) -> Backoff:
        return Backoff(1, 30, name="Sending", failed=failed, chance=lambda: chance)

    failed, error = Counter[str](), RedisTrouble("down", "no connection")
    some = backoff(0.0)
    assert [some.fail(error) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    some.succeed()
    assert some.fail(error) == 1
    assert backoff(1.0).fail(error) == 0.5
    assert failed == {"down": 9}


def test_exception_of_the_outbox_propagates(server: Server) -> None:
    class Broken(MemoryOutbox):
        def after(self, *_: object) -> list[tuple[int, bytes]]:
            raise OSError("disk")

    async def main() -> None:
        outbox = Broken()
        outbox.put("b", messages(1))
        async with clients(server.url) as (client,):
            with pytest.raises(ExceptionGroup) as caught:
                await forwarder(outbox, {"b": client}).run()
        assert caught.group_contains(OSError, match="disk")

    drive(main())


def test_cancelled_forwarder_keeps_the_batch_under_way(own_server: Server) -> None:
    async def main() -> None:
        outbox = MemoryOutbox()
        async with clients(own_server.url) as (client,):
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                outbox.put("b", messages(1))
                await eventually(lambda: is_all_sent(worker, outbox))
                with own_server.frozen():
                    outbox.put("b", messages(5))
                    await asyncio.sleep(0.1)
                    assert worker.stats.sent == 1
            worker = forwarder(outbox, {"b": client})
            async with running(worker):
                await eventually(lambda: is_all_sent(worker, outbox))

    drive(main())
    assert set(messages(5)) <= set(in_order_of_popping(own_server))
