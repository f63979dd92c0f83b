"""Tables of the archive, over the Parquet files of a catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.catalogue.columns import TABLES
from krowlspider.errors import KrowlError
from krowlspider.sql.catalogue import catalogue_in, crawl_of, files_of
from krowlspider.sql.database import database
from krowlspider.sql.tables import LIVE, columns_of
from tests.sql.catalogues import minute, put

if TYPE_CHECKING:
    from pathlib import Path


def ask(folder: Path, text: str) -> list[tuple[Any, ...]]:
    files = {table: files_of(folder, table) for table in TABLES}
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    with database(100_000_000, scratch, files, {}) as connection:
        rows: list[tuple[Any, ...]] = connection.execute(text).fetchall()
    return rows


def test_each_table_has_its_columns_without_a_file_too(tmp_path: Path):
    put(tmp_path, "robots", "a", {"url": "http://a.test/robots.txt"})
    for table in TABLES:
        found = ask(tmp_path, f'DESCRIBE "{table}"')
        assert [row[0] for row in found] == [each.name for each in columns_of(table)]
        assert ask(tmp_path, f'SELECT count(*) FROM "{table}"') == [(table == "robots",)]
    for table, columns in LIVE.items():
        assert [row[0] for row in ask(tmp_path, f"DESCRIBE {table}")] == [
            each.name for each in columns
        ]


def test_a_page_is_what_its_latest_fetch_found(tmp_path: Path):
    page = {"url": "http://a.test/", "fetches": 2}
    put(
        tmp_path, "page_by_file", "1",
        page | {"status": 200, "title": "Old", "tag": "t", "fetches": 3,
        "first_fetch": minute(1), "last_fetch": minute(4)},
        {"url": "http://b.test/", "status": 200, "fetches": 1},
    )  # fmt: skip
    put(
        tmp_path, "page_by_file", "2",
        page | {"status": 404, "first_fetch": minute(5), "last_fetch": minute(9)},
    )  # fmt: skip
    assert ask(
        tmp_path,
        "SELECT url, status, title, tag, fetches, minute(first_fetch), minute(last_fetch), crawl"
        " FROM page ORDER BY url",
    ) == [
        ("http://a.test/", 404, None, None, 5, 1, 9, "job"),
        ("http://b.test/", 200, None, None, 1, 0, 0, "job"),
    ]


def test_a_body_that_did_not_change_keeps_its_title_and_time(tmp_path: Path):
    """Revisits have no title, answers of 304 and 404 no digest."""
    page = {"url": "http://a.test/", "fetches": 1}
    found = [
        ("one", "First", 1),
        ("two", "Second", 2),
        ("one", "First", 3),
        ("one", None, 4),
        (None, None, 5),
    ]
    for digest, title, at in found:
        state = {"status": 200 if digest else 404, "digest": digest, "title": title}
        times = dict.fromkeys(("first_fetch", "last_fetch"), minute(at))
        body = {"last_change": minute(at) if digest else None, "record_id": str(at)}
        put(tmp_path, "page_by_file", str(at), page | state | times | body)
    assert ask(
        tmp_path,
        "SELECT status, digest, title, minute(last_change), record_id, fetches FROM page",
    ) == [(404, "one", "First", 3, "4", 5)]
    assert ask(tmp_path, "SELECT count(*) FROM page_by_file") == [(5,)]


def test_the_counts_of_a_host_add_up(tmp_path: Path):
    put(tmp_path, "host_by_file", "1", {"host": "a.test", "fetches": 3, "bytes": 2**40})
    put(tmp_path, "host_by_file", "2", {"host": "a.test", "fetches": 4, "bytes": 1})
    assert ask(tmp_path, "SELECT host, fetches, bytes FROM host") == [("a.test", 7, 2**40 + 1)]


def test_captures_have_crawl_and_subset_of_their_path(tmp_path: Path):
    put(tmp_path, "fetch", "a", {"url": "http://a.test/"}, crawl="2026")
    put(tmp_path, "fetch", "a", {"url": "http://a.test/robots.txt"}, crawl="x", subset="robotstxt")
    for table in ('"fetch"', "capture", "ccindex", '"ccindex"."ccindex"'):
        assert ask(tmp_path, f"SELECT url, crawl, subset FROM {table} ORDER BY url") == [
            ("http://a.test/", "2026", "warc"),
            ("http://a.test/robots.txt", "x", "robotstxt"),
        ]


def test_times_of_archive_and_frontier_compare(tmp_path: Path):
    """Those of the archive have a time zone, UTC."""
    put(tmp_path, "fetch", "a", {"fetch_time": minute(7)})
    text = "SELECT fetch_time = TIMESTAMP '2026-01-01 00:07:00', hour(fetch_time) FROM capture"
    assert ask(tmp_path, text) == [(True, 0)]


def test_functions_of_common_crawls_examples_are_there(tmp_path: Path):
    assert ask(
        tmp_path,
        "SELECT regexp_like('xn--a', 'xn--'), levenshtein_distance('ab', 'ac'),"
        " url_extract_path('https://a.test:8/b/c?d'), url_extract_host('https://a.test:8/b'),"
        " approx_distinct(1), slice([1, 2, 3, 4], 2, 2), reverse('abc'),"
        " transform(filter(reverse(split('/a/b', '/')), w -> w != ''), w -> upper(w))",
    ) == [(True, 1, "/b/c", "a.test", 1, [2, 3], "cba", ["B", "A"])]


def test_a_damaged_file_is_named(tmp_path: Path):
    file = put(tmp_path, "fetch", "a", {"url": "http://a.test/"})
    file.write_bytes(b"nothing")
    with pytest.raises(KrowlError, match=r"the catalogue cannot be read: .*a\.parquet"):
        ask(tmp_path, "SELECT 1")


def test_a_name_with_a_quote_is_read(tmp_path: Path):
    folder = tmp_path / "it's [a] job"
    put(folder, "fetch", "a", {"url": "http://a.test/"})
    assert ask(folder, "SELECT url FROM capture") == [("http://a.test/",)]


def test_drafts_are_not_read(tmp_path: Path):
    file = put(tmp_path, "fetch", "a", {"url": "http://a.test/"})
    (file.parent / ".b.parquet").write_bytes(b"half")
    (file.parent / "b.parquet.new").write_bytes(b"half")
    assert files_of(tmp_path, "fetch") == [file]


def test_a_catalogue_is_found_in_its_jobdir(tmp_path: Path):
    assert catalogue_in(tmp_path) is None
    put(tmp_path / "catalogue", "robots", "a", {"url": "http://a.test/robots.txt"})
    assert catalogue_in(tmp_path) == tmp_path / "catalogue" == catalogue_in(tmp_path / "catalogue")


def test_a_crawl_has_the_name_that_its_catalogue_has(tmp_path: Path):
    jobdir = tmp_path / "job"
    jobdir.mkdir()
    assert crawl_of(jobdir) == "job"
    put(jobdir / "catalogue", "robots", "1", {}, crawl="CC 2026%2Fx")
    put(jobdir / "catalogue", "sitemap", "1", {}, crawl="CC 2026%2Fx")
    assert crawl_of(jobdir) == "CC 2026/x"
    put(jobdir / "catalogue", "robots", "2", {}, crawl="other")
    assert crawl_of(jobdir) == "job"
