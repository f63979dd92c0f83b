from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from krowlspider.archive.cdxj import index_path, parse
from krowlspider.archive.disk import RecordError
from krowlspider.archive.indexes import captures_of, make_indexes
from krowlspider.archive.payload import digest
from krowlspider.archive.reading import read_record
from krowlspider.archive.tools.check import Problem, check_folder
from krowlspider.archive.write import records
from tests.archive.captures import (
    ALL_ODD,
    STARTED,
    capture,
    deduplicating,
    series,
    undamaged,
    written,
)

from .foreign import gzipped, in_zstandard, plain

if TYPE_CHECKING:
    from pathlib import Path

ID = records.record_id(bytes(16))
# The same in every process, as parameters of tests.
GOOD, OTHER = (
    records.RecordMaker(ID, "sha1").response(
        replace(capture(), identity=records.record_id(each * 16)), digest(capture().payload)
    )
    for each in (b"g", b"o")
)
IDS = records.RecordIds()
REPEATED = "another record has the same WARC-Record-ID"


def problems(directory: Path, *members: bytes) -> list[Problem]:
    """Return the problems of a file with these members."""
    (directory / "a.warc.gz").write_bytes(b"".join(members))
    return check_folder(directory).problems


def test_a_folder_of_odd_responses_is_valid(tmp_path: Path) -> None:
    written(tmp_path, map(capture, range(20), ALL_ODD.values()), max_size=2000)
    report = check_folder(tmp_path)
    assert report.problems == []
    assert report.problem_count == 0
    assert report.records == 2 * len(ALL_ODD) + report.files


def test_an_empty_folder_is_valid(tmp_path: Path) -> None:
    report = check_folder(tmp_path)
    assert (report.files, report.records, report.problem_count) == (0, 0, 0)


def test_link_to_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").symlink_to(tmp_path / "gone")
    what = "a link to a file that is missing"
    assert check_folder(tmp_path).problems == [Problem("a.warc.gz", 0, what)]


def test_open_file_is_counted_and_not_checked(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture())
    files.abandon()
    report = check_folder(tmp_path)
    assert (report.files, report.open_files, report.problem_count) == (0, 1, 0)


def test_file_cut_within_a_record_is_a_problem(tmp_path: Path) -> None:
    files = series(tmp_path)
    location = files.append(capture())
    files.close()
    path = tmp_path / location.file
    index_path(path).unlink()
    content = path.read_bytes()
    ends = {location.offset, location.offset + location.length, len(content)}
    for cut in sorted({*range(1, len(content), 7), *ends, *(end - 1 for end in ends)}):
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
def test_records_after_a_broken_record_are_checked(
    tmp_path: Path, content: bytes, what: str
) -> None:
    bad = gzip.compress(content)
    good, other = gzip.compress(GOOD), gzip.compress(OTHER)
    found = problems(tmp_path, good, bad, bad, other)
    found = [problem for problem in found if problem.what != REPEATED]
    assert [problem.offset for problem in found] == [len(good), len(good) + len(bad)]
    assert all(what in problem.what for problem in found)


def test_changed_byte_is_found_by_both_digests(tmp_path: Path) -> None:
    found = problems(tmp_path, gzip.compress(GOOD.replace(b"page 0", b"page 1")))
    assert found[0].what == "the block does not match its digest"
    assert found[1].what == "the payload does not match its digest"


def test_records_behind_a_broken_member_are_checked(tmp_path: Path) -> None:
    good, other = gzip.compress(GOOD), gzip.compress(OTHER.replace(b"WARC-Date", b"WARC-Dote"))
    found = problems(tmp_path, good, b"junk", other, b"junk")
    assert [(problem.offset - len(good), problem.what[:17]) for problem in found] == [
        (0, "not a gzip member"),
        (4, "no WARC-Date"),
        (4 + len(other), "not a gzip member"),
    ]


def test_a_thousand_problems_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(b"") * 1500)
    report = check_folder(tmp_path)
    assert (report.problem_count, len(report.problems)) == (1500, 1000)


