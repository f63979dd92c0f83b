from __future__ import annotations

import os
import random
import re
import stat
from typing import TYPE_CHECKING, Any

import pytest
from fastwarc.warc import ArchiveIterator

from krowlspider.archive.cdxj import index_file, index_path
from krowlspider.archive.disk import CaptureRefused
from krowlspider.archive.payload import ALGORITHMS
from krowlspider.archive.reading import read_record
from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.write.composer import PayloadIndex
from krowlspider.archive.write.records import FetchNote, Resource, dns_resource, seeds_resource
from krowlspider.archive.write.series import INDEX_MAX, WarcSeries
from tests.archive.captures import (
    ALL_ODD,
    REQUEST,
    STARTED,
    Odd,
    capture,
    durable_steps,
    finished,
    options,
    series,
    written,
)

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


def test_file_is_named_open_until_it_is_closed(tmp_path: Path) -> None:
    files = series(tmp_path)
    location = files.append(capture())
    assert [path.name for path in tmp_path.iterdir()] == [location.file + ".open"]
    files.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        location.file.replace(".warc.gz", ".cdxj"),
        location.file,
    ]


def test_file_name_has_prefix_time_serial_host_and_process(tmp_path: Path) -> None:
    path = written(tmp_path, [capture()])[0]
    assert re.fullmatch(rf"test-\d{{14}}-00000-here-{os.getpid()}\.warc\.gz", path.name)
    # It cannot be executed.
    assert not path.stat().st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def test_each_file_begins_with_its_own_warcinfo(tmp_path: Path) -> None:
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
    """A file ends with the first pair that reaches its size."""
    for max_size in range(400, 2400, 111):
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


def test_taken_file_name_is_skipped(tmp_path: Path) -> None:
    """Neither a finished nor an open file is changed, even by a series of the same name."""
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


def test_final_name_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    files = series(tmp_path)
    location = files.append(capture())
    (tmp_path / location.file).write_bytes(b"someone else's")
    with pytest.raises(FileExistsError):
        files.close()
    assert (tmp_path / location.file).read_bytes() == b"someone else's"
    assert (tmp_path / (location.file + ".open")).exists()


def test_what_is_refused_leaves_no_byte(tmp_path: Path) -> None:
    files = series(tmp_path)
    first = files.append(capture(1))
    bad = capture(2)
    bad.url = "http://a/\r\nX: y"
    with pytest.raises(CaptureRefused):
        files.append(bad)
    with pytest.raises(CaptureRefused):
        files.note(FetchNote("http://a/", STARTED, [("via", "a\r\nb")]))
    with pytest.raises(CaptureRefused):
        files.resource(dns_resource("a b", STARTED, []))
    second = files.append(capture(3))
    files.close()
    assert read_record(tmp_path / second.file, second.offset)[0]["WARC-Target-URI"].endswith("/3")
    assert first.file == second.file
    report = check_folder(tmp_path)
    assert (report.records, report.problem_count) == (5, 0)


def test_stats_equal_what_is_on_the_disk(tmp_path: Path) -> None:
    files = series(tmp_path, max_size=1500)
    for number in range(10):
        files.append(capture(number))
    files.close()
    report = check_folder(tmp_path)
    assert files.stats.files == report.files == len(finished(tmp_path)) > 1
    assert files.stats.records == report.records == 20 + report.files
    assert files.stats.bytes_written == sum(path.stat().st_size for path in finished(tmp_path))


def test_sync_flushes_the_content_and_once_the_name(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture(1))
    assert durable_steps(files.sync) == ["fsync", "fsync"]
    assert durable_steps(files.sync) == []
    files.append(capture(2))
    assert durable_steps(files.sync) == ["fsync"]
    files.abandon()


