"""Hints bring pages forward, as far as their sources were right; a site that lies gains nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from krowlspider.frontier.due_pages import DuePages
from krowlspider.frontier.pages.hint_records import TRIALS, Trials
from krowlspider.frontier.pages.hinted import Hint
from krowlspider.frontier.pages.planner import HostDemand, demand_of
from krowlspider.frontier.pages.row import TICK
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import put
from krowlspider.recrawl.hints import PUSHED, HintSource, Precisions
from krowlspider.recrawl.threshold import THRESHOLD_MAX
from krowlspider.recrawl.value import INTERVAL_MIN
from tests.frontier.conftest import KeptMemoryStore, World
from tests.frontier.pages.fetching import fetched_at, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.pages.planner import Planner
    from krowlspider.frontier.pages.row import PageRow
    from krowlspider.frontier.pages.rows import PageRows
    from krowlspider.frontier.store.store import Store

HOUR, DAY = 3600.0, 86_400.0
HOST = "a.test"
PAGE = f"http://{HOST}/0"
# Seconds of freshness.
THRESHOLD = 100_000.0
LASTMOD, FEED = HintSource.LASTMOD, HintSource.FEED


class Site(NamedTuple):
    """A host of a frontier with a schedule. ``changed`` are pages whose body is another one now."""

    world: World
    due: DuePages
    changed: set[str]

    def fetch_all(self) -> list[str]:
        """Queue what is due, fetch it, and return it."""
        world, found = self.world, list[str]()
        self.due.step(50)
        while not self.due.rest:
            self.due.step(50)
        while (lease := world.pop()) is not None:
            url, now = lease.entry.url, world.clocks.wall
            payload = b"%020d" % now if url in self.changed else b"s" * 20
            lease.fetched = fetched_at(now, url, payload)
            world.frontier.schedule.release(lease.host, 0.25)
            world.frontier.acknowledge(lease)
            world.clocks.pass_(1)
            found.append(url)
        world.commit()
        return found

    def after(self, seconds: float) -> list[str]:
        self.world.clocks.pass_(seconds)
        return self.fetch_all()

    def hint(self, *urls: str, source: HintSource | None = LASTMOD, age: float = 1.0) -> int:
        """Have a source say that pages changed ``age`` seconds ago, a little apart."""
        now = self.world.clocks.wall
        hints = [
            Hint(self.key(url), source, now - age - number / 1000)
            for number, url in enumerate(urls)
        ]
        return self.due.hinted.step(hints)

    @property
    def pages(self) -> PageRows:
        assert self.world.frontier.pages is not None
        return self.world.frontier.pages

    @property
    def planner(self) -> Planner:
        assert self.pages.planner is not None
        return self.pages.planner

    def key(self, url: str) -> bytes:
        return self.pages.key(url)

    def row(self, url: str = PAGE) -> PageRow:
        row = self.pages.get(url)
        assert row is not None
        return row

    def precision(self, source: HintSource = LASTMOD) -> tuple[int, int]:
        found = self.world.store.get(schema.hints_key(HOST)) or b""
        return Precisions.read(found)[source]


def scheduled(world: World) -> DuePages:
    """Return the schedule of a start, after its first step. With its threshold, which stays as
    nothing is affordable, an ordinary page is planned weeks ahead."""
    pages = world.frontier.pages
    assert pages is not None
    due = DuePages(world.frontier, pages, wall=lambda: world.clocks.wall, share=0.5, budget=0.0)
    assert pages.planner is not None
    pages.planner.crawl = pages.planner.crawl._replace(threshold=THRESHOLD)
    due.step(1)
    return due


def site_of(world: World, pages: int = 1) -> Site:
    """Return a site whose pages were fetched a day ago."""
    site = Site(world, scheduled(world), set())
    world.add(*[f"http://{HOST}/{number}" for number in range(pages)])
    assert len(site.fetch_all()) == pages
    site.changed.clear()
    world.clocks.pass_(DAY)
    return site


@pytest.fixture
def site(open_store: Callable[[], Store]) -> Site:
    return site_of(World(open_store))


def test_a_hint_brings_a_page_forward(site: Site) -> None:
    assert site.after(2 * TICK) == []
    assert site.hint(PAGE) == 1
    assert site.row().tried == 1 << LASTMOD
    site.changed.add(PAGE)
    assert site.after(2 * TICK) == [PAGE]
    assert site.precision() == (1, 0)
    assert (site.row().named, site.row().tried) == (0, 0)
    assert site.row().due > site.world.frontier.now()
    figures = site.planner.figures()
    assert figures["krowl/recrawl/hinted_count"] == 1
    assert figures["krowl/recrawl/hinted_changed_count"] == 1


def test_a_page_that_had_not_changed_counts_against_its_source(site: Site) -> None:
    site.hint(PAGE, source=FEED)
    assert site.after(2 * TICK) == [PAGE]
    assert site.precision(FEED) == (0, 1)
    assert site.precision(LASTMOD) == (0, 0)


@pytest.mark.parametrize("age", [DAY + HOUR, 400 * DAY])
def test_an_older_date_says_nothing(site: Site, age: float) -> None:
    before = site.row()
    assert site.hint(PAGE, age=age) == 0
    assert site.row() == before


def test_a_frequency_brings_a_page_forward_to_its_next_change(site: Site) -> None:
    key = site.key(PAGE)
    last = site.row().last
    assert site.due.hinted.step([Hint(key, HintSource.CHANGEFREQ, 2 * DAY)]) == 1
    due = site.row().due - site.world.frontier.now() + site.world.clocks.wall
    assert 0 <= due - last - 2 * DAY <= DAY / 8
    assert site.due.hinted.step([Hint(key, HintSource.CHANGEFREQ, 400 * DAY)]) == 0


def test_a_hint_never_puts_a_page_off(site: Site) -> None:
    site.hint(PAGE)
    due = site.row().due
    for source in (LASTMOD, FEED, HintSource.CHANGEFREQ, None):
        site.hint(PAGE, source=source, age=-DAY)
        assert site.row().due <= due


@pytest.mark.parametrize("jump", [0.0, 400 * DAY, -400 * DAY])
def test_no_page_comes_back_within_ten_minutes(site: Site, jump: float) -> None:
    site.world.clocks.wall += jump
    site.hint(PAGE, source=None)
    assert site.after(2 * TICK) == [PAGE]
    for _ in range(int(INTERVAL_MIN // TICK) - 3):
        site.hint(PAGE, source=None)
        assert site.after(TICK) == []
    site.world.clocks.wall += jump
    site.hint(PAGE, source=None)
    assert site.after(TICK) == []


def test_hints_that_are_repeated_do_not_put_a_page_off(site: Site) -> None:
    site.hint(PAGE, source=None)
    due = site.row().due
    for _ in range(3):
        site.world.clocks.pass_(TICK / 2)
        site.hint(PAGE, source=None)
        site.hint(PAGE, source=FEED)
    assert site.row().due == due


def test_what_has_no_row_or_is_queued_stays_as_it_is(site: Site) -> None:
    assert site.hint(f"http://{HOST}/unknown") == 0
    site.hint(PAGE)
    site.world.clocks.pass_(2 * TICK)
    site.due.step(9)
    before = site.row()
    assert (before.due, site.hint(PAGE, source=FEED)) == (0, 0)
    assert site.row() == before


def test_a_missing_page_is_not_brought_forward(site: Site) -> None:
    world = site.world
    for _ in range(2):
        world.clocks.pass_(30 * DAY)
        site.due.step(9)
        lease = world.pop()
        assert lease is not None
        lease.fetched = fetched_at(world.clocks.wall, PAGE, status=404)
        world.frontier.schedule.release(lease.host, 0.25)
        world.frontier.acknowledge(lease)
        world.commit()
    world.clocks.pass_(HOUR)
    assert site.hint(PAGE) == 0


def test_demands_add_up_with_hints(open_store: Callable[[], Store]) -> None:
    site = site_of(World(open_store), 30)
    urls = [f"http://{HOST}/{number}" for number in range(30)]
    site.changed.update(urls)
    for _ in range(3):
        assert site.hint(*urls) > 0
        site.after(2 * TICK)
        site.world.clocks.pass_(DAY)
    found = HostDemand.read(site.world.store.get(schema.demand_key(HOST)))
    assert found.demand == pytest.approx(sum(map(demand_of, rows(site.world))), rel=1e-3)


# --- sites that lie ---


def test_a_site_that_says_all_changed_costs_ten_requests(open_store: Callable[[], Store]) -> None:
    """Its dates differ, so they are dates of pages. It says so each hour for a day."""
    site = site_of(World(open_store), 300)
    urls = [f"http://{HOST}/{number}" for number in range(300)]
    asked = []
    for _ in range(24):
        site.hint(*urls)
        asked += site.after(HOUR)
    assert len(asked) == TRIALS
    assert site.precision() == (0, TRIALS)


def test_a_site_that_is_right_is_followed_ever_further(open_store: Callable[[], Store]) -> None:
    site = site_of(World(open_store), 300)
    urls = [f"http://{HOST}/{number}" for number in range(300)]
    site.changed.update(urls)
    asked = []
    for _ in range(3):
        site.hint(*urls)
        asked.append(len(site.after(HOUR)))
    assert asked[:2] == [TRIALS, TRIALS * (1 + TRIALS)]
    assert sum(asked) >= 300


def test_trust_comes_back_without_requests(site: Site) -> None:
    """Pages that come up by themselves score who named them."""
    put(site.world.store, schema.hints_key(HOST), bytes([0, 100, 0, 0, 0, 0]))
    site.changed.add(PAGE)
    assert site.hint(PAGE) == 0
    assert site.row().named == 1 << LASTMOD
    assert site.after(100 * DAY) == [PAGE]
    assert site.precision() == (1, 100)


def test_a_page_lapses_whose_source_was_found_to_lie(site: Site) -> None:
    planned = site.row().due
    site.hint(PAGE)
    put(site.world.store, schema.hints_key(HOST), bytes([0, 200, 0, 0, 0, 0]))
    assert site.after(2 * TICK) == []
    row = site.row()
    # By its own plan again, and still scored.
    assert row.due == pytest.approx(planned, rel=0.05)
    assert (row.named, row.tried) == (1 << LASTMOD, 0)
    assert site.planner.counts["postponed"] == 1


@pytest.mark.parametrize("jump", [400 * DAY, -400 * DAY])
def test_a_clock_that_jumps_brings_few_pages_forward(
    open_store: Callable[[], Store], jump: float
) -> None:
    """The sitemap says the truth: nothing has changed since the pages were fetched."""
    world = World(open_store)
    site = site_of(world, 100)
    urls = [f"http://{HOST}/{number}" for number in range(100)]
    planned = {url: site.row(url).due for url in urls}
    changed = world.clocks.wall - 2 * DAY
    world.clocks.wall += jump
    for url in urls:
        # The reader leaves dates in the future out.
        if changed <= world.clocks.wall:
            site.due.hinted.step([Hint(site.key(url), LASTMOD, changed)])
    assert {url: site.row(url).due for url in urls} == planned
    # And when the clock is right again.
    world.clocks.wall -= jump
    site.hint(*urls, age=2 * DAY)
    assert {url: site.row(url).due for url in urls} == planned


def test_a_wrong_clock_at_the_last_fetch_says_nothing(open_store: Callable[[], Store]) -> None:
    """The row says that the pages were fetched a year ago; the schedule knows better."""
    world = World(open_store)
    world.clocks.wall -= 400 * DAY
    site = site_of(world, 100)
    world.clocks.wall += 400 * DAY
    urls = [f"http://{HOST}/{number}" for number in range(100)]
    assert site.hint(*urls, age=4 * DAY) == 0
    assert site.after(HOUR) == []


def test_a_pushed_page_comes_up_at_once_whatever_it_is_worth(site: Site) -> None:
    site.planner.crawl = site.planner.crawl._replace(threshold=1e9)
    assert site.hint(PAGE, source=None) == 1
    assert site.row().tried == PUSHED
    assert site.after(2 * TICK) == [PAGE]
    assert site.world.store.get(schema.hints_key(HOST)) is None


# --- deaths, and what is forgotten ---


def test_a_kill_keeps_pages_brought_forward(site: Site) -> None:
    site.hint(PAGE)
    site.world.crash()
    again = site._replace(due=scheduled(site.world))
    assert again.after(2 * TICK) == [PAGE]
    assert again.precision() == (0, 1)


def test_a_host_that_leaves_leaves_no_record(site: Site) -> None:
    site.hint(PAGE)
    site.after(2 * TICK)
    assert site.world.store.get(schema.hints_key(HOST)) is not None
    site.world.hand_over(HOST, World(KeptMemoryStore, node="there"))
    assert site.world.store.get(schema.hints_key(HOST)) is None


def test_trials_are_bounded_and_never_negative() -> None:
    trials = Trials()
    for _ in range(TRIALS):
        assert trials.has_room(HOST, LASTMOD, 0)
        trials.begin(HOST, LASTMOD)
    assert not trials.has_room(HOST, LASTMOD, 0)
    assert trials.has_room(HOST, LASTMOD, 1)
    assert trials.has_room(HOST, FEED, 0)
    for _ in range(2 * TRIALS):
        trials.end(HOST, 1 << LASTMOD | PUSHED)
    for _ in range(TRIALS):
        assert trials.has_room(HOST, LASTMOD, 0)
        trials.begin(HOST, LASTMOD)
    assert not trials.has_room(HOST, LASTMOD, 0)


def test_hints_that_change_nothing_count_no_demand(site: Site) -> None:
    """A document may say the same each hour, in hundreds of steps."""
    site.planner.crawl = site.planner.crawl._replace(threshold=THRESHOLD_MAX)
    assert site.hint(PAGE) == 0
    assert site.row().named
    row, key = site.row(), schema.demand_key(HOST)
    # The threshold of the crawl decides what of a host counts; it has changed since.
    demand = HostDemand.read(site.world.store.get(key))
    put(site.world.store, key, bytes(demand._replace(counted=demand.counted + 1)))
    total = site.planner.crawl.total
    for _ in range(3):
        assert site.hint(PAGE) == 0
    assert site.row() == row
    assert site.planner.crawl.total == total
