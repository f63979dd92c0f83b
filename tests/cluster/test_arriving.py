"""Which hosts a node takes from others, and how long what it cannot take holds up the rest."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.cluster.arriving import OursOnly
from krowlspider.cluster.claims import Reading, View
from krowlspider.cluster.ring import Member, Ring
from krowlspider.frontier.turns import HostBusyError
from krowlspider.urls.host import domain_of

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
        self.ours = OursOnly(self.taken, lambda: self.seen, domain_of, busy=HostBusyError)

    def waited(self, *hosts: str, meanwhile: Callable[[], None] = lambda: None) -> float:
        """Seconds that chunks of hosts are kept; ``meanwhile`` comes after half a one."""

        async def wait() -> float:
            begun = time.monotonic()
            asyncio.get_running_loop().call_later(0.5, meanwhile)
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


def test_what_is_ours_and_claimed_is_taken_at_once() -> None:
    place = Place(view("a", "b", claimed=NEW))
    assert place.waited(*OURS) < 0.2
    assert [host for host in HOSTS if place.takes(host)] == OURS


def test_what_comes_before_its_ring_is_known_is_kept_until_then() -> None:
    place = Place(view("b", claimed=OLD))
    place.seen = View("a", Reading(1, (Member("a"), Member("b")), {"a": (OLD,)}), (OLD,))
    assert not place.takes(OURS[0])

    def claimed() -> None:
        place.seen = view("a", "b", claimed=NEW)

    assert 0.4 < place.waited(*OURS, meanwhile=claimed) < 1.5
    assert place.takes(OURS[0])


def test_a_list_full_of_what_is_ours_no_more_is_waited_for_once_in_each_view() -> None:
    place = Place(view("a", "b", claimed=NEW))
    other = next(host for host in HOSTS if NEW.owner(host) == "b")
    assert 1.5 < place.waited(other) < 4
    for _ in range(50):
        assert place.waited(other) < 0.2
        assert not place.takes(other)
    place.seen = view("a", "b", claimed=NEW)
    assert 1.5 < place.waited(other) < 4


def test_a_node_that_leaves_takes_nothing_and_waits_for_nothing() -> None:
    place = Place(view("b", claimed=NEW))
    assert place.waited(*OURS) < 0.2
    assert not any(map(place.takes, HOSTS))


@pytest.mark.parametrize("chunk", [None, [], {}, {"host": 1}, {"host": "\ud800"}, "a"])
def test_what_is_no_chunk_is_for_the_arrivals_to_refuse(chunk: Any) -> None:
    refused: list[Any] = []

    class Refusing:
        def take(self, said: Any) -> int:
            refused.append(said)
            return 0

    seen = view("a", "b", claimed=NEW)
    ours = OursOnly(Refusing(), lambda: seen, domain_of, busy=HostBusyError)
    asyncio.run(ours.wait([chunk]))
    ours.take(chunk)
    assert refused == [chunk]
