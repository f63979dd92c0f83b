"""The contract of the frontier, over LevelDB and over the store in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import pytest

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate, LastAnswer
from krowlspider.frontier.hosts.host_record import place_in
from krowlspider.frontier.hosts.table import IllegalEvent, SchedulingState
from krowlspider.frontier.limits import FrontierLimits, MemoryLimits
from krowlspider.frontier.schedule.ownership import ROUND
from krowlspider.frontier.store.schema import DUE, QUEUE, due_key, is_record
from krowlspider.frontier.store.store import Store, StoreReader
from tests.frontier.conftest import LIMITS, RULE, World

OpenStore = Callable[[], Store]
A1, A2, A3 = "http://a.test/1", "http://a.test/2", "http://a.test/3"
B1 = "http://b.test/1"


def drain(world: World, *, step: float = 0.25) -> list[str]:
    """Fetch all queued pages, letting time pass while hosts rest; return their URLs."""
    fetched = []
    while world.frontier.queued:
        if url := world.fetch():
            fetched.append(url)
        else:
            world.clocks.pass_(step)
    return fetched


def test_a_new_url_is_queued_and_a_known_one_is_not(world: World) -> None:
    assert world.add(A1, A2, A1) == 2
    assert world.add(A2, A3) == 1
    assert world.frontier.queued == 3
    assert world.frontier.counters["known"] == 2


def test_entries_of_a_host_are_fifo_within_a_priority(world: World) -> None:
    world.add(A1, A2)
    world.add(A3, priority=5)
    world.add("http://a.test/4", priority=-5)
    assert drain(world) == [A3, A1, A2, "http://a.test/4"]


def test_invariant_1_a_host_has_one_request_in_flight(world: World) -> None:
    world.add(A1, A2)
    first = world.pop()
    assert first is not None
    world.clocks.pass_(1000)
    assert world.pop() is None
    world.frontier.schedule.release(first.host, 0.25)
    assert world.pop() is None
    world.clocks.pass_(0.25)
    second = world.pop()
    assert second is not None
    assert second.entry.url == A2


def test_invariant_1_a_domain_has_at_most_its_share_in_flight(world: World) -> None:
    world.add(*(f"http://h{number}.example.com/" for number in range(4)))
    leases = [world.pop(), world.pop(), world.pop()]
    assert [lease is None for lease in leases] == [False, False, True]
    assert leases[0] is not None
    world.frontier.schedule.release(leases[0].host, 10.0)
    assert world.pop() is not None
    assert world.pop() is None


def test_the_longest_overdue_host_is_popped_before_a_new_one(
    world: World,
) -> None:
    world.add(A1, A2)
    assert world.fetch(wait=1.0) == A1
    world.clocks.pass_(5.0)
    world.add(B1)
    assert [world.fetch(), world.fetch()] == [A2, B1]


def test_links_for_a_resting_host_do_not_shorten_its_delay(world: World) -> None:
    world.add(A1)
    assert world.fetch(wait=30.0) == A1
    world.add(A2, A3)
    world.clocks.pass_(29.9)
    assert world.pop() is None
    world.clocks.pass_(0.2)
    assert world.pop() is not None


def test_next_due_is_when_the_next_host_may_be_fetched(world: World) -> None:
    assert world.frontier.schedule.next_due() is None
    world.add(A1, A2)
    world.fetch(wait=7.0)
    assert world.pop() is None
    due = world.frontier.schedule.next_due()
    assert due is not None
    assert world.frontier.now() < due <= world.frontier.now() + 7.0


def test_invariant_4_a_url_refused_by_a_limit_is_not_marked_seen(open_store: OpenStore) -> None:
    limits = FrontierLimits(host_queue=100, total=2, domain_concurrency=2)
    world = World(open_store, limits=limits, is_scarce=True)
    assert world.add(A1, A2, A3) == 2
    assert world.frontier.counters["dropped/frontier"] == 1
    assert world.fetch() == A1
    assert world.add(A3) == 1


def test_invariant_5_a_crash_returns_a_lease_to_its_old_place(world: World) -> None:
    world.add(A1, A2, A3)
    assert world.pop() is not None
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert drain(world) == [A1, A2, A3]


def test_invariant_5_a_page_stays_queued_until_its_commit(world: World) -> None:
    world.add(A1, A2)
    assert world.fetch() == A1
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert drain(world) == [A1, A2]


def test_invariant_5_a_committed_page_is_gone_after_a_crash(world: World) -> None:
    world.add(A1, A2)
    assert world.fetch() == A1
    world.commit()
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert world.frontier.queued == 1
    assert drain(world) == [A2]


def test_acknowledging_a_later_page_keeps_an_older_lease(world: World) -> None:
    world.add(A1, A2, A3)
    first = world.pop()
    assert first is not None
    world.frontier.schedule.release(first.host, 0.25)
    world.clocks.pass_(0.25)
    assert world.fetch() == A2
    world.commit()
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert drain(world) == [A1, A3]


def test_a_crash_after_the_commit_is_written_repeats_no_page(world: World) -> None:
    world.add(A1, A2)
    assert world.fetch() == A1
    world.frontier.begin_commit().write()
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert drain(world) == [A2]
    assert world.frontier.queued == 0


def test_a_page_acknowledged_during_a_commit_waits_for_the_next(world: World) -> None:
    world.add(A1, B1)
    assert world.fetch() == A1
    commit = world.frontier.begin_commit()
    assert world.fetch() == B1
    commit.write()
    world.frontier.end_commit(commit)
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert drain(world) == [B1]


def test_a_known_url_is_known_after_a_crash(world: World) -> None:
    world.add(A1, A2, B1)
    world.crash()
    assert world.add(A1, A2, B1) == 0


def test_a_clean_restart_keeps_the_rest_of_a_delay(world: World) -> None:
    world.add(A1, A2)
    world.fetch(wait=10.0)
    world.clocks.pass_(4.0)
    world.restart()
    world.clocks.pass_(5.9)
    assert world.pop() is None
    world.clocks.pass_(0.2)
    assert world.pop() is not None


def test_invariant_1_a_host_waits_its_delay_after_a_crash(world: World) -> None:
    world.add(A1, A2)
    lease = world.pop()
    assert lease is not None
    lease.host.rate.floor = 20.0
    world.frontier.schedule.release(lease.host, 0.25)
    world.crash()
    world.clocks.pass_(19.9)
    assert world.pop() is None
    world.clocks.pass_(0.2)
    assert world.pop() is not None


def test_invariant_2_a_retry_after_holds_across_a_crash(world: World) -> None:
    world.add(A1, A2)
    world.fetch(wait=600.0)
    world.clocks.pass_(100.0)
    world.crash()
    world.clocks.pass_(499.0)
    assert world.pop() is None
    world.clocks.pass_(1.1)
    assert world.pop() is not None


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_host_is_popped_after_a_jump_of_the_wall_clock(world: World, jump: float) -> None:
    world.add(A1, A2)
    world.fetch(wait=10.0)
    world.frontier.close()
    world.clocks.wall += jump
    world.open()
    world.clocks.pass_(3600.0)
    assert world.pop() is not None


def test_an_idle_host_leaves_the_heap_and_keeps_its_record(world: World) -> None:
    world.add(A1)
    world.fetch(wait=5.0)
    assert world.frontier.schedule.host_count == 1
    world.commit()
    assert world.frontier.schedule.host_count == 0
    world.restart()
    world.add(A2)
    assert world.frontier.schedule.cache.get("a.test").queue.done == 1
    world.clocks.pass_(4.9)
    assert world.pop() is None
    world.clocks.pass_(0.2)
    assert world.pop() is not None


def test_hosts_in_memory_are_bounded(open_store: OpenStore) -> None:
    world = World(
        open_store, limits=FrontierLimits(10, 10_000, 2, memory=MemoryLimits(hosts=50, window=20))
    )
    urls = [f"http://h{number}.test/{page}" for number in range(300) for page in range(2)]
    for url in urls:
        world.add(url)
        assert len(world.frontier.schedule.cache.hosts) <= 51
    fetched = drain(world)
    assert sorted(fetched) == sorted(urls)
    assert len(world.frontier.schedule.cache.hosts) <= 51 + world.frontier.leased


def test_a_retried_page_moves_to_the_end_with_its_retry_count(world: World) -> None:
    world.add(A1, A2)
    lease = world.pop()
    assert lease is not None
    world.frontier.queues.replace(lease, Entry(A1, retries=1))
    world.frontier.schedule.release(lease.host, 0.25)
    world.clocks.pass_(0.25)
    assert world.fetch() == A2
    world.clocks.pass_(0.25)
    again = world.pop()
    assert again is not None
    assert (again.entry.url, again.entry.retries) == (A1, 1)
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert sorted(drain(world)) == [A1, A2]


def test_unpop_undoes_a_pop(world: World) -> None:
    world.add(A1, A2)
    lease = world.pop()
    assert lease is not None
    world.frontier.queues.unpop(lease)
    assert (world.frontier.queued, world.frontier.leased) == (2, 0)
    world.frontier.schedule.give_back(lease.host)
    assert drain(world) == [A1, A2]


def test_a_robots_fetch_schedules_an_idle_host(world: World) -> None:
    world.frontier.schedule.enqueue_robots_fetch("c.test", "fetch")
    host = world.frontier.schedule.pop()
    assert host is not None
    assert (host.name, list(host.robots.fetches)) == ("c.test", ["fetch"])


def test_a_host_awaiting_robots_keeps_its_delay_when_resumed(
    world: World,
) -> None:
    world.add(A1)
    host = world.frontier.schedule.pop()
    assert host is not None
    world.await_robots(host, 2.0)
    world.clocks.pass_(1.0)
    assert world.frontier.schedule.pop() is None
    world.end_wait(host)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(1.0)
    popped = world.frontier.schedule.pop()
    assert popped is not None
    assert popped.name == host.name


def test_an_illegal_event_raises_and_changes_nothing(world: World) -> None:
    world.add(A1)
    host = world.frontier.schedule.cache.get("a.test")
    with pytest.raises(IllegalEvent, match=r"a\.test is scheduled and cannot end a request"):
        world.frontier.schedule.release(host, 1.0)
    assert host.state is SchedulingState.SCHEDULED
    assert world.fetch() == A1


def test_invariant_8_drop_counts_survive_a_restart(world: World) -> None:
    world.add(A1, A2)
    lease = world.pop()
    assert lease is not None
    world.frontier.acknowledge(lease, dropped="robots")
    world.frontier.schedule.release(lease.host, 0.0)
    assert world.fetch() == A2
    assert world.frontier.counters == {"queued": 2}
    world.commit()
    world.restart()
    assert world.frontier.counters == {"queued": 2, "dropped/robots": 1, "done": 1}
    world.add(A3)
    host = world.frontier.schedule.cache.get("a.test")
    assert (host.queue.done, host.queue.dropped) == (1, 1)


@pytest.mark.parametrize(
    ("request_", "status", "location", "counted"),
    [
        (b"", 200, None, {"done": 1}),
        (b"J{}", 404, None, {"done": 1}),
        (b"", 304, b"/", {"done": 1}),
        (b"", 301, None, {"done": 1}),
        (b"", 301, b"/", {"done/redirect": 1}),
        (b"P", 308, b"/", {"done/redirect": 1}),
        (b"S{}", 404, None, {"done/sitemap": 1}),
        (b"S{}", 301, b"/", {"done/sitemap": 1}),
        (b"O{}", 200, None, {"done/opt_out": 1}),
        (b"R0image", 200, None, {"done/requisite": 1}),
        (b"Btoken", 200, None, {"done/subrequest": 1}),
    ],
)
def test_what_is_no_page_is_counted_by_itself(
    world: World, request_: bytes, status: int, location: bytes | None, counted: dict[str, int]
) -> None:
    """For the host too, over a restart."""
    entry = Entry(A1, request=request_)
    world.frontier.add([Candidate("a.test", b"12345678", entry)])
    lease = world.pop()
    assert lease is not None
    lease.answer = LastAnswer.of(status, b"text/html", location, 7, 0.1)
    world.frontier.acknowledge(lease)
    world.frontier.schedule.release(lease.host, 0.0)
    world.commit()
    world.restart()
    assert world.frontier.counters == {"queued": 1, **counted}
    host = world.frontier.schedule.cache.get("a.test")
    assert (host.queue.done, host.queue.pages) == (1, counted.get("done", 0))


def test_a_page_is_counted_as_done_at_its_commit(world: World) -> None:
    world.add(A1)
    world.fetch()
    world.restart()
    assert world.frontier.counters == {"queued": 1}
    assert world.frontier.queued == 1


def test_a_start_repairs_host_records_that_a_crash_left_stale(world: World) -> None:
    """The process dies after the commit, before it writes the host records."""
    world.add(A1, A2, A3, B1)
    world.add("http://a.test/first", priority=7)
    assert {world.fetch(wait=0.0) for _ in range(3)} == {"http://a.test/first", B1, A1}
    world.frontier.begin_commit().write()
    frontier = world.crash()
    assert (frontier.queued, frontier.schedule.host_count) == (2, 1)
    a, b = frontier.schedule.cache.get("a.test"), frontier.schedule.cache.get("b.test")
    assert (a.queue.queued, b.queue.queued) == (2, 0)
    assert not a.queue.has_gaps
    assert not b.queue.has_gaps
    assert list(world.store.keys(DUE)) == [due_key(place_in(a.record) or 0.0, "a.test")]
    world.clocks.pass_(1)
    assert drain(world) == [A2, A3]


def test_a_queue_with_gaps_is_read_without_scanning_deletions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(A1, A2, A3)
    first = world.pop()
    assert first is not None
    world.frontier.schedule.release(first.host, 0.0)
    assert world.fetch(wait=0.0) == A2
    world.commit()
    frontier = world.restart()
    assert frontier.schedule.cache.get("a.test").queue.has_gaps
    places: list[bytes] = []
    reader = world.store.reader

    @contextmanager
    def counting_reader() -> Iterator[StoreReader]:
        with reader() as found:
            read = lambda key: places.append(key) or found.read(key)
            yield SimpleNamespace(read=read, read_next=read)

    monkeypatch.setattr(world.store, "reader", counting_reader)
    world.clocks.pass_(1)
    assert drain(world) == [A1, A3]
    assert not [key for key in places if key.startswith(QUEUE) and not is_record(key)]


def defer(world: World) -> None:
    """Pop the next host and defer it, as after a failed request."""
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host)


def test_a_deferred_host_keeps_its_urls_until_the_next_round(world: World) -> None:
    world.add(A1, A2)
    world.commit()
    defer(world)
    assert world.frontier.queued == 2
    assert not world.frontier.has_fetchable
    assert world.add(A3) == 1
    assert not world.frontier.has_fetchable
    world.clocks.pass_(ROUND - 1)
    world.commit()
    assert world.pop() is None
    world.clocks.pass_(1)
    world.commit()
    assert world.frontier.has_fetchable
    assert drain(world) == [A1, A2, A3]


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_schedules_deferred_hosts_immediately(world: World, clean: bool) -> None:
    world.add(A1, A2, B1)
    defer(world)
    if clean:
        world.restart()
    else:
        world.crash()
    assert world.frontier.queued == 3
    assert world.frontier.schedule.host_count == 2
    assert world.frontier.has_fetchable
    world.clocks.pass_(RULE.minimum)
    assert sorted(drain(world)) == [A1, A2, B1]


def test_a_deferred_host_still_serves_robots_fetches(world: World) -> None:
    world.add(A1)
    defer(world)
    world.frontier.schedule.enqueue_robots_fetch("a.test", "fetch")
    host = world.frontier.schedule.pop()
    assert host is not None
    assert host.robots.fetches == ["fetch"]
    host.robots.fetches.clear()
    world.frontier.schedule.release(host, 0.25)
    assert world.frontier.has_fetchable
    world.clocks.pass_(0.25)
    assert world.fetch() == A1


def test_invariant_1_a_robots_fetch_pops_no_busy_or_blocked_host(
    open_store: OpenStore,
) -> None:
    world = World(open_store, limits=replace(LIMITS, domain_concurrency=1))
    hosts = ["a.example.com", "b.example.com"]
    world.add(*(f"http://{host}/" for host in hosts))
    first = world.frontier.schedule.pop()
    assert first is not None
    assert world.frontier.schedule.pop() is None
    for host in hosts:
        world.frontier.schedule.enqueue_robots_fetch(host, "fetch")
        # A stale place in the heap, as after an eviction.
        world.frontier.schedule.due.push(0.0, host)
    assert world.frontier.schedule.pop() is None


def test_hosts_awaiting_each_other_serve_robots_fetches(world: World) -> None:
    world.add(A1, B1)
    a, b = world.frontier.schedule.pop(), world.frontier.schedule.pop()
    assert a is not None
    assert b is not None
    world.frontier.schedule.enqueue_robots_fetch("b.test", "of a")
    world.frontier.schedule.enqueue_robots_fetch("a.test", "of b")
    world.await_robots(a, 0.25)
    world.await_robots(b, 0.25)
    world.clocks.pass_(0.25)
    served = world.frontier.schedule.pop()
    assert served is a
    served.robots.fetches.clear()
    world.frontier.schedule.release(a, 0.25)
    assert a.state is SchedulingState.AWAITING_ROBOTS
    world.end_wait(a)
    world.end_wait(b)
    assert world.frontier.schedule.pop() is b
    b.robots.fetches.clear()
    world.frontier.schedule.release(b, 0.0)
    world.clocks.pass_(0.25)
    assert sorted(drain(world)) == [A1, B1]


def test_verify_queues_one_identity_once_in_a_batch(open_store: OpenStore) -> None:
    world = World(open_store, limits=LIMITS, verify=True)
    assert world.add(A1, A1, A2) == 2
    assert world.add(A1) == 0


def test_a_host_without_delay_awaits_its_commit_without_spinning(
    world: World,
) -> None:
    world.add(A1)
    assert world.fetch(wait=0.0) == A1
    assert world.pop() is None
    assert (world.frontier.schedule.next_due() or inf) > world.frontier.now()
    world.add(A2)
    assert world.fetch(wait=0.0) == A2
    assert world.pop() is None
    assert world.frontier.schedule.host_count == 1
    world.commit()
    assert (world.frontier.schedule.host_count, world.frontier.schedule.next_due()) == (0, None)


def test_a_crash_keeps_a_url_added_during_a_robots_fetch(
    world: World,
) -> None:
    world.frontier.schedule.enqueue_robots_fetch("a.test", "fetch")
    host = world.frontier.schedule.pop()
    assert host is not None
    world.add(A1)
    world.crash()
    world.clocks.pass_(RULE.minimum)
    assert drain(world) == [A1]
