"""Hosts go from node to node through Redis whole and once, whichever process dies or disk fills."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from krowlspider.cluster.transport.inbox import MAX_CHUNK, hosts_key, lengths
from krowlspider.cluster.transport.list_reader import processing_key
from krowlspider.cluster.transport.redis_connection import RedisConnection
from krowlspider.crawl.handover.loop_share import LoopShare, Time
from krowlspider.crawl.handover.peer import WINDOW, HandoverStats, PeerHandover
from krowlspider.crawl.handover.receiver import arrived_key
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.handover.arrival import Arrivals
from krowlspider.frontier.handover.chunks import decode_chunk, encode_chunk
from krowlspider.frontier.hosts.host import SEALED
from krowlspider.frontier.poison import POISON_STRIKES, strike
from krowlspider.frontier.store.queues import entry_keys, records
from krowlspider.frontier.store.schema import ROBOTS_END, seen_prefix
from krowlspider.politeness.robots import RobotsRecord
from tests.cluster.forwarding import (
    LATE,
    QUICK_TIME,
    SPIDER,
    clients,
    drive,
    eventually,
    lag,
    quick_time,
)
from tests.cluster.servers import redis_server
from tests.crawl.handover.nodes import (
    STEPS,
    content,
    frontier,
    pages,
    process,
    receiving,
    sender_of,
    urls,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.servers import Server
    from tests.frontier.conftest import World

KEY = hosts_key(SPIDER)
DEAD = f"{SPIDER}:dead"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    world = frontier(tmp_path, "here")
    yield world
    world.store.close()


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    world = frontier(tmp_path, "there")
    yield world
    world.store.close()


def to_there(_: str) -> str:
    return "there"


def do(world: World, count: int) -> None:
    """Fetch ``count`` pages and commit."""
    for _ in range(count):
        world.clocks.pass_(5)
        assert world.fetch() is not None
    world.commit()


def fill(world: World) -> None:
    """Make hosts that have every kind of entry."""
    for host in range(40):
        name = f"http://h{host}.test"
        world.add(*(f"{name}/{page}" for page in range(host % 7 + 1)), priority=host % 3)
        world.add(f"{name}/first", priority=9)
        rules = b"User-agent: *\nDisallow: /%d\n" % host
        wall = world.clocks.wall
        record = RobotsRecord("rules", wall, wall + 500, 200, rules)
        world.put_robots(name, record.encode())
    do(world, 25)
    for wait in (0.0, 500.0):
        world.clocks.pass_(5)
        host = world.frontier.schedule.pop()
        assert host is not None
        world.frontier.schedule.deferral.defer(host, wait)
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 90.0)
    due = world.frontier.now() + 100
    world.frontier.queues.replace(lease, structs.replace(lease.entry, retries=1, due=due))
    world.add("http://poison.test/")
    world.commit()
    (key,) = entry_keys(world.store, "poison.test")
    for _ in range(POISON_STRIKES):
        strike(world.store, key)
    world.crash()


def left_of(world: World) -> dict[bytes, bytes]:
    return {
        key: value for key, value in content(world).items() if key[:1] != b"e" and key != ROBOTS_END
    }


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
            await sender.send_all(to_there)
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
            await sender_of(here, {"there": one, "other": two}.get).send_all(owners.get)

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
            await sender_of(here, lambda _: client).send_all(to_there)

    drive(main())
    assert there.queued("a.test") == before
    assert len(before) == 200


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
                sending = asyncio.create_task(sender.send_all(to_there))
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
            sending = asyncio.create_task(sender.send_all(to_there))
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
            sending = asyncio.create_task(sender.send_all(to_there))
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
            sending = asyncio.create_task(sender.send_all(to_there))
            await eventually(lambda: sender.open == 20)
            await client.config_set("maxmemory", "1")
            async with receiving(there, client) as receiver:
                await eventually(lambda: receiver.stats.failed["full"] > 0)
                while (await lengths(client, SPIDER, "there")).hosts:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert urls(here) == pages(20)
                await client.config_set("maxmemory", "0")
                await sending

    drive(main())
    assert urls(there) == pages(20)


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
                sending = asyncio.create_task(sender.send_all(to_there))
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
            await sender.send_all(to_there)

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
                sending = asyncio.create_task(sender.send_all(to_there))
                await reached.wait()
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
            here.departures.stop()
            async with receiving(other, two):
                await sender.send_all(lambda _: "other")
                # The first owner forwards its part to the new owner.
                back = sender_of(there, {"other": two}.get)
                await back.send_all(lambda _: "other")

    with redis_server(tmp_path / "first") as first, redis_server(tmp_path / "second") as second:
        drive(main(first, second))
    assert other.queued("a.test") == [f"http://a.test/{page}" for page in range(30)]
    assert (urls(here), urls(there)) == ([], [])
    other.store.close()


@contextmanager
def opened(folder: Path) -> Iterator[tuple[World, World]]:
    here, there = frontier(folder, "here"), frontier(folder, "there")
    try:
        yield here, there
    finally:
        here.store.close()
        there.store.close()


def run_until(line: str, *arguments: str | Path) -> None:
    """Run a process until it prints a line."""
    with process(*arguments) as running:
        assert running.stdout is not None
        assert line in (printed.strip() for printed in running.stdout)


@pytest.mark.slow
def test_killed_sender_loses_and_doubles_nothing(server: Server, tmp_path: Path) -> None:
    with opened(tmp_path) as (here, _):
        here.add(*pages(60))
        here.commit()
    with process("receive", server.url, tmp_path):
        for steps in (1, 7, 61, 200, 290):
            with process("send", server.url, tmp_path) as sender:
                assert sender.stdout is not None
                # Later steps may have ended.
                for _ in range(steps):
                    sender.stdout.readline()
        run_until("all", "send", server.url, tmp_path)
    with opened(tmp_path) as (here, there):
        assert urls(here) == []
        assert urls(there) == pages(60)
        assert there.frontier.queued == 180


@pytest.mark.slow
def test_killed_receiver_loses_and_doubles_nothing(server: Server, tmp_path: Path) -> None:
    """It is killed between any two steps."""
    with opened(tmp_path) as (here, _):
        # More hosts than the batches of a receiver that reaches each step twice.
        here.add(*pages(1500, 1))
        here.commit()
    with process("send", server.url, tmp_path) as sender:
        for step in STEPS:
            run_until("here", "receive", server.url, tmp_path, step)
        with process("receive", server.url, tmp_path):
            assert sender.stdout is not None
            assert "all\n" in sender.stdout
    with opened(tmp_path) as (here, there):
        assert urls(here) == []
        assert urls(there) == pages(1500, 1)
        assert there.frontier.queued == 1500


def test_host_lost_with_a_disk_is_sent_again(
    server: Server, tmp_path: Path, here: World, there: World
) -> None:
    here.add(*(f"http://a.test/{page}" for page in range(40)))
    new = frontier(tmp_path / "new", "there")

    async def main() -> None:
        reached = asyncio.Event()
        held = asyncio.Event()

        async def make_durable() -> None:
            if reached.is_set():
                await held.wait()

        def taken(count: int) -> None:
            if count == 12:
                reached.set()

        async with clients(server.url) as (client,):
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there))
            async with receiving(there, client, taken, make_durable=make_durable):
                await reached.wait()
            async with receiving(new, client):
                await sending

    drive(main())
    assert new.queued("a.test") == [f"http://a.test/{page}" for page in range(40)]
    new.store.close()


def cut(world: World) -> list[bytes]:
    """Return all chunks of all hosts, as JSON."""
    found = []
    for name in [name for name, _ in records(world.store)]:
        departure = world.departures.begin(name)
        count = 0
        while (chunk := departure.chunk(count)) is not None:
            found.append(encode_chunk(chunk))
            count += 1
        departure.abort()
    return found


def test_repeated_and_unordered_chunks_change_nothing(
    server: Server, here: World, there: World
) -> None:
    here.add(*pages(30, 7))
    found = cut(here)

    async def main() -> None:
        async with clients(server.url) as (client,):
            await client.lpush(KEY, *found[::-1], *found[::2], *found[10:])
            async with receiving(there, client):
                await sender_of(here, lambda _: client).send_all(to_there)

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
                await sender_of(here, lambda _: client).send_all(to_there)
                found = await lengths(client, SPIDER, "there")
                assert (found.hosts, found.processing, found.dead) == (0, 0, len(junk))
                assert receiver.stats.refused == 8
            notes = [json.loads(note) for note in await client.lrange(DEAD, 0, -1)]
            assert all(0 < len(note["reason"]) <= 200 for note in notes)
            assert await client.get(arrived_key(SPIDER, "a.test", "0" * 16)) == b"-"
        assert late[0] < LATE

    drive(main())
    assert urls(there) == pages(20)


def test_host_in_flight_goes_when_its_page_is_done(
    server: Server, here: World, there: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then, a warning names it, its new node and the reason."""
    here.add(*pages(20))
    here.clocks.pass_(5)
    lease = here.pop()
    assert lease is not None
    asked = 0

    def owner_of(_: str) -> str:
        nonlocal asked
        asked += 1
        return "there"

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client):
            sender = sender_of(here, lambda _: client, time=quick_time(300))
            sending = asyncio.create_task(sender.send_all(owner_of))
            await eventually(lambda: sender.stats.hosts == 19)
            # On a busy machine there may be a warning before any host has moved.
            why = f"{lease.host.name} is in flight, with 1 pages open. Hosts left for it: 1"
            warning = f"No host has moved to node there for 30 s: {why}"
            await eventually(lambda: warning in caplog.messages)
            assert not sending.done()
            here.frontier.schedule.release(lease.host, 0.25)
            here.frontier.acknowledge(lease)
            here.commit()
            await sending

    drive(main())
    # All hosts were read once, and then none was left.
    assert asked == 20
    assert urls(there) == sorted(set(pages(20)) - {lease.entry.url})
    assert urls(here) == []


