from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.cdxj import index_file, index_path, parse
from krowlspider.archive.disk import ArchiveError, RecordError
from krowlspider.archive.indexes import MERGED_AT_ONCE, files_gone, indexes_in, make_indexes, merge
from tests.archive.captures import capture, finished, series, undamaged, written
from tests.archive.index.lines import small_index

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_gone_of_which_only_the_index_is_there(tmp_path: Path) -> None:
    assert files_gone(tmp_path / "none") == []
    for name in ("there", "gone", "open", "linked", "dangling", "last"):
        (tmp_path / f"{name}.cdxj").touch()
    (tmp_path / "there.warc.gz").touch()
    (tmp_path / "open.warc.gz.open").touch()
    (tmp_path / "linked.warc.gz").symlink_to(tmp_path / "there.warc.gz")
    (tmp_path / "dangling.warc.gz").symlink_to(tmp_path / "nowhere")
    (tmp_path / "unindexed.warc.gz").touch()
    assert files_gone(tmp_path) == ["dangling.warc.gz", "gone.warc.gz", "last.warc.gz"]


@pytest.mark.parametrize("files", [1, 2, 23, 2 * MERGED_AT_ONCE + 1])
def test_merge_sorts_and_removes_repeats(tmp_path: Path, files: int) -> None:
    chance = random.Random(files)
    paths = [
        small_index(tmp_path / f"{n}.cdxj", chance.choices("abcdefgh", k=chance.randrange(9)), "x")
        for n in range(files)
    ]
    every = {each for path in paths for each in path.read_text().splitlines(keepends=True)}
    # Another tool's may lack its last line break.
    paths[-1].write_bytes(paths[-1].read_bytes().rstrip(b"\n"))
    lengths: list[int] = []
    assert merge(paths, tmp_path / "out", lengths.append) == len(every)
    assert (tmp_path / "out").read_text() == "".join(sorted(every))
    assert sum(lengths) == (tmp_path / "out").stat().st_size
    assert {path.name for path in tmp_path.iterdir()} == {*(path.name for path in paths), "out"}


def test_merge_opens_few_files_at_a_time(tmp_path: Path) -> None:
    """There are more indexes than a process may open."""
    for number in range(450):
        small_index(tmp_path / f"{number:03}.cdxj", [f"host{number}"])
    child = (
        "import resource, sys; from pathlib import Path;"
        "from krowlspider.archive.indexes import merge, indexes_in;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
        "folder = Path(sys.argv[1]);"
        "print(merge(indexes_in(folder).there, folder / 'index.cdxj'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", child, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "450\n"


def test_merge_refuses_an_unsorted_index_and_writes_nothing(tmp_path: Path) -> None:
    path = small_index(tmp_path / "a.cdxj", ["a", "b"])
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    with pytest.raises(ArchiveError, match="is not sorted"):
        merge([path], tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["a.cdxj"]


def test_missing_old_or_foreign_indexes_are_made_again(tmp_path: Path) -> None:
    for number in range(5):
        files = series(tmp_path)
        files.append(capture(number))
        files.close()
    current, none, older, foreign, broken = finished(tmp_path)
    index_path(none).unlink()
    os.utime(index_path(older), (1, 1))
    index_path(foreign).write_bytes(index_path(current).read_bytes())
    index_path(broken).write_bytes(b"junk\n")
    # Its file has gone into a store.
    away = small_index(tmp_path / "away.cdxj", ["a"])
    small_index(tmp_path / "index.cdxj", ["a"], filename="away.warc.gz")
    found = indexes_in(tmp_path)
    assert found.missing == [none, older, foreign, broken]
    assert found.there == sorted([index_path(current), away])
    make_indexes(found.missing, undamaged)
    found = indexes_in(tmp_path)
    assert found.missing == []
    assert len(found.there) == 6
    for warc in finished(tmp_path):
        assert index_path(warc).read_text() == "".join(index_file(warc))


def test_a_file_without_captures_has_an_empty_index(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"")
    make_indexes([path], undamaged)
    assert index_path(path).read_bytes() == b""
    assert indexes_in(tmp_path).missing == []


def test_readable_records_of_a_damaged_file_are_indexed(tmp_path: Path) -> None:
    [path] = written(tmp_path, map(capture, range(5)))
    whole = list(index_file(path))
    content = bytearray(path.read_bytes())
    at = parse(whole[2].encode()).offset
    content[at + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecordError):
        list(index_file(path))
    for kind in ("missing", "damaged"):
        # Each time, because the index is listed as that of a damaged file.
        damaged: list[tuple[Path, int]] = []
        make_indexes(
            getattr(indexes_in(tmp_path), kind),
            lambda warc, error, found=damaged: found.append((warc, error.offset)),
        )
        assert damaged == [(path, at)]
        found = indexes_in(tmp_path)
        assert (found.there, found.missing) == ([index_path(path)], [])
        assert index_path(path).read_text() == "".join(sorted([*whole[:2], *whole[3:]]))


def test_file_removed_during_indexing_is_skipped(tmp_path: Path) -> None:
    for number in range(3):
        files = series(tmp_path)
        files.append(capture(number))
        files.close()
    first, second, third = finished(tmp_path)
    for path in (first, second, third):
        index_path(path).unlink()
    lengths: list[int] = []

    def remove(length: int) -> None:
        lengths.append(length)
        second.unlink(missing_ok=True)

    sizes = first.stat().st_size + third.stat().st_size
    make_indexes([first, second, third], undamaged, remove)
    assert sorted(tmp_path.glob("*.cdxj")) == [index_path(first), index_path(third)]
    assert (len(lengths), sum(lengths)) == (6, sizes)


def test_listed_file_that_is_gone_is_away_if_its_index_names_it(tmp_path: Path) -> None:
    """A broken link is listed like a file that is removed just after."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.warc.gz").symlink_to("nowhere")
    small_index(tmp_path / "a.cdxj", ["a"])
    # Of no captures.
    (tmp_path / "c.cdxj").touch()
    found = indexes_in(tmp_path)
    assert (found.there, found.missing, found.away) == ([tmp_path / "a.cdxj"], [], ["a.warc.gz"])


def test_only_the_newest_indexes_are_listed_if_asked(tmp_path: Path) -> None:
    for number in (2, 1, 3):
        small_index(tmp_path / f"{number}.cdxj", [])
        (tmp_path / f"{number}.warc.gz").touch()
        os.utime(tmp_path / f"{number}.warc.gz", (0, 0))
    assert [path.name for path in indexes_in(tmp_path, 2).there] == ["2.cdxj", "3.cdxj"]
    assert len(indexes_in(tmp_path).there) == 3
    assert indexes_in(tmp_path / "none").there == []
