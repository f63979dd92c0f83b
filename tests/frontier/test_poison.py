"""The mark of the page at work, and what a start makes of one that was left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.admin.view import look
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.poison import (
    MARK,
    NOTHING,
    POISON_STRIKES,
    Blame,
    WorkMark,
    blame,
    boot_id,
    mark_of,
    strike,
)
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import all_entries
from tests.frontier.conftest import RULE, World
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.frontier.store.store import Store

BOOT = b"7c90e567-7e12-4456-818a-8602c3cbf4a0"
# Where the mark begins in its file.
START = 64


def key_of(store: Store, url: str) -> bytes:
    """The queue key of a URL."""
    found = [k for k, saved in all_entries(store) if entry_of(k, saved).url == url]
    assert len(found) == 1
    return found[0]


def poison(store: Store) -> dict[bytes, Entry]:
    return {key: entry_of(key, saved) for key, saved in store.items(schema.POISON)}


def set_aside(world: World, url: str) -> bytes:
    """The process dies over a page as often as it takes; its key."""
    key = key_of(world.store, url)
    for _ in range(POISON_STRIKES):
        strike(world.store, key)
    return key


def left_by(world: World, folder: Path, url: str) -> tuple[Path, bytes]:
    """The mark's file as of a process that died over a page, and the page's key."""
    path, key = folder / MARK, key_of(world.store, url)
    WorkMark(path, BOOT).put(mark_of(key))
    return path, key


# --- striking ---


def test_a_strike_is_counted_in_the_entrys_own_place(world: World) -> None:
    urls = [f"http://a.test/{number}" for number in range(3)]
    world.add(*urls)
    key = key_of(world.store, urls[0])
    for count in (1, 2):
        entry = strike(world.store, key)
        assert entry is not None
        assert (entry.url, entry.strikes) == (urls[0], count)
    frontier = world.crash()
    assert (frontier.queued, frontier.counters["dropped/poison"]) == (3, 0)
    world.clocks.pass_(60.0)
    lease = world.pop()
    assert lease is not None
    assert (lease.entry.url, lease.entry.strikes) == (urls[0], 2)


def test_the_third_strike_moves_the_entry_to_the_poison_range_whole(world: World) -> None:
    request = Entry("http://a.test/deadly", depth=3, retries=1, strikes=2, request=b"Jx")
    world.frontier.add([world.candidate("http://a.test/first")])
    candidate = world.candidate(request.url)
    candidate.entry = request
    world.frontier.add([candidate])
    key = key_of(world.store, request.url)
    strike(world.store, key)
    assert world.store.get(key) is None
    (kept,) = poison(world.store).items()
    assert kept[0] == schema.POISON + key[1:]
    found = kept[1]
    assert (found.url, found.depth, found.retries, found.request) == (request.url, 3, 1, b"Jx")
    assert found.strikes == POISON_STRIKES == 3


def test_a_key_that_is_taken_in_the_poison_range_keeps_its_entry(world: World) -> None:
    """As when a host's queue of retries has begun again at its first sequence."""
    world.add("http://a.test/deadly")
    key = key_of(world.store, "http://a.test/deadly")
    batch = world.store.batch()
    batch.put(schema.POISON + key[1:], Entry("http://a.test/older", strikes=3).encode("a.test"))
    batch.write()
    set_aside(world, "http://a.test/deadly")
    assert [entry.url for entry in poison(world.store).values()] == [
        "http://a.test/older",
        "http://a.test/deadly",
    ]


def test_what_is_set_aside_is_counted_as_dropped_and_the_rest_is_fetched_in_order(
    world: World,
) -> None:
    urls = [f"http://a.test/{number}" for number in range(4)]
    world.add(*urls)
    set_aside(world, urls[1])
    frontier = world.crash()
    assert (frontier.queued, frontier.host_count) == (3, 1)
    assert frontier.counters["dropped/poison"] == 1
    fetched = []
    for _ in range(4):
        world.clocks.pass_(60.0)
        fetched.append(world.fetch())
    assert fetched == [urls[0], urls[2], urls[3], None]
    world.commit()
    assert frontier.queued == frontier.pending == 0
    view = look(world.store, RULE, world.clocks.wall, most=1)
    assert (view.queued, view.done, view.dropped) == (0, 3, {"poison": 1})
    record = world.store.get(schema.host_key("a.test"))
    assert record is not None
    assert Host.decode("a.test", record).dropped == 1


