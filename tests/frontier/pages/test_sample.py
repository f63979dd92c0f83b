"""A sample of a store says how many pages it has, and of which hosts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.hosts.host_record import encode_host
from krowlspider.frontier.pages.row import PageRow
from krowlspider.frontier.pages.sample import Sampled, sample
from krowlspider.frontier.store.schema import PAGES, after_all, host_key, page_prefix
from krowlspider.frontier.store.store import LevelStore
from krowlspider.politeness.delay import HostRate
from krowlspider.recrawl.gone import Absence, PageState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.frontier.store.store import Store

DAY = 86_400.0
FAST, SLOW = (4.0, DAY), (1.0, 100 * DAY)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LevelStore]:
    made = LevelStore(tmp_path / "store", create=True)
    yield made
    made.close()


def put_host(
    store: Store, name: str, pages: int, chance: random.Random, *, floor: float = 0.0
) -> None:
    """Write the rows of a host. Those of hosts whose names begin with "f" change often."""
    batch = store.batch()
    batch.put(host_key(name), encode_host(Host(name, rate=HostRate(floor=floor))))
    estimate = FAST if name.startswith("f") else SLOW
    for number in range(pages):
        row = PageRow(f"http://{name}/{number}", 200, 1, 1.0, payload=b"s" * 20)
        row.estimate, row.due, row.planned = estimate, 1, 1
        batch.put(page_prefix(name) + chance.randbytes(8), row.encode(name))
    batch.write()


def delay(host: Host) -> float:
    return max(host.rate.floor, 1.0)


def total(found: list[Sampled]) -> float:
    return sum(each.hosts * each.pages for each in found)


def test_a_sample_of_few_pages_is_exact(store: LevelStore) -> None:
    chance = random.Random(2)
    sizes = {"fa.test": 3, "sb.test": 40, "sc.test:8080": 1, "fd.test": 100}
    for name, pages in sizes.items():
        put_host(store, name, pages, chance, floor=pages)
    found = sample(store, delay)
    assert [(each.hosts, each.pages, each.delay) for each in found] == [
        (pytest.approx(1), pages, pages) for _, pages in sorted(sizes.items())
    ]
    assert [set(each.estimates) for each in found] == [{FAST}, {FAST}, {SLOW}, {SLOW}]


@pytest.mark.parametrize("small", [0, 10**9])
def test_a_sample_is_like_its_store(store: LevelStore, small: int) -> None:
    """Small hosts and large ones; the large ones change seldom, and are slow."""
    chance = random.Random(3)
    for _ in range(1500):
        put_host(store, f"f{chance.getrandbits(32):x}.test", chance.randrange(1, 9), chance)
    for _ in range(6):
        put_host(store, f"s{chance.getrandbits(32):x}.test", 2000, chance, floor=10)
    store.compact(PAGES, after_all(PAGES))
    pages = sum(1 for _ in store.keys(PAGES))
    found = sample(store, delay, 300, small)
    assert total(found) == pytest.approx(pages, rel=0.1)
    slow = [each for each in found if each.delay == 10]
    assert total(slow) / total(found) == pytest.approx(12_000 / pages, abs=0.06)
    assert sum(each.hosts for each in slow) == pytest.approx(6, abs=1)
    assert sum(each.hosts for each in found) == pytest.approx(1506, rel=0.25)
    assert all(set(each.estimates) == {SLOW} for each in slow)
    # The rows that are read are bounded, however large a host is.
    assert sum(len(each.estimates) for each in found) < 3000


def test_pages_that_are_gone_and_feeds_are_left_out(store: LevelStore) -> None:
    put_host(store, "fa.test", 3, random.Random(4))
    batch = store.batch()
    for number in range(3):
        row = PageRow(f"http://fa.test/gone/{number}", 404, 1, 1.0)
        row.absence = Absence(PageState.MISSING, 2, 1)
        batch.put(page_prefix("fa.test") + number.to_bytes(8), row.encode("fa.test"))
        feed = PageRow(f"http://fa.test/feed/{number}", 200, 1, 1.0, listing=b"\0fa.test")
        batch.put(page_prefix("fa.test") + (100 + number).to_bytes(8), feed.encode("fa.test"))
    batch.write()
    (found,) = sample(store, delay)
    assert found.pages == pytest.approx(3)
    assert len(found.estimates) == 3


def test_a_store_without_pages_has_no_sample(store: LevelStore) -> None:
    assert sample(store, delay) == []
    assert sample(store, delay, small=0) == []


def test_rows_of_a_later_version_are_passed_over(store: LevelStore) -> None:
    batch = store.batch()
    batch.put(page_prefix("a.test") + b"12345678", b"\xff later")
    batch.write()
    assert sample(store, delay) == []
