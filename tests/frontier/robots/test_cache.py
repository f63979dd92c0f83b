"""The cache of robots.txt is bounded, and reads evicted rules from disk again."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from krowlspider.frontier.robots import gate
from krowlspider.frontier.robots.gate import RobotsCache
from krowlspider.frontier.store.schema import ROBOTS, robots_key, seen_prefix
from krowlspider.frontier.store.store import Batch, LevelStore
from krowlspider.politeness.robots import RobotsRecord, Ruling
from tests.frontier.conftest import KeptMemoryStore, World
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


A = "http://a.test"
URL = f"{A}/private"


def cache_of(world: World) -> RobotsCache:
    return RobotsCache(world.store, "krowlspider", lambda: world.clocks.wall, ttl=100.0)


def record_of(world: World, body: bytes) -> RobotsRecord:
    now = world.clocks.wall
    return RobotsRecord(Ruling.RULES.value, now, now + 100, 200, body)


def test_rules_in_memory_are_bounded_and_come_back_from_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "RULES_MAX", 20_000)
    world = World(KeptMemoryStore)
    cache = cache_of(world)
    body = b"User-agent: *\nDisallow: /private\nCrawl-delay: 7\n# " + b"long" * 256
    cache.learn(A, record_of(world, body))
    before, rules = cache.look_up(A)
    for number in range(5):
        long = record_of(world, b"sitemap:a\n" * 5000 + b"# %d" % number)
        cache.learn(f"http://{number}.test", long)
    assert cache.size == 20_000
    expires, again = cache.look_up(A)
    assert again is not rules
    assert again is not None
    assert (expires, again.crawl_delay, again.allowed(URL)) == (before, 7.0, False)
    # The oldest rules were evicted for it.
    assert cache.size == 20_000 - 5000 + again.size


def test_authorities_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "AUTHORITIES_MAX", 300)
    world = World(KeptMemoryStore)
    cache = cache_of(world)
    cache.learn(A, record_of(world, b"User-agent: *\nDisallow: /private\n# " + b"long" * 256))
    _, rules = cache.look_up(A)
    for number in range(299):
        cache.learn(f"http://{number}.test", record_of(world, b""))
    assert cache.look_up(A)[1] is rules
    cache.learn("http://last.test", record_of(world, b""))
    assert A not in cache._parsed


def test_different_rules_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "DIFFERENT_MAX", 100)
    world = World(KeptMemoryStore)
    cache = cache_of(world)
    cache.learn(A, record_of(world, b"User-agent: *\nDisallow: /private"))
    _, rules = cache.look_up(A)
    for number in range(99):
        body = b"User-agent: *\nDisallow: /%d\n# %b" % (number, b"long" * 256)
        cache.learn(f"http://{number}.test", record_of(world, body))
    assert cache.look_up(A)[1] is rules
    assert cache.size == 100
    cache.learn("http://last.test", record_of(world, b"User-agent: *\nDisallow: /last"))
    assert cache.size == 100
    assert A not in cache._parsed


def test_rules_count_by_the_memory_they_take() -> None:
    world = World(KeptMemoryStore)
    cache = cache_of(world)
    wild = b"User-agent: *\nDisallow: /" + b"*ab" * 100_000
    cache.learn(A, record_of(world, wild))
    assert cache.size > 30_000
    cache.learn(A, record_of(world, b"Sitemap: http://a.test/" + b"x" * 300_000))
    assert 1_000 < cache.size < 2_000


class Reads(KeptMemoryStore):
    """Counts keys that are read."""

    count = 0

    def read(self, keys: Iterable[bytes]) -> list[bytes | None]:
        found = super().read(keys)
        self.count += len(found)
        return found


def test_one_read_finds_the_http_and_https_records_of_a_host() -> None:
    world = World(Reads)
    world.put_robots(A, record_of(world, b"Crawl-delay: 1").encode())
    cache, store = cache_of(world), world.store
    assert isinstance(store, Reads)
    before = store.count
    assert cache.look_up("https://a.test") == (0.0, None)
    assert cache.look_up(A)[1] is not None
    assert cache.look_up("https://a.test") == (0.0, None)
    assert store.count == before + 2


def test_a_missing_record_is_known_once_learnt() -> None:
    world = World(KeptMemoryStore)
    cache = cache_of(world)
    assert cache.look_up(A) == (0.0, None)
    cache.learn(A, record_of(world, b""))
    assert cache.look_up(A) == (world.clocks.wall + 100, cache.look_up(A)[1])
    assert cache.look_up(A)[1] is not None


def test_reading_https_keeps_the_unsaved_record_of_http() -> None:
    """The record of a failed fetch is in memory only, and so is an extended expiry."""
    world = World(KeptMemoryStore)
    cache, until = cache_of(world), world.clocks.wall + 10
    cache.learn(A, RobotsRecord(Ruling.RETRY.value, 0.0, until, 503, b""))
    cache.look_up("https://a.test")
    assert cache.look_up(A) == (until, None)


def test_authorities_without_a_record_are_bounded_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "WITHOUT_MAX", 200)
    world = World(Reads)
    cache, store = cache_of(world), world.store
    assert isinstance(store, Reads)
    for number in range(101):
        cache.look_up(f"http://{number}.test")
    before = store.count
    cache.look_up("http://100.test")
    assert store.count == before
    cache.look_up("http://0.test")
    assert store.count == before + 2


def test_hosts_with_the_same_short_robots_txt_share_its_rules() -> None:
    world = World(KeptMemoryStore)
    cache, body = cache_of(world), b"User-agent: *\nDisallow: /private"
    cache.learn(A, record_of(world, body))
    cache.learn("http://b.test", record_of(world, body))
    assert cache.look_up(A)[1] is cache.look_up("http://b.test")[1]
    assert cache.size == 1
    cache.learn(A, record_of(world, b""))
    assert cache.size == 1
    cache.learn("http://b.test", record_of(world, b"User-agent: *\nDisallow: /a\nDisallow: /b"))
    assert cache.size == 2
    cache.learn("http://b.test", record_of(world, body))
    assert cache.size == 1


def test_one_long_robots_txt_of_many_hosts_is_parsed_once() -> None:
    """Both when it is fetched and when the copy of each host is read from disk."""
    world = World(KeptMemoryStore)
    body = b"User-agent: *\n" + b"".join(b"Disallow: /*%d*x\n" % n for n in range(4000))
    authorities = [f"http://{number}.test" for number in range(50)]

    def learn() -> None:
        cache = cache_of(world)
        for authority in authorities:
            cache.learn(authority, record_of(world, bytes(bytearray(body))))

    def recall() -> None:
        cache = cache_of(world)
        assert len({cache.look_up(authority)[1] for authority in authorities}) == 1

    once = seconds(lambda: cache_of(world).learn(A, record_of(world, body + b"#")))
    assert seconds(learn, enough=20 * once) < 20 * once
    assert seconds(recall, enough=20 * once) < 20 * once


def test_a_record_learnt_again_counts_once() -> None:
    world = World(KeptMemoryStore)
    cache = cache_of(world)
    for _ in range(2):
        cache.learn(A, record_of(world, b"User-agent: *\nDisallow: /a\nDisallow: /b"))
    assert cache.size == 2


def test_a_failed_fetch_is_known_until_its_retry() -> None:
    world = World(KeptMemoryStore)
    cache = cache_of(world)
    assert cache.record(A) is None
    cache.learn(A, RobotsRecord(Ruling.RETRY.value, 0.0, world.clocks.wall + 10, 503, b""))
    known = cache.record(A)
    assert known is not None
    assert (known.ruling, known.expires) == ("retry", world.clocks.wall + 10)
    world.clocks.pass_(10)
    assert cache.record(A) is None


@pytest.mark.parametrize("ruling", [Ruling.RULES, Ruling.RETRY])
def test_a_record_that_expires_too_late_is_ignored(ruling: Ruling) -> None:
    world = World(KeptMemoryStore)
    cache, now = cache_of(world), world.clocks.wall
    cache.learn(A, RobotsRecord(ruling.value, now, now + 7301, 200, b""))
    assert not cache.holds(cache.look_up(A)[0])
    assert cache.record(A) is None
    world.clocks.pass_(1)
    assert cache.holds(cache.look_up(A)[0])
    assert cache.record(A) is not None


# --- the report of sitemaps ---


class SitemapReports:
    """Records the reported sitemaps, and whether the record was on disk by then."""

    def __init__(self, world: World):
        self._world = world
        self.received: list[tuple[list[str], bool]] = []

    def __call__(self, sitemaps: list[str]) -> None:
        self.received.append((sitemaps, self._world.store.get(robots_key(A)) is not None))


class Died(Exception):
    """Stands for the death of the process."""


def die(sitemaps: list[str]) -> None:
    raise Died


@pytest.mark.parametrize(("ruling", "named"), [
    (Ruling.RULES, ["/1.xml", "/2.xml"]),
    (Ruling.ALLOW_ALL, []),
])  # fmt: skip
def test_sitemaps_are_reported_before_the_record_is_stored(
    ruling: Ruling, named: list[str]
) -> None:
    world = World(KeptMemoryStore)
    reports = SitemapReports(world)
    record = record_of(world, b"Sitemap: /1.xml\nSitemap: /2.xml")
    record.ruling = ruling.value
    cache_of(world).learn(A, record, reports)
    assert reports.received == [(named, False)]
    assert world.store.get(robots_key(A)) is not None


def test_a_crash_while_sitemaps_are_reported_stores_no_record(
    world: World,
) -> None:
    cache = cache_of(world)
    with pytest.raises(Died):
        cache.learn(A, record_of(world, b"Sitemap: /1.xml"), die)
    world.crash()
    assert cache_of(world).record(A) is None


@pytest.mark.parametrize("kept", [True, False])
def test_a_failed_fetch_reports_no_sitemaps(kept: bool) -> None:
    """With and without a last good copy, whose sitemaps were reported when it was fetched."""
    world = World(KeptMemoryStore)
    cache, reports = cache_of(world), SitemapReports(world)
    if kept:
        cache.learn(A, record_of(world, b"Sitemap: /1.xml\nUser-agent: *\nDisallow: /private"))
    failure = RobotsRecord(Ruling.RETRY.value, 0.0, world.clocks.wall + 10, 503, b"")
    cache.learn(A, failure, reports)
    assert reports.received == []
    known = cache.record(A)
    assert known is not None
    assert known.ruling == (Ruling.RULES if kept else Ruling.RETRY).value


def test_looking_up_a_missing_record_scans_no_deleted_keys(
    tmp_path: Path,
) -> None:
    world = World(lambda: LevelStore(tmp_path / "db", create=True))
    marks = [seen_prefix(f"{number}.test") + bytes(8) for number in range(100_000)]

    def look_up() -> None:
        for _ in range(10):
            assert world.store.read([robots_key(A)]) == [None]

    before = seconds(look_up, tries=5)
    batch = world.store.batch()
    for mark in marks:
        batch.put(mark, b"")
    batch.write()
    batch = world.store.batch()
    for mark in marks:
        batch.delete(mark)
    batch.write()
    # A scan of all marks would take about 1,000 times as long.
    assert seconds(look_up, tries=5) < 50 * before


def test_handing_over_a_host_deletes_only_records_it_has() -> None:
    class Recording(KeptMemoryStore):
        deleted: ClassVar[list[bytes]] = []

        def batch(self, *, sync: bool = False) -> Batch:
            made = super().batch(sync=sync)
            delete = made.delete

            def record_deletion(key: bytes) -> None:
                self.deleted.append(key)
                delete(key)

            made.delete = record_deletion  # type: ignore[method-assign]
            return made

    world, other = World(Recording), World(KeptMemoryStore)
    for name in ("a.test", "b.test"):
        world.add(f"http://{name}/page")
    cache_of(world).learn("http://b.test", record_of(world, b""))
    for name in ("a.test", "b.test"):
        world.hand_over(name, other)
    assert [key for key in Recording.deleted if key[:1] == ROBOTS] == [robots_key("http://b.test")]