@pytest.mark.parametrize("offset", [1, 5, 100_000])
def test_no_record_is_read_where_none_begins(tmp_path: Path, offset: int) -> None:
    path = written(tmp_path, [capture()])[0]
    with pytest.raises(RecordError) as caught:
        read_record(path, offset)
    assert caught.value.offset == offset


def indexed(directory: Path, count: int = 3) -> Path:
    """Write one file of pages, with its index."""
    files = series(directory)
    for number in range(count):
        files.append(capture(number))
    files.close()
    return next(directory.glob("*.cdxj"))


def test_index_of_a_damaged_file_is_checked(tmp_path: Path) -> None:
    """The line of a damaged record is no fault of the index."""
    index = indexed(tmp_path)
    [path] = tmp_path.glob("*.warc.gz")
    lines = index.read_bytes().splitlines(keepends=True)
    content, at = bytearray(path.read_bytes()), parse(lines[1]).offset
    content[at + 60] ^= 1
    path.write_bytes(content)
    report = check_folder(tmp_path)
    assert [(each.file, each.offset) for each in report.problems] == [(path.name, at)]
    index.write_bytes(b"".join([*reversed(lines[1:]), b"broken\n"]))
    report = check_folder(tmp_path)
    assert {each.what for each in report.problems if each.file == index.name} == {
        "a line is out of order",
        "a line points to no capture",
    }
    assert [each.what for each in report.warnings if each.file == index.name] == [
        "1 capture has no line"
    ]
    index.unlink()
    assert "the index is missing" in [each.what for each in check_folder(tmp_path).warnings]


def test_complete_index_is_valid(tmp_path: Path) -> None:
    indexed(tmp_path)
    report = check_folder(tmp_path)
    assert (report.problem_count, report.warning_count) == (0, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"offset": "', b'"offset": "1'),
        (b'"length": "', b'"length": "1'),
        (b"page/1 2026", b"page/1 2025"),
        (b"org,example)/page/1 ", b"org,example)/page/11 "),
        (b'"url": "http://example.org/page/1"', b'"url": "http://example.org/page/7"'),
        (b"test-", b"tset-"),
        (b'"status": "200"', b'"status": "404"'),
        (b'"mime": "text/html"', b'"mime": "text/plain"'),
        (b"}", b""),
    ],
)
def test_a_line_that_leads_to_no_capture_is_a_problem(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    index = indexed(tmp_path)
    first, second, third = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(first + second.replace(old, new) + third)
    report = check_folder(tmp_path)
    [problem] = report.problems
    assert (problem.file, problem.offset) == (index.name, len(first))
    if b"status" in old or b"mime" in old:
        assert re.fullmatch("the (status|media type) of a line is not its record's", problem.what)
    else:
        assert problem.what == "a line points to no capture"
        assert [each.what for each in report.warnings] == ["1 capture has no line"]


def test_a_line_out_of_its_place_is_a_problem(tmp_path: Path) -> None:
    index = indexed(tmp_path)
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join(reversed(lines)))
    found = [problem.what for problem in check_folder(tmp_path).problems]
    assert found == ["a line is out of order"] * 2


def test_missing_index_or_line_is_a_warning(tmp_path: Path) -> None:
    index = indexed(tmp_path)
    index.write_bytes(b"")
    report = check_folder(tmp_path)
    assert report.problem_count == 0
    assert report.warnings == [Problem(index.name, 0, "3 captures have no line")]
    index.unlink()
    assert check_folder(tmp_path).warnings == [Problem(index.name, 0, "the index is missing")]


def test_revisit_without_its_original_is_a_warning(tmp_path: Path) -> None:
    with deduplicating(tmp_path) as files:
        places = []
        for number in (1, 1, 0):
            # A file each, and time for each capture: the second is a revisit of what is in the
            # first.
            page = replace(capture(number), started=STARTED + len(places), identity=IDS.new())
            places.append(files.append(page))
            files.close()
    assert check_folder(tmp_path).warnings == []
    original, revisit, _ = (tmp_path / place.file for place in places)
    original.unlink()
    # Its file may be in a store, as long as its index says that it is somewhere.
    assert check_folder(tmp_path).warnings == []
    index_path(original).unlink()
    report = check_folder(tmp_path)
    assert report.problem_count == 0
    what = "the record that this revisit refers to is missing"
    assert report.warnings == [Problem(revisit.name, places[1].offset, what)]


