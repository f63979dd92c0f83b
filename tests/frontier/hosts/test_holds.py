"""A host that held the event loop twice is deferred for a day, and loses no URL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.edit import forget_host
from krowlspider.frontier.admin.view import view_host
from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.hosts.host_record import NOTES, HostHolds, Tally, holds_of, settle_holds
from krowlspider.frontier.store import schema
from krowlspider.frontier.work_mark import MARK, WorkMark, left_key, mark_of, strike
from tests.frontier.conftest import RULE, World, counted

if TYPE_CHECKING:
    from pathlib import Path

BAD, GOOD = "http://bad.test/deadly", "http://good.test/"
DAY = 86_400.0


def start_after(world: World, folder: Path, *urls: str) -> list[HostHolds]:
    """Start after holds by these URLs were noted; return the holds that are settled."""
    notes = folder / NOTES
    lines = [{"host": url.split("/")[2], "url": url} for url in urls]
    notes.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    world.frontier.close()
    world.store = world.open_store()
    found = settle_holds(world.store, notes, world.clocks.wall)
    assert not notes.exists()
    assert Tally.read(world.store) == counted(world.store)
    world.store.close()
    world.open()
    return found


def fetched(world: World) -> set[str]:
    """Fetch all due pages, with deferred hosts that are due again; return their URLs."""
    world.commit()
    found = set(iter(world.fetch, None))
    world.commit()
    return found


def test_the_second_hold_sets_a_host_aside_for_a_day(world: World, tmp_path: Path) -> None:
    """The holds are of two starts and two pages; the queue of the host stays."""
    world.add(BAD, "http://bad.test/other", GOOD)
    (first,) = start_after(world, tmp_path, BAD)
    assert (first.times, first.aside) == (1, False)
    (second,) = start_after(world, tmp_path, "http://bad.test/other")
    assert (second.times, second.aside, second.url) == (2, True, "http://bad.test/other")
    world.clocks.pass_(3600.0)
    assert fetched(world) == {GOOD}
    frontier = world.frontier
    assert (frontier.queued, frontier.deferred_queued, frontier.has_fetchable) == (2, 2, False)
    # A start neither shortens the day nor restarts it.
    assert start_after(world, tmp_path) == []
    world.clocks.pass_(DAY - 7200.0)
    assert fetched(world) == set()
    world.clocks.pass_(3700.0)
    assert fetched(world) == {BAD}


def test_two_holds_of_one_run_set_a_host_aside(world: World, tmp_path: Path) -> None:
    world.add(BAD, GOOD)
    (hold,) = start_after(world, tmp_path, BAD, BAD)
    assert hold.aside
    assert fetched(world) == {GOOD}


def test_a_third_hold_sets_a_host_aside_again(world: World, tmp_path: Path) -> None:
    world.add(BAD, "http://bad.test/other")
    start_after(world, tmp_path, BAD, BAD)
    world.clocks.pass_(DAY + 1)
    assert fetched(world) == {BAD}
    (hold,) = start_after(world, tmp_path, BAD)
    assert (hold.times, hold.aside) == (3, True)
    world.clocks.pass_(3600.0)
    assert fetched(world) == set()


def test_forgetting_a_host_frees_it_after_holds(world: World, tmp_path: Path) -> None:
    world.add(BAD)
    start_after(world, tmp_path, BAD, BAD)
    view = view_host(world.store, "bad.test", RULE, world.clocks.wall, most=10)
    assert (view.holds, view.host.queued) == (2, 1)
    assert "set aside: it has held the event loop for over 5 s 2 times" in view.why
    assert BAD in view.why
    assert "24 h 0 min" in view.why
    world.frontier.close()
    world.store = world.open_store()
    forget_host(world.store, "bad.test", lambda: None)
    assert holds_of(world.store, "bad.test").times == 0
    world.store.close()
    world.open()
    world.add(BAD)
    world.clocks.pass_(1.0)
    assert fetched(world) == {BAD}


def test_torn_notes_and_those_of_unknown_hosts_are_ignored(world: World, tmp_path: Path) -> None:
    world.add(GOOD)
    world.frontier.close()
    world.store = world.open_store()
    (tmp_path / NOTES).write_bytes(b'{"host": "gone.test", "url": ""}\n[]\n\xff\n{"host": "good')
    assert settle_holds(world.store, tmp_path / NOTES, world.clocks.wall) == []
    assert list(world.store.keys(schema.HOLD)) == []
    world.store.close()
    world.open()
    assert fetched(world) == {GOOD}


def test_a_retired_host_stays_retired(world: World, tmp_path: Path) -> None:
    world.add(BAD)
    world.frontier.schedule.retire(world.frontier.schedule.cache.get("bad.test"))
    start_after(world, tmp_path, BAD, BAD)
    assert world.frontier.schedule.cache.get("bad.test").health is Health.RETIRED


def test_a_crash_while_a_host_is_worked_on_strikes_no_page(world: World, tmp_path: Path) -> None:
    """While robots.txt is parsed or a host popped, the mark has the key of the host record."""
    world.add(BAD)
    WorkMark(tmp_path / MARK, b"").put(
        mark_of(schema.host_key("bad.test"), "http://bad.test/robots.txt")
    )
    assert strike(world.store, left_key(tmp_path / MARK, b"")) is None
    assert fetched(world) == {BAD}
