"""Counts of what WARC files hold."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.tools import inputs
from krowlspider.archive.tools.inputs import OTHERS, count_files, files_in
from krowlspider.archive.write.series import WarcSeries
from krowlspider.corpus.warc_pages import NoPage, Unreadable, page_of, records
from krowlspider.fetch.http.decode import decoded
from tests.archive.captures import Odd, capture, deduplicating, finished, options, written
from tests.archive.command import warc

from .foreign import gzipped, in_zstandard, plain

if TYPE_CHECKING:
    from pathlib import Path

PAGE = Odd(
    b"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=x\r\nContent-Length: 3\r\n\r\nabc", b"abc"
)
MOVED = Odd(b"HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n", b"")


decode = partial(decoded, cap=10_000)


def test_records_of_a_crawl_are_counted(tmp_path: Path) -> None:
    with deduplicating(tmp_path) as files:
        for number, (odd, host) in enumerate([(PAGE, "a"), (PAGE, "a"), (MOVED, "b"), (PAGE, "c")]):
            files.append(capture(number, odd, url=f"http://{host}.test:81/{number}"))
    [path] = finished(tmp_path)
    found = count_files([path], decode)
    assert found.records == {"warcinfo": 1, "response": 2, "revisit": 2, "request": 4}
    assert found.hosts == {"a.test": 2, "b.test": 1, "c.test": 1}
    assert found.statuses == {"200": 3, "301": 1}
    assert found.media_types == {"text/html": 3, "-": 1}
    assert (found.saved_bytes, found.unsized_revisits, found.damaged) == (6, 0, [])
    assert found.stored_bytes == path.stat().st_size < found.bytes


def test_files_of_other_tools_are_counted_alike(tmp_path: Path) -> None:
    for write, name in ((gzipped, "a.warc.gz"), (plain, "b.warc"), (in_zstandard, "c.warc.zst")):
        found = count_files([write(tmp_path / name)], decode)
        assert found.records == {"warcinfo": 1, "response": 2, "revisit": 1, "request": 1}
        assert (found.hosts, found.unsized_revisits) == ({"other.test": 3}, 1)
        assert (found.files, found.damaged) == (1, [])
    assert count_files(files_in(tmp_path), decode).records.total() == 15


def test_damaged_file_is_named_and_counted_to_the_damage(tmp_path: Path) -> None:
    cut = plain(tmp_path / "cut.warc")
    cut.write_bytes(cut.read_bytes()[:-5])
    gzipped(tmp_path / "whole.warc.gz")
    out, errors = warc("stats", tmp_path, "--json", code=1)
    found = json.loads(out)
    assert found["records"] == {"warcinfo": 2, "response": 4, "revisit": 2, "request": 1}
    [[file, offset, reason]] = found["damaged"]
    assert (file, reason) == ("cut.warc", "the record is cut off")
    assert f"cut.warc at byte {offset}: the record is cut off; what cannot be read is not" in errors
    cut.unlink()
    table = warc("stats", tmp_path)[0].decode()
    assert table.startswith("1 file, 5 records: ")
    assert "statuses: 1\n             3  200\n" in table


HTML = b"<!doctype html><title>A page</title>"
# Heads and bodies of which browsers find the type, and that.
TYPED = [
    (b"Content-Type: text/html, text/html; charset=utf-8\r\n", HTML, "text/html"),
    (b"Content-Type: text/plain\r\nContent-Type: Text/HTML\r\n", b"", "text/html"),
    (b"", HTML, "text/html"),
    (b"Content-Type: */*\r\nContent-Encoding: gzip\r\n", gzip.compress(HTML), "text/html"),
    (b"Content-Encoding: gzip\r\n", gzip.compress(HTML)[:11], "-"),
    (b"", b"%PDF-1.7", "application/pdf"),
    (b"X-Content-Type-Options: nosniff\r\n", HTML, "-"),
    (b"", b"see <html>", "-"),
]


def test_media_types_are_those_of_the_crawl(tmp_path: Path) -> None:
    """Of stats and of extract; the corpus reads the same pages as HTML."""
    (there := tmp_path / "in").mkdir()
    odds = [Odd(b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (head, body), body) for head, body, _ in TYPED]
    written(there, [capture(number, odd) for number, odd in enumerate(odds)])
    wanted = Counter(kind for _, _, kind in TYPED)
    assert count_files(files_in(there), decode).media_types == wanted
    for kind in ("text/html", "application/pdf"):
        text, _ = warc("extract", there, "-o", tmp_path / kind[:4], "--mime", kind)
        assert text.startswith(b"%d capture" % wanted[kind])
    [path] = finished(there)
    pages = 0
    with path.open("rb") as stream:
        for _, record in records(stream, 0, pytest.fail):
            with suppress(NoPage, Unreadable):
                pages += page_of(record, decode).media_type == "text/html"
    assert pages == wanted["text/html"]


def test_names_are_counted_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "NAMES_MAX", 1)
    files = WarcSeries(tmp_path, options())
    for number in range(3):
        files.append(capture(number, url=f"http://{number}.test/"))
    files.close()
    assert count_files(finished(tmp_path), decode).hosts == {"0.test": 1, OTHERS: 2}