def revisited(directory: Path) -> tuple[Path, Path]:
    """Write a file with two pages of one URL in one second, and a file with a revisit of the later
    page, each with its index."""
    with deduplicating(directory) as files:
        url = "http://example.org/"
        for number, seconds in ((1, 0.0), (2, 0.3)):
            files.append(replace(capture(number, url=url), started=STARTED + seconds))
        files.close()
        files.append(replace(capture(2, url=url), started=STARTED + 100, identity=ID))
    first, second = sorted(directory.glob("*.warc.gz"))
    return first, second


WHAT = "the record that this revisit refers to is missing"


def test_original_of_a_revisit_has_its_digest(tmp_path: Path) -> None:
    first, _ = revisited(tmp_path / "warc")
    assert check_folder(tmp_path / "warc").warnings == []
    index = index_path(first)
    one, other = index.read_bytes().splitlines(keepends=True)
    first.unlink()
    for kept in (one, other):
        index.write_bytes(kept)
        lacks = digest(capture(2).payload).encode() not in kept
        assert [each.what for each in check_folder(tmp_path / "warc").warnings] == [WHAT] * lacks


def test_originals_are_found_in_unsorted_indexes(tmp_path: Path) -> None:
    first, second = revisited(tmp_path / "warc")
    index = index_path(first)
    lines = index.read_bytes().splitlines(keepends=True)
    # Another tool's may lack its last line break.
    index.write_bytes(b"".join(reversed(lines)).rstrip(b"\n"))
    out_of_order = Problem(index.name, len(lines[1]), "a line is out of order")
    report = check_folder(tmp_path / "warc")
    assert (report.problems, report.warnings, report.files) == ([out_of_order], [], 2)
    # Nor is the index of a file that is elsewhere taken for good.
    first.unlink()
    report = check_folder(tmp_path / "warc")
    assert (report.problems, report.warnings, report.files) == ([out_of_order], [], 1)
    broken = b"org,example)/ 20260101000000 junk\n"
    index.write_bytes(broken)
    report = check_folder(tmp_path / "warc")
    assert [(each.file, each.what) for each in report.warnings] == [(second.name, WHAT)]


def test_broken_line_of_a_file_that_was_moved_is_a_problem(tmp_path: Path) -> None:
    first, _ = revisited(tmp_path / "warc")
    first.unlink()
    index = index_path(first)
    lines = index.read_bytes()
    index.write_bytes(lines + b"org,example)/ 2027 junk\n")
    report = check_folder(tmp_path / "warc")
    assert report.problems == [Problem(index.name, len(lines), "a line points to no capture")]
    assert report.warnings == []


def test_file_names_may_hold_blanks(tmp_path: Path) -> None:
    first, second = revisited(tmp_path / "warc")
    foreign = second.with_name("foreign one.warc.gz")
    second.rename(foreign)
    index_path(second).unlink()
    make_indexes([foreign], undamaged)
    assert check_folder(tmp_path / "warc").warnings == []
    first.unlink()
    index_path(first).unlink()
    report = check_folder(tmp_path / "warc")
    assert [(each.file, each.what) for each in report.warnings] == [("foreign one.warc.gz", WHAT)]


