"""Hosts that cannot leave yet, or cannot be taken, stay and are sent later."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.transport.inbox import MAX_CHUNK
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.hosts.host import SEALED
from krowlspider.frontier.moves.transfer import Arrivals
from tests.cluster.forwarding import clients, drive, eventually, quick_time
from tests.cluster.servers import redis_server
from tests.job.handover.hosts import DEAD, to_there
from tests.job.handover.nodes import EVERYWHERE, frontier, pages, receiving, sender_of, urls

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cluster.servers import Server
    from tests.frontier.conftest import World


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
            sending = asyncio.create_task(sender.send_all(owner_of, EVERYWHERE))
            await eventually(lambda: sender.stats.hosts == 19)
            # On a busy machine there may be a warning before any host has moved.
            why = f"{lease.host.name} is in flight, pages open: 1. Hosts left for it: 1"
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
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
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
            await sender.send_all(to_there, EVERYWHERE)
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
            await sender.send_all(to_there, EVERYWHERE)
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
            await sender.send_all(to_there, EVERYWHERE)
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
            await sender.send_all(to_there, EVERYWHERE)
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
            sending = asyncio.create_task(sender.send_all(owners.get, EVERYWHERE))
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
    monkeypatch.setattr("krowlspider.job.nodes.sender._WAITING", 10)
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
                    sending = asyncio.create_task(sender.send_all(owners.get, EVERYWHERE))
                    await eventually(lambda: sender.stats.hosts == 50)
                    assert len(urls(there)) == 150
                    assert sender.stats.failed["timeout"] > 0
                await sending

    with redis_server(tmp_path / "first") as first, redis_server(tmp_path / "second") as second:
        drive(main(first, second))
    assert sorted([*urls(there), *urls(other)]) == pages(100)
    other.store.close()