def test_a_host_of_which_nothing_else_is_queued_leaves_the_heap(world: World) -> None:
    world.add("http://a.test/only", "http://b.test/other")
    set_aside(world, "http://a.test/only")
    frontier = world.crash()
    assert (frontier.queued, frontier.host_count) == (1, 1)
    assert [key[9:] for key in world.store.keys(schema.DUE)] == [b"b.test"]
    world.clocks.pass_(60.0)
    assert world.fetch() == "http://b.test/other"
    world.clocks.pass_(60.0)
    assert world.fetch() is None
    # It comes back with the next URL that is found on it.
    assert world.add("http://a.test/new") == 1
    world.clocks.pass_(60.0)
    assert world.fetch() == "http://a.test/new"


def test_the_gauges_of_a_clean_end_in_between_do_not_count_what_is_set_aside(world: World) -> None:
    """As when something is imported between the death and the next start."""
    world.add("http://a.test/deadly", "http://b.test/")
    key = key_of(world.store, "http://a.test/deadly")
    world.restart()
    world.frontier.close()
    store = world.open_store()
    for _ in range(POISON_STRIKES):
        strike(store, key)
    store.close()
    frontier = world.open()
    assert (frontier.queued, frontier.host_count) == (1, 1)


def test_what_is_set_aside_stays_known(world: World) -> None:
    world.add("http://a.test/deadly")
    set_aside(world, "http://a.test/deadly")
    world.crash()
    assert world.add("http://a.test/deadly") == 0


def test_a_page_that_was_done_since_gets_no_strike(world: World) -> None:
    world.add("http://a.test/", "http://b.test/")
    key = key_of(world.store, "http://a.test/")
    assert world.fetch() == "http://a.test/"
    world.commit()
    before = dict(world.store.items(b""))
    assert strike(world.store, key) is None
    assert dict(world.store.items(b"")) == before


# --- the mark a process leaves ---


def test_the_page_at_work_is_blamed_and_no_other(world: World, tmp_path: Path) -> None:
    urls = [f"http://a.test/{number}" for number in range(3)]
    world.add(*urls)
    path, _ = left_by(world, tmp_path, urls[1])
    found = blame(world.store, path, BOOT)
    assert found.entry is not None
    assert (found.entry.url, found.poisoned, found.damaged) == (urls[1], False, False)
    queued = [entry_of(key, saved).strikes for key, saved in all_entries(world.store)]
    assert queued == [0, 1, 0]


def test_a_strike_outlives_a_death_before_the_mark_is_blank_and_then_counts_once_more(
    world: World, tmp_path: Path
) -> None:
    """Two starts for one death, the first of which dies between its strike and the new mark."""
    world.add("http://a.test/")
    path, key = left_by(world, tmp_path, "http://a.test/")
    for count in (1, 2):
        assert blame(world.store, path, BOOT).entry is not None
        saved = world.store.get(key)
        assert saved is not None
        assert entry_of(key, saved).strikes == count
    WorkMark(path, BOOT)
    assert blame(world.store, path, BOOT) == Blame()


def test_a_power_loss_blames_nobody(world: World, tmp_path: Path) -> None:
    """What of the mark had reached the disk then is of another run of the machine."""
    world.add("http://a.test/")
    path, _ = left_by(world, tmp_path, "http://a.test/")
    assert blame(world.store, path, b"another boot") == Blame()


def test_this_run_of_the_machine_has_one_name() -> None:
    assert boot_id() == boot_id() != b""


def test_a_first_start_and_one_that_died_at_once_blame_nobody(world: World, tmp_path: Path) -> None:
    path = tmp_path / MARK
    assert blame(world.store, path, BOOT) == Blame()
    path.write_bytes(b"")
    assert blame(world.store, path, BOOT) == Blame()
    WorkMark(path, BOOT)
    assert blame(world.store, path, BOOT) == Blame()


@pytest.mark.parametrize("garbage", [b"x", b"\0" * 4096, b"\xff" * 4096, b"x" * 5000])
def test_garbage_is_reported_blames_nobody_and_is_written_over(
    world: World, tmp_path: Path, garbage: bytes
) -> None:
    path = tmp_path / MARK
    path.write_bytes(garbage)
    assert blame(world.store, path, BOOT) == Blame(damaged=True)
    WorkMark(path, BOOT)
    assert blame(world.store, path, BOOT) == Blame()


