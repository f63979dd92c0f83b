"""CSV feeds: cells that strangers filled are text."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from io import StringIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from scrapy import Spider

from krowlspider.archive.reading import read_record
from krowlspider.engine import csv_export
from krowlspider.engine.csv_export import CsvItemExporter
from krowlspider.spiders.broad import BroadSpider
from tests.support.crawls import crawl_of, page
from tests.support.simulated_web import SimulatedWeb
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def rows(*items: dict[str, Any]) -> list[list[str]]:
    file = io.BytesIO()
    exporter = CsvItemExporter(file)
    exporter.start_exporting()
    for item in items:
        exporter.export_item(item)
    exporter.finish_exporting()
    return list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))


@table("start", [*"=+-@\t\r\n＝＋－＠", " =", "\u00a0+", "\u3000＠", "\n\t-"])
def test_what_would_be_a_formula_is_text(start: str) -> None:
    text = f'{start}HYPERLINK("http://x.test/")'
    assert rows({"title": text, "many": [text, "b"]})[1] == [f"'{text}", f"'{text},b"]
    assert rows({text: "name"})[0] == [f"'{text}"]


def test_a_number_keeps_its_sign() -> None:
    """What is more than a number is text."""
    numbers = ["-4.5", "+12", "-1,234.50", "-.5", "-3e-7", "+5%"]
    others = ["-4.5+cmd", "-1-2", "+-1", "-1\n", "-x", "-"]
    assert rows(dict(zip("abcdef", numbers, strict=True)))[1] == numbers
    assert rows(dict(zip("abcdef", others, strict=True)))[1] == [f"'{each}" for each in others]


@pytest.mark.parametrize("character", ["\0", "\x08", "\x0b", "\x1b", "\x7f", "\x85", "\x9b"])
def test_control_characters_leave_a_mark(character: str) -> None:
    assert rows({"title": f"a{character}b", "next": f"{character}=1"})[1] == ["a�b", "�=1"]


def test_other_cells_are_as_scrapy_writes_them() -> None:
    item = {"a": "a=b", "b": 'x"y,z', "c": -5, "d": None, "e": "l1\nl2\tl3", "f": True, "g": "é'"}
    assert rows(item)[1] == ["a=b", 'x"y,z', "-5", "", "l1\nl2\tl3", "True", "é'"]


def append(path: Path, *items: dict[str, Any], spider: Any = None, **options: Any) -> str:
    """Export as a start of a crawl does that is given ``-o``; return the text of the file."""
    crawler: Any = SimpleNamespace(spider=spider)
    with path.open("ab") as file:
        exporter = CsvItemExporter.from_crawler(crawler, file, **options)
        exporter.start_exporting()
        for item in items:
            exporter.export_item(item)
        exporter.finish_exporting()
    return path.read_bytes().decode(options.get("encoding", "utf-8"))


class Declared(Spider):
    name = "declared"
    item_fields: ClassVar = {"a": True, "b": False, "c": True}


@pytest.mark.parametrize(
    ("items", "options", "header"),
    [
        ([{"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}], {}, "a,b,c"),
        ([{"a": 1, "c": 3, "d": 4}], {}, "a,b,c,d"),
        ([{"d": 4, "c": 3, "a": 1}], {}, "a,b,c,d"),
        # Items of another kind.
        ([{"a": 1, "x": 2}], {}, "a,x"),
        ([{"a": 1, "c": 3}], {"fields_to_export": ["c", "d"]}, "c,d"),
        ([{"a": 1, "c": 3}], {"fields_to_export": {"c": "sea"}}, "sea"),
        ([{"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}], {"include_headers_line": False}, "1,,3"),
    ],
)
def test_columns_are_those_that_the_spider_declares(
    tmp_path: Path, items: list[dict[str, Any]], options: dict[str, Any], header: str
) -> None:
    text = append(tmp_path / "a.csv", *items, spider=Declared(), **options)
    lines = text.splitlines()
    assert lines[0] == header
    assert {line.count(",") for line in lines} == {header.count(",")}


def test_an_item_without_a_column_for_a_field_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"a": 1, "b": 2, "c": 3}
    assert append(tmp_path / "a.csv", {"a": 1}, more, more) == "a\r\n1\r\n1\r\n1\r\n"
    assert caplog.messages == [
        "the CSV feed has no column for b, c of an item: set FEED_EXPORT_FIELDS, or give a new file"
    ]


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Assert that the test logs nothing."""
    yield
    assert caplog.get_records("call") == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("there", "item", "options", "text"),
    [
        ("", {"a": 1, "b": 2}, {}, "a,b\r\n1,2\r\n"),
        ("a,b\r\n1,2\r\n", {"a": 3, "b": 4}, {}, "a,b\r\n1,2\r\n3,4\r\n"),
        # Other columns, or in another order.
        ("b,a\n", {"a": 3, "b": 4}, {}, "b,a\n4,3\r\n"),
        ("b\n1\n", {"b": 4}, {}, "b\n1\n4\r\n"),
        ("b,c\n", {"b": 4}, {}, "b,c\n4,\r\n"),
        ("\ufeffb,a\n", {"a": 3, "b": 4}, {}, "\ufeffb,a\n4,3\r\n"),
        ("b;a\n", {"a": 3, "b": 4}, {"delimiter": ";"}, "b;a\n4;3\r\n"),
        ("'=b,a\n", {"a": 3, "=b": 4}, {}, "'=b,a\n4,3\r\n"),
        ('"b\nc",a\n', {"a": 3, "b\nc": 4}, {}, '"b\nc",a\n4,3\r\n'),
        # A line that was cut short.
        ("a,b\r\n1,2", {"a": 3, "b": 4}, {}, "a,b\r\n1,2\r\n3,4\r\n"),
        ('a,b\r\n1,"2', {"a": 3, "b": 4}, {}, 'a,b\r\n1,"2"\r\n3,4\r\n'),
        ('a,b\r\n1,"2\n', {"a": 3, "b": 4}, {}, 'a,b\r\n1,"2\n"\r\n3,4\r\n'),
        ('a,b\r\n1,"2""', {"a": 3, "b": 4}, {}, 'a,b\r\n1,"2"""\r\n3,4\r\n'),
        ("a,b\r\n1,'2", {"a": 3, "b": 4}, {"quotechar": "'"}, "a,b\r\n1,'2'\r\n3,4\r\n"),
        ("a\n1\n", {"a": 3}, {"fields_to_export": ["a"]}, "a\n1\n3\r\n"),
        ("A\n1\n", {"a": 3}, {"fields_to_export": {"a": "A"}}, "A\n1\n3\r\n"),
        ("1,2\n", {"a": 3, "b": 4}, {"include_headers_line": False}, "1,2\n3,4\r\n"),
        ("é,b\n", {"é": "ü", "b": 4}, {"encoding": "latin-1"}, "é,b\nü,4\r\n"),
        ("\n", {"a": 3}, {}, "\na\r\n3\r\n"),
    ],
)
def test_an_appended_file_keeps_its_one_header(
    tmp_path: Path, there: str, item: dict[str, Any], options: dict[str, Any], text: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(there.encode(options.get("encoding", "utf-8")))
    assert append(path, item, **options) == text


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16-le"])
def test_a_row_that_was_cut_anywhere_swallows_no_other(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a kill, within a character too. Only the end of the file is looked at."""
    monkeypatch.setattr(csv_export, "_TAIL", 100)
    path = tmp_path / "a.csv"
    item = {"a": '\u00e9 "q", \n\u00fc', "b": "\u00ff" * 9}
    whole = append(path, *[item] * 9, encoding=encoding).encode(encoding)
    head = whole.index("\r\n".encode(encoding)) + 2
    for end in range(head, len(whole)):
        path.write_bytes(whole[:end])
        text = append(path, {"a": "3", "b": "4"}, encoding=encoding)
        found = list(csv.reader(StringIO(text, newline="")))
        assert found[-1] == ["3", "4"], end
        assert len(found) <= 11


def test_a_field_that_an_older_file_lacks_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,c\n1,3\n", newline="")
    items = [{"a": 4, "b": 5, "c": 6}] * 2
    assert append(path, *items, spider=Declared()) == "a,c\n1,3\n4,6\r\n4,6\r\n"
    assert [message.startswith(f"{path} has no column for b ") for message in caplog.messages] == [
        True
    ]


def test_columns_that_a_user_has_changed_get_a_header(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n", newline="")
    text = append(path, {"a": 3, "b": 4}, fields_to_export=["b"])
    assert text == "a,b\n1,2\nb\r\n4\r\n"
    assert len(caplog.messages) == 1
    assert "other columns than FEED_EXPORT_FIELDS" in caplog.text


@pytest.mark.parametrize("plugin", ["GzipPlugin", "Bz2Plugin", "LZMAPlugin"])
def test_a_packed_file_is_continued(tmp_path: Path, plugin: str) -> None:
    feed = str(tmp_path / "pages.csv")
    plugins = [f"scrapy.extensions.postprocessing.{plugin}"]
    with SimulatedWeb(spec=[page("/", "x"), page("/2", "y")]) as web:
        for number, path in enumerate(("/", "/2")):
            feeds = {feed: {"format": "csv", "postprocessing": plugins}}
            settings = {"FEEDS": json.dumps(feeds)}
            folder = tmp_path / str(number)
            folder.mkdir()
            urls = [web.url("a.test", path)]
            crawl_of(web, folder, urls, settings=settings, feed=False).run()
        opened = {"G": gzip.open, "B": bz2.open, "L": lzma.open}[plugin[0]]
        with opened(feed, "rt", newline="") as file:
            found = list(csv.DictReader(file))
        assert [row["url"] for row in found] == [web.url("a.test", path) for path in ("/", "/2")]


def test_a_crawl_that_goes_on_adds_rows_without_a_header(tmp_path: Path) -> None:
    """Each item has the fields that the first one lacks, and names the record of its page."""
    feed = tmp_path / "pages.csv"
    spec = [page("/", "x"), page("/3", "y"), page("/2", "", status=301)]
    spec[-1]["headers"]["Location"] = "/3"
    with SimulatedWeb(spec=spec) as web:
        settings = {"FEEDS": json.dumps({str(feed): {"format": "csv"}})}
        for path in ("/", "/2"):
            urls = [web.url("a.test", path)]
            crawl = crawl_of(web, tmp_path, urls, settings=settings, feed=False).run()
        with feed.open(newline="") as file:
            found = list(csv.DictReader(file))
        first, last = web.url("a.test"), web.url("a.test", "/3")
        assert [row["url"] for row in found] == [first, last]
        assert list(found[0]) == list(BroadSpider.item_fields)
        assert [row["redirected_from"] for row in found] == ["", web.url("a.test", "/2")]
        for row in found:
            where = crawl.jobdir / "warc" / row["warc_file"]
            headers, _ = read_record(where, int(row["warc_offset"]))
            assert headers["WARC-Record-ID"] == row["warc_record_id"]
            assert headers["WARC-Target-URI"] == row["url"]


def test_csv_feed_has_no_formula(tmp_path: Path) -> None:
    """A JSON feed is unchanged."""
    title = '=cmd|"/C calc"!A0 \x1b[2J'
    with SimulatedWeb(spec=[page("/", f"<title>{title}</title>")]) as web:
        feeds = {str(tmp_path / name): {"format": name} for name in ("csv", "jsonl")}
        settings = {"FEEDS": json.dumps(feeds)}
        crawl_of(web, tmp_path, [web.url("a.test")], settings=settings, feed=False).run()
    with (tmp_path / "csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    (item,) = map(json.loads, (tmp_path / "jsonl").read_text().splitlines())
    assert item["title"] == title
    assert row["title"] == "'" + title.replace("\x1b", "�")
    assert {name for name in row if row[name][:1] == "'"} == {"title"}
