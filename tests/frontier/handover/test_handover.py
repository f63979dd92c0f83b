"""A hand-over moves a host whole, once and with its delay, also when either side dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.handover.chunks import BadChunk, Chunk, decode_chunk, encode_chunk
from krowlspider.frontier.hosts.host import Health, SchedulingState
from krowlspider.frontier.poison import POISON_STRIKES, strike
from krowlspider.frontier.robots.gate import Verdict
from krowlspider.frontier.schedule.deferral import ROUND
from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.frontier.seen.filter_file import FilterFile
from krowlspider.frontier.store.queues import all_entries, records
from krowlspider.frontier.store.schema import (
    ARRIVING,
    GONE,
    POISON,
    QUEUE,
    SEEN,
    marked_by,
    robots_key,
    seen_prefix,
)
from krowlspider.frontier.store.store import LevelStore
from krowlspider.politeness.delay import BACKOFF_MAX, PARKED
from krowlspider.politeness.robots import BODY_MAX, RobotsRecord, Ruling
from tests.frontier.conftest import LIMITS, RULE, Clocks, KeptMemoryStore, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

HOST_NAME = "a.test"
ROOT = Path(__file__).parents[3]


def url(number: int) -> str:
    return f"http://{HOST_NAME}/{number}"


def urls(*numbers: int) -> list[str]:
    return [url(number) for number in numbers]


@pytest.fixture
def other() -> World:
    kept = KeptMemoryStore()
    return World(lambda: kept, node="there")


def chunks(world: World) -> list[Chunk]:
    """Return all chunks of the host, which stays sealed."""
    departure = world.departures.begin(HOST_NAME)
    found: list[Chunk] = []
    while (chunk := departure.chunk(len(found))) is not None:
        found.append(decode_chunk(encode_chunk(chunk)))
    return found


def do(world: World, *wanted: str) -> None:
    """Fetch pages and commit."""
    for expected in wanted:
        world.clocks.pass_(5)
        assert world.fetch() == expected
    world.commit()


def content(world: World, *kinds: bytes) -> dict[bytes, bytes]:
    return dict(item for kind in kinds or (b"",) for item in world.store.items(kind))


def put_retry(world: World, wait: float) -> None:
    """Retry the first page after ``wait`` seconds."""
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 0.25)
    due = world.frontier.now() + wait
    world.frontier.queues.replace(lease, structs.replace(lease.entry, retries=1, due=due))


def test_a_hand_over_moves_everything_of_a_host(world: World, other: World) -> None:
    world.add(*urls(0, 1, 2, 3, 4), priority=3)
    world.add("http://b.test/")
    do(world, url(0))
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(1, 2, 3, 4)
    assert other.add(*urls(0, 1, 2, 3, 4)) == 0
    assert (other.frontier.queued, other.frontier.schedule.host_count) == (4, 1)
    assert other.frontier.schedule.cache.get(HOST_NAME).queue.done == 1
    left = [key for key in content(world) if HOST_NAME.encode() in key]
    assert left == [GONE + HOST_NAME.encode()]
    assert (world.frontier.queued, world.frontier.schedule.host_count) == (1, 1)
    world.clocks.pass_(10)
    assert world.frontier.schedule.count_due() <= 1
    other.clocks.pass_(10)
    assert other.fetch() == url(1)


def test_a_host_done_by_the_sender_is_due_with_a_new_url(world: World, other: World) -> None:
    world.add(url(0))
    world.fetch()
    world.commit()
    other.add(url(0))
    other.commit()
    other.foreign.add(HOST_NAME)
    # The host is held, and not in the heap.
    assert other.fetch() is None
    world.hand_over(HOST_NAME, other)
    assert other.frontier.schedule.cache.get(HOST_NAME).state is SchedulingState.IDLE
    other.foreign.clear()
    other.robots_fetches.ring_changed()
    other.clocks.pass_(60)
    assert other.fetch() is None
    other.add(url(1))
    assert other.fetch() == url(1)


def test_a_deferred_host_stays_deferred_when_more_arrives(world: World, other: World) -> None:
    other.add(url(0))
    host = other.frontier.schedule.pop()
    assert host is not None
    other.frontier.schedule.deferral.defer(host)
    world.add(url(1), url(2))
    world.fetch(wait=5.0)
    world.commit()
    world.hand_over(HOST_NAME, other)
    # The hand-over is stopped, so the host stays.
    other.departures.begin(HOST_NAME)
    other.departures.stop()
    other.clocks.pass_(60)
    assert other.frontier.schedule.pop() is None


def test_a_host_with_nothing_queued_arrives_idle(world: World, other: World) -> None:
    world.add(url(0))
    world.fetch()
    world.commit()
    world.clocks.pass_(60)
    world.hand_over(HOST_NAME, other)
    host = other.frontier.schedule.cache.get(HOST_NAME)
    assert host.state is SchedulingState.IDLE
    # It can serve the robots fetch of another host.
    other.clocks.pass_(60)
    other.frontier.schedule.enqueue_robots_fetch(HOST_NAME, object())
    assert other.frontier.schedule.pop() is host


def test_all_fields_of_an_entry_are_handed_over(world: World, other: World) -> None:
    entry = Entry(
        url(1),
        depth=7,
        redirects=1,
        retries=2,
        throttling=3,
        strikes=1,
        bare=True,
        request=b'J{"x": "\xc3\xa9"}',
        chain=(url(8), "http://c.test/9"),
        via="http://d.test/",
        path="LRM",
    )
    world.frontier.add([Candidate(HOST_NAME, world.hasher.key(url(1)), entry, -5)])
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(10)
    lease = other.pop()
    assert lease is not None
    assert lease.priority == -5
    for name in Entry.__slots__:
        assert getattr(lease.entry, name) == getattr(entry, name)


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


def test_two_entries_of_one_identity_both_arrive(world: World, other: World) -> None:
    """A redirect may lead to its own identity, and a request may skip the filter."""
    world.add(url(0))
    world.frontier.add([Candidate(HOST_NAME, None, Entry(url(0)))])
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(0, 0)
    assert other.add(url(0)) == 0


def test_a_pickled_request_stays_and_is_counted(world: World, other: World) -> None:
    pickled = Candidate(HOST_NAME, b"12345678", Entry(url(9), request=b"Ppickle"))
    world.add(url(0))
    world.frontier.add([pickled])
    world.add(url(1))
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(0, 1)
    assert world.departures.kept == {HOST_NAME: 1}
    assert [found for found in world.departures.moving(lambda _: "there") if found] == []
    assert (world.frontier.queued, world.frontier.schedule.host_count) == (1, 1)
    other.hand_over(HOST_NAME, world)
    do(world, url(9), url(0), url(1))


def test_an_entry_handed_over_between_two_is_not_fetched(world: World, other: World) -> None:
    """It holds for any part of the queue in memory."""
    world.add(url(0))
    for number in (1, 3):
        entry = Entry(url(number), request=b"Ppickle")
        world.frontier.add([Candidate(HOST_NAME, b"1234567%d" % number, entry)])
        world.add(url(number + 1))
    do(world, url(0))
    world.hand_over(HOST_NAME, other)
    assert other.queued(HOST_NAME) == urls(2, 4)
    do(world, url(1), url(3))
    assert world.pop() is None


# What each frontier has done or queued of page 0, and what is fetched once one frontier has all.
@pytest.mark.parametrize(
    ("here", "there", "left"),
    [
        ("queued", "queued", 1),
        ("queued", "done", 0),
        ("done", "queued", 0),
        ("done", "done", 0),
        ("queued", "unknown", 1),
        ("done", "unknown", 0),
        ("unknown", "queued", 1),
    ],
)
@pytest.mark.parametrize("verify", [False, True])
def test_a_page_known_to_both_is_fetched_unless_done(
    open_store: Callable[[], Store], here: str, there: str, left: int, verify: bool
) -> None:
    kept = KeptMemoryStore()
    world = World(open_store, node="here", verify=verify)
    other = World(lambda: kept, node="there", verify=verify)
    for each, state, more in ((world, here, 1), (other, there, 2)):
        if state != "unknown":
            each.add(url(0))
        if state == "done":
            do(each, url(0))
        each.add(url(more))
    world.hand_over(HOST_NAME, other)
    assert sorted(other.queued(HOST_NAME)) == sorted([*urls(0)[:left], *urls(1, 2)])
    assert other.frontier.queued == 2 + left
    for _ in range(2 + left):
        other.clocks.pass_(5)
        assert other.fetch() is not None
    other.commit()
    assert (other.frontier.pending, other.frontier.schedule.host_count) == (0, 0)
    other.crash()
    assert other.add(*urls(0, 1, 2)) == 0


def test_an_entry_done_by_the_sender_is_not_fetched(world: World, other: World) -> None:
    """It holds for any part of the queue in memory."""
    world.add(url(1))
    do(world, url(1))
    other.add(*urls(0, 1, 2))
    do(other, url(0))
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(5)
    do(other, url(2))
    other.commit()
    assert (other.frontier.pending, other.frontier.schedule.host_count) == (0, 0)


def test_a_host_in_flight_keeps_the_later_time(world: World, other: World) -> None:
    """The receiver fetched from the host while the sender was down."""
    world.add(*urls(0, 1))
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 500.0)
    world.frontier.acknowledge(lease)
    world.commit()
    other.add(*urls(0, 5))
    on_the_way = other.pop()
    assert on_the_way is not None
    world.hand_over(HOST_NAME, other)
    other.frontier.schedule.release(on_the_way.host, 0.25)
    other.frontier.acknowledge(on_the_way)
    other.commit()
    other.clocks.pass_(499)
    assert other.fetch() is None
    other.clocks.pass_(2)
    do(other, url(5), url(1))
    assert other.frontier.pending == 0


@pytest.mark.parametrize("wrong_by", [0.0, 7200.0, -7200.0])
def test_the_wait_of_a_host_ignores_wrong_clocks(world: World, wrong_by: float) -> None:
    kept = KeptMemoryStore()
    other = World(lambda: kept, clocks=Clocks(wall=world.clocks.wall + wrong_by))
    world.add(*urls(0, 1, 2))
    lease = world.pop()
    assert lease is not None
    lease.host.rate.ema, lease.host.rate.floor = 0.7, 9.0
    lease.host.set_health(Health.ACTIVE)
    world.frontier.schedule.release(lease.host, 100.0)
    world.frontier.acknowledge(lease)
    world.commit()
    world.clocks.pass_(40)
    world.hand_over(HOST_NAME, other)
    other.crash()
    other.clocks.pass_(59)
    assert other.fetch() is None
    other.clocks.pass_(2)
    host = other.frontier.schedule.cache.get(HOST_NAME)
    assert (host.rate.ema, host.rate.floor) == (pytest.approx(0.7), 9.0)
    assert other.fetch() == url(1)


def test_a_handed_over_retry_waits_for_its_time(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    put_retry(world, 100.0)
    world.clocks.pass_(40)
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(59)
    assert other.fetch() == url(1)
    assert other.fetch() is None
    other.clocks.pass_(2)
    assert other.fetch() == url(0)


def test_a_handed_over_retry_that_is_due_goes_first(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    put_retry(world, 10.0)
    world.clocks.pass_(40)
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(1)
    assert other.fetch() == url(0)


def test_a_host_deferred_to_the_next_round_stays_so(world: World, other: World) -> None:
    world.add(url(0))
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host)
    for _ in range(2):
        # The record may have been read from disk meanwhile.
        world.add("http://b.test/")
    # As if the record had been read meanwhile.
    host.due += 3600
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(100)
    other.commit()
    assert other.fetch() is None
    other.clocks.pass_(ROUND)
    other.commit()
    assert other.fetch() == url(0)


def test_a_host_waits_its_delay_after_the_senders_death(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    lease = world.pop()
    assert lease is not None
    lease.host.rate.floor = 20.0
    world.frontier.schedule.release(lease.host, 20.0)
    world.commit()
    world.clocks.pass_(100)
    world.crash()
    world.hand_over(HOST_NAME, other)
    other.clocks.pass_(19)
    assert other.fetch() is None
    other.clocks.pass_(2)
    assert other.fetch() == url(0)


def test_a_deferred_host_arrives_deferred(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host, PARKED)
    world.hand_over(HOST_NAME, other)
    assert other.frontier.schedule.cache.get(HOST_NAME).state is SchedulingState.DEFERRED
    assert other.frontier.deferred_queued == 2
    assert not world.frontier.deferred_queued
    other.crash()
    assert other.frontier.deferred_queued == 2
    other.clocks.pass_(PARKED - 10)
    other.commit()
    assert other.fetch() is None
    other.clocks.pass_(7200)
    other.commit()
    assert other.fetch() == url(0)


def test_robots_txt_is_handed_over(world: World, other: World) -> None:
    wall = world.clocks.wall
    body = b"User-agent: *\nDisallow: /1\n"
    record = RobotsRecord("rules", wall, wall + 500, 200, body)
    world.put_robots(f"https://{HOST_NAME}", record.encode())
    world.add(f"https://{HOST_NAME}/1")
    # The last look-up found no record.
    authority = f"https://{HOST_NAME}"
    assert other.gate.verdict(authority, authority + "/1") is Verdict.UNKNOWN
    world.hand_over(HOST_NAME, other)
    assert other.gate.verdict(authority, authority + "/1") is Verdict.DISALLOWED
    assert other.gate.verdict(authority, authority + "/2") is Verdict.ALLOWED
    assert world.store.get(robots_key(authority)) is None


def test_poison_is_handed_over(world: World, other: World) -> None:
    for each, number in ((world, 0), (other, 5)):
        each.add(url(number))
        ((key, _),) = list(all_entries(each.store))
        for _ in range(POISON_STRIKES):
            strike(each.store, key)
        each.crash()
    world.hand_over(HOST_NAME, other)
    assert len(list(other.store.keys(POISON))) == 2
    assert list(world.store.keys(POISON)) == []
    assert other.add(url(0)) == 0


def test_the_budget_of_a_domain_moves_with_its_hosts(open_store: Callable[[], Store]) -> None:
    kept = KeptMemoryStore()
    world = World(open_store, limits=replace(LIMITS, domain_budget=3))
    other = World(lambda: kept, limits=replace(LIMITS, domain_budget=4), node="there")
    assert world.add(*urls(0, 1, 2, 3)) == 3
    do(world, url(0))
    world.hand_over(HOST_NAME, other)
    assert other.add(*urls(3, 4)) == 1
    other.crash()
    assert other.add(url(5)) == 0
    assert world.add(*urls(6, 7, 8, 9)) == 3


def test_a_handed_over_url_is_unknown_to_the_sender(tmp_path: Path, other: World) -> None:
    """If the receiver loses its disk, the host comes back without it, and links find it again."""
    file = FilterFile(tmp_path / "seen")
    world = World(lambda: LevelStore(tmp_path / "db", create=True), file=file)
    world.add(*urls(0, 1), "http://b.test/")
    world.restart()
    assert world.add(url(0)) == 0
    world.hand_over(HOST_NAME, other)
    key = world.hasher.key
    for end in (lambda: None, world.crash, world.restart):
        end()
        seen = world.frontier.seen
        assert key(url(0)) in seen.filter
        assert not seen.known(HOST_NAME, key(url(0)))
        assert seen.known("b.test", key("http://b.test/"))
    assert world.add(url(0)) == 1
    assert world.add(url(0)) == 0
    file.path.unlink()
    world.store.close()
    world.open()
    assert list(world.store.keys(GONE)) == []
    assert world.add(*urls(0, 1)) == 1
    world.store.close()


def test_a_start_removes_marks_that_a_death_left(
    open_store: Callable[[], Store], other: World
) -> None:
    world = World(open_store, limits=replace(LIMITS, host_queue=5000), most=5000)
    for at in range(0, 2500, 10):
        world.add(*(url(number) for number in range(at, at + 10)))
    for chunk in chunks(world):
        other.arrivals.take(chunk)
    steps = world.departures.under_way[HOST_NAME].end()
    while world.frontier.queued:
        next(steps)
    assert sum(1 for _ in marked_by(world.store.items(seen_prefix(HOST_NAME)))) == 1500
    world.crash()
    assert list(world.store.keys(SEEN)) == []
    assert list(world.store.keys(QUEUE)) == []
    assert world.add(url(0)) == 1


def test_a_small_host_is_removed_in_one_step(world: World, other: World) -> None:
    """No mark on its removal is left for a start to complete."""
    world.add(*urls(0, 1))
    for chunk in chunks(world):
        other.arrivals.take(chunk)
    next(world.departures.under_way[HOST_NAME].end())
    assert list(world.store.keys(QUEUE)) == list(world.store.keys(SEEN)) == []
    assert [value for _, value in world.store.items(GONE)] == [b""]


def test_a_long_queue_is_removed_in_steps(open_store: Callable[[], Store], other: World) -> None:
    """All of it in the last one: a death before that leaves the whole queue."""
    world = World(open_store, limits=replace(LIMITS, host_queue=5000), most=5000)
    world.add(*urls(*range(2500)))
    for chunk in chunks(world):
        other.arrivals.take(chunk)
    steps = world.departures.under_way[HOST_NAME].end()
    for _ in range(2):
        next(steps)
        assert world.frontier.queued == 2500
    world.crash()
    assert world.frontier.queued == 2500
    assert world.add(url(0)) == 0


def test_a_departing_host_is_busy_for_others(world: World, other: World) -> None:
    world.add(*urls(0, 1))
    found = chunks(world)
    with pytest.raises(HostBusyError):
        world.departures.begin(HOST_NAME)
    with pytest.raises(HostBusyError, match="on its way to another node"):
        world.arrivals.take(found[0])
    world.clocks.pass_(60)
    assert world.fetch() is None
    assert world.frontier.pending == 2


def test_a_ring_change_keeps_hosts_not_yet_delivered(world: World, other: World) -> None:
    world.add(*urls(0, 1, 2), "http://b.test/")
    world.clocks.pass_(1)
    delivered = world.departures.begin("b.test")
    chunk = delivered.chunk(0)
    assert chunk is not None
    assert delivered.chunk(other.arrivals.take(chunk)) is None
    next(delivered.end())
    kept = world.departures.begin(HOST_NAME)
    chunk = kept.chunk(0)
    assert chunk is not None
    other.arrivals.take(chunk)
    world.departures.stop()
    assert world.departures.under_way == {}
    with pytest.raises(ValueError, match="not under way"):
        kept.chunk(1)
    do(world, url(0))
    # The second hand-over leaves out what was fetched meanwhile.
    world.hand_over(HOST_NAME, other)
    assert sorted(other.queued(HOST_NAME)) == urls(1, 2)
    assert world.frontier.pending == 0


def test_moving_finds_hosts_of_others_with_their_owners(world: World) -> None:
    world.add(*(f"http://h{number}.test/" for number in range(2500)))
    owners = {f"h{number}.test": "y" if number % 2 else "x" for number in range(10)}
    steps = list(world.departures.moving(owners.get))
    # Hosts in memory only come first, then a thousand records a step.
    assert len(steps) == 4
    assert {pair for step in steps for pair in step} == set(owners.items())


def take(world: World, said: object) -> int:
    """Take a chunk that another node has sent."""
    return world.arrivals.take(decode_chunk(json.dumps(said).encode()))


def good(**changes: object) -> dict[str, Any]:
    record = {
        "state": "active",
        "due": 1.0,
        "ready": None,
        "pace": [0.5, 0.0, 0, 0, 0],
        "done": 1,
        "dropped": 0,
    }
    said: dict[str, Any] = {"host": HOST_NAME, "transfer": "00" * 8, "number": 0, "last": True}
    return {**said, "record": record, "entries": [{"url": url(0)}], **changes}


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        "x",
        {},
        good(host="A.test"),
        good(host="a.test\0b"),
        good(host="a.test/b"),
        good(host=5),
        good(transfer="00"),
        good(transfer="zz" * 8),
        good(number=-1),
        good(number=True),
        good(last=1),
        good(record={}),
        good(record={**good()["record"], "state": "asleep"}),
        good(record={**good()["record"], "due": float("nan")}),
        good(record={**good()["record"], "due": "soon"}),
        good(record={**good()["record"], "pace": [1, 2]}),
        good(record={**good()["record"], "done": 1 << 40}),
        good(entries=[{"url": "http://b.test/"}]),
        good(entries=[{"url": "ftp://a.test/"}]),
        good(entries=[{"url": url(0), "surprise": 1}]),
        good(entries=[{"url": url(0), "wait": -1}]),
        good(entries=[{"url": url(0), "strikes": 256}]),
        good(entries=[{"url": url(0) + "x" * 3000}]),
        good(entries=[{"url": url(0), "request": "UA=="}]),
        good(entries=["x"]),
        good(entries=5),
        good(done="AAAA"),
        good(done=5),
        good(robots=[["http://b.test", ""]]),
        good(robots=[[f"http://{HOST_NAME}", "AAAA"]]),
        good(robots=[[f"http://{HOST_NAME}", b64encode(b"[" * 100_000).decode()]]),
        good(record={**good()["record"], "due": 10**400}),
        good(entries=[{"url": url(0), "wait": 10**400}]),
    ],
)
def test_a_bad_chunk_is_refused_and_changes_nothing(world: World, said: object) -> None:
    before = content(world)
    with pytest.raises(BadChunk):
        take(world, said)
    assert content(world) == before
    assert take(world, good()) == 1
    assert world.queued(HOST_NAME) == [url(0)]


def test_a_robots_txt_that_expands_too_much_is_refused(world: World) -> None:
    bomb = RobotsRecord(Ruling.RULES.value, 0.0, 1.0, 200, b"#" * (BODY_MAX + 1)).encode()
    said = good(robots=[[f"http://{HOST_NAME}", b64encode(bomb).decode()]])
    assert take(world, said) == 1
    bomb = bomb.partition(b"\n")[0] + b"\n" + zlib.compress(b"#" * (BODY_MAX + 2))
    said = good(robots=[[f"http://{HOST_NAME}", b64encode(bomb).decode()]], transfer="11" * 8)
    with pytest.raises(BadChunk, match="too long"):
        take(world, said)


def test_counts_too_large_for_a_record_are_cut(
    world: World,
) -> None:
    """A host with pages done here: a record that cannot be written would stop each start."""
    world.add(url(9))
    do(world, url(9))
    most = {**good()["record"], "done": 0xFFFFFFFF, "dropped": 0xFFFFFFFF}
    most["pace"] = [0.5, 0.0, 255, 255, 0xFFFFFFFF]
    for transfer in ("00", "11"):
        assert take(world, good(record=most, transfer=transfer * 8)) == 1
    host = world.frontier.schedule.cache.get(HOST_NAME)
    assert (host.queue.done, host.queue.dropped) == (0x7FFFFFFF, 0x7FFFFFFF)
    world.clocks.pass_(BACKOFF_MAX)
    lease = world.pop()
    assert lease is not None
    assert lease.entry.url == url(0)
    world.frontier.schedule.release(lease.host, RULE.after_answer(lease.host.rate, 0.1))
    world.frontier.acknowledge(lease)
    world.commit()
    world.crash()
    assert world.frontier.schedule.cache.get(HOST_NAME).queue.done == 0x80000000


NUMBERS = st.one_of(
    st.integers(-2, 300),
    st.sampled_from([0xFFFF, 0xFFFFFFFF, 1 << 32, 1 << 63, 1 << 64, 10**400, -(10**400)]),
    st.floats(),
)
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
HOSTS = st.sampled_from(
    [HOST_NAME, f"{HOST_NAME}:8080", "[::1]", "1.2.3.4", "com", ".", "a.test.", "[", "", "x" * 300]
)
URLS = st.one_of(
    st.sampled_from([url(0), url(1), url(9), "https://a.test/", "http://[::1]/", "http://a.test"]),
    st.text(max_size=20).map(lambda text: url(0) + text),
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from([state.name.lower() for state in Health]) | JUNK,
        "due": NUMBERS | JUNK,
        "ready": st.none() | NUMBERS | JUNK,
        "pace": st.lists(NUMBERS, min_size=5, max_size=5) | JUNK,
        "done": NUMBERS | JUNK,
        "dropped": NUMBERS | JUNK,
    },
).map(lambda said: {**good()["record"], **said})
ENTRIES = st.fixed_dictionaries(
    {"url": URLS | JUNK},
    optional={
        "wait": NUMBERS | JUNK,
        "free": st.booleans() | JUNK,
        "state": st.sampled_from(["queued", "poison"]) | JUNK,
        "priority": NUMBERS | JUNK,
        "bare": st.booleans() | JUNK,
        "chain": st.lists(URLS, max_size=3) | JUNK,
        "via": URLS | JUNK,
        "hop": st.sampled_from(["", "L", "M"]) | JUNK,
        "request": st.binary(max_size=9).map(lambda data: b64encode(data).decode()) | JUNK,
        **dict.fromkeys(("depth", "redirects", "retries", "distress"), NUMBERS | JUNK),
        "strikes": NUMBERS | JUNK,
    },
)
HEADS = st.tuples(
    st.sampled_from([1, 2, 3, 4]) | JUNK,
    st.sampled_from([ruling.value for ruling in Ruling]) | JUNK,
    NUMBERS | JUNK,
    NUMBERS | JUNK,
    NUMBERS | JUNK,
).map(lambda head: json.dumps(head).encode())
ROBOTS = st.tuples(
    HEADS | st.binary(max_size=20),
    (st.binary(max_size=40) | st.just(b"User-agent: *\nCrawl-delay: 1e308\n")).map(zlib.compress)
    | st.binary(max_size=9),
).map(lambda parts: b64encode(b"\n".join(parts)).decode())
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "host": HOSTS | JUNK,
        "transfer": st.binary(min_size=8, max_size=8).map(bytes.hex) | JUNK,
        "number": NUMBERS | JUNK,
        "last": st.booleans() | JUNK,
        "record": RECORDS | JUNK,
        "robots": st.lists(
            st.tuples(st.sampled_from([f"http://{HOST_NAME}", f"https://{HOST_NAME}"]), ROBOTS)
        )
        | JUNK,
        "entries": st.lists(ENTRIES, max_size=4) | JUNK,
        "done": st.binary(max_size=24).map(lambda data: b64encode(data).decode()) | JUNK,
    },
).map(lambda said: good(**said))


def answer_for_an_hour(world: World) -> None:
    """Fetch due pages for an hour, some with an answer and some without, and commit."""
    for turn in range(12):
        world.clocks.pass_(300)
        if (lease := world.pop()) is None:
            continue
        rate = lease.host.rate
        wait = RULE.after_error(rate, 0.5) if turn % 3 else RULE.after_answer(rate, 0.1)
        world.frontier.schedule.release(lease.host, wait)
        if turn % 2:
            due = world.frontier.now() + 10
            world.frontier.queues.replace(lease, structs.replace(lease.entry, retries=1, due=due))
        else:
            world.frontier.acknowledge(lease)
        world.commit()


@settings(max_examples=60, deadline=None)
@given(st.lists(CHUNKS, min_size=1, max_size=3), st.sampled_from(["new", "queued", "done", "off"]))
def test_no_chunk_crashes_the_process_now_or_later(found: list[Any], state: str) -> None:
    """Any content, for a host that is new, has URLs queued or done, or is deferred."""
    kept = KeptMemoryStore()
    world = World(lambda: kept, limits=replace(LIMITS, domain_budget=100))
    if state != "new":
        world.add(*urls(7, 8))
        host = world.frontier.schedule.pop()
        assert host is not None
        if state == "off":
            world.frontier.schedule.deferral.defer(host, 60.0)
        else:
            world.frontier.schedule.give_back(host)
    if state == "done":
        do(world, *urls(7, 8))
    for said in found:
        with suppress(BadChunk):
            take(world, said)
        for name in (f"http://{HOST_NAME}", f"https://{HOST_NAME}"):
            world.gate.verdict(name, name + "/")
        world.commit()
    world.crash()
    answer_for_an_hour(world)
    world.restart()
    there = World(KeptMemoryStore, limits=replace(LIMITS, domain_budget=100), node="there")
    for name in [name for name, _ in records(world.store)]:
        world.hand_over(name, there)


def test_a_wait_that_is_too_long_is_cut(world: World) -> None:
    record = {**good()["record"], "due": 1e300}
    take(world, good(record=record))
    world.clocks.pass_(2 * PARKED + 1)
    assert world.fetch() == url(0)


SENDER = """
import sys
from pathlib import Path
from krowlspider.frontier.store.store import LevelStore
from tests.frontier.conftest import World