def test_host_that_leaves_the_receiver_is_sent_until_it_may_come(
    server: Server, here: World, there: World
) -> None:
    here.add(*pages(20))
    there.add("http://h3.test/other")
    leaving = there.departures.begin("h3.test")

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client) as receiver:
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there))
            await eventually(lambda: sender.stats.hosts == 19 and receiver.stats.busy > 3)
            assert not sending.done()
            leaving.abort()
            await sending

    drive(main())
    assert urls(there) == sorted([*pages(20), "http://h3.test/other"])


def test_refused_host_stays_until_the_ring_changes(
    server: Server, here: World, there: World
) -> None:
    here.add(*pages(20), "http://h3.test/" + "x" * 500)
    wide = there.arrivals
    there.arrivals = Arrivals(
        there.frontier, there.store, there.robots_fetches.cache, there.identify, url_max=300
    )

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client) as receiver:
            sender = sender_of(here, lambda _: client)
            await sender.send_all(to_there)
            assert (
                sum(here.departures.kept.values()),
                sender.stats.refused,
                receiver.stats.refused,
            ) == (1, 1, 1)
            assert len(here.queued("h3.test")) == 4
            assert here.frontier.schedule.cache.get("h3.test").state is not SEALED
            (note,) = await client.lrange(DEAD, 0, -1)
            assert "300" in json.loads(note)["reason"]
            there.arrivals = wide
            here.departures.stop()
            await sender.send_all(to_there)
            assert sum(here.departures.kept.values()) == 0

    drive(main())
    assert urls(there) == sorted([*pages(20), "http://h3.test/" + "x" * 500])


