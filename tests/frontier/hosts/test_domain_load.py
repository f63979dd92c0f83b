"""No domain fills the frontier, and links from other domains fill no host's queue."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.frontier.admin.edit import drop_host
from krowlspider.frontier.admin.export import Imported, export_lines, import_lines, parse_line
from krowlspider.frontier.hosts import domain_load
from krowlspider.frontier.hosts.domain_load import DomainLoad
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


def test_a_domain_gets_no_more_than_its_share(world: World) -> None:
    fill_half(world)
    for number in range(4):
        found(world, "a.evil.test", of(f"{number}.evil.test", 0, 4))
    assert dropped(world, "domain_share") == 4 * 4 - SHARE
    # A refused URL is not known, and other domains have room.
    assert world.add(*of("good0.test", 5, 5)) == 5
    assert not world.frontier.knows(
        [world.hasher.key("http://3.evil.test/3")], lambda _: "3.evil.test"
    )[0]


def test_an_empty_frontier_has_room_for_any_domain(world: World) -> None:
    assert world.add(*of("one.test", 0, 18)) == 18
    assert dropped(world, "domain_share") == 0


def test_a_share_has_room_again_as_pages_are_done(world: World) -> None:
    fill_half(world)
    world.add(*of("evil.test", 0, 15))
    assert dropped(world, "domain_share") == 15 - SHARE
    while (url := world.fetch()) is not None:
        if "evil" in url:
            break
    world.commit()
    # Now other domains hold under half of all places, or one place of its own is free.
    world.add(*of("good9.test", 0, 6))
    assert world.add(*of("evil.test", 20, 5)) == 1


@pytest.mark.parametrize("dies", [True, False])
def test_the_load_of_a_domain_holds_over_a_restart(world: World, dies: bool) -> None:
    fill_half(world)
    world.add(*of("evil.test", 0, 15))
    world.commit()
    if dies:
        world.crash()
    else:
        world.restart()
    assert world.add(*of("evil.test", 20, 5)) == 0


def test_a_domain_dropped_by_hand_has_its_share_again(world: World) -> None:
    fill_half(world)
    world.add(*of("evil.test", 0, 15))
    world.commit()
    world.frontier.close()
    store = world.open_store()
    drop_host(store, "evil.test")
    store.close()
    world.open()
    world.add(*of("good9.test", 0, 10))
    assert world.add(*of("evil.test", 20, 5)) == 5


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


def test_links_from_other_domains_leave_half_of_a_share(open_store: Callable[[], Store]) -> None:
    """However empty the frontier is; and they always have half of the places in the queue."""
    limits = replace(LIMITS, total=400, domain_share=0.25, host_queue=20)
    world = World(open_store, limits=limits)
    assert found(world, "evil.test", of("a.test", 0, 80)) == 50
    assert found(world, "evil.test", of("b.a.test", 0, 80)) == 10
    assert dropped(world, "domain_share") == 30 + 70
    assert not world.frontier.knows([world.hasher.key("http://a.test/79")], lambda _: "a.test")[0]
    assert found(world, "a.test", of("a.test", 100, 200)) == 200
    # The frontier is half full, and the domain has more than its share.
    assert found(world, "a.test", of("a.test", 300, 1)) == 0


FINDS = st.tuples(st.sampled_from(["own", "stranger", "seed"]), st.integers(1, 30))
FETCHES = st.tuples(st.just("fetch"), st.integers(1, 30))


MOVES = st.tuples(st.sampled_from(["hand over", "import"]), st.just(1))


@given(st.lists(st.one_of(FINDS, FETCHES, MOVES), max_size=20), st.integers(1, 24))
def test_overflow_comes_last_and_nothing_is_lost(steps: list[tuple[str, int]], most: int) -> None:
    """The model has four queues: own links and seeds, those of other domains, and overflows. They
    stay the same in another frontier, after a hand-over or an import."""
    limits = replace(LIMITS, host_queue=most)
    world = World(MemoryStore, limits=limits)
    own: deque[str] = deque()
    strangers: deque[str] = deque()
    overflow: deque[str] = deque()
    strangers_overflow: deque[str] = deque()
    queues = (own, strangers, overflow, strangers_overflow)
    names = count()

    def find(kind: str) -> str:
        url = f"http://a.test/{next(names)}"
        by_stranger = kind == "stranger"
        places = (most // 2 if by_stranger else most) - len(own) - len(strangers)
        if kind != "seed" and places <= 0:
            (strangers_overflow if by_stranger else overflow).append(url)
        elif by_stranger and sum(map(len, queues)) >= 16:
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
            other = World(MemoryStore, limits=limits, node=f"node {next(names)}")
            if kind == "import":
                lines = [line.encode() for line in export_lines(world.store)]
                parse = partial(parse_line, identify=world.identify, url_max=100)
                result = import_lines(other.frontier, other.store, lines, parse, print)
                assert result == Imported(sum(map(len, queues)), 0, {}, 0)
            else:
                world.hand_over("a.test", other)
            world = other
        else:
            via = "evil.test" if kind == "stranger" else "a.test"
            some = [world.candidate(find(kind)) for _ in range(number)]
            added = world.frontier.queue(some, via=via, is_exempt=kind == "seed")
            assert added == number
    while any(queues):
        fetch()
    fetch()


def test_the_caps_of_the_frontier_hold_for_seeds(world: World) -> None:
    urls = [f"http://{number}.test/" for number in range(TOTAL + 2)]
    assert sum(world.frontier.add([world.candidate(url)], is_exempt=True) for url in urls) == TOTAL
    assert world.frontier.refused["frontier"] == {"": 2}


def test_without_a_share_nothing_is_counted() -> None:
    load = DomainLoad(MemoryStore(), 0.0, TOTAL)
    load.add("a.test", 1000)
    assert load.room("a.test", TOTAL) is None
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
    assert load.room("evil.test", TOTAL) == 0


def test_loads_missing_on_disk_are_counted(world: World) -> None:
    """A folder of an earlier version, or a change by hand, leaves none."""
    fill_half(world)
    world.add(*of("evil.test", 0, 15))
    world.commit()
    world.frontier.close()
    store = world.open_store()
    batch = store.batch()
    batch.delete(LOAD)
    batch.write()
    store.close()
    world.open()
    assert world.add(*of("evil.test", 20, 5)) == 0
