"""Pages come back by the schedule, politely, whatever happens to process and clock."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from krowlspider.frontier.admin.export import PageLine, page_in, page_lines, take_rows
from krowlspider.frontier.admin.repair import rebuild_indexes
from krowlspider.frontier.due_pages import DuePages, leave_unplanned
from krowlspider.frontier.entry import AGAIN, Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.hosts.host import AGAIN_PRIORITY
from krowlspider.frontier.moves.transfer import forget_now
from krowlspider.frontier.pages.planner import (
    CHUNK,
    TICK,
    HostDemand,
    Planner,
    demand_of,
    estimate_of,
    tick_at,
)
from krowlspider.frontier.pages.row import PageRow, decode_row, entry_again, read_row
from krowlspider.frontier.pages.rows import row_after
from krowlspider.frontier.pages.sample import sample
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import Store, delete, put
from krowlspider.job.forecasting import forecast_of
from krowlspider.job.recrawl import Afforded
from krowlspider.recrawl.forecast import FreshnessTarget
from krowlspider.recrawl.gone import PageState
from krowlspider.recrawl.validators import Meaning
from krowlspider.recrawl.value import INTERVAL_MAX, INTERVAL_MIN, Terms
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World
from tests.frontier.pages.fetching import fetch_page, fetched_at, rows
from tests.recrawl.test_forecast import steady

if TYPE_CHECKING:
    from collections.abc import Callable


HOUR, DAY = 3600.0, 86_400.0
PAGES = [f"http://{host}.test/{page}" for host in "abc" for page in range(7)]
CHANGING, STILL = "http://a.test/changing", "http://a.test/still"
SHARE = 0.5


@pytest.fixture
def world(open_store: Callable[[], Store]) -> World:
    return World(open_store, limits=replace(LIMITS, again_share=SHARE))


# Days of the clock, which say nothing of a store.
in_memory = pytest.mark.parametrize("open_store", ["memory"], indirect=True)


def scheduled(
    world: World, budget: float = 100.0, terms_of: Callable[[str], Terms] | None = None
) -> DuePages:
    """Return the schedule of a start, after its first step."""
    pages = world.frontier.pages
    assert pages is not None
    due = DuePages(
        world.frontier,
        pages,
        wall=lambda: world.clocks.wall,
        share=SHARE,
        budget=budget,
        terms_of=terms_of,
    )
    due.step(1)
    return due


def planner(world: World) -> Planner:
    assert world.frontier.pages is not None
    assert world.frontier.pages.planner is not None
    return world.frontier.pages.planner


def step(due: DuePages, most: int = 4) -> int:
    """Queue all that is due, and return how many pages."""
    queued = due.step(most)
    while not due.rest:
        queued += due.step(most)
    return queued


def fetch_all(world: World, **answer: Any) -> Counter[str]:
    """Fetch what is queued, and return it."""
    found: Counter[str] = Counter()
    while world.frontier.queued:
        found[fetch_page(world, world.clocks.wall, **answer)] += 1
    return found


def crawl_for(
    world: World, due: DuePages, seconds: float, every: float = 10 * TICK
) -> Counter[str]:
    """Fetch what comes up for some time, and return how often each page was fetched."""
    found: Counter[str] = Counter()
    end = world.clocks.wall + seconds
    while world.clocks.wall < end:
        step(due)
        found += fetch_all(world)
        world.clocks.pass_(every)
    return found


def row_of(world: World, url: str) -> PageRow:
    assert world.frontier.pages is not None
    row = world.frontier.pages.get(url)
    assert row is not None
    return row


def pages_in_buckets(store: Store) -> Counter[bytes]:
    chunks = [value for _, value in store.items(schema.DUE_AGAIN)]
    return Counter(chunks)


def test_a_damaged_row_stops_no_schedule(world: World):
    """Neither where it comes up, nor where rows get plans."""
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    pages = world.frontier.pages
    assert pages is not None
    key = pages.key(PAGES[0])
    put(world.store, key, (world.store.get(key) or b"")[:-1])
    assert crawl_for(world, due, 2 * DAY).keys() == {*PAGES[1:]}
    delete(world.store, [schema.DUE_PLACE])
    world.restart()
    assert crawl_for(world, scheduled(world), 5 * DAY).keys() == {*PAGES[1:]}


# --- when ---


@in_memory
def test_a_changing_page_is_asked_much_oftener(world: World):
    due = scheduled(world)
    world.add(CHANGING, STILL)
    asked: Counter[str] = Counter()
    end = world.clocks.wall + 20 * DAY
    while world.clocks.wall < end:
        step(due)
        while (lease := world.pop()) is not None:
            url, now = lease.entry.url, world.clocks.wall
            hour = int(now // HOUR) if url == CHANGING else 0
            lease.fetched = fetched_at(now, url, hour.to_bytes(20))
            world.frontier.schedule.release(lease.host, 0.25)
            world.frontier.acknowledge(lease)
            world.commit()
            world.clocks.pass_(1)
            asked[url] += 1
        world.clocks.pass_(10 * TICK)
    assert asked[CHANGING] > 200
    assert 1 < asked[STILL] < asked[CHANGING] / 10


@in_memory
def test_waits_follow_answers_as_other_schedulers_test_it(world: World):
    """AdaptiveSchedulerTest of StormCrawler: same body, 304, other body. TestAdaptiveFetchSchedule
    of Nutch: an answer of which it is not known what it says leaves the interval."""
    due = scheduled(world)
    world.add(STILL)
    found = [answered(world, due)]
    first = row_of(world, STILL).changed
    found.append(answered(world, due))
    found.append(answered(world, due, status=304, meaning=Meaning.NOT_MODIFIED))
    assert found == sorted(set(found))
    assert row_of(world, STILL).changed == first
    found.append(answered(world, due, status=304, meaning=Meaning.UNASKED))
    assert found[3] == found[2]
    assert row_of(world, STILL).changed == first
    now = int(world.clocks.wall)
    found.append(answered(world, due, payload=b"o" * 20))
    assert found[4] < found[2]
    assert row_of(world, STILL).changed >= now


def answered(world: World, due: DuePages, **answer: Any) -> float:
    """Fetch the page as it comes up, and return the seconds between two changes by its estimate."""
    while not world.frontier.queued:
        world.clocks.pass_(HOUR)
        step(due)
    fetch_all(world, **answer)
    return 1 / estimate_of(row_of(world, STILL)).mean


def test_a_304_and_the_same_body_say_the_same():
    """testCrawlDbReducerNotModified of Nutch's TestCrawlDbStates: over 20 fetches."""
    rates = []
    for url, answer in (
        (STILL, {}),
        (CHANGING, {"status": 304, "meaning": Meaning.NOT_MODIFIED}),
    ):
        row = PageRow(url, 200, 1, 1.0, changed=1, payload=b"s" * 20, stored=1.0)
        for day in range(20):
            row = row_after(row, Entry(url), fetched_at(1.0 + (day + 1) * DAY, url, **answer))
        assert (row.changes, row.changed, row.status) == (0, 1, 200)
        rates.append(estimate_of(row))
    assert rates[0] == rates[1]


