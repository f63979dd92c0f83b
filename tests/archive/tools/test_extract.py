"""Chosen captures are copied, byte by byte, with what belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from krowlspider.archive.cdxj import IndexLine, index_path
from krowlspider.archive.reading import read_members
from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.tools.extract import CaptureChoice
from krowlspider.archive.write.records import FetchNote
from tests.archive.captures import STARTED, Odd, capture, deduplicating, finished
from tests.archive.command import warc

from .foreign import gzipped, in_zstandard, plain

if TYPE_CHECKING:
    from pathlib import Path

MOVED = Odd(b"HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n", b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a page and its note, another page, a redirect, and in a second file a revisit."""
    there = tmp_path / "warc"
    with deduplicating(there) as files:
        page = capture(1, url="http://a.test/x/1")
        files.append(page)
        files.note(FetchNote(page.url, STARTED, [("hop", "L")], page.identity))
        files.append(capture(2, url="http://www.b.test/2"))
        files.append(capture(3, MOVED, url="http://a.test/3"))
        files.close()
        later = replace(capture(1, url="http://c.test/again"), started=STARTED + 86400)
        files.append(later)
    return there


def members(folder: Path) -> list[list[tuple[bytes, bytes]]]:
    """Return type and stored bytes of the records of each file."""
    found = []
    for path in finished(folder):
        content = path.read_bytes()
        with path.open("rb") as stream:
            found.append(
                [
                    (
                        member.content.split(b"WARC-Type: ", 1)[1].split(b"\r\n", 1)[0],
                        content[member.offset : member.offset + member.length],
                    )
                    for member in read_members(stream)
                ]
            )
    return found


PAGE = ["warcinfo", "response", "request", "metadata"]
OTHER = ["warcinfo", "response", "request"]
REVISIT = ["warcinfo", "revisit", "request"]


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ("--url http://a.test/x", [PAGE]),
        ("--surt test,b)", [OTHER]),
        ("--host www.b.test", [OTHER]),
        ("--host a.test --status 301", [OTHER]),
        ("--status 301 --mime text/html", []),
        ("--mime text/html --to 2026-01-01", [[*PAGE, "response", "request"]]),
        ("--mime text/ --from 2026-01-01T12:00:00", [PAGE, REVISIT]),
        ("--host none.test", []),
    ],
)
def test_chosen_captures_are_copied(
    folder: Path, tmp_path: Path, options: str, kinds: list[list[str]]
) -> None:
    """A revisit takes its original along."""
    out = tmp_path / "out"
    warc("extract", folder, "-o", out, *options.split())
    found = members(out)
    assert [[kind.decode() for kind, _ in each] for each in found] == kinds
    stored = {content for each in members(folder) for _, content in each}
    assert {content for each in found for _, content in each} <= stored
    report = check_folder(out)
    assert (report.problems, report.warnings) == ([], [])


def test_revisit_without_its_original_is_named(folder: Path, tmp_path: Path) -> None:
    first, _ = finished(folder)
    first.unlink()
    index_path(first).unlink()
    _, errors = warc("extract", folder, "-o", tmp_path / "out", "--host", "c.test")
    assert "1 revisit without their original" in errors
    assert len(members(tmp_path / "out")) == 1


def test_captures_of_other_tools_become_gzip_members(tmp_path: Path) -> None:
    (there := tmp_path / "in").mkdir()
    for write, name in ((gzipped, "a.warc.gz"), (plain, "b.warc"), (in_zstandard, "c.warc.zst")):
        write(there / name)
    warc("extract", there, "-o", tmp_path / "out", "--url", "http://other.test/2")
    kinds = ["warcinfo", "response", "revisit", "request"]
    assert [[kind.decode() for kind, _ in each] for each in members(tmp_path / "out")] == [
        kinds
    ] * 3


def test_two_files_of_one_name_are_named(tmp_path: Path) -> None:
    (there := tmp_path / "in").mkdir()
    gzipped(there / "a.warc.gz")
    plain(there / "a.warc")
    _, errors = warc("extract", there, "-o", tmp_path / "out", code=2)
    names = f"{there / 'a.warc'} and {there / 'a.warc.gz'}"
    assert errors == f"krowlspider: {names} have the same name but for its ending: rename one\n"
    assert not (tmp_path / "out").exists()


def test_damaged_file_is_named_and_read_to_the_damage(tmp_path: Path) -> None:
    (there := tmp_path / "in").mkdir()
    path = plain(there / "a.warc")
    path.write_bytes(path.read_bytes()[:-5])
    _, errors = warc("extract", there, "-o", tmp_path / "out", code=1)
    assert "a.warc at byte" in errors
    assert [kind for kind, _ in members(tmp_path / "out")[0]][-1] == b"revisit"
    assert "exists" in warc("extract", there, "-o", tmp_path / "out", code=2)[1]


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("gemini://a.test/x", ["a.test", "a.test:1965"]),
        ("gemini://a.test:1966/", ["a.test", "a.test:1966"]),
        ("gemini://[::1]:1966/", ["[::1]", "[::1]:1966"]),
        ("http://[::1]/x:80", ["[::1]"]),
        ("http://u@A.test:8080/", ["a.test", "a.test:8080"]),
        ("http://a.test?at=b:1", ["a.test"]),
    ],
)
def test_a_host_is_chosen_by_its_name_or_with_its_port(url: str, hosts: list[str]) -> None:
    line = IndexLine("", "20261201000000", url, "text/gemini", "20", "", 0, 0, "")
    every = ["a.test", "a.test:1965", "a.test:1966", "a.test:8080", "[::1]", "[::1]:1966", "["]
    assert [host for host in every if CaptureChoice(host=host).fits(line, "text/gemini")] == hosts
