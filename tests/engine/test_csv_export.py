"""CSV feeds: cells that strangers filled are text."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.engine.csv_export import CsvItemExporter
from tests.support.crawls import crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path


def rows(*items: dict[str, Any]) -> list[list[str]]:
    file = io.BytesIO()
    exporter = CsvItemExporter(file)
    exporter.start_exporting()
    for item in items:
        exporter.export_item(item)
    exporter.finish_exporting()
    return list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))


@pytest.mark.parametrize("start", [*"=+-@\t\r\n＝＋－＠", " =", "\u00a0+", "\u3000＠", "\n\t-"])
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
