"""A crawled WARC file: its members stand in our file byte for byte, as if they were our own."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest
from isal import isal_zlib

from krowlspider.archive.cdxj import index_file, index_path, index_readable, parse
from krowlspider.archive.reading import ignore, read_members
from krowlspider.archive.tools.inputs import records_of
from krowlspider.archive.tools.mend import mend_folder
from krowlspider.corpus.warc_pages import records
from tests.archive.captures import Odd, capture, finished, series, written

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

OWN = [f"http://example.org/page/{number}" for number in range(3)]
CRAWLED = OWN[1]


def response(body: bytes) -> Odd:
    return Odd(b"HTTP/1.1 200 OK\r\nContent-Type: application/gzip\r\n\r\n" + body, body)


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of a WARC file of 1.4 MB, with the pages of another site."""
    chance = random.Random(5)
    pages = [
        capture(odd=response(chance.randbytes(30_000)), url=f"http://victim.example/{number}")
        for number in range(46)
    ]
    [path] = written(tmp_path_factory.mktemp("victim"), pages)
    return path.read_bytes()


@pytest.fixture
def path(crawled: bytes, tmp_path: Path) -> Path:
    """Return the open file of a killed crawl: a page, the crawled file, and a page."""
    files = series(tmp_path)
    for number, odd in enumerate([None, response(crawled), None]):
        files.append(capture(number, odd))
    files.abandon()
    path = next(tmp_path.glob("*.open"))
    # isal stores some of its members as they are.
    members = [crawled[each.start() :][:20_000] for each in re.finditer(rb"\x1f\x8b\x08", crawled)]
    assert sum(member in path.read_bytes() for member in members) > 9
    return path


def urls(lines: Iterable[str]) -> list[str]:
    return [parse(line.encode()).url for line in lines]


def readable(path: Path) -> list[str]:
    return urls(index_readable(path, lambda _: None))


def place(path: Path) -> tuple[int, int]:
    """Return where the record with the crawled file begins and ends."""
    lines = [parse(line.encode()) for line in index_file(path)]
    [line] = [each for each in lines if each.url == CRAWLED]
    return line.offset, line.offset + line.length


def flip(path: Path, *places: int) -> None:
    content = bytearray(path.read_bytes())
    for at in places:
        content[at] ^= 1
    path.write_bytes(content)


def unnamed(path: Path) -> None:
    """Write the file anew, as tools do whose records do not name their warcinfo record."""
    with path.open("rb") as stream:
        members = [member.content for member in read_members(stream)]
    without = [re.sub(rb"WARC-Warcinfo-ID: .*\r\n", b"", each, count=1) for each in members]
    path.write_bytes(b"".join(isal_zlib.compress(each, 1, 31) for each in without))


def test_record_cut_by_a_kill_is_not_searched(path: Path) -> None:
    end = place(path)[1]
    path.write_bytes(path.read_bytes()[: end - 5000])
    report = mend_folder(path.parent)
    assert (report.files, report.records, report.damaged) == (1, 3, [])
    [final] = finished(path.parent)
    assert urls(index_path(final).read_text().splitlines()) == OWN[:1]


# The header of the member, the head of its record, the body, the checksum.
@pytest.mark.parametrize("at", [0, 30, 700_000, -6])
def test_only_own_records_are_read_past_damage(path: Path, at: int) -> None:
    """Into a corpus, by stats, extract and check, and when they are salvaged."""
    begin, end = place(path)
    flip(path, (end if at < 0 else begin) + at)
    for start, pages in ((0, [OWN[0], OWN[2]]), (begin, [OWN[2]])):
        with path.open("rb") as stream:
            read = [
                each.headers["WARC-Target-URI"]
                for _, each in records(stream, start, lambda *_: None)
            ]
            # The damaged record itself may be yielded: its block is not read yet.
            assert [url for url in read if url != CRAWLED] == pages
    damaged: list[tuple[str, int, str]] = []
    counted = [
        record.headers["WARC-Target-URI"]
        for _, record in records_of(path, ignore, damaged)
        if record.headers["WARC-Type"] == "response"
    ]
    assert (counted, [offset for _, offset, _ in damaged]) == ([OWN[0], OWN[2]], [begin])
    [(salvaged, count)] = mend_folder(path.parent).salvaged
    assert count == 6
    assert urls(index_file(salvaged)) == [OWN[0], OWN[2]]


def test_misfit_is_passed_over_with_the_members_in_it(path: Path) -> None:
    """Also if the records of the file name no warcinfo record."""
    unnamed(path)
    with path.open("rb") as stream:
        contents = [member.content for member in read_members(stream)]
    [at] = [number for number, each in enumerate(contents) if len(each) > 1_000_000]
    contents[at] = contents[at].replace(b"Content-Length: ", b"Content-Length: 9", 1)
    path.write_bytes(b"".join(isal_zlib.compress(each, 1, 31) for each in contents))
    assert readable(path) == [OWN[0], OWN[2]]
    with path.open("rb") as stream:
        found = [each.headers["WARC-Target-URI"] for _, each in records(stream, 0, lambda *_: None)]
    assert [url for url in found if url != CRAWLED] == [OWN[0], OWN[2]]


@pytest.mark.parametrize("at", [0, 30, 120, -6])
def test_own_records_are_known_without_warcinfo(path: Path, at: int) -> None:
    """A bit of it, and one within the body with the crawled file, is wrong."""
    with path.open("rb") as stream:
        end = next(read_members(stream)).length
    flip(path, at % end, place(path)[0] + 700_000)
    assert readable(path) == [OWN[0], OWN[2]]


def test_damage_in_the_only_record_is_not_searched(crawled: bytes, tmp_path: Path) -> None:
    [path] = written(tmp_path, [capture(1, response(crawled))])
    flip(path, place(path)[0] + 700_000)
    assert readable(path) == []


def test_records_of_other_tools_are_searched(path: Path) -> None:
    unnamed(path)
    assert readable(path) == OWN
    flip(path, place(path)[0] + 700_000)
    found = readable(path)
    assert [found[0], found[-1]] == [OWN[0], OWN[2]]
    # Nothing tells these from the records of the file.
    assert all("victim" in url for url in found[1:-1])
