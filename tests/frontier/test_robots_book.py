"""What is kept of robots.txt in memory: bounded, and nothing is lost by it."""

from __future__ import annotations

from krowlspider.frontier.robotsbook import AUTHORITIES_MAX, RULES_MAX, RobotsBook
from krowlspider.politeness.robots import RobotsRecord, Ruling
from tests.frontier.conftest import KeptMemoryStore, World

A = "http://a.test"
URL = f"{A}/private"


def book_of(world: World) -> RobotsBook:
    return RobotsBook(world.frontier, "krowlspider", lambda: world.clocks.wall)


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
