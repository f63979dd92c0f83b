"""Records that other tools write in ways of their own, and what every command makes of them."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING

import pytest
from backports import zstd

from krowlspider.corpus.folder import read_lines
from tests.archive.command import warc
from tests.corpus.warcs import html, response, write
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URLS = [f"http://a.example/{number}" for number in range(3)]
RECORDS = [response(url, html(number)) for number, url in enumerate(URLS)]


def corpus(source: Path, out: Path, code: int = 0) -> tuple[list[str], str]:
    """Return the URLs of a corpus, and what the command says."""
    done = scrapy("corpus", source, "-o", out, "--processes", 1, code=code)
    lines = [json.loads(line) for shard in (out / "data").iterdir() for line in read_lines(shard)]
    return [line["url"] for line in lines], (done.stdout + done.stderr).decode()


def test_first_segment_of_a_response_is_no_whole_page(tmp_path: Path) -> None:
    """It is skipped and counted in a corpus, and printed with a line and exit code 1."""
    first = RECORDS[1].replace(b"WARC-Date", b"WARC-Segment-Number: 1\r\nWARC-Date", 1)
    rest = first.replace(b"Number: 1", b"Number: 2").replace(b": response", b": continuation", 1)
    (there := tmp_path / "warc").mkdir()
    write(there / "a.warc.gz", [RECORDS[0], first, rest, RECORDS[2]])
    found, said = corpus(there, tmp_path / "out")
    assert found == [URLS[0], URLS[2]]
    assert "1  segmented" in said
    warc("index", there)
    for options in ([], ["--payload"]):
        content, said = warc("cat", URLS[1], there, *options, code=1)
        assert content.endswith(html(1))
        assert said == (
            f"krowlspider: {URLS[1]}: it is the first of several segments, and the others are not"
            " printed\n"
        )
        assert warc("cat", URLS[0], there, *options)[1] == ""


def named(change: Callable[[str], str], record: bytes) -> bytes:
    """Return a record with the names of its fields changed."""
    head, end, block = record.partition(b"\r\n\r\n")
    version, *fields = head.decode().split("\r\n")
    pairs = [field.split(":", 1) for field in fields]
    return "\r\n".join([version, *(f"{change(k)}:{v}" for k, v in pairs)]).encode() + end + block


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "a.warc.gz": lambda record: gzip.compress(record, mtime=0),
    "a.warc": bytes,
    "a.warc.zst": zstd.compress,
}


def only(name: str) -> Callable[[str], str]:
    return lambda field: field.lower() if field == name else field


CHANGES = {
    "lower": str.lower,
    "upper": str.upper,
    "type": only("WARC-Type"),
    "length": only("Content-Length"),
    "id": only("WARC-Record-ID"),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_field_names_are_read_in_any_case(
    tmp_path: Path, change: Callable[[str], str], name: str
) -> None:
    (there := tmp_path / "warc").mkdir()
    records = [named(change, RECORDS[0]), RECORDS[1], named(change, RECORDS[2])]
    (there / name).write_bytes(b"".join(map(FORMS[name], records)))
    assert b"0 problems" in warc("check", there)[0]
    assert json.loads(warc("stats", there, "--json")[0])["records"] == {"response": 3}
    text, said = warc("extract", there, "-o", tmp_path / "out")
    assert (text.startswith(b"3 captures, 3 records"), said) == (True, "")
    assert corpus(there, tmp_path / "corpus")[0] == URLS
    warc("index", tmp_path / "out")
    warc("wacz", tmp_path / "out", "-o", tmp_path / "a.wacz")
    for number, url in enumerate(URLS):
        assert warc("cat", url, tmp_path / "out", "--payload") == (html(number), "")


LENGTH = re.compile(rb"(?<=Content-Length: )\d+")
MISFITS: dict[str, Callable[[bytes], bytes]] = {
    "too long": lambda record: LENGTH.sub(b"9999", record, 1),
    "too short": lambda record: LENGTH.sub(b"99", record, 1),
    "blank lines": lambda record: record + b"\r\n\r\n",
    "no blank line": lambda record: record.removesuffix(b"\r\n\r\n"),
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("kind", MISFITS)
@pytest.mark.parametrize("name", ["a.warc.gz", "a.warc.zst"])
def test_a_misfit_does_not_hide_later_records(tmp_path: Path, kind: str, name: str) -> None:
    """Each record is compressed alone, so the next one begins where it ends."""
    (there := tmp_path / "warc").mkdir()
    odd = MISFITS[kind](RECORDS[1])
    members = [FORMS[name](record) for record in (RECORDS[0], odd, RECORDS[2])]
    (there / name).write_bytes(b"".join(members))
    place = f"{name} at byte {len(members[0])}: "
    text, _ = warc("check", there, code=1)
    assert place in text.decode()
    assert b"2 records" in text
    text, said = warc("stats", there, "--json", code=1)
    assert json.loads(text)["records"] == {"response": 2}
    assert f"krowlspider: {place}" in said
    text, said = warc("extract", there, "-o", tmp_path / "out", code=1)
    assert text.startswith(b"2 captures, 2 records")
    assert f"krowlspider: {place}" in said
    assert said.count("\n") == 1
    if name == "a.warc.gz":
        assert f"at byte {len(members[0])}: " in warc("index", there, code=1)[1]
    warc("index", tmp_path / "out")
    for folder in {tmp_path / "out", there if name == "a.warc.gz" else tmp_path / "out"}:
        assert warc("cat", URLS[2], folder, "--payload")[0] == html(2)
    if kind in {"blank lines", "no blank line"} or name == "a.warc.gz":
        is_damaged = kind not in {"blank lines", "no blank line"}
        found, _ = corpus(there, tmp_path / "corpus", code=is_damaged)
        assert {URLS[0], URLS[2]} <= set(found)


def test_records_of_a_second_file_follow_a_misfit(tmp_path: Path) -> None:
    """It names its own warcinfo record, which no record before the misfit names."""
    (there := tmp_path / "warc").mkdir()
    misfit, *others = RECORDS[1], RECORDS[0], RECORDS[2]
    first, second = (
        each.replace(b"WARC-Date", b"WARC-Warcinfo-ID: <urn:test:%d>\r\nWARC-Date" % n, 1)
        for n, each in enumerate(others)
    )
    write(there / "a.warc.gz", [first, MISFITS["too long"](misfit), second])
    assert json.loads(warc("stats", there, "--json", code=1)[0])["records"] == {"response": 2}
    assert {URLS[0], URLS[2]} <= set(corpus(there, tmp_path / "corpus", code=1)[0])


@pytest.mark.parametrize("name", ["a.warc.gz", "a.warc"])
def test_page_is_not_read_with_the_records_behind_it(tmp_path: Path, name: str) -> None:
    """Its Content-Length reaches into them, and a reader of the stream goes on there."""
    (there := tmp_path / "warc").mkdir()
    later = [response(f"http://b.example/{number}", html(9 + number)) for number in range(12)]
    odd = MISFITS["too long"](RECORDS[1])
    records = [RECORDS[0], odd, *later]
    (there / name).write_bytes(b"".join(map(FORMS[name], records)))
    found, _ = corpus(there, tmp_path / "corpus", code=1)
    assert URLS[1] not in found
    if name == "a.warc.gz":
        assert found == [URLS[0], *(f"http://b.example/{number}" for number in range(12))]


def test_blank_lines_between_plain_records_are_named(tmp_path: Path) -> None:
    (there := tmp_path / "warc").mkdir()
    (there / "a.warc").write_bytes(RECORDS[0] + RECORDS[1] + b"\r\n\r\n" + RECORDS[2])
    text, said = warc("stats", there, "--json", code=1)
    assert json.loads(text)["records"] == {"response": 2}
    assert f"a.warc at byte {len(RECORDS[0])}: " in said
    assert f"a.warc at byte {len(RECORDS[0])}: " in warc("check", there, code=1)[0].decode()