def test_a_cut_file_is_reported(world: World, tmp_path: Path) -> None:
    world.add("http://a.test/")
    path, _ = left_by(world, tmp_path, "http://a.test/")
    whole = path.read_bytes()
    for size in (1, START, START + 3, START + 20, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert blame(world.store, path, BOOT) == Blame(damaged=True)


def test_a_torn_mark_never_blames_a_page_that_was_not_at_work(world: World, tmp_path: Path) -> None:
    """A process that died after any number of bytes of a new mark, over that of another page or
    none."""
    world.add("http://a.test/", "http://a-much-longer-name.test/")
    path, _ = left_by(world, tmp_path, "http://a.test/")
    blank = path.read_bytes()[:START]
    marks = [NOTHING, *(mark_of(key) for key, _ in all_entries(world.store))]
    for old in marks:
        for new in marks:
            for written in range(len(new) + 1):
                torn = new[:written] + old[written:]
                path.write_bytes((blank + torn).ljust(4096, b"\0"))
                found = blame(NoStore({mark[6:-1] for mark in (old, new)}), path, BOOT)
                assert found.entry is None


class NoStore:
    """A store that is asked for some keys only, and has none of them."""

    def __init__(self, keys: set[bytes]):
        self._keys = keys

    def get(self, key: bytes) -> bytes | None:
        assert key in self._keys
        return None


# --- the mark of a living one ---


def test_work_is_marked_while_it_is_done_and_what_was_marked_before_comes_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / MARK
    mark = WorkMark(path, BOOT)
    outer, inner = mark_of(b"qouter"), mark_of(b"qin")

    def held(expected: bytes) -> str:
        assert path.read_bytes()[START:].startswith(expected)
        return "done"

    def nested() -> None:
        held(outer)
        assert mark.during(inner, held, inner) == "done"
        held(outer)
        with pytest.raises(ValueError, match="by the page"):
            mark.during(inner, fail)
        held(outer)

    def fail() -> None:
        raise ValueError("by the page")

    mark.during(outer, nested)
    held(NOTHING)


def test_work_that_ends_the_process_leaves_its_mark(tmp_path: Path) -> None:
    mark = WorkMark(tmp_path / MARK, BOOT)
    with pytest.raises(SystemExit):
        mark.during(mark_of(b"qkey"), sys.exit, 1)
    assert mark.now == mark_of(b"qkey")
    mark.close()
    assert mark.now == NOTHING


def test_after_its_end_a_crawl_marks_nothing_in_a_file_that_another_may_hold(
    tmp_path: Path,
) -> None:
    path = tmp_path / MARK
    old = WorkMark(path, BOOT)
    old.put(mark_of(b"qold"))
    old.close()
    new = WorkMark(path, BOOT)
    new.put(mark_of(b"qnew"))
    old.put(mark_of(b"qstill"))
    assert path.read_bytes()[START:].startswith(mark_of(b"qnew"))


def test_a_mark_survives_kill_9(open_store: Callable[[], Store], tmp_path: Path) -> None:
    world = World(open_store)
    world.add("http://a.test/", "http://a.test/deadly")
    key = key_of(world.store, "http://a.test/deadly")
    program = (
        "import os, sys; from pathlib import Path\n"
        "from krowlspider.frontier.poison import WorkMark, mark_of\n"
        "mark = WorkMark(Path(sys.argv[1]), b'boot')\n"
        "mark.during(mark_of(bytes.fromhex(sys.argv[2])), os.kill, os.getpid(), 9)"
    )
    path = tmp_path / MARK
    done = subprocess.run([sys.executable, "-c", program, path, key.hex()], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    found = blame(world.store, path, b"boot")
    assert found.entry is not None
    assert found.entry.url == "http://a.test/deadly"


def test_a_folder_that_cannot_hold_the_mark_is_an_error(tmp_path: Path) -> None:
    (tmp_path / MARK).mkdir()
    with pytest.raises(OSError, match=os.strerror(21)):
        WorkMark(tmp_path / MARK, BOOT)