def test_host_with_a_too_long_entry_stays(server: Server, here: World, there: World) -> None:
    here.add(*pages(20))
    long = Entry("http://h3.test/long", request=b"J" + b"x" * MAX_CHUNK)
    here.frontier.queue([Candidate("h3.test", b"12345678", long)])

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client):
            sender = sender_of(here, lambda _: client)
            await sender.send_all(to_there)
            assert (sum(here.departures.kept.values()), sender.stats.refused) == (1, 1)

    drive(main())
    assert len(here.queued("h3.test")) == 4
    assert set(urls(there)) >= {page for page in pages(20) if "/h3." not in page}


def test_requests_that_only_this_job_can_read_stay(
    server: Server, here: World, there: World
) -> None:
    here.add(*pages(3))
    pickled = Entry("http://h1.test/pickled", request=b"Ppickle")
    here.frontier.queue([Candidate("h1.test", b"12345678", pickled)])

    async def main() -> None:
        async with clients(server.url) as (client,), receiving(there, client):
            sender = sender_of(here, lambda _: client)
            await sender.send_all(to_there)
            assert (sum(here.departures.kept.values()), sender.stats.hosts) == (1, 3)

    drive(main())
    assert urls(here) == ["http://h1.test/pickled"]
    assert urls(there) == pages(3)


