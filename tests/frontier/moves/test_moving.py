"""The hosts that belong to other nodes are found by their positions in the ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.moves import departure
from krowlspider.frontier.store.schema import POSITION, position_prefix
from krowlspider.urls.canonical import domain_of, position_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from krowlspider.frontier.store.store import Store
    from tests.frontier.conftest import World

HOSTS = [f"www.host{number}.test" for number in range(1200)]


def ranges_of(hosts: Iterable[str]) -> list[tuple[int, int]]:
    """Return one range for each domain of some hosts, in order."""
    positions = sorted({position_of(domain_of(host)) for host in hosts})
    return [(position, position) for position in positions]


def moving(world: World, hosts: Iterable[str]) -> list[str]:
    """Return the hosts that move if another node owns the domains of ``hosts``."""
    domains = {domain_of(host) for host in hosts}
    steps = world.departures.moving(
        lambda domain: "there" if domain in domains else None, ranges_of(hosts)
    )
    return sorted(name for step in steps for name, _ in step)


def test_hosts_that_move_are_found_each_time(world: World, other: World) -> None:
    """The first scan makes the index. A new host enters it, a removed one leaves it."""
    world.add(*(f"http://{host}/" for host in HOSTS[:-2]))
    gone, late = HOSTS[3], HOSTS[-2]
    assert moving(world, HOSTS[:4]) == sorted(HOSTS[:4])
    world.add(f"http://{late}/")
    world.hand_over(gone, other)
    wanted = [*HOSTS[400:900], gone, late, HOSTS[-1]]
    assert moving(world, wanted) == sorted([*HOSTS[400:900], late])
    assert moving(world, [HOSTS[-1]]) == []
    # An entry of a host that is gone would be looked at in each scan.
    assert len(list(world.store.keys(POSITION))) == len(HOSTS) - 2


def test_a_host_that_comes_during_the_first_scan_is_in_the_index(world: World) -> None:
    world.add(*(f"http://{host}/" for host in HOSTS[1:]))
    steps = world.departures.moving(lambda _: None, ranges_of(HOSTS))
    for _ in range(2):
        next(steps)
    # Its name comes before those that the scan looks at next.
    world.add(f"http://{HOSTS[0]}/")
    assert list(filter(None, steps)) == []
    assert moving(world, [HOSTS[0]]) == [HOSTS[0]]


def test_a_scan_that_was_not_ended_is_made_again(world: World) -> None:
    world.add(*(f"http://{host}/" for host in HOSTS))
    steps = world.departures.moving(lambda _: None, ranges_of(HOSTS))
    next(steps)
    next(steps)
    assert moving(world, HOSTS[:50]) == sorted(HOSTS[:50])


def test_entries_of_an_earlier_process_are_passed_over(world: World) -> None:
    """Its hosts may be gone, such as by a command that forgets one, and domains may differ now."""
    gone, there = HOSTS[:2]
    world.add(f"http://{there}/")
    batch = world.store.batch()
    for position, host in ((position_of(domain_of(gone)), gone), (7, there)):
        batch.put(position_prefix(position) + host.encode(), b"of another")
    batch.write()
    assert moving(world, [gone]) == []
    steps = world.departures.moving(lambda _: "other", [(0, 2**64 - 1)])
    assert [name for step in steps for name, _ in step] == [there]


def test_positions_known_to_be_empty_are_not_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read passes over all removed entries up to the next host, which may be many."""
    world.add(*(f"http://{host}/" for host in HOSTS[:2]))
    assert moving(world, []) == []
    reads: list[bytes] = []
    items = world.store.items

    def counted(prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        reads.extend([after] * (prefix == POSITION))
        return items(prefix, after)

    monkeypatch.setattr(world.store, "items", counted)
    assert moving(world, HOSTS) == sorted(HOSTS[:2])
    # To each host, from behind each, and to the end.
    assert len(reads) <= 5


def test_all_hosts_are_looked_at_only_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a node that joins has few hosts: it costs no look at all others."""
    world.add(*(f"http://{host}/" for host in HOSTS))
    seen: list[str] = []

    def records(store: Store, after: str = "") -> Iterator[tuple[str, bytes]]:
        for name, record in original(store, after):
            seen.append(name)
            yield name, record

    original = departure.records
    monkeypatch.setattr(departure, "records", records)
    assert len(moving(world, HOSTS[:20])) == 20
    assert len(seen) == len(HOSTS)
    assert len(moving(world, HOSTS[20:40])) == 20
    assert len(seen) == len(HOSTS)
