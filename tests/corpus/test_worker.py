"""A worker's slices: each response of a file is in one of them, whatever packs it."""

from __future__ import annotations

import gzip
import os
import signal
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
import pytest
from backports.zstd import compress

from krowlspider.corpus.build import WorkerPool
from krowlspider.corpus.folder import Fatal, Folder, Slice, read_lines
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.record import CorpusRecord, Line
from krowlspider.corpus.warc_pages import records
from krowlspider.corpus.worker import PageChoice, SliceReader, Task, WorkerTask
from tests.corpus.warcs import html, response

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PAGES = [response(f"http://a{n % 2}.example/{n}", html(n), date=f"202{n}-01-01T00:00:00Z")
         for n in range(6)]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "out")


def job(folder: Folder, **changes: object) -> WorkerTask:
    given = {"choice": PageChoice(), "decode": lambda body, codings: body, "seconds": 60, **changes}
    return WorkerTask(folder.work, read_rules(), **given)  # type: ignore[arg-type]


def read(job: WorkerTask, path: Path, places: Sequence[int] = ()) -> list[list[int]]:
    """Return the numbers of the pages in each slice of a file; check that of each place."""
    found, start = [], 0
    place = [0, 0]
    while start is not None:
        summary = SliceReader(job, Task(path, start, {}), place, os.getppid()).run()
        name = f"{Slice(path.name, start).name}.jsonl.zst"
        lines = [msgspec.json.decode(line, type=Line) for line in read_lines(job.work / name)]
        records = [msgspec.json.decode(line.record, type=CorpusRecord) for line in lines]
        numbers = [int(record.url.rpartition("/")[2]) for record in records]
        if places:
            assert [record.warc_offset for record in records] == [places[n] for n in numbers]
        found.append(numbers)
        start = summary.following
    return found


@pytest.mark.parametrize(
    ("pack", "whole"),
    [(gzip.compress, bytes), (compress, bytes), (bytes, bytes), (bytes, gzip.compress)],
    ids=["gzip", "zstd", "plain", "gzip as a whole"],
)
def test_slices_have_each_page_once(
    folder: Folder, tmp_path: Path, pack: Callable[[bytes], bytes], whole: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "a.warc.gz"
    packed = [pack(page) for page in PAGES]
    path.write_bytes(whole(b"".join(packed)))
    one_by_one = whole is bytes
    places = [0, *accumulate(map(len, packed))] if one_by_one else []
    found = read(job(folder, slice_bytes=1), path, places)
    assert found == ([[0], [1], [2], [3], [4], [5]] if one_by_one else [[0, 1, 2, 3, 4, 5]])


def test_pages_behind_damage_keep_their_places(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    packed = [gzip.compress(page) for page in PAGES]
    damaged = [packed[0], packed[1][:60] + b"?" + packed[1][61:], *packed[2:4], b"no", *packed[4:]]
    path.write_bytes(b"".join(damaged))
    places = list(accumulate(map(len, damaged), initial=0))
    del places[4]
    assert read(job(folder), path, places) == [[0, 2, 3, 4, 5]]


def crash(body: bytes, codings: str) -> bytes:
    """Fail at the third page as no page should, and end the process at the fifth."""
    if b"Page 2" in body:
        raise RuntimeError("a bug")
    if b"Page 4" in body:
        os.abort()
    return body


@pytest.mark.slow
def test_pages_that_crash_a_worker_are_named(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join(PAGES))
    pool, part = WorkerPool(job(folder, decode=crash), 1), Slice(path.name, 0)
    named, summary = [], None
    while summary is None:
        if pool.has_room:
            pool.give(Task(path, 0, folder.fatal(part)))
        for message in pool.wait(0.1):
            if isinstance(message, Fatal):
                folder.note_fatal(message)
                named.append((message.number, message.reason))
            else:
                summary = message[1]
    pool.close()
    assert named == [(2, "crash, exit code 1"), (4, f"crash, exit code {-signal.SIGABRT}")]
    assert [reason for _, reason in summary.problems] == [
        f"http://a0.example/{number}: {reason}" for number, reason in named
    ]


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        (PageChoice(host="a1.example"), [1, 3, 5]),
        (PageChoice(host="example"), [0, 1, 2, 3, 4, 5]),
        (PageChoice(host="1.example"), []),
        (PageChoice(since="20230101000000"), [3, 4, 5]),
    ],
)
def test_only_pages_asked_for_are_read(
    folder: Folder, tmp_path: Path, choice: PageChoice, numbers: list[int]
) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join(PAGES))
    assert read(job(folder, choice=choice), path) == [numbers]


def test_a_sample_is_a_share_and_the_same_each_time() -> None:
    urls = [f"http://a.example/{n}" for n in range(1000)]
    chosen = [url for url in urls if PageChoice(sample=0.3).fits(url, "2026")]
    assert 250 < len(chosen) < 350
    assert set(chosen) < {url for url in urls if PageChoice(sample=0.6).fits(url, "2026")}


# --- reading the records of WARC files of any writer ---


FIRST, LAST = (response(f"http://a.example/{n}", html(n, words=2_000)) for n in range(2))


def damaged_places(path: Path, content: bytes) -> list[int]:
    """Return the offsets of the damage that is found in a file with this content."""
    path.write_bytes(content)
    places: list[int] = []
    with path.open("rb") as stream:
        for _, record in records(stream, 0, lambda offset, _: places.append(offset)):
            record.reader.read()
    return places


@pytest.mark.parametrize("kept", [12, 60, 150, 300, 1500, -5])
@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["gzip", "plain"])
def test_a_file_that_ends_within_a_record_is_damaged(
    tmp_path: Path, pack: Callable[[bytes], bytes], kept: int
) -> None:
    """Whether it ends in the fields of the record, in the HTTP head or in the body."""
    before, last = pack(FIRST), pack(LAST)
    assert damaged_places(tmp_path / "a", before + last[:kept]) == [len(before)]
    assert damaged_places(tmp_path / "a", before + last) == []


@pytest.mark.parametrize("kept", [60, 1500, -5])
def test_a_file_cut_and_compressed_as_one_is_damaged(tmp_path: Path, kept: int) -> None:
    content = gzip.compress(FIRST + LAST)
    assert damaged_places(tmp_path / "a", content[:kept]) == [0]
    assert damaged_places(tmp_path / "a", content) == []


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n\r\n\r\n\r\n"])
def test_lines_behind_a_record_of_another_tool_are_no_damage(tmp_path: Path, end: bytes) -> None:
    content = FIRST.removesuffix(b"\r\n\r\n") + b"\r\n\r\n" + LAST.removesuffix(b"\r\n\r\n") + end
    assert damaged_places(tmp_path / "a", content) == []
