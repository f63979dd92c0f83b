"""The index finds the record of each payload that it remembers, never a wrong one, and never stops
a crawl."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from resource import RLIM_INFINITY
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from krowlspider.archive.write.composer import WRITE_BUFFER, Original, PayloadIndex
from tests.archive.captures import ROOT
from tests.archive.payloads.keeper import BATCH, MOST, add, digest_of, original_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def opened(folder: Path, *, most: int = 1000) -> Iterator[PayloadIndex]:
    """Open an index that must not fail."""
    warnings: list[str] = []
    index = PayloadIndex(folder, most=most, warn=warnings.append)
    yield index
    index.close()
    assert (index.failed_count, warnings) == (0, [])


def known(index: PayloadIndex, numbers: range) -> set[int]:
    """Return the payloads that are found; each must have its own record."""
    found = {number: index.find(digest_of(number)) for number in numbers}
    assert all(found[number] in {None, original_of(number)} for number in numbers)
    return {number for number in numbers if found[number]}


def put(index: PayloadIndex, numbers: range) -> None:
    for number in numbers:
        index.add(digest_of(number), original_of(number))
    index.sync()


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*"))


# --- what is found ---


@pytest.mark.parametrize("size", [20, 32])
def test_record_with_any_url_is_returned_unchanged(tmp_path: Path, size: int) -> None:
    date = "2026-01-01T00:00:00.250000Z"
    originals = [
        Original("http://a.test/?q=%20&x=1|2", date),
        Original("http://a.test/a b é", date),
        Original("http://a.test/" + "x" * 16_000, date),
    ]
    with opened(tmp_path) as index:
        for number, original in enumerate(originals):
            index.add(bytes([number]) * size, original)
        index.sync()
    with opened(tmp_path) as index:
        found = [index.find(bytes([number]) * size) for number in range(len(originals))]
        assert found == originals


def test_keys_of_two_algorithms_do_not_mix(tmp_path: Path) -> None:
    with opened(tmp_path) as index:
        put(index, range(5))
        assert index.find(digest_of(1) + bytes(12)) is None
        index.add(digest_of(1) + bytes(12), original_of(2))
        index.sync()
        assert index.find(digest_of(1)) == original_of(1)


# --- the bound ---


def test_newest_half_is_found_and_the_bound_holds(tmp_path: Path) -> None:
    with opened(tmp_path, most=100) as index:
        for start in range(0, 1000, 30):
            put(index, range(start, start + 30))
        for number in range(950, 1020):
            # Found in the older generation they would go to the newer one with the next sync.
            assert index.find(digest_of(number)) == original_of(number)
    with opened(tmp_path, most=100) as index:
        found = known(index, range(1020))
        assert set(range(970, 1020)) <= found
        assert len(found) <= 100


def test_sync_of_more_than_the_bound_keeps_the_bound(tmp_path: Path) -> None:
    with opened(tmp_path, most=100) as index:
        put(index, range(1234))
        found = known(index, range(1234))
        assert set(range(1184, 1234)) <= found
        assert len(found) <= 100


def test_payload_that_keeps_coming_is_not_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path, most=100) as index:
        put(index, range(1))
        for start in range(1, 1000, 20):
            put(index, range(start, start + 20))
            assert known(index, range(1)) == {0}
        assert index.find(digest_of(1)) is None


def test_lower_bound_holds_once_old_generations_are_gone(tmp_path: Path) -> None:
    with opened(tmp_path, most=100) as index:
        put(index, range(100))
    with opened(tmp_path, most=20) as index:
        put(index, range(100, 120))
        assert known(index, range(120)) == set(range(100, 120))


@pytest.mark.slow
def test_disk_space_is_bounded(tmp_path: Path) -> None:
    """Forgotten payloads leave nothing on disk."""
    largest = 0
    with opened(tmp_path, most=1000) as index:
        for number in range(8_000):
            url = f"http://a.test/{number}/" + "".join(map(chr, digest_of(number) * 100))
            index.add(digest_of(number), Original(url, original_of(number).date))
            if number % 100 == 99:
                index.sync()
                largest = max(largest, disk_bytes(tmp_path))
        assert len(list(tmp_path.iterdir())) == 2
    # An entry has 3 kB, and LevelDB may have two logs of a generation.
    assert largest < 1000 * 3100 + 2 * WRITE_BUFFER < 8_000 * 3000 / 2


NUMBERS = st.integers(0, 15)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(NUMBERS, min_size=1, max_size=8)),
        st.tuples(st.just("find"), st.lists(NUMBERS, min_size=1, max_size=8)),
        st.tuples(st.sampled_from(["sync", "restart"]), st.just([])),
    ),
    min_size=5,
    max_size=30,
)


@settings(max_examples=20)
@given(most=st.integers(2, 12), operations=OPERATIONS)
@example(2, [("add", [0, 2, 1, 0]), ("sync", []), ("find", [0, 1])])
@example(
    4,
    [
        *(("add", [1, 1, 2, 3]), ("find", [1, 2, 3, 4]), ("sync", []), ("find", [1, 2, 3])),
        *(("add", [4, 5, 4]), ("sync", []), ("add", [6]), ("restart", []), ("find", [4, 5, 6])),
        ("add", [7, 8, 9]),
    ],
)
def test_index_is_a_dict_that_keeps_the_latest_half(
    most: int, operations: list[tuple[str, list[int]]]
) -> None:
    """``model`` forgets nothing: a payload that is found is in it, with the record that was added
    last and not lost before a sync. ``used`` are the payloads in the order of their use.
    One that is added twice between two syncs is used once."""
    with TemporaryDirectory() as folder:
        index = PayloadIndex(Path(folder), most=most, warn=pytest.fail)
        synced: dict[int, Original] = {}
        added: dict[int, Original] = {}
        used: list[int] = []
        for step, (what, numbers) in enumerate(operations):
            match what:
                case "add":
                    for place, number in enumerate(numbers):
                        original = original_of(100 * step + place)
                        added[number] = original
                        index.add(digest_of(number), original)
                case "find":
                    model = {**synced, **added}
                    for number in numbers:
                        found = index.find(digest_of(number))
                        if number in added or number in used[-(most // 2) :]:
                            assert found is not None
                        if found is not None:
                            assert found == model[number]
                            added.setdefault(number, found)
                case "sync":
                    index.sync()
                    synced.update(added)
                    used += added
                    added = {}
                case "restart":
                    index.close()
                    index = PayloadIndex(Path(folder), most=most, warn=pytest.fail)
                    added = {}
        index.sync()
        index.close()
        index = PayloadIndex(Path(folder), most=most, warn=pytest.fail)
        assert sum(index.find(digest_of(number)) is not None for number in range(16)) <= most
        index.close()


# --- real processes, killed or starved ---


def process(folder: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.archive.payloads.keeper", folder, mode],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("syncs", [1, 5, 11, 22, 40])
def test_kill_at_any_time_leaves_the_newest_synced_half(tmp_path: Path, syncs: int) -> None:
    """Each tenth sync begins a generation."""
    with process(tmp_path, "0") as child:
        assert child.stdout is not None
        for _ in range(syncs):
            child.stdout.readline()
        child.kill()
        durable = [syncs * BATCH, *(int(line) for line in child.stdout)]
    # A generation that was being begun may be reported as damaged.
    index = PayloadIndex(tmp_path, most=MOST, warn=str)
    # One more batch may be written than the process has reported.
    found = known(index, range(durable[-1] + BATCH))
    assert found >= set(range(max(0, durable[-1] - MOST // 2 + BATCH), durable[-1]))
    assert len(found) <= MOST
    add(index, durable[-1] + BATCH)
    index.sync()
    index.close()
    with opened(tmp_path, most=MOST):
        assert len(list(tmp_path.iterdir())) <= 2


# Room for some entries, and not for what an empty index has.
@pytest.mark.parametrize("size", [100_000, 10])
def test_full_disk_loses_only_the_entries_of_its_time(tmp_path: Path, size: int) -> None:
    with process(tmp_path, str(size)) as child:
        assert child.stdout is not None
        warning = child.stdout.readline()
        assert warning.startswith("Payloads seen before may be archived whole again: ")
        assert "File too large" in warning
        added = int(child.stdout.readline())
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
        output, _ = child.communicate("\n")
        assert child.returncode == 0
        assert int(output) >= 4
    with opened(tmp_path) as index:
        # Those of the batch that failed and of the three after it are lost.
        lost = set(range(added - 4 * BATCH, added))
        assert known(index, range(added + BATCH)) == set(range(added + BATCH)) - lost


# --- damage ---


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 100] = bytes(byte ^ 0x5A for byte in data[middle : middle + 100])
    path.write_bytes(data)


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "CURRENT is missing": lambda folder: (folder / "CURRENT").unlink(),
    "CURRENT is empty": lambda folder: emptied(folder / "CURRENT"),
    "CURRENT is garbage": lambda folder: (folder / "CURRENT").write_bytes(b"\xff" * 40),
    "the manifest is missing": lambda folder: only(folder, "MANIFEST-*").unlink(),
    "the manifest is empty": lambda folder: emptied(only(folder, "MANIFEST-*")),
    "the manifest is garbled": lambda folder: garbled(only(folder, "MANIFEST-*")),
    "the log is garbled": lambda folder: garbled(only(folder, "*.log")),
    "the log is a folder": lambda folder: made_a_folder(only(folder, "*.log")),
    "a table is missing": lambda folder: only(folder, "*.ldb").unlink(),
    "a table is empty": lambda folder: emptied(only(folder, "*.ldb")),
    "a table is garbled": lambda folder: garbled(only(folder, "*.ldb")),
    "a file is in its place": lambda folder: (shutil.rmtree(folder), folder.write_text("mine")),
}


@pytest.mark.parametrize("which", [0, 1], ids=["older", "newer"])
@pytest.mark.parametrize("what", DAMAGES)
def test_damaged_generation_is_reported_and_replaced(tmp_path: Path, what: str, which: int) -> None:
    with opened(tmp_path, most=100) as index:
        put(index, range(50))
        put(index, range(50, 80))
    if "log" not in what:
        # LevelDB makes a table of the log that it finds.
        with opened(tmp_path, most=100):
            pass
    generations = sorted(tmp_path.iterdir())
    assert len(generations) == 2
    DAMAGES[what](generations[which])
    warnings: list[str] = []
    index = PayloadIndex(tmp_path, most=100, warn=warnings.append)
    left = set(range(50)) if which else set(range(50, 80))
    assert known(index, range(100)) == left
    assert index.failed_count == len(warnings) == 1
    assert generations[which].name in warnings[0]
    assert not generations[which].is_dir()
    put(index, range(100, 150))
    assert known(index, range(150)) >= set(range(100, 150))
    assert index.failed_count == 1
    index.close()


def test_changed_byte_never_gives_a_wrong_record(tmp_path: Path) -> None:
    """A page whose revisit record refers to a wrong original would be lost."""
    with opened(tmp_path / "whole") as index:
        put(index, range(300))
    with opened(tmp_path / "whole"):
        pass
    table = only(tmp_path / "whole", "*/*.ldb")
    content = table.read_bytes()
    places = range(0, len(content), 307)
    failed = 0
    for place in places:
        copy = tmp_path / str(place)
        shutil.copytree(tmp_path / "whole", copy)
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        (copy / table.relative_to(tmp_path / "whole")).write_bytes(changed)
        index = PayloadIndex(copy, most=1000, warn=str)
        known(index, range(300))
        assert bool(index.failed_count) == (list(copy.iterdir()) == [])
        failed += index.failed_count
        index.close()
    # Every byte counts but for those of the table's filter and its padding.
    assert failed > len(places) * 0.9


def test_a_cut_log_loses_what_was_cut_off(tmp_path: Path) -> None:
    with opened(tmp_path) as index:
        for number in range(100):
            put(index, range(number, number + 1))
    log = only(tmp_path, "*/*.log")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    with opened(tmp_path) as index:
        found = known(index, range(100))
        assert found == set(range(len(found)))
        assert 40 < len(found) < 60


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as index:
        put(index, range(10))
    generation = only(tmp_path, "*")
    (generation / "notes.txt").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "123").mkdir()
    with opened(tmp_path) as index:
        put(index, range(10, 20))
        assert len(known(index, range(20))) == 20
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "123").is_dir()


def test_generations_that_a_kill_has_left_are_removed(tmp_path: Path) -> None:
    with opened(tmp_path, most=20) as index:
        put(index, range(20))
    (tmp_path / "00000000").mkdir()
    with opened(tmp_path, most=20) as index:
        assert len(known(index, range(20))) == 20
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["00000001", "00000002"]


def test_folder_that_cannot_be_made_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("mine")
    warnings: list[str] = []
    index = PayloadIndex(tmp_path / "index", most=100, warn=warnings.append)
    for number in range(3):
        index.add(digest_of(number), original_of(number))
        assert known(index, range(10)) == {number}
        index.sync()
        assert known(index, range(10)) == set()
    assert index.failed_count == 3
    assert len(warnings) == 1
    assert str(tmp_path / "index") in warnings[0]
    (tmp_path / "index").unlink()
    put(index, range(3))
    assert known(index, range(10)) == {0, 1, 2}
    index.close()


def test_cleared_index_is_empty_and_usable(tmp_path: Path) -> None:
    with opened(tmp_path / "index") as index:
        put(index, range(3))
        index.add(digest_of(3), original_of(3))
        index.clear()
        assert known(index, range(4)) == set()
        put(index, range(4, 6))
    with opened(tmp_path / "index") as index:
        assert known(index, range(6)) == {4, 5}
