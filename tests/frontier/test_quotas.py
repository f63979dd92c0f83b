"""What hosts use of the limits of sheets is exact after a crash, and moves with the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.admin.edit import forget_host
from krowlspider.frontier.entry_queues import LastAnswer
from krowlspider.frontier.moves.transfer import forget_now
from krowlspider.frontier.store.schema import QUOTA
from krowlspider.frontier.store.store import LevelStore
from krowlspider.policies.sheets import Policies
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.quotas import Quotas

SHEETS = """
[[sheet]]
name = "host"
match = ["a.test", "b.test"]
max_pages = 3
max_bytes = 1000
max_seconds = 60
[[sheet]]
name = "paths"
match = ["test,b,)/few"]
max_pages = 1
[[sheet]]
name = "both"
match = ["c.test", "d.test"]
max_pages = 2
quota = "sheet"
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = tmp_path / "db"
    return World(
        lambda: LevelStore(folder, create=not folder.exists()),
        limits=LIMITS,
        sheets=Policies.parse(SHEETS, "p.toml"),
    )


def quotas(world: World) -> Quotas:
    assert world.frontier.quotas is not None
    return world.frontier.quotas


def refusal(world: World, url: str) -> str:
    assert world.sheets is not None
    host = url.split("/")[2]
    found = world.sheets.of_host(host)
    return "" if found is None else quotas(world).refusal(found, host, url)


def begin(world: World, url: str) -> Lease:
    world.add(url)
    world.clocks.pass_(1)
    lease = world.pop()
    assert lease is not None
    quotas(world).begin(lease)
    return lease


def end(world: World, lease: Lease, size: int = 10, dropped: str | None = None) -> None:
    lease.answer = LastAnswer(200, None, None, size, 0.1)
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.acknowledge(lease, dropped)


def fetch(world: World, url: str, size: int = 10, dropped: str | None = None) -> None:
    end(world, begin(world, url), size, dropped)


def test_counts_are_those_of_the_last_commit_after_a_crash(world: World) -> None:
    for number in range(2):
        fetch(world, f"http://a.test/{number}")
    world.commit()
    fetch(world, "http://a.test/2")
    assert refusal(world, "http://a.test/3") == "max_pages"
    world.crash()
    # The last page is queued again.
    assert refusal(world, "http://a.test/3") == ""
    world.clocks.pass_(30)
    lease = world.pop()
    assert lease is not None
    quotas(world).begin(lease)
    end(world, lease)
    world.commit()
    world.restart()
    assert refusal(world, "http://a.test/3") == "max_pages"


def test_a_page_in_flight_takes_a_place_until_it_goes_back(world: World) -> None:
    for number in range(2):
        fetch(world, f"http://a.test/{number}")
    lease = begin(world, "http://a.test/2")
    assert refusal(world, "http://a.test/3") == "max_pages"
    quotas(world).give_back(lease)
    assert refusal(world, "http://a.test/3") == ""


def test_a_page_that_fails_counts_its_bytes_only(world: World) -> None:
    for number in range(4):
        fetch(world, f"http://a.test/{number}", 240, "error")
    assert refusal(world, "http://a.test/9") == ""
    fetch(world, "http://a.test/9", 41, "error")
    assert refusal(world, "http://a.test/8") == "max_bytes"


def test_seconds_begin_with_the_first_page(world: World) -> None:
    world.clocks.pass_(1000)
    assert refusal(world, "http://a.test/") == ""
    fetch(world, "http://a.test/")
    world.commit()
    world.crash()
    world.clocks.pass_(58)
    assert refusal(world, "http://a.test/1") == ""
    world.clocks.pass_(2)
    assert refusal(world, "http://a.test/1") == "max_seconds"


def test_each_sheet_counts_for_itself(world: World) -> None:
    fetch(world, "http://b.test/few/1")
    assert refusal(world, "http://b.test/few/2") == "max_pages"
    assert refusal(world, "http://b.test/") == ""
    fetch(world, "http://c.test/")
    assert refusal(world, "http://d.test/") == ""
    fetch(world, "http://d.test/")
    assert [refusal(world, f"http://{host}.test/1") for host in "cd"] == ["max_pages"] * 2
    assert refusal(world, "http://e.test/") == ""


def test_counts_move_with_the_host(world: World) -> None:
    kept = KeptMemoryStore()
    other = World(lambda: kept, node="there", sheets=world.sheets)
    fetch(world, "http://a.test/1")
    fetch(other, "http://a.test/2")
    world.add("http://a.test/3")
    for each in (world, other):
        each.commit()
    world.hand_over("a.test", other)
    assert list(world.store.keys(QUOTA)) == []
    assert refusal(other, "http://a.test/4") == ""
    lease = begin(other, "http://a.test/4")
    assert refusal(other, "http://a.test/5") == "max_pages"
    quotas(other).give_back(lease)
    other.crash()
    assert quotas(other).of_host("a.test")["host"][:2] == (2, 20)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_host_that_is_forgotten_begins_again(world: World, is_running: bool) -> None:
    for number in range(3):
        fetch(world, f"http://a.test/{number}")
    world.commit()
    if is_running:
        assert forget_now(world.frontier, "a.test") == 0
    else:
        world.frontier.close()
        world.store = world.open_store()
        forget_host(world.store, "a.test", lambda: None)
        world.store.close()
        world.open()
    assert refusal(world, "http://a.test/3") == ""
    assert list(world.store.keys(QUOTA)) == []
