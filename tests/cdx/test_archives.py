"""The lines of several folders: finished and open files, in order, each once; and their pages."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krowlspider.archive.disk import ArchiveError
from krowlspider.cdx.archives import Archives
from krowlspider.cdx.pace import ClientGone, ClientWork
from krowlspider.cdx.paging import blocks_of, page_of
from krowlspider.cdx.query import Paging
from krowlspider.cdx.ranges import Range, ranges_of
from tests.archive.captures import capture, series, written
from tests.archive.index.lines import small_index
from tests.cdx.asking import OUTBACK, lines_of, text_of

if TYPE_CHECKING:
    from pathlib import Path

ALL = Range(b"", b"\xff")
NAMES = st.lists(st.lists(st.sampled_from(["a", "aa", "b", "b.a", "c"]), max_size=20), max_size=5)


def urls(archives: Archives, url: str = "*.example.org") -> list[str]:
    return [line.split(" ")[0] for line in lines_of(archives, url=url, fl="url", output="text")]


def page_url(number: int) -> str:
    return f"http://example.org/page/{number}"


def test_crawl_is_read_while_its_files_end(tmp_path: Path):
    """What is open, ended meanwhile or began since is there, each capture once."""
    archives, files = Archives([tmp_path]), series(tmp_path)
    expected = []
    for number in range(9):
        files.append(capture(number))
        expected.append(page_url(number))
        assert urls(archives) == expected
        if number % 3 == 2:
            files.close()
            assert urls(archives) == expected
    assert len(list(tmp_path.glob("*.cdxj"))) == 3


def test_answer_names_an_open_file_as_it_is_named(tmp_path: Path):
    archives, files = Archives([tmp_path]), series(tmp_path)
    files.append(capture(1))
    [name] = lines_of(archives, url=page_url(1), fl="filename", output="text")
    assert (tmp_path / name).is_file()
    files.close()
    [name] = lines_of(archives, url=page_url(1), fl="filename", output="text")
    assert (tmp_path / name).is_file()


def test_file_that_ends_between_two_looks_is_there_once(tmp_path: Path):
    """The open files are read first, and the finished ones are listed then."""
    archives, files = Archives([tmp_path]), series(tmp_path)
    for number in range(3):
        files.append(capture(number))
    [folder] = archives._folders
    before = folder._open.read_on(lambda: None)
    files.close()
    folder._open.read_on = lambda _: before  # type: ignore[method-assign]
    assert urls(archives) == [page_url(number) for number in range(3)]


def test_several_folders_are_merged(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    written(tmp_path / "a", [capture(number) for number in range(0, 9, 2)])
    written(tmp_path / "b", [capture(number) for number in range(1, 9, 2)])
    archives = Archives([tmp_path / "a", tmp_path / "none", tmp_path / "b"])
    assert urls(archives) == [page_url(number) for number in range(9)]


def test_file_in_two_folders_is_there_once(tmp_path: Path):
    """It is being moved: it is copied, and removed then."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        small_index(tmp_path / name / "same.cdxj", ["a", "b"])
    archives = Archives([tmp_path / "a", tmp_path / "b"])
    assert len(archives.look(ClientWork()).indexes) == 2
    assert len([*archives.look(ClientWork()).lines([ALL])]) == 2


def test_folder_that_has_changed_is_looked_at_again(tmp_path: Path):
    """The list of indexes is kept as long as the folder is as it was a while ago."""
    small_index(tmp_path / "a.cdxj", ["a"])
    archives = Archives([tmp_path])
    # Old enough that no other change can have the same time.
    os.utime(tmp_path, (1, 1))
    assert len(archives.look(ClientWork()).indexes) == 1
    small_index(tmp_path / "b.cdxj", ["b"])
    assert len(archives.look(ClientWork()).indexes) == 2
    (tmp_path / "b.cdxj").unlink()
    assert len(archives.look(ClientWork()).indexes) == 1


