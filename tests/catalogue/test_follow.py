"""Which WARC files get into a catalogue, and when."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from krowlspider.archive.cdxj import index_path
from krowlspider.archive.disk import OPEN, lock_directory
from krowlspider.archive.finished import finished, folders_of, has_archive
from krowlspider.catalogue import follow
from krowlspider.catalogue.columns import USUAL
from krowlspider.catalogue.follow import Follower, segment_of
from tests.catalogue.warcs import archived, fetch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pytest

    from krowlspider.catalogue.sinks import Row


class Memory:
    """A sink that keeps the rows of each file."""

    def __init__(self) -> None:
        self.files: dict[str, list[tuple[str, Row]]] = {}

    def done(self) -> set[str]:
        return set(self.files)

    def write(self, name: str, rows: Iterable[tuple[str, Row]]) -> None:
        self.files[name] = list(rows)

    def close(self) -> None: ...


def followed(jobdir: Path, sink: Memory) -> follow.Followed:
    follower = Follower(jobdir, "autumn", USUAL, sink)
    follower.run()
    return follower.found


def three(folder: Path) -> list[Path]:
    return archived(folder, *([fetch(f"https://a.test/{n}", b"%d" % n)] for n in range(3)))


def test_open_files_wait(tmp_path: Path):
    first, second, third = three(tmp_path / "warc")
    index_path(third).unlink()
    still_open = third.rename(third.with_name(third.name + OPEN))
    sink = Memory()
    assert finished(tmp_path) == [first, second]
    assert followed(tmp_path, sink).files == 2
    still_open.rename(third)
    found = followed(tmp_path, sink)
    # A fetch, a host and a page.
    assert (found.files, found.rows, list(sink.files)) == (
        1,
        3,
        [first.name, second.name, third.name],
    )


def test_a_node_has_the_files_of_its_processes(tmp_path: Path):
    [one] = archived(tmp_path / "p1" / "warc", [fetch("https://a.test/", b"1")])
    [two] = archived(tmp_path / "p2" / "warc", [fetch("https://a.test/", b"2", minute=1)])
    # By its process id, the name of another machine's file would be another one.
    for path, name in ((one, "krowl-1-a.warc.gz"), (two, "krowl-2-b.warc.gz")):
        index_path(path).unlink()
        path.rename(path.with_name(name))
    assert [path.name for path in finished(tmp_path)] == ["krowl-1-a.warc.gz", "krowl-2-b.warc.gz"]
    assert [segment_of(path) for path in finished(tmp_path)] == ["p1", "p2"]
    sink = Memory()
    assert followed(tmp_path, sink).files == 2
    segments = [dict(rows)["fetch"]["warc_segment"] for rows in sink.files.values()]
    assert segments == ["p1", "p2"]
    # With KROWL_WARC_DIR.
    (tmp_path / "away").mkdir()
    for process in ("p1", "p2"):
        shutil.move(tmp_path / process / "warc", tmp_path / "away" / process)
    assert len(finished(tmp_path / "away")) == 2
    assert [segment_of(path) for path in finished(tmp_path / "away")] == ["p1", "p2"]


def test_a_change_between_processes_is_found(tmp_path: Path):
    [one] = archived(tmp_path / "p1" / "warc", [fetch("https://a.test/", b"1")])
    [two] = archived(tmp_path / "p2" / "warc", [fetch("https://a.test/", b"2", minute=1)])
    new = two.with_name("test-3" + two.name[6:])
    index = index_path(two).read_text().replace(two.name, new.name)
    index_path(two).unlink()
    two.rename(new)
    index_path(new).write_text(index)
    sink = Memory()
    followed(tmp_path, sink)
    assert one.name < new.name
    [change] = [row for table, row in sink.files[new.name] if table == "change"]
    assert change["before_filename"] == one.name


def test_files_that_were_moved_away_are_named(tmp_path: Path):
    first, second, _ = three(tmp_path)
    sink = Memory()
    second.unlink()
    assert followed(tmp_path, sink).away == {second.name}
    first.unlink()
    # What is in the catalogue is not missed.
    assert followed(tmp_path, sink).away == {second.name}


def test_a_file_that_goes_meanwhile_is_not_done(tmp_path: Path):
    class Removing(Memory):
        def write(self, name: str, rows: Iterable[tuple[str, Row]]) -> None:
            (tmp_path / name).unlink(missing_ok=True)
            super().write(name, rows)

    files = three(tmp_path)
    sink = Removing()
    assert followed(tmp_path, sink).away == {path.name for path in files}
    assert sink.files == {}


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path):
    """Others are taken all the same; one that goes before its turn is no fault."""
    first, second, third = three(tmp_path)
    (tmp_path / "a.warc.gz").mkdir()
    (tmp_path / "b.warc.gz").symlink_to(tmp_path / "nothing")

    class Moving(Memory):
        def write(self, name: str, rows: Iterable[tuple[str, Row]]) -> None:
            super().write(name, rows)
            second.unlink(missing_ok=True)

    sink = Moving()
    found = followed(tmp_path, sink)
    assert list(sink.files) == [first.name, third.name]
    assert list(found.faults) == [
        "a.warc.gz is not in the catalogue: it cannot be read: Is a directory",
        "b.warc.gz is not in the catalogue: it is a link to a file that is not there",
    ]


def test_damage_does_not_end_it(tmp_path: Path):
    first, second, third = three(tmp_path)
    first.write_bytes(first.read_bytes()[:-30])
    index_path(second).write_text("org,example)/ 2026 {}\n")
    sink = Memory()
    found = followed(tmp_path, sink)
    assert list(sink.files) == [first.name, second.name, third.name]
    [fault] = found.faults
    assert fault.startswith(f"{first.name} at byte ")


def test_a_file_beyond_32_bits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, *_ = three(tmp_path)
    monkeypatch.setattr(follow, "SIZE_MAX", first.stat().st_size - 1)
    found = followed(tmp_path, Memory())
    assert found.left_out
    assert "lower KROWL_WARC_MAX_SIZE" in next(iter(found.faults))


def test_it_follows_until_no_crawl_writes(tmp_path: Path):
    """A file that is finished between two looks is taken, the one at the end too."""
    files = three(tmp_path / "away")
    warc = tmp_path / "warc"
    warc.mkdir()
    lock = lock_directory(warc)
    waiting = list(files)

    def sleep(seconds: float) -> None:
        path = waiting.pop(0)
        index_path(path).rename(warc / index_path(path).name)
        path.rename(warc / path.name)
        if not waiting:
            os.close(lock)

    sink = Memory()
    Follower(tmp_path, "autumn", USUAL, sink).run(follow=True, sleep=sleep)
    assert list(sink.files) == [path.name for path in files]


def test_a_restored_sink_gets_again_what_it_lacks(tmp_path: Path):
    """It is restored while a crawl is followed, and once more after the last file."""
    first, second, third = files = three(tmp_path / "away")
    warc = tmp_path / "warc"
    warc.mkdir()
    lock, sink, looks = lock_directory(warc), Memory(), list(files)

    def sleep(seconds: float) -> None:
        if looks:
            path = looks.pop(0)
            index_path(path).rename(warc / index_path(path).name)
            path.rename(warc / path.name)
        else:
            os.close(lock)
        if path_lost := {2: first, 0: third}.get(len(looks)):
            sink.files.pop(path_lost.name, None)

    Follower(tmp_path, "autumn", USUAL, sink).run(follow=True, sleep=sleep)
    assert sorted(sink.files) == [first.name, second.name, third.name]


def test_what_has_an_archive(tmp_path: Path):
    assert not has_archive(tmp_path / "missing")
    assert folders_of(tmp_path / "missing") == []
    assert not has_archive(tmp_path)
    (tmp_path / "warc").mkdir()
    assert not has_archive(tmp_path)
    (tmp_path / "warc" / "a.warc.gz.open").touch()
    assert has_archive(tmp_path)
