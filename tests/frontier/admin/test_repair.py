"""A frontier with damaged files is refused; a repair keeps what is readable."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import plyvel
import pytest

from krowlspider.errors import error_text, lacks_room
from krowlspider.frontier.admin.export import export_lines
from krowlspider.frontier.admin.repair import Repaired, repair, way_out
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.seen import FilterFile, SeenSet
from krowlspider.frontier.store.schema import NEW_KEYS, new_keys_key
from krowlspider.frontier.store.store import LevelStore, StoreError, all_entries, cut_logs
from krowlspider.urls.canonical import IdentityHasher, host_of
from tests.frontier.conftest import World
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOSTS = 60
PAGES = 50
# Hosts whose entries are in the log and not yet in a table.
LOGGED = 40
NOW = 1_700_000_000.0


@dataclass
class Job:
    """A crawl's folder with a frontier, and the content it had before the damage."""

    folder: Path

    def __post_init__(self) -> None:
        self.frontier = self.folder / "frontier"
        self.filter = FilterFile(self.folder / "seen")
        store = LevelStore(self.frontier, create=True)
        world = World(lambda: store)
        for host in range(HOSTS):
            world.add(*(f"http://h{host}.test/{page}?x={host * page}" for page in range(PAGES)))
        store.compact(b"\0", b"\xff")
        world.frontier.close()
        store = LevelStore(self.frontier)
        world = World(lambda: store)
        for host in range(LOGGED):
            world.add(*(f"http://late{host}.test/{page}" for page in range(PAGES)))
        store.batch(sync=True).write()
        self.before = list(export_lines(store))
        store.close()
        self.filter.path.write_bytes(b"a filter")

    def exported(self) -> list[str]:
        store = LevelStore(self.frontier)
        try:
            return list(export_lines(store))
        finally:
            store.close()

    def one(self, pattern: str) -> Path:
        """Return the largest file that matches."""
        return max(self.frontier.glob(pattern), key=lambda path: path.stat().st_size)

    def repair(self) -> Repaired:
        return repair(self.frontier, self.filter, IdentityHasher(1), NOW)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"))


@pytest.fixture
def job(original: Job, tmp_path: Path) -> Job:
    """A copy of the frontier, to be damaged."""
    copy = Job.__new__(Job)
    copy.folder = tmp_path / "job"
    shutil.copytree(original.folder, copy.folder)
    copy.frontier = copy.folder / "frontier"
    copy.filter = FilterFile(copy.folder / "seen")
    copy.before = original.before
    return copy


def host_of_line(line: str) -> str:
    return host_of(json.loads(line)["url"])


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x55
    path.write_bytes(data)


def cut(path: Path, at: float) -> None:
    os.truncate(path, int(path.stat().st_size * at))