def test_invalid_url_of_another_tool_is_checked(tmp_path: Path) -> None:
    """The URL has an invalid port and a blank, as other tools may write it."""
    path = tmp_path / "foreign.warc.gz"
    url = b"http://example.org:99999/a b"
    there = GOOD.replace(b"http://example.org/page/0", url)
    again = OTHER.replace(b"WARC-Type: response", b"WARC-Type: revisit")
    refers = b"WARC-Profile: x:y\r\nWARC-Refers-To-Target-URI: %b\r\n" % url
    refers += b"WARC-Refers-To-Date: 2026-01-01T00:00:00Z\r\n"
    again = again.replace(b"Content-Type", refers + b"Content-Type", 1)
    path.write_bytes(gzip.compress(there) + gzip.compress(again))
    make_indexes([path], undamaged)
    report = check_folder(tmp_path)
    assert (report.problems, report.records) == ([], 2)
    assert [each.what[:15] for each in report.warnings] == [
        *("WARC-Target-URI", "WARC-Refers-To-"),
        "its warcinfo re",
    ]
    [line] = captures_of([index_path(path)], url.decode())
    assert line.url == url.decode()


def test_file_removed_during_the_check_is_skipped(tmp_path: Path) -> None:
    for number in range(3):
        files = series(tmp_path)
        files.append(capture(number))
        files.close()
    second = sorted(tmp_path.glob("*.warc.gz"))[1]
    report = check_folder(tmp_path, lambda _: second.unlink(missing_ok=True))
    assert (report.files, report.records, report.problem_count) == (2, 6, 0)
    assert report.warnings == []


def test_progress_is_the_length_of_each_member(tmp_path: Path) -> None:
    index = indexed(tmp_path)
    lengths: list[int] = []
    check_folder(tmp_path, lengths.append)
    assert len(lengths) == 1 + 2 * 3
    assert sum(lengths) == index.with_name(index.stem + ".warc.gz").stat().st_size


def test_repeated_and_missing_record_ids_are_found_in_the_folder(tmp_path: Path) -> None:
    """Ids are of one record in all files, and a record may refer to another file."""
    ids = [IDS.new() for _ in range(5)]
    maker = records.RecordMaker(ids[0], "sha1")
    info = maker.warcinfo(b"", date="2026-01-01", filename="a")
    one, two = (
        maker.response(replace(capture(), identity=each), digest(capture().payload))
        for each in ids[1:3]
    )
    lost = records.RecordMaker(ids[2], "sha1").request(capture(1), ids[4])
    files = {"a": [info, one], "b": [two, one], "c": [lost]}
    for name, content in files.items():
        (tmp_path / f"{name}.warc.gz").write_bytes(b"".join(map(gzip.compress, content)))
        make_indexes([tmp_path / f"{name}.warc.gz"], undamaged)
    report = check_folder(tmp_path)
    assert report.problems == [Problem("b.warc.gz", len(gzip.compress(two)), REPEATED)]
    lacks = "the record that it is concurrent to is missing"
    assert [(each.file, each.what) for each in report.warnings] == [("c.warc.gz", lacks)]
    (tmp_path / "a.warc.gz").unlink()
    index_path(tmp_path / "a.warc.gz").unlink()
    report = check_folder(tmp_path)
    assert report.problems == []
    assert sorted((each.file, each.what) for each in report.warnings) == [
        ("b.warc.gz", "its warcinfo record is missing"),
        ("c.warc.gz", lacks),
    ]


@pytest.mark.parametrize("version", ["WARC/1.0", "WARC/1.1"])
def test_files_of_another_tool_are_valid(tmp_path: Path, version: str) -> None:
    for name in ("a.warc.gz", "b.warc", "c.warc.zst", "d.warc.zst"):
        (tmp_path / name).mkdir()
    make_indexes([gzipped(tmp_path / "a.warc.gz" / "a.warc.gz", version)], undamaged)
    plain(tmp_path / "b.warc" / "b.warc", version)
    in_zstandard(tmp_path / "c.warc.zst" / "c.warc.zst", version)
    in_zstandard(tmp_path / "d.warc.zst" / "d.warc.zst", version, dictionary=True)
    for folder in tmp_path.iterdir():
        report = check_folder(folder)
        assert (report.files, report.records, report.problems) == (1, 5, []), folder
        assert report.warnings == [], folder
        whole = (folder / folder.name).read_bytes()
        (folder / folder.name).write_bytes(whole[:-9])
        assert check_folder(folder).problem_count >= 1, folder
        (folder / folder.name).write_bytes(whole + b"junk")
        assert check_folder(folder).problem_count == 1, folder
