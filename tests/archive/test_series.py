from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.check import check_folder
from krowlspider.archive.errors import CaptureRefused
from krowlspider.archive.lookup import read_record
from krowlspider.archive.series import WarcSeries

from .captures import ALL_ODD, REQUEST, capture, durable_steps, finished, series, written

if TYPE_CHECKING:
    from pathlib import Path


def test_bytes_stored_are_bytes_given(tmp_path: Path) -> None:
    files = series(tmp_path)
    where = {kind: files.append(capture(odd=odd)) for kind, odd in ALL_ODD.items()}
    files.close()
    for kind, location in where.items():
        path = tmp_path / location.file
        fields, response = read_record(path, location.offset)
        assert fields["WARC-Type"] == "response", kind
        assert response == ALL_ODD[kind].response, kind
        fields, request = read_record(path, location.offset + location.length)
        assert fields["WARC-Type"] == "request", kind
        assert request == REQUEST, kind


def test_nothing_is_created_before_the_first_capture(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.sync()
    files.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_open_by_name_until_it_is_closed(tmp_path: Path) -> None:
    files = series(tmp_path)
    location = files.append(capture())
    assert [path.name for path in tmp_path.iterdir()] == [location.file + ".open"]
    files.close()
    assert [path.name for path in tmp_path.iterdir()] == [location.file]


def test_a_file_name_tells_prefix_time_serial_host_and_process(tmp_path: Path) -> None:
    path = written(tmp_path, [capture()])[0]
    assert re.fullmatch(rf"test-\d{{14}}-00000-here-{os.getpid()}\.warc\.gz", path.name)


def test_a_file_cannot_be_executed(tmp_path: Path) -> None:
    path = written(tmp_path, [capture()])[0]
    assert not path.stat().st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def test_each_file_begins_with_its_warcinfo_which_its_records_name(tmp_path: Path) -> None:
    paths = written(tmp_path, map(capture, range(3)), max_size=1)
    assert len(paths) == 3
    identities = set()
    for path in paths:
        fields, block = read_record(path, 0)
        assert fields["WARC-Type"] == "warcinfo"
        assert fields["WARC-Filename"] == path.name
        assert b"hostname: here\r\nsoftware: test/1\r\n" in block
        identities.add(fields["WARC-Record-ID"])
    assert len(identities) == 3


def test_a_pair_shares_its_date_and_its_warcinfo(tmp_path: Path) -> None:
    files = series(tmp_path)
    location = files.append(capture())
    files.close()
    path = tmp_path / location.file
    info, _ = read_record(path, 0)
    response, _ = read_record(path, location.offset)
    request, _ = read_record(path, location.offset + location.length)
    assert response["WARC-Date"] == request["WARC-Date"] == "2026-01-01T00:00:00.250000Z"
    assert request["WARC-Concurrent-To"] == response["WARC-Record-ID"]
    assert response["WARC-Warcinfo-ID"] == request["WARC-Warcinfo-ID"] == info["WARC-Record-ID"]


def test_a_pair_is_never_split_over_two_files(tmp_path: Path) -> None:
    """Files end with the first pair that reaches their size, wherever that falls."""
    for max_size in range(400, 2400, 37):
        directory = tmp_path / str(max_size)
        directory.mkdir()
        files = series(directory, max_size=max_size)
        where = [files.append(capture(number)) for number in range(6)]
        files.close()
        for location in where:
            path = directory / location.file
            assert path.stat().st_size > location.offset + location.length
            fields, _ = read_record(path, location.offset + location.length)
            assert fields["WARC-Type"] == "request"
        assert all(path.stat().st_size >= max_size for path in finished(directory)[:-1])


def test_a_name_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    """Neither a finished file nor an open one is touched, even by a series of the same name."""
    first = series(tmp_path)
    second = series(tmp_path)
    third = series(tmp_path)
    first.append(capture(1))
    first.close()
    before = finished(tmp_path)[0].read_bytes()
    where = [files.append(capture(number)) for number, files in enumerate((second, third), 2)]
    second.close()
    third.close()
    assert len({location.file for location in where} | {finished(tmp_path)[0].name}) == 3
    assert finished(tmp_path)[0].read_bytes() == before
    assert check_folder(tmp_path).problem_count == 0


def test_a_final_name_taken_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    files = series(tmp_path)
    location = files.append(capture())
    (tmp_path / location.file).write_bytes(b"someone else's")
    with pytest.raises(FileExistsError):
        files.close()
    assert (tmp_path / location.file).read_bytes() == b"someone else's"
    assert (tmp_path / (location.file + ".open")).exists()


def test_a_refused_capture_leaves_no_byte(tmp_path: Path) -> None:
    files = series(tmp_path)
    first = files.append(capture(1))
    bad = capture(2)
    bad.url = "http://a/\r\nX: y"
    with pytest.raises(CaptureRefused):
        files.append(bad)
    second = files.append(capture(3))
    files.close()
    assert read_record(tmp_path / second.file, second.offset)[0]["WARC-Target-URI"].endswith("/3")
    assert first.file == second.file
    report = check_folder(tmp_path)
    assert (report.records, report.problem_count) == (5, 0)


def test_stats_are_what_lies_on_the_disk(tmp_path: Path) -> None:
    files = series(tmp_path, max_size=1500)
    for number in range(10):
        files.append(capture(number))
    files.close()
    report = check_folder(tmp_path)
    assert files.stats.files == report.files == len(finished(tmp_path)) > 1
    assert files.stats.records == report.records == 20 + report.files
    assert files.stats.bytes_written == sum(path.stat().st_size for path in finished(tmp_path))
    assert files.stats.bytes_payload == 10 * len("<p>page 0</p>")


def test_sync_flushes_the_content_and_once_the_name(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture(1))
    assert durable_steps(files.sync) == ["fsync", "fsync"]
    assert durable_steps(files.sync) == []
    files.append(capture(2))
    assert durable_steps(files.sync) == ["fsync"]
    files.abandon()


def test_a_file_gets_its_final_name_only_when_its_content_is_durable(tmp_path: Path) -> None:
    """By close, and by the capture that finds it full; the name itself is made durable last."""
    files = series(tmp_path, max_size=1)
    files.append(capture(1))
    files.sync()
    files.append(capture(2))
    steps = ["fsync", "fsync", "rename", "fsync"]
    assert durable_steps(lambda: files.append(capture(3))) == [*steps, "write", "write"]
    files.append(capture(4))
    assert durable_steps(files.close) == steps


@pytest.mark.parametrize("prefix", ["", "..", ".a", "a/b", "../a", "a b", "a\n", "é", "a" * 200])
def test_a_prefix_that_is_not_a_plain_name_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ValueError, match=r"prefix|too long"):
        WarcSeries(tmp_path, prefix=prefix, hostname="here", max_size=1, info={})


def test_a_hostname_is_made_fit_for_a_file_name(tmp_path: Path) -> None:
    files = WarcSeries(tmp_path, prefix="t", hostname="../a b\nc", max_size=1, info={})
    files.append(capture())
    files.close()
    assert re.search(r"-\.\.-a-b-c-\d+\.warc\.gz$", finished(tmp_path)[0].name)


@pytest.mark.parametrize("hostname", ["", "h" * 200])
def test_a_hostname_that_gives_no_file_name_is_refused(tmp_path: Path, hostname: str) -> None:
    with pytest.raises(ValueError, match="hostname"):
        WarcSeries(tmp_path, prefix="t", hostname=hostname, max_size=1, info={})


def test_warcinfo_fields_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="control character"):
        WarcSeries(tmp_path, prefix="t", hostname="h", max_size=1, info={"operator": "a\r\nb"})
