from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive import records
from krowlspider.archive.check import Problem, check_folder
from krowlspider.archive.errors import RecordError
from krowlspider.archive.lookup import read_record

from .captures import ALL_ODD, capture, series, written

if TYPE_CHECKING:
    from pathlib import Path

ID = records.record_id(bytes(16))
DATE = records.warc_date(0)
GOOD = records.response(capture(), identity=ID, date=DATE, info=ID)


def problems(directory: Path, *members: bytes) -> list[Problem]:
    """What is wrong with a file of these members."""
    (directory / "a.warc.gz").write_bytes(b"".join(members))
    return check_folder(directory).problems


def test_a_folder_of_odd_responses_is_valid(tmp_path: Path) -> None:
    written(tmp_path, [capture(odd=odd) for odd in ALL_ODD.values()], max_size=2000)
    report = check_folder(tmp_path)
    assert report.problems == []
    assert report.problem_count == 0
    assert report.records == 2 * len(ALL_ODD) + report.files


def test_an_empty_folder_is_valid(tmp_path: Path) -> None:
    report = check_folder(tmp_path)
    assert (report.files, report.records, report.problem_count) == (0, 0, 0)


def test_a_file_still_open_is_counted_and_not_looked_into(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture())
    files.abandon()
    report = check_folder(tmp_path)
    assert (report.files, report.open_files, report.problem_count) == (0, 1, 0)


def test_a_file_cut_at_any_byte_within_a_record_is_found_out(tmp_path: Path) -> None:
    files = series(tmp_path)
    location = files.append(capture())
    files.close()
    path = tmp_path / location.file
    content = path.read_bytes()
    ends = {location.offset, location.offset + location.length, len(content)}
    for cut in range(1, len(content) + 1):
        path.write_bytes(content[:cut])
        assert (check_folder(tmp_path).problem_count == 0) == (cut in ends), cut


def test_an_empty_file_is_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path) == [Problem("a.warc.gz", 0, "the file is empty")]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (GOOD[:-1], "Content-Length"),
        (GOOD[:-4], "Content-Length"),
        (GOOD + b"\r\n", "Content-Length"),
        (GOOD + GOOD, "Content-Length"),
        (GOOD.replace(b"Content-Length: ", b"Content-Length: 1"), "Content-Length"),
        (GOOD.replace(b"Content-Length: ", b"X-Length: "), "Content-Length"),
        (GOOD.replace(b"WARC/1.1", b"WARK/1.1"), "not a WARC record"),
        (GOOD[:60], "Content-Length"),
        (b"", "the member is empty"),
        (GOOD.replace(b"WARC-Date", b"WARC-Dote"), "no WARC-Date"),
        (GOOD.replace(b"WARC-Type", b"WARC-Tape"), "no WARC-Type"),
        (GOOD.replace(b"WARC-Record-ID", b"WARC-Record-IT"), "no WARC-Record-ID"),
        (GOOD.replace(b"Block-Digest: sha1:", b"Block-Digest: sha1:A"), "the block does not"),
        (GOOD.replace(b"Payload-Digest: sha1:", b"Payload-Digest: sha1:A"), "the payload does not"),
    ],
)
def test_a_broken_record_is_found_out_and_the_next_still_checked(
    tmp_path: Path, content: bytes, what: str
) -> None:
    bad = gzip.compress(content)
    good = gzip.compress(GOOD)
    found = problems(tmp_path, good, bad, bad, good)
    assert [problem.offset for problem in found] == [len(good), len(good) + len(bad)]
    assert all(what in problem.what for problem in found)


def test_a_changed_byte_of_the_body_is_found_by_both_digests(tmp_path: Path) -> None:
    found = problems(tmp_path, gzip.compress(GOOD.replace(b"page 0", b"page 1")))
    assert found[0].what == "the block does not have its digest"
    assert found[1].what == "the payload does not have its digest"


def test_what_follows_a_broken_member_is_not_guessed_at(tmp_path: Path) -> None:
    good = gzip.compress(GOOD)
    found = problems(tmp_path, good, b"junk", good)
    assert [(problem.offset, problem.what[:17]) for problem in found] == [
        (len(good), "not a gzip member")
    ]


def test_problems_are_counted_beyond_those_that_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(b"") * 1500)
    report = check_folder(tmp_path)
    assert (report.problem_count, len(report.problems)) == (1500, 1000)


@pytest.mark.parametrize("offset", [1, 5, 100_000])
def test_no_record_is_read_where_none_begins(tmp_path: Path, offset: int) -> None:
    path = written(tmp_path, [capture()])[0]
    with pytest.raises(RecordError) as caught:
        read_record(path, offset)
    assert caught.value.offset == offset