@in_memory
def test_a_change_is_found_by_the_time_that_was_planned(world: World):
    """A tenth of the pages changes a day, each day others."""
    due, every = scheduled(world), 10 * TICK
    urls = [f"http://{host}.test/{page}" for host in "ab" for page in range(10)]
    world.add(*urls)
    begun = world.clocks.wall
    plans: dict[str, float] = {}
    seen: dict[str, int] = {}
    found = 0
    while (now := world.clocks.wall) < begun + 20 * DAY:
        fetched = step(due) or world.frontier.queued
        while world.frontier.queued:
            if (lease := world.pop()) is None:
                world.clocks.pass_(1)
                continue
            url, now = lease.entry.url, world.clocks.wall
            # The day of its last change.
            day = int((now - begun) // DAY)
            changed = max(day - (day - urls.index(url)) % 10, 0)
            found += seen.get(url, 0) != changed
            seen[url] = changed
            # Some seconds for the pages before it.
            assert now <= plans.get(url, now) + every + 60
            lease.fetched = fetched_at(now, url, changed.to_bytes(20))
            world.frontier.schedule.release(lease.host, 0.25)
            world.frontier.acknowledge(lease)
            world.commit()
        if fetched:
            plans |= {row.url: row.due for row in rows(world) if row and row.due}
        world.clocks.pass_(every)
    # Each was found once when the page was new.
    assert found > len(urls) + 10


def test_no_page_is_due_before_its_time(world: World):
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    planned = {row.url: row.due for row in rows(world) if row}
    assert all(planned.values())
    while step(due) == 0:
        # All but the last second of a tick.
        world.clocks.pass_(TICK)
    came = {row.url for row in rows(world) if row and not row.due}
    now = world.frontier.now()
    assert came == {url for url, time in planned.items() if time <= now}
    assert fetch_all(world) == Counter(came)


@pytest.mark.parametrize("wait", [INTERVAL_MIN, HOUR, DAY, 30 * DAY, INTERVAL_MAX])
def test_buckets_are_a_sixteenth_of_the_wait_wide(wait: float):
    now = 1_700_000_000.5
    every = max(TICK, int(wait) // 10_000)
    ticks = {tick_at(now + wait + more, now) for more in range(0, int(wait), every)}
    for more in range(0, 999, 7):
        late = tick_at(now + wait + more, now) * TICK - now - wait - more
        assert 0 <= late <= max(TICK, (wait + more) / 16)
    assert len(ticks) <= 35


def test_no_page_waits_longer_than_its_bound(world: World):
    """Neither jitter nor buckets go beyond it, nor does a hand-over."""
    scheduled(world)
    host = world.frontier.schedule.cache.get("a.test")
    for most in (INTERVAL_MAX, 30 * DAY, HOUR):
        planner(world).terms_of = lambda _: Terms(weight=1e-9, most=most)  # noqa: B023
        planning = planner(world).begin(world.store.batch())
        last = world.frontier.now()
        for number in range(50):
            row = PageRow(f"http://a.test/{number}", 200, 1, 1.0)
            planning.plan(host, number.to_bytes(8), row, last)
            assert 0.95 * most - TICK <= row.due - last <= most
    data = row.encode("a.test")
    world.clocks.pass_(1000.0)
    ((_, taken),) = planner(world).take("a.test", [(b"12345678", data)], world.store.batch())
    moved = read_row(taken, "a.test", b"")
    assert moved is not None
    assert moved.due == row.due


def test_pages_of_one_time_share_keys(world: World):
    scheduled(world)
    planning = planner(world).begin(batch := world.store.batch())
    host = world.frontier.schedule.cache.get("a.test")
    for number in range(3 * CHUNK):
        row = PageRow(f"http://a.test/{number}", 200, 1, 1.0)
        planning.plan(host, number.to_bytes(8), row, world.frontier.now())
    planning.end()
    batch.write()
    # Jitter spreads them over some buckets.
    assert 3 <= sum(pages_in_buckets(world.store).values()) <= 12


def test_pages_that_change_into_one_text_are_missing_though_found(world: World):
    """A 200 with the text of the host's errors is a 404, also for a page that had it before."""
    due = scheduled(world)
    urls = [f"http://a.test/{page}" for page in range(6)]
    world.add(*urls, "http://b.test/")
    for number, _ in enumerate((*urls, "b")):
        fetch_page(world, world.clocks.wall, text=b"text %03d" % number)
    for day in range(60):
        step(due)
        while world.frontier.queued:
            payload = b"%020d" % day
            fetch_page(world, world.clocks.wall, text=b"no such.", payload=payload)
        if day == 30:
            world.restart()
            due = scheduled(world)
        world.clocks.pass_(DAY)
    missing = [url for url in urls if row_of(world, url).absence.is_tombstone]
    # Before the third of them, one page may only have changed.
    assert missing == urls
    assert row_of(world, "http://b.test/").absence.state is PageState.PRESENT
    assert planner(world).counts["gone"]
    world.add("http://a.test/new")
    fetch_page(world, world.clocks.wall, text=b"no such.")
    assert row_of(world, "http://a.test/new").absence.state is PageState.MISSING
    forget_now(world.frontier, "a.test")
    world.add("http://a.test/new")
    fetch_page(world, world.clocks.wall, text=b"no such.")
    assert row_of(world, "http://a.test/new").absence.state is PageState.PRESENT


def test_a_page_is_present_again_once_it_has_another_text(world: World):
    due = scheduled(world)
    urls = [f"http://a.test/{page}" for page in range(4)]
    world.add(*urls)
    for number in range(4):
        fetch_page(world, world.clocks.wall, text=b"text %03d" % number)
    found = []
    for text in (b"no such.", b"no such.", b""):
        world.clocks.pass_(60 * DAY)
        step(due)
        while world.frontier.queued:
            payload = text.ljust(20)
            fetch_page(world, world.clocks.wall, payload=payload, text=text or b"text new")
        found.append({row_of(world, url).absence.state for url in urls})
    assert found[1:] == [{PageState.MISSING}, {PageState.PRESENT}]


def test_a_missing_page_is_asked_seldom_and_dropped(world: World):
    due = scheduled(world)
    world.add(*PAGES[:1])
    fetch_all(world)
    asked: list[float] = []
    for _ in range(100 * 24):
        step(due)
        if world.frontier.queued:
            asked.append(world.clocks.wall)
            fetch_all(world, status=404)
        world.clocks.pass_(HOUR)
    assert len(asked) < 10
    waits = [late - early for early, late in pairwise(asked)]
    assert waits[0] >= DAY
    assert waits == sorted(waits)
    row = row_of(world, PAGES[0])
    assert row.absence.is_tombstone
    assert not row.is_planned
    assert planner(world).counts["gone"] == 1


def test_a_page_that_comes_back_follows_its_changes_again(world: World):
    due = scheduled(world)
    world.add(*PAGES[:1])
    fetch_all(world)
    for status in (404, 404, 200):
        while not step(due):
            world.clocks.pass_(HOUR)
        fetch_all(world, status=status)
    assert row_of(world, PAGES[0]).absence.wait is None


def test_a_page_that_was_dropped_comes_up_again(world: World):
    due = scheduled(world)
    world.add(*PAGES[:1])
    fetch_all(world)
    for _ in range(3):
        while not step(due):
            world.clocks.pass_(HOUR)
        lease = world.pop()
        assert lease is not None
        world.frontier.schedule.release(lease.host, 0.25)
        world.frontier.acknowledge(lease, dropped="dns")
        world.commit()
        assert row_of(world, PAGES[0]).due > world.frontier.now() + INTERVAL_MIN


@in_memory
def test_a_page_that_never_answers_backs_off_as_a_still_one(world: World):
    due = scheduled(world)
    failing, still = "http://a.test/", "http://b.test/"
    world.add(failing, still)
    fetch_all(world)
    asked: dict[str, list[float]] = {failing: [], still: []}
    begun = world.clocks.wall
    while world.clocks.wall < begun + 300 * DAY:
        step(due)
        while (lease := world.pop()) is not None:
            url, now = lease.entry.url, world.clocks.wall
            asked[url].append(now)
            if url == still:
                lease.fetched = fetched_at(now, url)
            world.frontier.schedule.release(lease.host, 0.25)
            world.frontier.acknowledge(lease, dropped="dns" if url == failing else None)
            world.commit()
        world.clocks.pass_(DAY / 2)
    # Its plans do not know by how much a try was late, half a day here.
    assert len(asked[still]) * 0.9 < len(asked[failing]) < len(asked[still]) * 1.25
    waits = [late - early for early, late in pairwise(asked[failing])]
    assert waits[-1] >= 2 * waits[0]
    assert row_of(world, failing).last < begun + DAY


def crawl_site(world: World, due: DuePages, days: int) -> None:
    """Crawl for some days. The pages of a.test change at each fetch, all others never."""
    for day in range(days):
        step(due)
        while (lease := world.pop()) is not None:
            url, now = lease.entry.url, world.clocks.wall
            payload = day.to_bytes(20) if lease.host.name == "a.test" else b"0" * 20
            lease.fetched = fetched_at(now, url, payload)
            world.frontier.schedule.release(lease.host, 0.25)
            world.frontier.acknowledge(lease)
            world.clocks.pass_(1)
        world.commit()
        world.clocks.pass_(DAY)


def test_a_new_page_changes_as_its_site_does(world: World):
    new = [f"http://{host}.test/new" for host in "ab"]
    due = scheduled(world)
    world.add(*PAGES)
    crawl_site(world, due, 30)
    world.restart()
    due = scheduled(world)
    world.add(*new)
    crawl_site(world, due, 1)
    changing, still = (row_of(world, url) for url in new)
    assert changing.planned < still.planned / 3


def test_an_answer_that_was_not_asked_for_says_nothing_of_its_site(world: World):
    due = scheduled(world)
    world.add(PAGES[0])
    fetch_all(world)
    world.clocks.pass_(400 * DAY)
    assert step(due) == 1
    fetch_all(world, meaning=Meaning.UNASKED)
    found = HostDemand.read(world.store.get(schema.demand_key("a.test")))
    assert (found.seen, found.expected) == (0, 0)


# --- what can be afforded ---


@in_memory
def test_a_slow_host_is_planned_by_what_it_affords(open_store: Callable[[], Store]):
    rule = replace(World(KeptMemoryStore).rule, minimum=30.0)
    world = World(open_store, limits=replace(LIMITS, again_share=SHARE), rule=rule)
    due = scheduled(world)
    pages = [f"http://a.test/{number}" for number in range(100)]
    world.add(*pages)
    fetch_all(world, payload=b"0" * 20)
    asked = crawl_changing(world, due, 2 * DAY)
    # A request each minute.
    assert 0.7 * 2 * 1440 < asked < 1.05 * 2 * 1440


@in_memory
def test_the_budget_of_the_crawl_holds(world: World):
    due = scheduled(world, budget=1 / 120)
    world.add(*PAGES)
    fetch_all(world, payload=b"0" * 20)
    asked = crawl_changing(world, due, 4 * DAY)
    assert 0.6 * 4 * 720 < asked < 1.05 * 4 * 720
    assert planner(world).crawl.threshold > 60


def crawl_changing(world: World, due: DuePages, seconds: float) -> int:
    """Crawl pages that change at each fetch, and return the number of requests."""
    asked = 0
    end = world.clocks.wall + seconds
    while world.clocks.wall < end:
        step(due)
        while (lease := world.pop()) is not None:
            asked += 1
            now = world.clocks.wall
            lease.fetched = fetched_at(now, lease.entry.url, asked.to_bytes(20))
            world.frontier.schedule.release(lease.host, 0.25)
            world.frontier.acknowledge(lease)
            world.clocks.pass_(0.25)
        world.commit()
        world.clocks.pass_(10 * TICK)
    return asked


def test_demands_add_up_to_that_of_the_crawl(world: World):
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    crawl_for(world, due, 2 * DAY)
    hosts = {
        key[1:].decode(): HostDemand.read(value)
        for key, value in world.store.items(schema.DEMAND)
        if key != schema.DEMAND
    }
    for name, found in hosts.items():
        wanted = sum(map(demand_of, rows(world, name)))
        assert found.demand == pytest.approx(wanted, rel=1e-3)
    assert planner(world).crawl.total == pytest.approx(sum(each.counted for each in hosts.values()))


def test_a_page_that_comes_up_is_judged_again(world: World):
    due = scheduled(world)
    world.add(*PAGES[:1])
    fetch_all(world)
    planned = row_of(world, PAGES[0]).due
    found = planner(world)
    found.crawl = found.crawl._replace(threshold=1e6)
    world.clocks.pass_(planned - world.frontier.now() + 1)
    assert step(due) == 0
    assert found.counts["postponed"] == 1
    assert row_of(world, PAGES[0]).due > planned + 10 * DAY


def test_a_deferred_host_tries_its_queue_first(world: World):
    due = scheduled(world)
    world.add(*PAGES[:7])
    fetch_all(world)
    world.add("http://a.test/queued")
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host)
    world.clocks.pass_(400 * DAY)
    assert step(due) == 0
    assert all(row.due > world.frontier.now() for row in rows(world) if row)


def test_a_forecast_is_what_the_schedule_reaches():
    """One host has pages that change faster than its delay allows, the other has not. What is known
    of them after 20 days says what is reached in the next 20 days."""
    store = KeptMemoryStore()
    rule = replace(World(KeptMemoryStore).rule, minimum=1800.0, maximum=1800.0)
    world = World(lambda: store, limits=replace(LIMITS, again_share=SHARE), rule=rule)
    due, begun = scheduled(world), world.clocks.wall
    rates = {"a": 4 / DAY, "b": 0.3 / DAY}
    pages = {
        f"http://{host}.test/{number}": steady([rate], 60, seed=number)[0]
        for host, rate in rates.items()
        for number in range(12)
    }
    world.add(*pages)
    last: dict[str, float] = {}
    fresh: Counter[str] = Counter()

    def crawl(until: float) -> None:
        while (now := world.clocks.wall - begun) < until:
            step(due)
            while (lease := world.pop()) is not None:
                url = lease.entry.url
                seen = bisect_right(pages[url].changes, now)
                lease.fetched = fetched_at(world.clocks.wall, url, seen.to_bytes(20))
                world.frontier.schedule.release(lease.host, 1800)
                world.frontier.acknowledge(lease)
                fresh[url] += pages[url].fresh(last.get(url, now), now)
                last[url] = now
            world.commit()
            world.clocks.pass_(10 * TICK)

    crawl(20 * DAY)
    found = sample(world.store, lambda host: rule.of(host.name).delay(host.rate))
    expected = forecast_of(found, Afforded(SHARE, 100.0), FreshnessTarget(0.9, DAY / 4))
    assert [each.limit for each in expected.classes] == ["politeness"]
    fresh.clear()
    crawl(40 * DAY)
    reached = fresh.total() / (20 * DAY * len(pages))
    assert expected.whole.fresh == pytest.approx(reached, abs=0.04)
    assert expected.whole.pages == len(pages)


# --- the turns of a host ---


def test_a_share_of_the_turns_goes_to_pages_again(world: World):
    world.add(*[f"http://a.test/new/{number}" for number in range(20)])
    host = world.frontier.schedule.cache.get("a.test")
    again = [Entry(f"http://a.test/{number}", request=AGAIN) for number in range(20)]
    batch = world.store.batch()
    candidates = [Candidate("a.test", None, entry, AGAIN_PRIORITY) for entry in again]
    world.frontier.queues.append(host, candidates, batch)
    world.frontier.schedule.cache.record([host], batch)
    batch.write()
    order = []
    for _ in range(40):
        lease = world.pop()
        assert lease is not None
        order.append(lease.entry.is_again)
        world.frontier.schedule.release(lease.host, 0.25)
        lease.fetched = fetched_at(world.clocks.wall, lease.entry.url)
        world.frontier.acknowledge(lease)
        world.clocks.pass_(1)
        if len(order) % 3 == 0:
            world.commit()
    assert sum(order) == 20
    for start in range(0, 36, 4):
        assert sum(order[start : start + 4]) == 2


# --- deaths, and other starts ---


def test_kills_lose_no_page_and_ask_none_twice(world: World):
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    world.clocks.pass_(400 * DAY)
    asked: Counter[str] = Counter()
    for kill in range(60):
        if not due.rest:
            due.step(2)
        for _ in range(kill % 3):
            if world.frontier.queued:
                asked[fetch_page(world, world.clocks.wall)] += 1
        world.crash()
        world.clocks.pass_(1)
        due = scheduled(world)
    assert asked == Counter(PAGES)
    assert all(row.due for row in rows(world) if row)


def test_a_page_in_flight_at_a_kill_is_asked_again(world: World):
    due = scheduled(world)
    world.add(*PAGES[:1])
    fetch_all(world)
    world.clocks.pass_(400 * DAY)
    assert step(due) == 1
    assert world.pop() is not None
    world.crash()
    world.clocks.pass_(60)
    scheduled(world)
    assert fetch_all(world) == Counter(PAGES[:1])


def test_figures_say_how_late_pages_are(world: World):
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    world.clocks.pass_(400 * DAY)
    due.step(2)
    figures = planner(world).figures()
    assert figures["krowl/recrawl/late_seconds"] > 300 * DAY
    assert figures["krowl/recrawl/due_count"] >= 2
    step(due)
    figures = planner(world).figures()
    assert figures["krowl/recrawl/late_seconds"] == 0
    assert figures["krowl/recrawl/due_count"] == len(PAGES)


def test_a_clock_that_goes_back_loses_no_page(world: World):
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    world.clocks.wall -= 5000 * DAY
    world.clocks.pass_(400 * DAY)
    assert step(due) == len(PAGES)


def test_a_start_with_the_clock_a_year_ahead_asks_all_pages(world: World):
    """While a crawl runs, a jump of the clock brings none."""
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    world.clocks.wall += 400 * DAY
    assert step(due) == 0
    world.restart()
    due = scheduled(world)
    step(due)
    assert fetch_all(world) == Counter(PAGES)


def test_pages_without_a_plan_get_one(world: World):
    world.add(*PAGES)
    fetch_all(world)
    assert not any(row.is_planned for row in rows(world) if row)
    assert list(world.store.keys(schema.DUE_AGAIN)) == []
    due = scheduled(world)
    due.step(5)
    world.crash()
    due = scheduled(world)
    step(due)
    assert all(row.is_planned for row in rows(world) if row)
    assert crawl_for(world, due, 20 * DAY, DAY).keys() == set(PAGES)


def test_buckets_that_are_lost_are_made_anew_after_a_repair(world: World):
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    world.clocks.pass_(400 * DAY)
    due.step(2)
    world.frontier.close()
    store = world.open_store()
    delete(store, list(store.keys(schema.DUE_AGAIN)))
    rebuild_indexes(store, world.hasher, world.clocks.wall, 10)
    store.close()
    world.open()
    due = scheduled(world)
    step(due)
    queued = world.frontier.queued
    world.clocks.pass_(2 * TICK)
    assert step(due) == len(PAGES)
    # The entries that were left are dropped by this.
    assert world.frontier.queued == len(PAGES) + queued


def test_the_line_of_a_page_says_when_it_is_fetched_again(world: World):
    """Once it has come up, that is in the past until its fetch. An import plans anew."""
    due = scheduled(world)
    world.add(STILL)
    fetch_all(world)
    row = row_of(world, STILL)
    assert lines(world) == [datetime.fromtimestamp(row.due, UTC)]
    world.clocks.pass_(400 * DAY)
    step(due)
    assert row_of(world, STILL).due == 0
    (queued,) = lines(world)
    assert queued == datetime.fromtimestamp(int(row.last + row.planned), UTC)
    assert row.last < queued.timestamp() <= row.due
    assert row_of(world, STILL).next_fetch < world.frontier.now()
    (line,) = page_lines(world.store)
    assert line is not None
    assert not page_in(line.encode(), 2000, lambda _: b"").is_planned


def test_without_a_schedule_a_line_has_no_next_time(world: World):
    world.add(STILL)
    fetch_all(world)
    assert lines(world) == [UNSET]


def lines(world: World) -> list[datetime | UnsetType]:
    """Return when each page is fetched again, by its line."""
    found = [line.encode() for line in page_lines(world.store) if line]
    return [msgspec.json.decode(line, type=PageLine).next_fetch for line in found]


def test_rows_that_are_imported_get_a_plan(world: World):
    scheduled(world)
    take_rows(world.frontier, [PageRow(PAGES[0], 200, 1, world.clocks.wall)])
    world.restart()
    step(scheduled(world))
    assert row_of(world, PAGES[0]).due > world.frontier.now()


def test_a_start_without_a_schedule_keeps_it(world: World):
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    world.clocks.pass_(400 * DAY)
    due.step(6)
    world.restart()
    leave_unplanned(world.store)
    queued = world.frontier.queued
    assert sum(fetch_all(world).values()) == queued
    due = scheduled(world)
    step(due)
    assert all(row.is_planned for row in rows(world) if row)
    assert fetch_all(world).total() == len(PAGES) - queued


def test_without_a_schedule_no_key_of_it_is_written(world: World):
    world.add(*PAGES)
    fetch_all(world, meaning=Meaning.ORDINARY)
    leave_unplanned(world.store)
    for prefix in (schema.DUE_AGAIN, schema.DUE_PLACE, schema.DEMAND):
        assert list(world.store.keys(prefix)) == []


def test_stale_pairs_are_passed_over(world: World):
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    assert world.frontier.pages is not None
    batch = world.store.batch()
    world.frontier.pages.forget(PAGES[:3], batch)
    moved = row_of(world, PAGES[3])
    moved.due += 500 * 86_400
    batch.put(world.frontier.pages.key(moved.url), moved.encode("a.test"))
    batch.write()
    world.clocks.pass_(400 * DAY)
    assert step(due) == len(PAGES) - 4


# --- hand-over ---


def test_a_host_takes_its_schedule_along(world: World):
    kept = KeptMemoryStore()
    other = World(lambda: kept, node="there", limits=replace(LIMITS, again_share=SHARE))
    due, there = scheduled(world), scheduled(other)
    world.add(*PAGES)
    fetch_all(world)
    other.clocks.wall = world.clocks.wall
    world.hand_over("a.test", other)
    assert world.store.get(schema.demand_key("a.test")) is None
    left = [world.store.get(schema.demand_key(f"{name}.test")) for name in "bc"]
    planner(world).begin(world.store.batch())
    total = sum(HostDemand.read(each).counted for each in left)
    assert planner(world).crawl.total == pytest.approx(total)
    before = {row.url: row.due for row in rows(other) if row}
    assert set(before) == set(PAGES[:7])
    assert all(before.values())
    world.clocks.pass_(400 * DAY)
    other.clocks.pass_(400 * DAY)
    assert step(due) == len(PAGES) - 7
    assert step(there) == 7
    assert fetch_all(other) == Counter(PAGES[:7])
    assert all(row.planned for row in rows(other) if row)


def test_a_page_that_was_queued_is_asked_once_by_its_new_owner(world: World):
    kept = KeptMemoryStore()
    other = World(lambda: kept, node="there", limits=replace(LIMITS, again_share=SHARE))
    due, there = scheduled(world), scheduled(other)
    world.add(*PAGES[:7])
    fetch_all(world)
    world.clocks.pass_(400 * DAY)
    other.clocks.pass_(400 * DAY)
    step(due)
    world.hand_over("a.test", other)
    for row in rows(other):
        assert row is not None
        assert there.has_fetched(row)
    assert decode_row(row.encode("a.test"), "a.test") == row
    other.clocks.pass_(2 * TICK)
    assert step(there) == 7


def test_a_link_found_before_its_host_arrives_is_no_new_page(world: World):
    """The new owner finds links to a page while its host, which has it queued again, is on its way.
    As a new page it would lose what its row knows."""
    kept = KeptMemoryStore()
    other = World(lambda: kept, node="there", limits=replace(LIMITS, again_share=SHARE))
    due, there = scheduled(world), scheduled(other)
    world.add(*PAGES[:7])
    fetch_all(world)
    world.clocks.pass_(400 * DAY)
    other.clocks.pass_(400 * DAY + world.clocks.wall - other.clocks.wall)
    step(due)
    other.add(*PAGES[:3], "http://a.test/new")
    world.hand_over("a.test", other)
    queued = other.queued("a.test")
    assert Counter(queued) == Counter([*PAGES[:7], "http://a.test/new"])
    again = fetch_again(other, there)
    other.clocks.pass_(2 * TICK)
    step(there)
    again += fetch_again(other, there)
    assert again == Counter([*PAGES[:7], "http://a.test/new"])
    fetches = {row.url: row.fetches for row in rows(other) if row}
    assert fetches == {**dict.fromkeys(PAGES[:7], 2), "http://a.test/new": 1}


def fetch_again(world: World, due: DuePages) -> Counter[str]:
    """Fetch what is queued, without what the schedule has planned meanwhile; return it."""
    found: Counter[str] = Counter()
    assert world.frontier.pages is not None
    while (lease := world.pop()) is not None:
        url = lease.entry.url
        row = world.frontier.pages.get(url)
        is_done = lease.entry.is_again and row is not None and due.has_fetched(row)
        if not is_done:
            found[url] += 1
            lease.fetched = fetched_at(world.clocks.wall, url)
        world.frontier.schedule.release(lease.host, 0.25)
        world.frontier.acknowledge(lease, dropped="recrawled" if is_done else None)
        world.commit()
        world.clocks.pass_(1)
    return found


def demand_of_host(world: World, name: str) -> tuple[float, float]:
    """Return the demand that is kept of a host, and the sum of its pages."""
    kept = HostDemand.read(world.store.get(schema.demand_key(name)))
    return kept.demand, sum(demand_of(row) for row in rows(world, name))


def test_starts_without_a_schedule_and_imports_take_demand_along(world: World):
    """Else a host would seem to ask for twice as much once its pages are planned again."""
    due = scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    world.clocks.pass_(40 * DAY)
    assert step(due)
    world.restart()
    leave_unplanned(world.store)
    # What was due is fetched, or dropped, and other pages are fetched again too.
    dropped = world.pop()
    assert dropped is not None
    world.frontier.schedule.release(dropped.host, 0.25)
    world.frontier.acknowledge(dropped, dropped="filtered")
    world.frontier.queue(
        [
            Candidate(row.url[7:13], None, entry_again(row))
            for row in rows(world)
            if row is not None and row.due
        ]
    )
    fetch_all(world)
    world.commit()
    due = scheduled(world)
    step(due)
    kept, real = demand_of_host(world, "a.test")
    assert kept == pytest.approx(real, rel=1e-3)
    take_rows(world.frontier, [replace_plan(row) for row in rows(world) if row is not None])
    world.restart()
    step(scheduled(world))
    kept, real = demand_of_host(world, "a.test")
    assert kept == pytest.approx(real, rel=1e-3)


def memory_world() -> World:
    kept = KeptMemoryStore()
    return World(lambda: kept, limits=replace(LIMITS, again_share=SHARE))


def test_terms_of_a_site_bound_and_weigh_its_pages():
    world = memory_world()
    terms = {
        "a": Terms(least=5 * DAY, most=5 * DAY),
        "b": Terms(weight=100.0),
        "c": Terms(weight=0.01),
    }
    due = scheduled(world, terms_of=lambda url: terms[url[7]])
    world.add(*PAGES)
    fetch_all(world)
    found = crawl_for(world, due, 40 * DAY, every=6 * HOUR)
    # Rounded up to buckets, of a sixteenth at most.
    assert {found[url] for url in PAGES if url[7] == "a"} == {7}
    assert min(found[url] for url in PAGES if url[7] == "b") > 2 * max(
        found[url] for url in PAGES if url[7] == "c"
    )


def test_a_weight_that_changes_leaves_no_demand_behind():
    """What a page has added is taken off by the weight of its plan."""
    world = memory_world()
    weights = {"a": 1.0}
    due = scheduled(world, terms_of=lambda url: Terms(weights.get(url[7], 1.0)))
    world.add(*PAGES)
    fetch_all(world)
    weights["a"] = 9.0
    crawl_for(world, due, 20 * DAY, every=6 * HOUR)
    kept, real = demand_of_host(world, "a.test")
    assert kept == pytest.approx(real, rel=1e-3)
    weights["a"] = 1.0
    crawl_for(world, due, 20 * DAY, every=6 * HOUR)
    kept, real = demand_of_host(world, "a.test")
    assert kept == pytest.approx(real, rel=1e-3)


def replace_plan(row: PageRow) -> PageRow:
    """Return a row as an import has it."""
    row.due = row.planned = 0
    return row


def test_a_page_that_is_forgotten_leaves_no_demand(world: World):
    scheduled(world)
    world.add(*PAGES)
    fetch_all(world)

    def forget(*urls: str) -> None:
        assert world.frontier.pages is not None
        batch = world.store.batch()
        world.frontier.pages.forget([*urls, "http://a.test/unknown"], batch)
        batch.write()

    def check() -> None:
        sums = [demand_of_host(world, f"{name}.test") for name in "abc"]
        assert [kept for kept, _ in sums] == pytest.approx([real for _, real in sums], rel=1e-3)

    forget(*PAGES[:3], PAGES[-1])
    batch = world.store.batch()
    planner(world).begin(batch).end()
    batch.write()
    check()
    assert len(rows(world)) == len(PAGES) - 4
    hosts = [HostDemand.read(world.store.get(schema.demand_key(f"{x}.test"))) for x in "abc"]
    assert planner(world).crawl.total == pytest.approx(sum(each.counted for each in hosts))
    # Without a schedule too.
    world.restart()
    forget(PAGES[3])
    check()


def test_a_node_without_a_schedule_takes_no_times_of_another_clock(world: World):
    """The pages come up once it has a schedule, if it had one before or not."""
    kept = KeptMemoryStore()
    other = World(lambda: kept, node="there", limits=replace(LIMITS, again_share=SHARE))
    scheduled(other)
    other.restart()
    leave_unplanned(other.store)
    world.clocks.pass_(4000 * DAY)
    other.clocks.wall = world.clocks.wall
    scheduled(world)
    world.add(*PAGES[:7])
    fetch_all(world)
    world.hand_over("a.test", other)
    assert [row and row.is_planned for row in rows(other)] == [False] * 7
    other.restart()
    there = scheduled(other)
    step(there)
    other.clocks.pass_(400 * DAY)
    step(there)
    assert fetch_all(other) == Counter(PAGES[:7])


def test_a_host_that_leaves_a_start_without_a_schedule_leaves_no_demand(world: World):
    scheduled(world)
    world.add(*PAGES)
    fetch_all(world)
    world.restart()
    forget_now(world.frontier, "a.test")
    assert world.store.get(schema.demand_key("a.test")) is None
    scheduled(world)
    hosts = [schema.demand_key(name) for name in ("b.test", "c.test")]
    counted = [HostDemand.read(world.store.get(key)).counted for key in hosts]
    assert planner(world).crawl.total == pytest.approx(sum(counted))
