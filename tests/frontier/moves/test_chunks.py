"""A host is cut into the same chunks again, and each counts once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.moves.chunks import decode_chunk, encode_chunk
from tests.frontier.conftest import LIMITS, World
from tests.frontier.moves.hosts import HOST_NAME, chunks, content, url, urls

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store


def test_chunks_are_json_of_at_most_256_kib(open_store: Callable[[], Store]) -> None:
    world = World(open_store, limits=replace(LIMITS, host_queue=5000), most=300)
    long = [f"{url(number)}/{'x' * 1900}" for number in range(2000)]
    world.add(*long)
    found = chunks(world)
    assert [chunk.number for chunk in found] == list(range(len(found)))
    assert [chunk.last for chunk in found] == [False] * (len(found) - 1) + [True]
    assert max(len(encode_chunk(chunk)) for chunk in found) <= 256 * 1024
    assert sum(len(chunk.entries) for chunk in found) == 2000


def test_a_chunk_that_arrives_twice_changes_nothing(world: World, other: World) -> None:
    world.frontier.add([Candidate(HOST_NAME, None, Entry(url(0))) for _ in range(3)])
    world.add(*urls(0, 1, 2, 3))
    for number, chunk in enumerate(chunks(world)):
        assert other.arrivals.take(chunk) == number + 1
        before, gauges = content(other), (other.frontier.queued, other.frontier.schedule.host_count)
        assert other.arrivals.take(chunk) == number + 1
        other.crash()
        assert other.arrivals.take(chunk) == number + 1
        assert content(other, b"q", b"s") == {k: v for k, v in before.items() if k[:1] in b"qs"}
        assert (other.frontier.queued, other.frontier.schedule.host_count) == gauges
    assert len(other.queued(HOST_NAME)) == 7


def test_only_the_next_chunk_is_taken(world: World, other: World) -> None:
    world.add(*urls(0, 1, 2, 3))
    first, second, *_ = chunks(world)
    assert other.arrivals.take(second) == 0
    assert other.frontier.queued == 0
    assert other.arrivals.take(first) == 1


@pytest.mark.parametrize("end", [World.restart, World.crash])
def test_a_restarted_sender_continues_at_the_next_chunk(
    world: World, other: World, end: Callable[[World], object]
) -> None:
    world.frontier.add([Candidate(HOST_NAME, None, Entry(url(0))) for _ in range(3)])
    world.add(*urls(1, 2, 3))
    departure = world.departures.begin(HOST_NAME)
    chunk = departure.chunk(0)
    assert chunk is not None
    assert other.arrivals.take(chunk) == 1
    end(world)
    again = world.departures.begin(HOST_NAME)
    assert again.transfer == departure.transfer
    first = again.chunk(0)
    assert first is not None
    arrived = other.arrivals.take(first)
    assert arrived == 1
    while (chunk := again.chunk(arrived)) is not None:
        arrived = other.arrivals.take(chunk)
    assert other.queued(HOST_NAME) == urls(0, 0, 0, 1, 2, 3)


def test_a_restarted_sender_repeats_no_arrived_chunk(world: World, other: World) -> None:
    world.frontier.add([Candidate(HOST_NAME, None, Entry(url(0))) for _ in range(3)])
    for chunk in chunks(world):
        other.arrivals.take(chunk)
    world.crash()
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(0, 0, 0)
    assert world.frontier.queued == 0


def test_chunks_lost_by_the_receiver_are_cut_again(world: World) -> None:
    """The receiver has chunks on disk only after its next commit."""
    world.add(*urls(0, 1, 2, 3, 4))
    found = chunks(world)
    departure = world.departures.under_way[HOST_NAME]
    for number in (2, 1, 0):
        chunk = departure.chunk(number)
        assert chunk is not None
        assert chunk.entries == found[number].entries


def test_arrived_chunks_are_skipped_one_a_step(world: World) -> None:
    world.add(*(url(number) for number in range(40)))
    found = chunks(world)
    departure = world.departures.under_way[HOST_NAME]
    assert len(list(departure.skip(0))) == 1
    assert len(list(departure.skip(15))) == 15
    assert list(departure.skip(15)) == []
    chunk = departure.chunk(15)
    assert chunk is not None
    assert chunk.entries == found[15].entries
    assert departure.chunk(len(found)) is None


def test_more_arrived_chunks_than_there_are_is_an_error(world: World, other: World) -> None:
    """The count that the sender reads may be forged, or count chunks of another size."""
    world.add(*urls(0, 1, 2, 3))
    departure = world.departures.begin(HOST_NAME)
    chunk = departure.chunk(0)
    assert chunk is not None
    other.arrivals.take(chunk)
    with pytest.raises(LookupError):
        departure.chunk(999_999_999)
    before = departure.transfer
    departure.begin_again()
    assert departure.transfer != before
    arrived = 0
    while (chunk := departure.chunk(arrived)) is not None:
        arrived = other.arrivals.take(decode_chunk(encode_chunk(chunk)))
    assert other.queued(HOST_NAME) == urls(0, 1, 2, 3)
