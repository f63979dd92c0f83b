"""What is kept of robots.txt in memory: bounded, and nothing is lost by it."""

from __future__ import annotations

import pytest

from krowlspider.frontier.robotsbook import AUTHORITIES_MAX, RULES_MAX, RobotsBook
from krowlspider.politeness.robots import RobotsRecord, Ruling
from tests.frontier.conftest import KeptMemoryStore, World

A = "http://a.test"
URL = f"{A}/private"


def book_of(world: World) -> RobotsBook:
    return RobotsBook(world.frontier, "krowlspider", lambda: world.clocks.wall, longest=200.0)


def record_of(world: World, body: bytes) -> RobotsRecord:
    now = world.clocks.wall
    return RobotsRecord(Ruling.RULES.value, now, now + 100, 200, body)


def test_rules_in_memory_are_bounded_and_come_back_from_disk() -> None:
    world = World(KeptMemoryStore)
    book = book_of(world)
    book.learn(A, record_of(world, b"User-agent: *\nDisallow: /private\nCrawl-delay: 7"))
    before, rules = book.look_up(A)
    long = record_of(world, b"sitemap:a\n" * 50_000)
    for number in range(RULES_MAX // 50_000 + 1):
        book.learn(f"http://{number}.test", long)
    assert book.size == RULES_MAX
    expires, again = book.look_up(A)
    assert again is not rules
    assert again is not None
    assert (expires, again.crawl_delay, again.allowed(URL)) == (before, 7.0, False)
    # What was in memory for the longest has made room for it.
    assert book.size == RULES_MAX - 50_000 + again.size


def test_authorities_in_memory_are_bounded() -> None:
    world = World(KeptMemoryStore)
    book = book_of(world)
    book.learn(A, record_of(world, b"User-agent: *\nDisallow: /private"))
    _, rules = book.look_up(A)
    for number in range(AUTHORITIES_MAX):
        assert book.look_up(f"http://{number}.test") == (0.0, None)
    assert book.look_up(A)[1] is not rules


def test_a_record_learnt_again_counts_once() -> None:
    world = World(KeptMemoryStore)
    book = book_of(world)
    for _ in range(2):
        book.learn(A, record_of(world, b"User-agent: *\nDisallow: /a\nDisallow: /b"))
    assert book.size == 2


def test_what_could_not_be_had_is_known_until_it_is_tried_again() -> None:
    world = World(KeptMemoryStore)
    book = book_of(world)
    assert book.record(A) is None
    book.learn(A, RobotsRecord(Ruling.RETRY.value, 0.0, world.clocks.wall + 10, 503, b""))
    known = book.record(A)
    assert known is not None
    assert (known.ruling, known.expires) == ("retry", world.clocks.wall + 10)
    world.clocks.pass_(10)
    assert book.record(A) is None


@pytest.mark.parametrize("ruling", [Ruling.RULES, Ruling.RETRY])
def test_what_would_hold_for_longer_than_a_record_may_decides_nothing(ruling: Ruling) -> None:
    world = World(KeptMemoryStore)
    book, now = book_of(world), world.clocks.wall
    book.learn(A, RobotsRecord(ruling.value, now, now + 201, 200, b""))
    assert not book.holds(book.look_up(A)[0])
    assert book.record(A) is None
    world.clocks.pass_(1)
    assert book.holds(book.look_up(A)[0])
    assert book.record(A) is not None


# --- who is told ---


class Told:
    """Notes the sitemaps that it is told of, and whether the record was on disk then."""

    def __init__(self, world: World):
        self._world = world
        self.heard: list[tuple[list[str], bool]] = []

    def __call__(self, sitemaps: list[str]) -> None:
        self.heard.append((sitemaps, self._world.frontier.robots(A) is not None))


class Died(Exception):
    """The process, in the midst of it."""


def die(sitemaps: list[str]) -> None:
    raise Died


@pytest.mark.parametrize(("ruling", "named"), [
    (Ruling.RULES, ["/1.xml", "/2.xml"]),
    (Ruling.ALLOW_ALL, []),
])  # fmt: skip
def test_the_sitemaps_are_told_before_the_record_is_kept(ruling: Ruling, named: list[str]) -> None:
    world = World(KeptMemoryStore)
    told = Told(world)
    record = record_of(world, b"Sitemap: /1.xml\nSitemap: /2.xml")
    record.ruling = ruling.value
    book_of(world).learn(A, record, told)
    assert told.heard == [(named, False)]
    assert world.frontier.robots(A) is not None


def test_after_a_death_while_the_sitemaps_are_told_robots_txt_is_asked_for_again(
    world: World,
) -> None:
    book = book_of(world)
    with pytest.raises(Died):
        book.learn(A, record_of(world, b"Sitemap: /1.xml"), die)
    world.crash()
    assert book_of(world).record(A) is None


@pytest.mark.parametrize("kept", [True, False])
def test_of_a_robots_txt_that_cannot_be_had_nobody_is_told(kept: bool) -> None:
    """With its last good copy, whose sitemaps were told when it came, and without."""
    world = World(KeptMemoryStore)
    book, told = book_of(world), Told(world)
    if kept:
        book.learn(A, record_of(world, b"Sitemap: /1.xml\nUser-agent: *\nDisallow: /private"))
    failure = RobotsRecord(Ruling.RETRY.value, 0.0, world.clocks.wall + 10, 503, b"")
    book.learn(A, failure, told)
    assert told.heard == []
    known = book.record(A)
    assert known is not None
    assert known.ruling == (Ruling.RULES if kept else Ruling.RETRY).value
