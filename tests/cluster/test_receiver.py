"""Which hosts a node takes from others, and how long what it cannot take holds up the rest."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.cluster.ring.claims import Reading, View
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.crawl.handover.receiver import HandoverReceiver, OwnedHosts
from krowlspider.frontier.hosts.scheduling import HostBusyError

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = Ring([Member("b")]), Ring(map(Member, "ab"))
HOSTS = [f"site{number}.test" for number in range(100)]
OURS = [name for name in HOSTS if NEW.owner(name) == "a"]


def view(*names: str, claimed: Ring) -> View:
    """As `a` sees it, which claims one ring."""
    claims = dict.fromkeys((*names, "a"), (claimed,))
    return View("a", Reading(1, tuple(map(Member, names)), claims), (claimed,))


class Taken:
    def __init__(self) -> None:
        self.hosts: list[str] = []

    def take(self, said: Any) -> int:
        self.hosts.append(said["host"])
        return 1


class Place:
    """A node that may see another cluster at any time."""

    def __init__(self, seen: View):
        self.seen = seen
        self.taken = Taken()
        self.ours = OwnedHosts(self.taken, lambda: self.seen)

    def waited(
        self, *hosts: str, meanwhile: Callable[[], None] = lambda: None, after: float = 0.5
    ) -> float:
        """Seconds that chunks of hosts are kept; ``meanwhile`` comes after so many."""

        async def wait() -> float:
            begun = time.monotonic()
            asyncio.get_running_loop().call_later(after, meanwhile)
            await self.ours.wait([{"host": host} for host in hosts])
            return time.monotonic() - begun

        return asyncio.run(wait())

    def takes(self, host: str) -> bool:
        before = len(self.taken.hosts)
        try:
            self.ours.take({"host": host})
        except HostBusyError:
            assert len(self.taken.hosts) == before
            return False
        return self.taken.hosts[before:] == [host]


def test_owned_and_claimed_hosts_are_taken_at_once() -> None:
    place = Place(view("a", "b", claimed=NEW))
    assert place.waited(*OURS) < 0.2
    assert [host for host in HOSTS if place.takes(host)] == OURS


def test_chunk_waits_until_its_ring_is_known() -> None:
    place = Place(view("b", claimed=OLD))
    place.seen = View("a", Reading(1, (Member("a"), Member("b")), {"a": (OLD,)}), (OLD,))
    assert not place.takes(OURS[0])

    def claimed() -> None:
        place.seen = view("a", "b", claimed=NEW)

    assert 0.4 < place.waited(*OURS, meanwhile=claimed) < 1.5
    assert place.takes(OURS[0])


def test_foreign_chunks_are_waited_for_once_in_each_view() -> None:
    place = Place(view("a", "b", claimed=NEW))
    other = next(host for host in HOSTS if NEW.owner(host) == "b")
    assert 1.5 < place.waited(other) < 4
    for _ in range(50):
        assert place.waited(other) < 0.2
        assert not place.takes(other)
    # Another object of it, as when a third node's claims have changed.
    place.seen = view("a", "b", claimed=NEW)
    assert place.waited(other) < 0.2
    place.seen = view("a", "b", "c", claimed=NEW)
    assert 1.5 < place.waited(other) < 4


def test_one_foreign_chunk_delays_the_others_only_once() -> None:
    place = Place(view("a", "b", claimed=NEW))
    assert 1.5 < place.waited(*HOSTS) < 4
    assert place.waited(*HOSTS) < 0.2
    assert [host for host in HOSTS if place.takes(host)] == OURS


def test_ring_after_the_last_look_was_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("krowlspider.crawl.handover.receiver._LOOK", 0.1)
    monkeypatch.setattr("krowlspider.crawl.handover.receiver._LOOKS", 6)
    place = Place(view("b", claimed=OLD))
    place.seen = View("a", Reading(1, (Member("a"), Member("b")), {"a": (OLD,)}), (OLD,))
    other = next(host for host in HOSTS if NEW.owner(host) == "b")

    def come() -> None:
        place.seen = view("a", "b", claimed=NEW)

    # After the last of six looks, at 0.5 seconds, and before the end at 0.6.
    assert 0.5 < place.waited(other, meanwhile=come, after=0.55) < 4
    assert 0.4 < place.waited(other)


def test_only_taken_chunks_are_made_durable() -> None:
    synced: list[int] = []

    async def make_durable() -> None:
        synced.append(1)

    async def main() -> None:
        place = Place(view("a", "b", claimed=NEW))
        client = redis_client("redis://127.0.0.1:1/0")
        receiver = HandoverReceiver(place.ours, client, "broad", make_durable)
        theirs = [host for host in HOSTS if host not in OURS]
        chunks = [
            {"host": host, "transfer": "0" * 16, "number": 0, "last": True} for host in theirs
        ]
        assert await receiver.take(chunks) == [None] * len(theirs)
        assert (receiver.stats.busy, synced) == (len(theirs), [])
        assert await receiver.take([{**chunks[0], "host": OURS[0]}]) == [None]
        assert (receiver.stats.hosts, synced) == (1, [1])
        await receiver.close()

    asyncio.run(main())


def test_leaving_node_takes_nothing_and_waits_for_nothing() -> None:
    place = Place(view("b", claimed=NEW))
    assert place.waited(*OURS) < 0.2
    assert not any(map(place.takes, HOSTS))


@pytest.mark.parametrize("chunk", [None, [], {}, {"host": 1}, {"host": "\ud800"}, "a"])
def test_junk_is_refused_by_the_arrivals(chunk: Any) -> None:
    refused: list[Any] = []

    class Refusing:
        def take(self, said: Any) -> int:
            refused.append(said)
            return 0

    seen = view("a", "b", claimed=NEW)
    ours = OwnedHosts(Refusing(), lambda: seen)
    asyncio.run(ours.wait([chunk]))
    ours.take(chunk)
    assert refused == [chunk]
