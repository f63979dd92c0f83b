"""The Parquet files of a catalogue: what is in them, and when they are there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from krowlspider.catalogue.columns import COMMON_CRAWL, TABLES, USUAL
from krowlspider.catalogue.parquet import ROWS_AT_ONCE, ParquetSink, schema_of
from krowlspider.catalogue.rows import FileOrigin, rows_of
from krowlspider.errors import KrowlError
from tests.catalogue.warcs import ALL, archived, fetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.catalogue.sinks import Row

NAME = "one.warc.gz"


@pytest.fixture
def warc(tmp_path: Path) -> Path:
    pages = [fetch(f"https://{host}.test/", host.encode()) for host in "cab"]
    pages.append(fetch("https://a.test/robots.txt", b"", mime=b"text/plain"))
    pages.append(fetch("https://a.test/no", b"no", status=b"404 Not Found"))
    return archived(tmp_path / "warc", pages)[0]


def sink(folder: Path, tables: frozenset[str] = USUAL) -> ParquetSink:
    return ParquetSink(folder, tables)


def write(folder: Path, warc: Path, crawl: str = "autumn 2026/1") -> None:
    target = sink(folder)
    target.write(warc.name, rows_of(warc, USUAL, FileOrigin(crawl)))
    target.close()


def test_two_readers_find_the_rows_sorted_by_surt(tmp_path: Path, warc: Path):
    folder = tmp_path / "catalogue"
    write(folder, warc)
    files = sorted(str(path.relative_to(folder)) for path in folder.glob("fetch/**/*.parquet"))
    stem = warc.name.removesuffix(".warc.gz")
    assert files == [
        f"fetch/crawl=autumn 2026%2F1/subset={subset}/{stem}.parquet"
        for subset in ("crawldiagnostics", "robotstxt", "warc")
    ]
    # pyarrow
    table = pq.read_table(folder / files[2], partitioning=None)
    assert table.schema.remove_metadata().equals(schema_of(TABLES["fetch"]))
    assert table["url"].to_pylist() == [f"https://{host}.test/" for host in "abc"]
    whole = ds.dataset(folder / "fetch", partitioning=ds.partitioning(flavor="hive")).to_table()
    assert whole.num_rows == 5
    # DuckDB
    query = f"select crawl, subset, count(*) from '{folder}/fetch/**/*.parquet' group by all"
    assert set(duckdb.sql(query).fetchall()) == {
        ("autumn 2026/1", "crawldiagnostics", 1),
        ("autumn 2026/1", "robotstxt", 1),
        ("autumn 2026/1", "warc", 3),
    }
    described = duckdb.sql(f"describe select * from '{folder}/fetch/**/*.parquet'").fetchall()
    names = [column[0] for column in described]
    assert names[: len(COMMON_CRAWL)] == [column.name for column in COMMON_CRAWL]


def test_equal_keys_keep_their_order_beyond_a_batch(tmp_path: Path):
    count = ROWS_AT_ONCE + 10
    same = {column.name: "x" for column in TABLES["link"]} | {"crawl": "c"}
    made: Iterator[tuple[str, Row]] = (
        ("link", same | {"url_surtkey": "b" if n % 2 else "a", "number": n}) for n in range(count)
    )
    target = sink(tmp_path / "catalogue", ALL)
    target.write(NAME, made)
    target.close()
    [file] = (tmp_path / "catalogue").glob("link/crawl=c/*.parquet")
    numbers = pq.read_table(file, partitioning=None)["number"].to_pylist()
    assert numbers == [*range(0, count, 2), *range(1, count, 2)]


def test_a_damaged_marker_is_none(tmp_path: Path, warc: Path):
    folder = tmp_path / "catalogue"
    write(folder, warc, "first")
    marker = folder / "_done" / warc.name
    whole = marker.read_bytes()
    for damaged in (b"", whole[:-3], b"[]", b"\xff"):
        marker.write_bytes(damaged)
        target = sink(folder)
        assert target.done() == set()
        target.close()
    # A marker that is removed beside a process that follows has the file made again.
    marker.write_bytes(whole)
    target = sink(folder)
    assert target.done() == {warc.name}
    marker.unlink()
    assert target.done() == set()
    target.close()


def test_a_file_is_done_with_its_marker_only(tmp_path: Path, warc: Path):
    """What a killed process left is replaced, in other partitions too."""
    folder = tmp_path / "catalogue"
    write(folder, warc, "first")
    (folder / "_done" / warc.name).unlink()
    left = next(folder.glob("page_by_file/crawl=first/*.parquet"))
    draft = left.with_name(f"{left.name}.1234.new")
    draft.write_bytes(b"half")
    target = sink(folder)
    assert target.done() == set()
    assert not draft.exists()
    target.write(warc.name, rows_of(warc, USUAL, FileOrigin("second")))
    assert target.done() == {warc.name}
    target.close()
    crawls = {path.parts[-1] for path in folder.glob("*/crawl=*") if any(path.rglob("*.parquet"))}
    assert crawls == {"crawl=second"}


def test_nothing_is_written_of_rows_that_raise(tmp_path: Path):
    def broken() -> Iterator[tuple[str, Row]]:
        yield "page_by_file", {"url_surtkey": "a", "crawl": "c"}
        raise OSError("gone")

    target = sink(tmp_path / "catalogue")
    with pytest.raises(OSError, match="gone"):
        target.write(NAME, broken())
    assert target.done() == set()
    target.close()
    assert not list((tmp_path / "catalogue").rglob("*.parquet"))


def test_a_table_that_is_added_later_is_made(tmp_path: Path, warc: Path):
    folder = tmp_path / "catalogue"
    write(folder, warc)
    target = sink(folder, ALL)
    assert target.done() == set()
    target.close()
    target = sink(folder)
    assert target.done() == {warc.name}
    target.close()


def test_one_process_has_a_catalogue(tmp_path: Path):
    first = sink(tmp_path / "catalogue")
    with pytest.raises(KrowlError, match="another scrapy catalogue writes to"):
        sink(tmp_path / "catalogue")
    first.close()
    sink(tmp_path / "catalogue").close()


def test_other_files_are_refused(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(KrowlError, match="is no catalogue: give a new folder with -o"):
        sink(tmp_path)
    with pytest.raises(KrowlError, match=r"notes\.txt is a file: give a folder with -o"):
        sink(tmp_path / "notes.txt")
    # A folder that is empty may be a mounted disk.
    (tmp_path / "new").mkdir()
    sink(tmp_path / "new").close()
    shutil.rmtree(tmp_path / "new")