folder = Path(sys.argv[1])
here = World(lambda: LevelStore(folder / "here", create=True), node="here")
there = World(lambda: LevelStore(folder / "there", create=True), node="there")
if not here.frontier.counters["queued"]:
    here.add(*(f"http://h{host}.test/{page}" for host in range(200) for page in range(7)))
for host in range(200):
    if here.frontier.schedule.cache.get(f"h{host}.test").queue.queued:
        here.hand_over(f"h{host}.test", there)
        print(host, flush=True)
print("all", flush=True)
"""


def run_sender(folder: Path, kill_after: int) -> int:
    """Return how many lines the child printed before it was killed, or ended."""
    count = 0
    with subprocess.Popen(
        [sys.executable, "-c", SENDER, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            count += 1
            if line == "all\n":
                break
            if count == kill_after:
                process.send_signal(signal.SIGKILL)
    return count


def test_kills_during_hand_overs_lose_and_double_nothing(tmp_path: Path) -> None:
    pages = sorted(f"http://h{host}.test/{page}" for host in range(200) for page in range(7))
    for kill_after in (3, 31, 50):
        run_sender(tmp_path, kill_after)
        here = World(lambda: LevelStore(tmp_path / "here"), node="here")
        there = World(lambda: LevelStore(tmp_path / "there"), node="there")
        # A host in both is being handed over: the receiver fetches nothing of it yet.
        queues: dict[str, list[str]] = {}
        for host in range(200):
            name = f"h{host}.test"
            queues[name] = here.queued(name) or there.queued(name)
        assert sorted(page for queue in queues.values() for page in queue) == pages
        assert here.frontier.queued == len(list(all_entries(here.store)))
        assert there.frontier.queued == len(list(all_entries(there.store)))
        here.store.close()
        there.store.close()
    run_sender(tmp_path, 10_000)
    here = World(lambda: LevelStore(tmp_path / "here"), node="here")
    there = World(lambda: LevelStore(tmp_path / "there"), node="there")
    queued = [page for host in range(200) for page in there.queued(f"h{host}.test")]
    assert sorted(queued) == pages
    assert (there.frontier.queued, there.frontier.schedule.host_count) == (1400, 200)
    assert here.frontier.queued == 0
    assert list(here.store.keys(ARRIVING)) == []
    here.store.close()
    there.store.close()