# The damage, whether opening is refused, and the most URLs that may be lost.
DAMAGES: dict[str, tuple[Callable[[Job], object], bool, int]] = {
    "no CURRENT": (lambda job: job.one("CURRENT").unlink(), True, 0),
    "CURRENT is nonsense": (lambda job: job.one("CURRENT").write_bytes(b"x"), True, 0),
    "no MANIFEST": (lambda job: job.one("MANIFEST-*").unlink(), True, 0),
    "empty MANIFEST": (lambda job: cut(job.one("MANIFEST-*"), 0), True, 0),
    # A commit holds all URLs of one host; a damaged commit is lost as a whole.
    "flip in the log": (lambda job: flip(job.one("*.log"), 0.5), True, 2 * PAGES),
    "flip in the log and no MANIFEST": (
        lambda job: (flip(job.one("*.log"), 0.3), job.one("MANIFEST-*").unlink()),
        True,
        2 * PAGES,
    ),
    "log cut in the middle": (lambda job: cut(job.one("*.log"), 0.5), True, 22 * PAGES),
    "log cut at its end": (lambda job: cut(job.one("*.log"), 0.999), True, PAGES),
    "flip in a table": (lambda job: flip(job.one("*.ldb"), 0.3), False, 200),
    "flip at a table's end": (lambda job: flip(job.one("*.ldb"), 0.9999), False, HOSTS * PAGES),
    "table cut": (lambda job: cut(job.one("*.ldb"), 0.5), False, HOSTS * PAGES),
    "no table": (lambda job: job.one("*.ldb").unlink(), True, HOSTS * PAGES),
    "nothing but tables": (
        lambda job: [path.unlink() for path in job.frontier.iterdir() if path.suffix != ".ldb"],
        True,
        LOGGED * PAGES,
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_repair_keeps_what_is_readable_and_invents_nothing(job: Job, damage: str) -> None:
    damaging, _, most_lost = DAMAGES[damage]
    damaging(job)
    files = {path.name: path.read_bytes() for path in job.frontier.iterdir()}
    report = job.repair()
    after = job.exported()
    assert set(after) <= set(job.before)
    assert len(after) == len(set(after)) == report.found.kept["queued"]
    lost = len(job.before) - len(after)
    assert lost <= most_lost
    assert bool(report.tables) == (damage in {"flip in a table", "table cut"}) or lost == 0
    kept = [job.folder / "frontier.before-repair-1"]
    if damage == "flip at a table's end":
        # The damage is in bytes that no read needs.
        kept = []
    assert report.copy == (str(kept[0]) if kept else None)
    for copy in kept:
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == files
    assert {path.name for path in job.folder.iterdir()} == {"frontier", *(p.name for p in kept)}
    assert not (job.frontier / "lost").exists()
    store = LevelStore(job.frontier)
    world = World(lambda: store)
    assert world.frontier.queued == len(after)
    for _ in range(5):
        world.clocks.pass_(60)
        assert world.fetch() is not None
    world.commit()
    world.frontier.close()


@pytest.mark.parametrize("damage", [name for name, what in DAMAGES.items() if what[1]])
def test_a_damaged_frontier_is_refused_with_the_way_out(job: Job, damage: str) -> None:
    DAMAGES[damage][0](job)
    with pytest.raises(StoreError, match="frontier") as refusal:
        LevelStore(job.frontier)
    assert way_out(refusal.value, job.folder) == (
        f"; mend it with: scrapy frontier {job.folder} --repair"
    )


@pytest.mark.parametrize("damage", ["flip in a table", "table cut"])
def test_damage_that_is_found_later_names_the_way_out(job: Job, damage: str) -> None:
    DAMAGES[damage][0](job)
    with pytest.raises(Exception, match=r"error|Corruption") as met:
        job.exported()
    assert "--repair" in way_out(met.value, job.folder)


def test_other_errors_offer_no_repair(tmp_path: Path) -> None:
    assert way_out(StoreError("no room"), tmp_path) == ""
    store = LevelStore(tmp_path / "frontier", create=True)
    with pytest.raises(StoreError) as refusal:
        LevelStore(tmp_path / "frontier")
    assert way_out(refusal.value, tmp_path) == ""
    store.close()


def test_a_healthy_frontier_is_unchanged_by_a_repair(job: Job) -> None:
    report = job.repair()
    assert [path.name for path in job.folder.iterdir()] == ["frontier"]
    assert (report.copy, report.lossy, report.empty) == (None, False, False)
    assert job.exported() == job.before
    assert (report.tables, report.log_bytes, report.found.marked) == ([], 0, 0)
    assert report.found.short == []
    assert report.found.kept["seen"] == len(job.before)


def test_each_repair_keeps_the_files_as_it_found_them(job: Job) -> None:
    for number in range(1, 4):
        job.one("CURRENT").write_bytes(b"x")
        assert job.repair().copy == str(job.folder / f"frontier.before-repair-{number}")
        assert (job.folder / f"frontier.before-repair-{number}" / "CURRENT").read_bytes() == b"x"


def test_a_lost_table_is_reported_by_host(job: Job) -> None:
    flip(job.one("*.ldb"), 0.4)
    report = job.repair()
    assert report.tables == [job_table(job, report)]
    assert report.table_bytes > 0
    missing = Counter(map(host_of_line, job.before)) - Counter(map(host_of_line, job.exported()))
    assert missing
    # The table held the host record too, so the number of lost entries is unknown.
    unrecorded = set(report.found.unrecorded)
    assert len(unrecorded) == report.found.unrecorded_hosts <= 1
    counted = {host: count for host, count in missing.items() if host not in unrecorded}
    assert {host: count for count, host in report.found.short} == counted
    assert report.found.short_urls == sum(counted.values())
    assert report.lossy


def test_a_missing_table_is_reported_as_a_loss(job: Job) -> None:
    job.one("*.ldb").unlink()
    report = job.repair()
    assert (report.tables, report.missing, report.lossy) == ([], 1, True)


def job_table(job: Job, report: Repaired) -> str:
    copy = job.folder / "frontier.before-repair-1"
    [name] = {path.name for path in copy.glob("*.ldb")} & set(report.tables)
    return name


@pytest.mark.parametrize("left", [[], ["LOCK", "LOG", "CURRENT"]])
def test_an_unreadable_frontier_is_not_made_anew(job: Job, left: list[str]) -> None:
    shutil.rmtree(job.frontier)
    for name in left:
        job.frontier.mkdir(exist_ok=True)
        (job.frontier / name).touch()
    with pytest.raises(StoreError, match=r"nothing to repair.*has no frontier/ any more"):
        job.repair()
    assert job.frontier.exists() == bool(left)
    assert job.filter.path.exists()
    way = way_out(plyvel.CorruptionError(b"x"), job.folder)
    assert "--repair" not in way
    assert "put it back from a copy" in way


def test_without_room_a_frontier_is_left_as_it_is(job: Job) -> None:
    free = shutil.disk_usage(job.frontier).free
    (job.frontier / "999999.ldb").touch()
    # A hole takes no room on disk but counts towards the size.
    os.truncate(job.frontier / "999999.ldb", free + 10**9)
    before = sorted(job.folder.rglob("*"))
    with pytest.raises(StoreError, match=r"[\d,]+ MB must be free on its disk") as refusal:
        job.repair()
    assert lacks_room(refusal.value.__cause__)
    assert sorted(job.folder.rglob("*")) == before


def test_the_command_that_mends_is_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "my job's"
    (folder / "frontier").mkdir(parents=True)
    (folder / "frontier" / "000001.log").touch()
    way = way_out(plyvel.CorruptionError(b"x"), folder)
    assert shlex.split(way.partition(": ")[2]) == ["scrapy", "frontier", str(folder), "--repair"]


def test_messages_of_leveldb_are_shown_as_text(job: Job) -> None:
    job.one("CURRENT").write_bytes(b"x")
    with pytest.raises(StoreError) as refusal:
        LevelStore(job.frontier)
    assert "b'" not in str(refusal.value)
    assert "Corruption" in str(refusal.value)
    assert error_text(plyvel.IOError(b"IO error: \xff")) == "IO error: \ufffd"
    assert error_text(OSError(2, "No such file")) == "[Errno 2] No such file"


def test_two_frontiers_are_not_mixed(job: Job) -> None:
    shutil.copytree(job.frontier, job.folder / "frontier.repairing")
    with pytest.raises(StoreError, match=r"both .* hold a frontier"):
        job.repair()


# Repairs a frontier, and dies at the nth file operation of Python in its folder.
MORTAL = """
import os, signal, sys
from pathlib import Path
folder, at = Path(sys.argv[1]), int(sys.argv[2])
from krowlspider.frontier.seen import FilterFile
from krowlspider.frontier.admin.repair import repair
from krowlspider.urls.canonical import IdentityHasher
left = at
def die(event, arguments):
    global left
    if event in ("open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir"):
        if str(folder) in str(arguments[0]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(die)
repair(folder / "frontier", FilterFile(folder / "seen"), IdentityHasher(1), 1.7e9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 11])
def test_the_next_repair_completes_one_that_was_killed(job: Job, tmp_path: Path, step: int) -> None:
    """No crawl opens the frontier between the two repairs."""
    DAMAGES["flip in the log and no MANIFEST"][0](job)
    expected: list[str] | None = None
    for at in range(1, 100, step):
        other = Job.__new__(Job)
        other.folder = tmp_path / str(at)
        other.frontier = other.folder / "frontier"
        other.filter = FilterFile(other.folder / "seen")
        shutil.copytree(job.folder, other.folder)
        command = [sys.executable, "-c", MORTAL, str(other.folder), str(at)]
        died = subprocess.run(command, cwd=ROOT, check=False)
        if died.returncode == 0:
            assert other.exported() == expected
            assert at > 10
            return
        assert died.returncode == -signal.SIGKILL
        if (other.folder / "frontier.repairing").exists():
            with pytest.raises(StoreError):
                LevelStore(other.frontier)
        other.repair()
        found = other.exported()
        expected = expected or found
        assert found == expected
        assert not (other.folder / "frontier.repairing").exists()
    raise AssertionError("the repair never ended")


def test_every_entry_that_is_left_has_its_seen_mark(job: Job) -> None:
    cut(job.one("*.ldb"), 0.7)
    report = job.repair()
    store = LevelStore(job.frontier)
    world = World(lambda: store)
    queued = [entry_of(key, value).url for key, value in all_entries(store)]
    assert world.add(*queued) == 0
    assert len(queued) == report.found.kept["queued"]
    world.frontier.close()


def test_a_cut_log_is_refused_and_its_bytes_reported(job: Job) -> None:
    log = job.one("*.log")
    size = log.stat().st_size
    cut(log, 0.7)
    missing = size - log.stat().st_size
    with pytest.raises(StoreError, match=f"{log.name} was cut: {missing:,} bytes"):
        LevelStore(job.frontier)
    report = job.repair()
    assert (report.cut_bytes, report.lossy) == (missing, True)
    LevelStore(job.frontier).close()


def test_a_missing_log_without_a_later_one_is_refused(job: Job) -> None:
    log = job.one("*.log")
    missing = log.stat().st_size
    log.unlink()
    with pytest.raises(StoreError, match=f"{log.name} was cut: {missing:,} bytes"):
        LevelStore(job.frontier)


@pytest.mark.parametrize("note", [b"", bytes(4096), b"00000000 {}", b"x"])
def test_torn_sizes_of_logs_are_ignored(job: Job, note: bytes) -> None:
    cut(job.one("*.log"), 0.7)
    (job.frontier / "synced").write_bytes(note)
    LevelStore(job.frontier).close()


def test_bytes_after_the_last_sync_may_be_missing(tmp_path: Path) -> None:
    store = LevelStore(tmp_path, create=True)
    batch = store.batch(sync=True)
    batch.put(b"durable", b"1")
    batch.write()
    (log,) = tmp_path.glob("*.log")
    durable = log.stat().st_size
    batch = store.batch()
    batch.put(b"not", b"2")
    batch.write()
    store.close()
    assert log.stat().st_size > durable
    os.truncate(log, durable)
    store = LevelStore(tmp_path)
    assert (store.get(b"durable"), store.get(b"not")) == (b"1", None)
    store.close()


def test_a_copy_by_hard_links_is_not_changed(job: Job) -> None:
    copy = job.folder / "copy"
    shutil.copytree(job.frontier, copy, copy_function=os.link)
    for _ in range(2):
        store = LevelStore(job.frontier)
        batch = store.batch(sync=True)
        batch.put(b"zz", b"more")
        batch.write()
        store.close()
    assert cut_logs(copy) == {}
    LevelStore(copy).close()


def test_a_repair_cut_short_still_reports_a_cut_log(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(job.one("*.log"), 0.7)
    (missing,) = cut_logs(job.frontier).values()
    with monkeypatch.context() as patched:
        patched.setattr(plyvel, "repair_db", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.repair()
    assert job.repair().cut_bytes == missing


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_strange_log_file_is_left_alone(job: Job) -> None:
    (job.frontier / "notes.log").write_bytes(b"mine")
    store = LevelStore(job.frontier)
    store.batch(sync=True).write()
    store.close()
    LevelStore(job.frontier).close()


def test_sequences_of_new_keys_continue_after_a_repair(job: Job) -> None:
    store = LevelStore(job.frontier)
    batch = store.batch()
    batch.put(new_keys_key(10_000), b"12345678")
    batch.write()
    store.close()
    job.one("CURRENT").write_bytes(b"x")
    job.repair()
    store = LevelStore(job.frontier)
    seen = SeenSet(store, 10, file=job.filter)
    seen.mark("a.test", [b"87654321"])
    batch = store.batch()
    seen.end_batch(batch)
    batch.write()
    assert list(store.keys(NEW_KEYS)) == [new_keys_key(10_001)]
    store.close()