@given(NAMES, st.integers(1, 2000))
@settings(max_examples=50)
def test_pages_together_have_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, names: list[list[str]], size: int
):
    folder = tmp_path_factory.mktemp("archive")
    for number, each in enumerate(names):
        small_index(folder / f"{number}.cdxj", each)
    view = Archives([folder]).look(ClientWork())
    texts = [path.read_bytes() for path in folder.glob("*.cdxj")]
    every = sorted(b"".join(texts).splitlines(keepends=True))
    assert list(view.lines([ALL])) == every
    ranges = [*ranges_of("http://b/", "prefix"), *ranges_of("http://c/", "exact")]
    within = [line for each in ranges for line in every if each.begin <= line < each.end]
    for asked, expected in (([ALL], every), (ranges, within)):
        blocks = blocks_of(view, asked, size)
        found: list[bytes] = []
        for page in range(max(-(-len(blocks) // 2), 1)):
            _, parts = page_of(blocks, Paging(page, 2), asked)
            found += view.lines(parts)
        assert found == expected


def test_page_numbers_and_the_list_of_blocks(tmp_path: Path):
    small_index(tmp_path / "a.cdxj", [f"h{number:05}.test" for number in range(8000)])
    archives = Archives([tmp_path])
    counted = json.loads(text_of(archives, url="*.test", showNumPages="true", pageSize=2))
    assert counted == {"blocks": 3, "pages": 2, "pageSize": 2}
    assert text_of(archives, OUTBACK, url="*.test", showNumPages="true") == "1\n"
    listed = lines_of(archives, url="*.test", showPagedIndex="true")
    assert [line.split("\t")[1:3] for line in listed] == [
        ["a.cdxj", str(number * 512 * 1024)] for number in range(3)
    ]
    assert listed[0].startswith("test,h00000)/ 20260101000000\t")
    parts = [lines_of(archives, url="*.test", page=page, pageSize=2) for page in range(2)]
    assert min(map(len, parts)) > 1000
    assert [*parts[0], *parts[1]] == lines_of(archives, url="*.test")


def test_thousands_of_indexes_need_no_open_files(tmp_path: Path):
    """Each is closed between two readings."""
    for number in range(600):
        small_index(tmp_path / f"{number:04}.cdxj", [f"h{number:04}.test"])
    archives, most = Archives([tmp_path]), 0
    view = archives.look(ClientWork())
    for _ in view.lines([ALL]):
        most = max(most, len(os.listdir("/proc/self/fd")))  # noqa: PTH208
    assert 0 < most < 200


def test_broken_line_ends_the_answer(tmp_path: Path):
    small_index(tmp_path / "a.cdxj", ["a", "b"])
    with (tmp_path / "a.cdxj").open("a") as file:
        file.write("c)/ 2026 junk\n")
    with pytest.raises(ArchiveError, match=r"is broken \(a.cdxj line 3\): scrapy warc index"):
        text_of(Archives([tmp_path]), url="c", output="json")


def test_half_a_surrogate_pair_ends_no_answer(tmp_path: Path):
    """The index of another tool may have what no text in UTF-8 has."""
    path = small_index(tmp_path / "a.cdxj", ["a.test", "b.test"])
    path.write_text(path.read_text().replace('"text/html"', '"\\ud800"', 1))
    archives = Archives([tmp_path])
    assert lines_of(archives, url="*.test", fl="mime", output="text") == ["?", "text/html"]
    assert json.loads(lines_of(archives, url="a.test", output="json")[0])["mime"] == "\ud800"


def test_work_for_a_client_that_has_gone_ends(tmp_path: Path):
    small_index(tmp_path / "a.cdxj", [f"h{number}" for number in range(1000)])
    work = ClientWork()
    lines = Archives([tmp_path]).look(work).lines([ALL])
    next(lines)
    work.end()
    with pytest.raises(ClientGone):
        list(lines)