def test_file_gets_its_final_name_after_its_content_is_durable(tmp_path: Path) -> None:
    """So does its index, by `close` and by the next capture of a full file. The name is made
    durable last."""
    files = series(tmp_path, max_size=1)
    files.append(capture(1))
    files.sync()
    files.append(capture(2))
    index = ["fsync", "rename", "fsync"]
    steps = ["fsync", "fsync", *index, "rename", "fsync"]
    assert durable_steps(lambda: files.append(capture(3))) == [*steps, "write", "write"]
    files.append(capture(4))
    assert durable_steps(files.close) == steps


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        *(
            ({"prefix": prefix}, "prefix|too long")
            for prefix in ("", "..", ".a", "a/b", "../a", "a b", "a\n", "é", "a" * 200)
        ),
        *(({"hostname": hostname}, "hostname") for hostname in ("", "h" * 200)),
        ({"info": {"operator": "a\r\nb"}}, "control character"),
        *(
            ({"compression": compression}, "isal-0 to isal-3")
            for compression in ("", "gzip", "isal-4", "zlib-ng-0", "isal-1 ")
        ),
    ],
)
def test_options_that_make_no_file_are_refused_immediately(
    tmp_path: Path, refused: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        WarcSeries(tmp_path, options(**refused))


def test_a_hostname_is_made_fit_for_a_file_name(tmp_path: Path) -> None:
    files = WarcSeries(tmp_path, options(hostname="../a b\nc"))
    files.append(capture())
    files.close()
    assert re.search(r"-\.\.-a-b-c-\d+\.warc\.gz$", finished(tmp_path)[0].name)


# --- revisits ---


def remembering(directory: Path, most: int = 1000) -> PayloadIndex:
    return PayloadIndex(directory / "payloads", most=most, warn=pytest.fail)


def test_stored_payload_becomes_a_revisit(tmp_path: Path) -> None:
    """At once, after a sync, and after a restart. Its request is whole."""
    first, *others = (capture(7, url=f"http://{host}.example/") for host in "abcd")
    places = []
    for pages in ([first, *others[:2]], others[2:]):
        payloads = remembering(tmp_path)
        files = WarcSeries(tmp_path, options(), payloads)
        for page in pages:
            places.append(files.append(page))
            files.sync()
        files.close()
        payloads.close()
        assert files.stats.revisits == len(pages) - (pages[0] is first)
    for location, other in zip(places[1:], others, strict=True):
        path = tmp_path / location.file
        fields, block = read_record(path, location.offset)
        assert (fields["WARC-Type"], fields["WARC-Target-URI"]) == ("revisit", other.url)
        assert fields["WARC-Refers-To-Target-URI"] == first.url
        assert block == other.response_bytes[: other.head]
        fields, block = read_record(path, location.offset + location.length)
        assert (fields["WARC-Type"], block) == ("request", REQUEST)
    assert check_folder(tmp_path).problem_count == 0


def test_no_payload_is_indexed_before_it_is_durable(tmp_path: Path) -> None:
    """So no revisit survives its original."""
    payloads = remembering(tmp_path)
    files = WarcSeries(tmp_path, options(), payloads)
    files.append(capture(7))
    # As a death would.
    files.abandon()
    payloads.close()
    again = remembering(tmp_path)
    later = WarcSeries(tmp_path, options(), again)
    later.append(capture(7))
    later.close()
    again.close()
    assert later.stats.revisits == 0


class _NotingIndex(PayloadIndex):
    """Shows among the `durable_steps` when it is written: as a write to ``noted``."""

    noted: int

    def sync(self) -> None:
        super().sync()
        os.write(self.noted, b".")


def test_payloads_are_indexed_after_their_file_is_synced(tmp_path: Path) -> None:
    payloads = _NotingIndex(tmp_path / "payloads", most=1000, warn=pytest.fail)
    files = WarcSeries(tmp_path, options(), payloads)
    files.append(capture(7))
    with (tmp_path / "noted").open("wb") as noted:
        payloads.noted = noted.fileno()
        assert durable_steps(files.sync) == ["fsync", "fsync", "write"]
    files.abandon()
    payloads.close()


# --- index, notes, names, age, digests ---


def test_many_index_lines_are_sorted(tmp_path: Path) -> None:
    files = series(tmp_path)
    numbers = list(range(6_000))
    random.Random(1).shuffle(numbers)
    for number in numbers:
        files.append(capture(number))
    files.close()
    (path,) = finished(tmp_path)
    lines = index_path(path).read_bytes().splitlines()
    assert len(lines) == len(numbers)
    assert lines == sorted(lines)


def test_notes_and_names_have_records_of_their_own(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture())
    files.note(FetchNote("http://example.org/", STARTED, [("via", "http://a/")]))
    files.resource(dns_resource("example.org", STARTED, [("192.0.2.7", 300.0)]))
    files.close()
    (path,) = finished(tmp_path)
    kinds = [record.headers["WARC-Type"] for record in ArchiveIterator(path, parse_http=False)]
    assert kinds == ["warcinfo", "response", "request", "metadata", "resource"]
    assert files.stats.records == 5
    assert check_folder(tmp_path).problem_count == 0


def test_seeds_follow_the_warcinfo_of_one_file(tmp_path: Path) -> None:
    files = series(tmp_path)
    seeds = seeds_resource(b"example.org\n", STARTED, truncated=True)
    files.begin_with(seeds)
    files.close()
    assert finished(tmp_path) == []
    for _ in range(2):
        files.append(capture())
        files.close()
    files.append(capture())
    files.begin_with(seeds)
    files.close()
    kinds, cut = [], []
    for path in finished(tmp_path):
        assert sorted(index_file(path)) == index_path(path).read_text().splitlines(keepends=True)
        for record in ArchiveIterator(path, parse_http=False):
            kinds.append(record.headers["WARC-Type"])
            cut += [record.headers.get("WARC-Truncated")] * (kinds[-1] == "resource")
    first, page = ["warcinfo", "resource"], ["response", "request"]
    assert kinds == [*first, *page, "warcinfo", *page, "warcinfo", *page, "resource"]
    assert cut == ["length"] * 2
    assert files.stats.records == len(kinds)


def test_old_file_is_ended_by_a_sync_or_the_next_capture(tmp_path: Path) -> None:
    files = WarcSeries(tmp_path, options(max_age=0.0))
    files.append(capture(1))
    assert finished(tmp_path) == []
    files.sync()
    assert len(finished(tmp_path)) == 1
    files.append(capture(2))
    files.append(capture(3))
    assert len(finished(tmp_path)) == 2
    files.sync()
    files.sync()
    assert len(finished(tmp_path)) == 3
    assert check_folder(tmp_path).problem_count == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("compression", ["isal-0", "isal-3", "zlib-ng-1", "zlib-ng-9"])
def test_every_digest_and_compression_makes_valid_files(
    tmp_path: Path, algorithm: str, compression: str
) -> None:
    files = WarcSeries(tmp_path, options(digest=algorithm, compression=compression))
    for odd in ALL_ODD.values():
        location = files.append(capture(odd=odd))
    files.close()
    assert check_folder(tmp_path).problem_count == 0
    fields, _ = read_record(tmp_path / location.file, location.offset)
    assert fields["WARC-Block-Digest"].startswith(f"{algorithm}:")


def test_higher_levels_make_smaller_files(tmp_path: Path) -> None:
    text = b"".join(b"<p>paragraph %d of a page</p>" % (n * n) for n in range(2000))
    page = Odd(b"HTTP/1.1 200 OK\r\n\r\n" + text, text)
    sizes = []
    for compression in ("isal-0", "isal-3", "zlib-ng-6"):
        files = WarcSeries(tmp_path, options(compression=compression))
        files.append(capture(odd=page))
        files.close()
        sizes.append(files.stats.bytes_written)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_file_ends_when_its_index_is_full(tmp_path: Path) -> None:
    """Long URLs fill the index before the file is large."""
    files = series(tmp_path)
    url = "http://example.org/" + "x" * 16_000
    count = INDEX_MAX // (2 * len(url))
    for number in range(count + 10):
        files.append(capture(number, url=f"{url}{number}"))
    files.close()
    sizes = [index_path(path).stat().st_size for path in finished(tmp_path)]
    assert len(sizes) == 2
    assert INDEX_MAX <= sizes[0] < INDEX_MAX + 3 * len(url)


def test_a_head_that_cannot_be_composed_leaves_no_file(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.begin_with(Resource("urn:x\n", STARTED, "text/plain", b""))
    with pytest.raises(ValueError, match="urn:x"):
        files.append(capture(0))
    assert list(tmp_path.iterdir()) == []
