"""``scrapy catalogue``: what it says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.cdxj import index_path
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
    assert [path.name for path in tmp_path.glob("other/host/*")] == ["crawl=CC MAIN%2F1"]


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
    assert said(warcs, "--crawl", " ", code=2) == "--crawl needs a name, such as autumn-2026"


def test_a_crawl_without_archive_is_told(tmp_path: Path):
    (tmp_path / "frontier").mkdir()
    assert "has no WARC files" in said(tmp_path, code=2)


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
