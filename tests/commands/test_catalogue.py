"""``scrapy catalogue``: what it says."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from threading import Timer
from typing import TYPE_CHECKING

import duckdb
import pytest

from krowlspider.archive.cdxj import index_path
from krowlspider.archive.disk import lock_directory
from tests.catalogue.warcs import archived, fetch
from tests.support.crawling import scrapy
from tests.support.small_disk import SmallDisk

if TYPE_CHECKING:
    from pathlib import Path


def said(*words: object, code: int) -> str:
    """Return the one line on standard error."""
    done = scrapy("catalogue", *words, code=code)
    [line] = done.stderr.decode().splitlines()
    return line.removeprefix("krowlspider: ")


def test_it_says_what_it_wrote(tmp_path: Path):
    job = tmp_path / "autumn"
    [warc] = archived(job / "warc", [fetch("https://a.test/", b"<a href=/x>x</a>")])
    done = scrapy("catalogue", job)
    assert done.stdout.decode() == f"{warc.name}: 3 rows\n1 file, 3 rows\n"
    stem = warc.name.removesuffix(".warc.gz")
    assert (job / f"catalogue/fetch/crawl=autumn/subset=warc/{stem}.parquet").exists()
    assert scrapy("catalogue", job).stdout == b"0 files, 0 rows\n"
    # Links make the files anew; the folder of WARC files is as good.
    assert b"1 file, 4 rows" in scrapy("catalogue", job / "warc", "--links").stdout
    assert len(list(job.glob("catalogue/fetch/*/*/*.parquet"))) == 1
    scrapy("catalogue", job, "-o", tmp_path / "other", "--crawl", "CC MAIN/1")
    assert [path.name for path in tmp_path.glob("other/host_by_file/*")] == ["crawl=CC MAIN%2F1"]


def test_a_new_name_is_for_new_files(tmp_path: Path):
    job = tmp_path / "autumn"
    archived(job / "warc", [fetch("https://a.test/", b"x")])
    scrapy("catalogue", job)
    assert scrapy("catalogue", job, "--crawl", "autumn").stderr == b""
    assert said(job, "--crawl", "winter", code=0) == (
        "--crawl winter holds for new files: 1 file in the catalogue already stay in autumn; for"
        " another name, give a new folder with -o"
    )


def test_changes_are_those_of_scrapy_changes(tmp_path: Path):
    """Of several files, with a page that comes back, a revisit of an old body, and one that differs
    in its compression only."""
    first, second = b"<p>One two three four. Five.", b"<p>One two three six. Five."
    packed = [gzip.compress(first, level, mtime=0) for level in (1, 9)]
    coded = b"Content-Encoding: gzip"
    archived(
        tmp_path,
        [fetch("https://a.test/", first), fetch("https://b.test/", packed[0] + b"x", coded)],
        [
            fetch("https://a.test/", second, minute=1),
            fetch("https://a.test/", b"", minute=2, status=b"410 Gone"),
            fetch("https://b.test/", packed[1], coded, minute=2),
        ],
        [
            fetch("https://a.test/", first, minute=3),
            fetch("https://a.test/", b"blocked", minute=4, status=b"403 Forbidden"),
            fetch("https://a.test/", first, minute=5),
            fetch("https://a.test/", second, minute=6),
        ],
    )
    printed = list(map(json.loads, scrapy("changes", tmp_path).stdout.splitlines()))
    scrapy("catalogue", tmp_path, "-o", tmp_path / "out")
    columns = (
        "url, {'time': TIME(before_time), 'status': before_status, 'digest': before_digest,"
        " 'file': before_filename, 'offset': before_offset} as before,"
        " {'time': TIME(fetch_time), 'status': fetch_status, 'digest': digest,"
        " 'file': warc_filename, 'offset': warc_record_offset} as after,"
        " fetched_between, TIME(unchanged_until), media_type, similarity, text_changed, truncated"
    )
    columns = re.sub(r"TIME\((\w+)\)", r"strftime(\1, '%Y-%m-%dT%H:%M:%SZ')", columns)
    found = duckdb.sql(
        f"select {columns} from '{tmp_path}/out/change/**/*.parquet' order by fetch_time"
    ).fetchall()
    for change in printed:
        for each in (change["before"], change["after"]):
            each["digest"] = each["digest"] and each["digest"].removeprefix("sha1:")
    assert len(printed) == 4
    assert found == [tuple(change.values()) for change in printed]


def test_what_is_missing_is_named(tmp_path: Path):
    one, two = archived(tmp_path, [fetch("https://a.test/")], [fetch("https://a.test/2", b"2")])
    one.unlink()
    two.write_bytes(two.read_bytes()[:-9])
    index_path(two).touch()
    done = scrapy("catalogue", tmp_path, "-o", tmp_path / "out", code=1)
    damaged, gone = done.stderr.decode().splitlines()
    assert damaged.startswith(f"krowlspider: {two.name} at byte ")
    assert gone == f"krowlspider: not in the catalogue: 1 file no longer in {tmp_path}"
    assert b"1 file, " in done.stdout


def test_bad_input_is_one_line(tmp_path: Path):
    (tmp_path / "job").mkdir()
    (tmp_path / "file").touch()
    warcs = tmp_path / "warc"
    archived(warcs, [fetch("https://a.test/")])
    assert "is neither a crawl's folder nor one of WARC files" in said(tmp_path / "job", code=2)
    assert "is neither a crawl's folder" in said(tmp_path / "missing", code=2)
    assert "is a file: give a folder with -o" in said(warcs, "-o", tmp_path / "file", code=2)
    assert "is no catalogue: give a new folder" in said(warcs, "-o", tmp_path, code=2)
    assert "give a path of a file" in said(warcs, "--to", f"sqlite:///{tmp_path}/no/x", code=2)
    assert "too long for a folder: give --crawl" in said(warcs, "--crawl", "é" * 41, code=2)
    assert said(warcs, "--crawl", " ", code=2) == "--crawl needs a name, such as autumn-2026"


def test_a_crawl_without_archive_is_told(tmp_path: Path):
    (tmp_path / "frontier").mkdir()
    assert "has no WARC files" in said(tmp_path, code=2)
    assert "has no WARC files" in said(tmp_path, "--follow", code=2)


def test_the_first_file_of_a_crawl_is_awaited(tmp_path: Path):
    (tmp_path / "warc").mkdir()
    lock = lock_directory(tmp_path / "warc")
    timer = Timer(0.5, os.close, [lock])
    timer.start()
    assert scrapy("catalogue", tmp_path, "--follow").stdout == b"0 files, 0 rows\n"
    timer.join()


def test_the_folder_of_a_setting_is_read(tmp_path: Path):
    """KROWL_WARC_DIR, in which `scrapy node` has a folder for each process."""
    job, warcs = tmp_path / "job", tmp_path / "warcs"
    (job / "p1" / "frontier").mkdir(parents=True)
    archived(warcs / "p1", [fetch("https://a.test/")])
    done = scrapy("catalogue", job, "-s", f"KROWL_WARC_DIR={warcs}")
    assert done.stdout.endswith(b"1 file, 3 rows\n")
    assert len(list(job.glob("catalogue/fetch/crawl=job/*/*.parquet"))) == 1


@pytest.mark.slow
def test_a_full_disk_leaves_what_stood(tmp_path: Path):
    warcs = tmp_path / "warc"
    archived(warcs, [fetch("https://a.test/")], [fetch("https://a.test/2", b"2")])
    disk = SmallDisk(tmp_path / "disk", 1_000_000)
    if not disk.mounted:
        disk.close()
        pytest.skip("no mount namespace here")
    try:
        disk.fill()
        done = scrapy("catalogue", warcs, "-o", disk.outside / "out", code=3)
        assert b"No space left on device" in done.stderr
        assert b"make room" in done.stderr
        disk.make_room()
        assert b"2 files, 6 rows" in scrapy("catalogue", warcs, "-o", disk.outside / "out").stdout
    finally:
        disk.close()


def test_pyarrow_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archived(tmp_path, [fetch("https://a.test/")])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    from krowlspider.catalogue.columns import USUAL  # noqa: PLC0415
    from krowlspider.catalogue.parquet import ParquetSink  # noqa: PLC0415
    from krowlspider.errors import KrowlError  # noqa: PLC0415

    with pytest.raises(KrowlError, match=r"pyarrow is not installed: .*\[sql\]"):
        ParquetSink(tmp_path / "out", USUAL)
    assert not (tmp_path / "out").exists()
