"""A failed page is retried when its own time has come, before new URLs of its host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.store.store import entries
from tests.frontier.conftest import KeptMemoryStore, World

if TYPE_CHECKING:
    from krowlspider.frontier.entry_queues import Lease

A = [f"http://a.test/{number}" for number in range(6)]


def pop(world: World) -> Lease:
    lease = world.pop()
    assert lease is not None
    return lease


def fail(world: World, wait: float, tries: int = 1) -> None:
    """Fail to fetch a page: its retry is due in ``wait`` seconds."""
    lease = pop(world)
    due = world.frontier.now() + wait
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.queues.replace(lease, structs.replace(lease.entry, retries=tries, due=due))


def fetched(world: World, seconds: float) -> list[str]:
    """Fetch for so many seconds; return the URLs."""
    found = []
    for _ in range(round(seconds / 0.25)):
        world.clocks.pass_(0.25)
        if url := world.fetch():
            found.append(url)
    return found


class CountedStore(KeptMemoryStore):
    """A store that counts the queue entries of a host after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def apply(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        super().apply(changes)
        self.counts.append(len(list(entries(self, "a.test"))))


def test_a_retry_replaces_its_entry_in_one_batch() -> None:
    """A death between two batches would lose the page, or have it twice."""
    store = CountedStore()
    world = World(lambda: store)
    world.add(*A)
    store.counts.clear()
    fail(world, 1.0)
    assert set(store.counts) == {len(A)}


def test_a_due_retry_is_fetched_before_new_urls(world: World) -> None:
    world.add(*A)
    fail(world, 1.0)
    assert fetched(world, 1.5) == [A[1], A[2], A[3], A[0], A[4], A[5]]


def test_a_host_with_only_retries_rests_until_the_first_is_due(world: World) -> None:
    world.add(A[0], A[1])
    fail(world, 30.0)
    world.clocks.pass_(0.25)
    fail(world, 20.0)
    assert fetched(world, 19.0) == []
    assert world.frontier.schedule.next_due() is not None
    assert world.frontier.has_fetchable
    assert fetched(world, 20.0) == [A[1], A[0]] or fetched(world, 0) == []


def test_retries_with_different_counts_keep_their_due_times(world: World) -> None:
    world.add(A[0], A[1])
    fail(world, 40.0, tries=2)
    world.clocks.pass_(0.25)
    fail(world, 5.0, tries=1)
    assert fetched(world, 6.0) == [A[1]]
    assert fetched(world, 36.0) == [A[0]]


def test_a_new_url_does_not_wait_for_retries(world: World) -> None:
    world.add(A[0])
    fail(world, 60.0)
    world.clocks.pass_(0.25)
    assert world.fetch() is None
    world.add(A[1])
    assert fetched(world, 60.0) == [A[1], A[0]]


def test_adding_a_url_keeps_the_place_of_an_overdue_host(world: World) -> None:
    world.add("http://first.test/")
    world.clocks.pass_(1)
    world.add("http://second.test/")
    world.clocks.pass_(1)
    world.add("http://first.test/2")
    world.clocks.pass_(1)
    assert fetched(world, 0.75)[0] == "http://first.test/"


def test_a_crash_keeps_the_due_time_and_count_of_a_retry(world: World) -> None:
    world.add(A[0], A[1])
    fail(world, 50.0)
    world.crash()
    assert fetched(world, 40.0) == [A[1]]
    world.clocks.pass_(10)
    assert pop(world).entry.retries == 1


def test_a_higher_priority_goes_before_a_retry(world: World) -> None:
    world.add(A[0])
    fail(world, 1.0)
    world.add(A[1], priority=5)
    world.clocks.pass_(2)
    assert fetched(world, 1.0) == [A[1], A[0]]


def test_an_empty_level_is_removed_from_the_host_record(world: World) -> None:
    world.add(A[0])
    for tries in range(1, 6):
        fail(world, 1.0, tries)
        world.clocks.pass_(2)
    host = world.frontier.schedule.cache.get("a.test")
    assert len(host.queue.levels) == 2
    assert fetched(world, 1.0) == [A[0]]
    world.commit()
    assert list(world.frontier.schedule.cache.get("a.test").queue.levels) == [0]
    world.add(*(f"http://a.test/p{number}" for number in range(3)), priority=7)
    assert len(fetched(world, 2.0)) == 3
    world.commit()
    assert list(world.frontier.schedule.cache.get("a.test").queue.levels) == [0]
    world.add(A[1])
    fail(world, 1.0, 1)
    world.crash()
    assert fetched(world, 2.0) == [A[1]]


def test_a_leased_retry_is_queued_again_after_a_crash(world: World) -> None:
    world.add(A[0])
    fail(world, 1.0)
    world.clocks.pass_(2)
    assert pop(world).entry.url == A[0]
    world.crash()
    assert fetched(world, 2.0) == [A[0]]


def test_retry_counts_above_the_last_level_share_it(world: World) -> None:
    world.add(A[0])
    lease = pop(world)
    world.frontier.schedule.release(lease.host, 0.25)
    many = Entry(A[0], retries=200, throttling=200, due=world.frontier.now() + 1)
    world.frontier.queues.replace(lease, many)
    assert fetched(world, 2.0) == [A[0]]


def test_a_level_stays_while_one_of_its_pages_is_leased(world: World) -> None:
    """A new level restarts its sequences, and one could equal that of the leased page."""
    world.add(*A)
    fail(world, 1.0)
    world.clocks.pass_(0.25)
    fail(world, 1.0)
    world.clocks.pass_(2)
    first = pop(world)
    world.frontier.schedule.release(first.host, 0.25)
    world.clocks.pass_(0.25)
    second = pop(world)
    world.frontier.schedule.release(second.host, 0.25)
    world.frontier.acknowledge(first)
    world.commit()
    for _ in range(2):
        world.clocks.pass_(0.25)
        fail(world, 1.0)
    world.frontier.acknowledge(second)
    world.commit()
    assert sorted(fetched(world, 5.0)) == [A[2], A[3], A[4], A[5]]
