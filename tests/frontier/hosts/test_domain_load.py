"""No domain fills the disk, and links from other domains fill no host's queue.

What has no place is queued behind all else of its host, on disk.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from itertools import chain, count
from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.frontier import limits as domain_load
from krowlspider.frontier.admin.edit import drop_host
from krowlspider.frontier.admin.export import Imported, export_lines, import_lines, parse_line
from krowlspider.frontier.limits import DomainLoad
from krowlspider.frontier.store.schema import LOAD
from tests.frontier.conftest import LIMITS, World
from tests.frontier.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

TOTAL = 40
SHARE = 10


@pytest.fixture
def world(open_store: Callable[[], Store]) -> World:
    return World(
        open_store, limits=replace(LIMITS, total=TOTAL, domain_share=SHARE / TOTAL, host_queue=20)
    )


def found(world: World, via: str, urls: list[str]) -> int:
    return world.frontier.queue([world.candidate(url) for url in urls], via=via)


def of(host: str, first: int, count: int) -> list[str]:
    return [f"http://{host}/{number}" for number in range(first, first + count)]


def dropped(world: World, reason: str) -> int:
    return world.frontier.counters[f"dropped/{reason}"]


def fill_half(world: World) -> None:
    for number in range(4):
        assert world.add(*of(f"good{number}.test", 0, 5)) == 5


def test_a_domain_gets_no_more_than_twice_its_share(world: World) -> None:
    """Once its places, once an overflow."""
    fill_half(world)
    for number in range(8):
        found(world, "a.evil.test", of(f"{number}.evil.test", 0, 4))
    assert dropped(world, "domain_share") == 8 * 4 - 2 * SHARE
    assert world.frontier.refused.hosts("domain_share").total() == 12
    # A refused URL is not known, and other domains have room.
    assert world.add(*of("good0.test", 5, 5)) == 5
    assert not world.frontier.knows(
        [world.hasher.key("http://7.evil.test/3")], lambda _: "7.evil.test"
    )[0]


def test_what_a_domain_has_beyond_its_share_comes_last(world: World) -> None:
    fill_half(world)
    found(world, "evil.test", of("evil.test", 0, 15))
    world.frontier.add([world.candidate("http://evil.test/seed")], is_exempt=True)
    own, beyond = of("evil.test", 0, 10), of("evil.test", 10, 5)
    assert world.queued("evil.test") == [*own, "http://evil.test/seed", *beyond]


def test_an_empty_frontier_has_room_for_any_domain(world: World) -> None:
    assert world.add(*of("one.test", 0, 18)) == 18
    assert dropped(world, "domain_share") == 0


def test_a_share_has_room_again_as_pages_are_done(world: World) -> None:
    fill_half(world)
    found(world, "evil.test", of("evil.test", 0, 25))
    assert dropped(world, "domain_share") == 25 - 2 * SHARE
    while (url := world.fetch()) is not None:
        if "evil" in url:
            break
    world.commit()
    assert found(world, "evil.test", of("evil.test", 20, 5)) == 1


@pytest.mark.parametrize("change", ["dies", "stops", "loses its loads"])
def test_the_load_of_a_domain_holds_over_a_restart(world: World, change: str) -> None:
    """A folder of an earlier version, or a change by hand, has no loads on disk."""
    fill_half(world)
    found(world, "evil.test", of("evil.test", 0, 25))
    world.commit()
    if change == "dies":
        world.crash()
    elif change == "stops":
        world.restart()
    else:
        world.frontier.close()
        store = world.open_store()
        batch = store.batch()
        batch.delete(LOAD)
        batch.write()
        store.close()
        world.open()
    assert found(world, "evil.test", of("evil.test", 20, 5)) == 0


def test_a_domain_dropped_by_hand_has_its_share_again(world: World) -> None:
    fill_half(world)
    found(world, "evil.test", of("evil.test", 0, 25))
    world.commit()
    world.frontier.close()
    store = world.open_store()
    drop_host(store, "evil.test")
    store.close()
    world.open()
    assert found(world, "evil.test", of("evil.test", 20, 5)) == 5


def test_links_from_other_domains_come_after_the_hosts_own(open_store: Callable[[], Store]) -> None:
    world = World(open_store, limits=replace(LIMITS, host_queue=100, total=100))
    own = of("a.test", 0, 18)
    found(world, "a.test", own[:16])
    found(world, "b.evil.test", of("a.test", 50, 1))
    found(world, "www.a.test", own[16:])
    fetched = []
    for _ in range(19):
        world.clocks.pass_(1)
        fetched.append(world.fetch())
    assert fetched == [*own, "http://a.test/50"]


def test_links_from_other_domains_leave_half_of_the_room(open_store: Callable[[], Store]) -> None:
    """However empty the frontier is; and they always have half of the places in the queue."""
    limits = replace(LIMITS, total=400, domain_share=0.125, host_queue=20)
    world = World(open_store, limits=limits)
    assert found(world, "evil.test", of("a.test", 0, 80)) == 50
    assert found(world, "evil.test", of("b.a.test", 0, 80)) == 10
    assert dropped(world, "domain_share") == 30 + 70
    assert not world.frontier.knows([world.hasher.key("http://a.test/79")], lambda _: "a.test")[0]
    assert found(world, "a.test", of("a.test", 100, 200)) == 200
    # The frontier is half full, and the domain has more than twice its share.
    assert found(world, "a.test", of("a.test", 300, 1)) == 0


def test_a_full_frontier_takes_all_urls_once(open_store: Callable[[], Store]) -> None:
    """80 links of four sites find no place, and 20 seeds need none. A death in the middle of their
    return costs none, and none is fetched twice."""
    world = World(open_store, limits=replace(LIMITS, total=TOTAL))
    sites = [of(f"{site}.test", 0, 20) for site in "abcdef"]
    for site in sites:
        assert world.add(*site) == 20
        assert world.add(*site) == 0
    seeds = of("a.test", 50, 20)
    assert world.frontier.add([world.candidate(url) for url in seeds], is_exempt=True) == 20
    assert dropped(world, "frontier") == 0
    fetched = []
    for number in range(400):
        if number == 60:
            world.commit()
            assert world.frontier.queued > TOTAL
            world.crash()
        world.clocks.pass_(1)
        if (url := world.fetch()) is not None:
            fetched.append(url)
    assert sorted(fetched) == sorted([*seeds, *chain(*sites)])
    assert world.frontier.queued == 0


def test_a_short_disk_takes_no_overflow(open_store: Callable[[], Store]) -> None:
    """Seeds are queued even then."""
    world = World(open_store, limits=replace(LIMITS, total=TOTAL), is_scarce=True)
    assert found(world, "a.test", of("a.test", 0, TOTAL + 2)) == TOTAL
    assert found(world, "a.test", of("b.test", 0, 3)) == 0
    assert world.frontier.refused.hosts("frontier") == {"a.test": 2, "b.test": 3}
    assert world.frontier.add([world.candidate("http://c.test/")], is_exempt=True) == 1
    assert found(world, "a.test", of("b.test", 0, 3)) == 0
    world.is_scarce = False
    assert found(world, "a.test", of("b.test", 0, 3)) == 3


FINDS = st.tuples(st.sampled_from(["own", "stranger", "sitemap", "seed"]), st.integers(1, 30))
FETCHES = st.tuples(st.just("fetch"), st.integers(1, 30))


MOVES = st.tuples(st.sampled_from(["hand over", "import"]), st.just(1))


def moved(how: str, world: World, node: str, count: int) -> World:
    """Return another world, to which a.test with ``count`` entries was handed over or imported."""
    other = World(MemoryStore, limits=world.limits, node=node)
    if how == "hand over":
        world.hand_over("a.test", other)
        return other
    lines = [line.encode() for line in export_lines(world.store)]
    parse = partial(parse_line, identify=world.identify, url_max=100)
    result = import_lines(other.frontier, other.store, lines, parse, print)
    assert result == Imported(count, 0, {}, 0)
    return other


@given(
    st.lists(st.one_of(FINDS, FETCHES, MOVES), max_size=20),
    st.integers(1, 24),
    st.integers(1, 80),
    st.sampled_from([0, 0.25, 0.5, 0.75]),
)
def test_overflow_comes_last_and_nothing_is_lost(  # noqa: PLR0915
    steps: list[tuple[str, int]], most: int, total: int, share: float
) -> None:
    """The model has four queues: own links and seeds, those of other domains, and overflows. They
    stay the same in another frontier, after a hand-over or an import."""
    limits = replace(LIMITS, host_queue=most, total=total, domain_share=share)
    world = World(MemoryStore, limits=limits)
    own: deque[str] = deque()
    strangers: deque[str] = deque()
    overflow: deque[str] = deque()
    strangers_overflow: deque[str] = deque()
    queues = (own, strangers, overflow, strangers_overflow)
    names = count()
    of_domain = int(share * total)

    def queued() -> int:
        return sum(map(len, queues))

    def places(kind: str) -> int:
        """Return how many more URLs have a place in the queue of the host."""
        return (most // 2 if kind == "stranger" else most) - len(own) - len(strangers)

    def room(kind: str) -> float:
        """Return how many more URLs are queued at all."""
        left = inf
        if of_domain and queued() >= total // 2 and kind != "seed":
            left = max(0, 2 * of_domain - queued())
        if of_domain and kind == "stranger":
            left = min(left, max(of_domain - queued(), places(kind), 0))
        return left

    def find(kind: str, is_limited: bool) -> str:
        url = f"http://a.test/{next(names)}"
        by_stranger = kind == "stranger"
        free = min(places(kind), total - queued())
        if is_limited:
            free = min(free, of_domain - queued())
        if kind in ("own", "stranger") and free <= 0:
            (strangers_overflow if by_stranger else overflow).append(url)
        elif by_stranger and queued() >= 16:
            strangers.append(url)
        else:
            own.append(url)
        return url

    def fetch() -> None:
        world.clocks.pass_(1)
        queue = next((queue for queue in queues if queue), None)
        assert world.fetch() == (queue.popleft() if queue else None)

    for kind, number in steps:
        if kind == "fetch":
            for _ in range(number):
                fetch()
            world.commit()
        elif kind in ("hand over", "import"):
            world = moved(kind, world, f"node {next(names)}", queued())
        else:
            via = {"stranger": "evil.test", "seed": ""}.get(kind, "a.test")
            taken = int(min(number, room(kind)))
            is_limited = bool(of_domain) and queued() >= total // 2
            urls = [find(kind, is_limited) for _ in range(taken)]
            urls += [f"http://a.test/refused{extra}" for extra in range(number - taken)]
            some, is_exempt = [world.candidate(url) for url in urls], kind in ("sitemap", "seed")
            assert world.frontier.queue(some, via=via, is_exempt=is_exempt) == taken
    while any(queues):
        fetch()
    fetch()


def test_without_a_share_nothing_is_counted() -> None:
    load = DomainLoad(MemoryStore(), 0.0, TOTAL)
    load.add("a.test", 1000)
    assert load.room("a.test", 1) == inf
    assert load._counts == {}


def test_only_the_loads_of_large_domains_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(domain_load, "DOMAINS_IN_MEMORY", 100)
    load = DomainLoad(MemoryStore(), 0.25, TOTAL)
    load.add("evil.test", SHARE)
    for number in range(1000):
        load.add(f"{number}.test", 1)
    assert len(load._counts) <= 100
    assert load.room("evil.test", 2) == SHARE
