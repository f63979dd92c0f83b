"""A host that held the event loop twice is set aside for a day, and nothing of it is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.edit import forget_host
from krowlspider.frontier.admin.host_view import view_host
from krowlspider.frontier.hosts.holds import NOTES, Hold, hold_of, settle_holds
from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.hosts.tally import Tally
from krowlspider.frontier.poison import strike
from krowlspider.frontier.store import schema
from krowlspider.frontier.work_mark import MARK, WorkMark, left_key, mark_of
from tests.frontier.conftest import RULE, World, counted

if TYPE_CHECKING:
    from pathlib import Path

BAD, GOOD = "http://bad.test/deadly", "http://good.test/"
DAY = 86_400.0


def start_after(world: World, folder: Path, *urls: str) -> list[Hold]:
    """The next start after holds by these URLs were noted; the world is open again."""
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
    """All that is due after a round of those that were deferred."""
    world.commit()
    found = set(iter(world.fetch, None))
    world.commit()
    return found


def test_the_second_hold_sets_a_host_aside_for_a_day(world: World, tmp_path: Path) -> None:
    """Over two starts, by two of its pages; all that is queued of it stays."""
    world.add(BAD, "http://bad.test/other", GOOD)
    (first,) = start_after(world, tmp_path, BAD)
    assert (first.times, first.aside) == (1, False)
    (second,) = start_after(world, tmp_path, "http://bad.test/other")
    assert (second.times, second.aside, second.url) == (2, True, "http://bad.test/other")
    world.clocks.pass_(3600.0)
    assert fetched(world) == {GOOD}
    frontier = world.frontier
    assert (frontier.queued, frontier.deferred_queued, frontier.hopeful) == (2, 2, False)
    # A start does not cut the day short, nor begin it anew.
    assert start_after(world, tmp_path) == []
    world.clocks.pass_(DAY - 7200.0)
    assert fetched(world) == set()
    world.clocks.pass_(3700.0)
    assert fetched(world) == {BAD}


def test_two_holds_of_one_run_are_enough(world: World, tmp_path: Path) -> None:
    world.add(BAD, GOOD)
    (hold,) = start_after(world, tmp_path, BAD, BAD)
    assert hold.aside
    assert fetched(world) == {GOOD}


def test_a_third_hold_sets_it_aside_again(world: World, tmp_path: Path) -> None:
    world.add(BAD, "http://bad.test/other")
    start_after(world, tmp_path, BAD, BAD)
    world.clocks.pass_(DAY + 1)
    assert fetched(world) == {BAD}
    (hold,) = start_after(world, tmp_path, BAD)
    assert (hold.times, hold.aside) == (3, True)
    world.clocks.pass_(3600.0)
    assert fetched(world) == set()


def test_a_host_that_is_set_aside_says_why_and_is_freed_by_forgetting_it(
    world: World, tmp_path: Path
) -> None:
    world.add(BAD)
    start_after(world, tmp_path, BAD, BAD)
    view = view_host(world.store, "bad.test", RULE, world.clocks.wall, most=10)
    assert (view.holds, view.host.queued) == (2, 1)
    assert "set aside: it has held the event loop for over 5 s 2 times" in view.why
    assert BAD in view.why
    assert "24.0 hours" in view.why
    world.frontier.close()
    world.store = world.open_store()
    forget_host(world.store, "bad.test", lambda: None)
    assert hold_of(world.store, "bad.test").times == 0
    world.store.close()
    world.open()
    world.add(BAD)
    world.clocks.pass_(1.0)
    assert fetched(world) == {BAD}


def test_notes_of_a_forgotten_host_and_torn_ones_count_for_nothing(
    world: World, tmp_path: Path
) -> None:
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


def test_a_death_in_work_on_a_host_blames_none_of_its_pages(world: World, tmp_path: Path) -> None:
    """Where robots.txt is read, or a host is popped: its record has the key of the mark."""
    world.add(BAD)
    WorkMark(tmp_path / MARK, b"").put(
        mark_of(schema.host_key("bad.test"), "http://bad.test/robots.txt")
    )
    assert strike(world.store, left_key(tmp_path / MARK, b"")) is None
    assert fetched(world) == {BAD}