def test_hosts_of_a_node_that_is_no_member_wait(
    server: Server, here: World, there: World, caplog: pytest.LogCaptureFixture
) -> None:
    here.add(*pages(20))
    owners = {f"h{host}.test": "there" if host % 2 else "away" for host in range(20)}

    async def main() -> None:
        known: dict[str, Any] = {}
        async with clients(server.url) as (client,), receiving(there, client):
            known["there"] = client
            sender = sender_of(here, known.get, time=quick_time(300))
            sending = asyncio.create_task(sender.send_all(owners.get))
            await eventually(lambda: sender.stats.hosts == 10)
            await eventually(lambda: "away for 30 s: the node takes no messages" in caplog.text)
            assert not sending.done()
            assert len(urls(here)) == 30
            known["away"] = client
            await sending

    drive(main())
    assert urls(there) == pages(20)


def test_node_in_trouble_holds_up_no_other(
    tmp_path: Path, here: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krowlspider.crawl.handover.sender._WAITING", 10)
    other = frontier(tmp_path, "other")
    here.add(*pages(100))
    owners = {f"h{host}.test": "there" if host % 2 else "other" for host in range(100)}

    async def main(first: Server, second: Server) -> None:
        async with clients(first.url, second.url, timeout=0.1) as (one, two):
            clients_of = {"there": one, "other": two}
            # Slow enough that the healthy node does not count as failing.
            sender = sender_of(here, clients_of.get, time=quick_time(10))
            async with receiving(there, one), receiving(other, two):
                with second.frozen():
                    sending = asyncio.create_task(sender.send_all(owners.get))
                    await eventually(lambda: sender.stats.hosts == 50)
                    assert len(urls(there)) == 150
                    assert sender.stats.failed["timeout"] > 0
                await sending

    with redis_server(tmp_path / "first") as first, redis_server(tmp_path / "second") as second:
        drive(main(first, second))
    assert sorted([*urls(there), *urls(other)]) == pages(100)
    other.store.close()


def test_hosts_under_way_are_bounded(server: Server, here: World, there: World) -> None:
    count = WINDOW + 100
    here.add(*pages(count, 1))

    async def main() -> None:
        async with clients(server.url) as (client,):
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there))
            await eventually(lambda: sender.open == WINDOW)
            found = await lengths(client, SPIDER, "there")
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


def test_junk_acknowledgements_are_ignored(server: Server, here: World, there: World) -> None:
    here.add(*pages(1))
    transfer = json.loads(cut(here)[0])["transfer"]

    async def main() -> None:
        async with clients(server.url) as (client,):
            sender = sender_of(here, lambda _: client)
            for junk in ("soon", "-1", "9" * 5000, "1.0"):
                await client.set(arrived_key(SPIDER, "h0.test", transfer), junk)
                sent = sender.stats.again
                sending = asyncio.create_task(sender.send_all(to_there))
                while sender.stats.again == sent:
                    await client.delete(KEY)
                    await asyncio.sleep(0.01)
                assert urls(here) == pages(1)
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
                here.departures.stop()
            async with receiving(there, client):
                await sender_of(here, lambda _: client).send_all(to_there)

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
            sending = asyncio.create_task(sender.send_all(to_there))
            # It was read and removed.
            while await client.exists(key):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert len(urls(here)) == 30
            async with receiving(there, client):
                await sending

    drive(main())
    assert there.queued("a.test") == [f"http://a.test/{page}" for page in range(30)]
    assert urls(here) == []


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
            sending = asyncio.create_task(sender.send_all(to_there))
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
            sending = asyncio.create_task(sender.send_all(to_there))
            await asked.wait()
            assert await client.keys(f"{SPIDER}:arrived:*") == []
            assert await client.llen(processing_key(KEY, "there")) == 1
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
                await sender_of(here, lambda _: client).send_all(to_there)
            assert "the disk is gone" in repr(caught.value.exceptions)

    drive(main())
