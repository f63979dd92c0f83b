"""What is kept of robots.txt in memory: bounded, and nothing is lost by it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

import pytest

from krowlspider.frontier.robots.cache import (
    AUTHORITIES_MAX,
    DIFFERENT_MAX,
    RULES_MAX,
    WITHOUT_MAX,
    RobotsCache,
)
from krowlspider.frontier.store.schema import ROBOTS, robots_key, seen_prefix
from krowlspider.frontier.store.store import LevelStore
from krowlspider.politeness.robots import RobotsRecord, Ruling
from tests.frontier.conftest import KeptMemoryStore, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from krowlspider.frontier.store.store import Batch

A = "http://a.test"
URL = f"{A}/private"


def book_of(world: World) -> RobotsCache:
    return RobotsCache(world.store, "krowlspider", lambda: world.clocks.wall, ttl=100.0)


def record_of(world: World, body: bytes) -> RobotsRecord:
    now = world.clocks.wall
    return RobotsRecord(Ruling.RULES.value, now, now + 100, 200, body)


def seconds(job: Callable[[], object]) -> float:
    """Of CPU."""
    begun = time.thread_time()
    job()
    return time.thread_time() - begun


def test_rules_in_memory_are_bounded_and_come_back_from_disk() -> None:
    world = World(KeptMemoryStore)
    book = book_of(world)
    body = b"User-agent: *\nDisallow: /private\nCrawl-delay: 7\n# " + b"long" * 256
    book.learn(A, record_of(world, body))
    before, rules = book.look_up(A)
    for number in range(RULES_MAX // 50_000 + 1):
        long = record_of(world, b"sitemap:a\n" * 50_000 + b"# %d" % number)
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
    book.learn(A, record_of(world, b"User-agent: *\nDisallow: /private\n# " + b"long" * 256))
    _, rules = book.look_up(A)
    for number in range(AUTHORITIES_MAX - 1):
        book.learn(f"http://{number}.test", record_of(world, b""))
    assert book.look_up(A)[1] is rules
    book.learn("http://last.test", record_of(world, b""))
    assert A not in book._parsed


def test_different_rules_in_memory_are_bounded() -> None:
    world = World(KeptMemoryStore)
    book = book_of(world)
    book.learn(A, record_of(world, b"User-agent: *\nDisallow: /private"))
    _, rules = book.look_up(A)
    for number in range(DIFFERENT_MAX - 1):
        body = b"User-agent: *\nDisallow: /%d\n# %b" % (number, b"long" * 256)
        book.learn(f"http://{number}.test", record_of(world, body))
    assert book.look_up(A)[1] is rules
    assert book.size == DIFFERENT_MAX
    book.learn("http://last.test", record_of(world, b"User-agent: *\nDisallow: /last"))
    assert book.size == DIFFERENT_MAX
    assert A not in book._parsed


def test_long_rules_and_those_with_many_wildcards_count_for_what_they_take() -> None:
    world = World(KeptMemoryStore)
    book = book_of(world)
    wild = b"User-agent: *\nDisallow: /" + b"*ab" * 100_000
    book.learn(A, record_of(world, wild))
    assert book.size > 30_000
    book.learn(A, record_of(world, b"Sitemap: http://a.test/" + b"x" * 300_000))
    assert 1_000 < book.size < 2_000


class Reads(KeptMemoryStore):
    """Counts keys that are read."""

    count = 0

    def read(self, keys: Iterable[bytes]) -> list[bytes | None]:
        found = super().read(keys)
        self.count += len(found)
        return found


def test_of_a_host_both_authorities_are_read_at_once_and_only_once() -> None:
    world = World(Reads)
    world.put_robots(A, record_of(world, b"Crawl-delay: 1").encode())
    book, store = book_of(world), world.store
    assert isinstance(store, Reads)
    before = store.count
    assert book.look_up("https://a.test") == (0.0, None)
    assert book.look_up(A)[1] is not None
    assert book.look_up("https://a.test") == (0.0, None)
    assert store.count == before + 2


def test_what_was_not_there_is_known_once_it_is_learnt() -> None:
    world = World(KeptMemoryStore)
    book = book_of(world)
    assert book.look_up(A) == (0.0, None)
    book.learn(A, record_of(world, b""))
    assert book.look_up(A) == (world.clocks.wall + 100, book.look_up(A)[1])
    assert book.look_up(A)[1] is not None


def test_reading_the_one_authority_leaves_what_is_known_of_the_other() -> None:
    """A record that could not be had is not on disk, nor for how long one was extended."""
    world = World(KeptMemoryStore)
    book, until = book_of(world), world.clocks.wall + 10
    book.learn(A, RobotsRecord(Ruling.RETRY.value, 0.0, until, 503, b""))
    book.look_up("https://a.test")
    assert book.look_up(A) == (until, None)


def test_authorities_without_a_record_are_bounded_in_memory() -> None:
    world = World(Reads)
    book, store = book_of(world), world.store
    assert isinstance(store, Reads)
    for number in range(WITHOUT_MAX // 2 + 1):
        book.look_up(f"http://{number}.test")
    before = store.count
    book.look_up(f"http://{WITHOUT_MAX // 2}.test")
    assert store.count == before
    book.look_up("http://0.test")
    assert store.count == before + 2


def test_hosts_with_the_same_short_robots_txt_share_its_rules() -> None:
    world = World(KeptMemoryStore)
    book, body = book_of(world), b"User-agent: *\nDisallow: /private"
    book.learn(A, record_of(world, body))
    book.learn("http://b.test", record_of(world, body))
    assert book.look_up(A)[1] is book.look_up("http://b.test")[1]
    assert book.size == 1
    book.learn(A, record_of(world, b""))
    assert book.size == 1
    book.learn("http://b.test", record_of(world, b"User-agent: *\nDisallow: /a\nDisallow: /b"))
    assert book.size == 2
    book.learn("http://b.test", record_of(world, body))
    assert book.size == 1


def test_one_long_robots_txt_of_many_hosts_is_read_once() -> None:
    """When it comes, and when the copy that each host has on disk is read."""
    world = World(KeptMemoryStore)
    body = b"User-agent: *\n" + b"".join(b"Disallow: /*%d*x\n" % n for n in range(20_000))
    authorities = [f"http://{number}.test" for number in range(100)]

    def learn() -> None:
        book = book_of(world)
        for authority in authorities:
            book.learn(authority, record_of(world, bytes(bytearray(body))))

    def recall() -> None:
        book = book_of(world)
        assert len({book.look_up(authority)[1] for authority in authorities}) == 1

    once = seconds(lambda: book_of(world).learn(A, record_of(world, body + b"#")))
    assert seconds(learn) < 20 * once
    assert seconds(recall) < 20 * once


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
    book.learn(A, RobotsRecord(ruling.value, now, now + 7301, 200, b""))
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
        self.heard.append((sitemaps, self._world.store.get(robots_key(A)) is not None))


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
    assert world.store.get(robots_key(A)) is not None


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


def test_a_search_for_a_robots_txt_that_is_not_there_passes_nothing_that_was_deleted(
    tmp_path: Path,
) -> None:
    world = World(lambda: LevelStore(tmp_path / "db", create=True))
    marks = [seen_prefix(f"{number}.test") + bytes(8) for number in range(100_000)]

    def seconds() -> float:
        begun = time.perf_counter()
        for _ in range(10):
            assert world.store.read([robots_key(A)]) == [None]
        return time.perf_counter() - begun

    before = min(seconds() for _ in range(5))
    batch = world.store.batch()
    for mark in marks:
        batch.put(mark, b"")
    batch.write()
    batch = world.store.batch()
    for mark in marks:
        batch.delete(mark)
    batch.write()
    # Some 1,000 times as long, if it passed all marks.
    assert min(seconds() for _ in range(5)) < 50 * before


def test_a_host_that_goes_leaves_no_deletion_of_a_robots_txt_that_it_never_had() -> None:
    class Noting(KeptMemoryStore):
        gone: ClassVar[list[bytes]] = []

        def batch(self, *, sync: bool = False) -> Batch:
            made = super().batch(sync=sync)
            delete = made.delete

            def note(key: bytes) -> None:
                self.gone.append(key)
                delete(key)

            made.delete = note  # type: ignore[method-assign]
            return made

    world, other = World(Noting), World(KeptMemoryStore)
    for name in ("a.test", "b.test"):
        world.add(f"http://{name}/page")
    book_of(world).learn("http://b.test", record_of(world, b""))
    for name in ("a.test", "b.test"):
        world.hand_over(name, other)
    assert [key for key in Noting.gone if key[:1] == ROBOTS] == [robots_key("http://b.test")]
