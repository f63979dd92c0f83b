"""``scrapy changes`` on files of the archive's own writer."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from krowlspider.archive.cdxj import index_file, index_path, parse
from krowlspider.archive.payload import digest
from krowlspider.job.folder import JobFolder
from tests.archive.captures import STARTED, Odd, capture, deduplicating, finished
from tests.archive.tools.foreign import plain
from tests.support.crawling import ROOT, scrapy

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from krowlspider.archive.write.records import Capture

URL = "http://example.org/"
PNG = b"\x89PNG\r\n\x1a\n"


def fetch(
    minute: int,
    body: bytes,
    *headers: bytes,
    url: str = URL,
    status: bytes = b"200 OK",
    mime: bytes = b"text/html",
    truncated: str = "",
) -> Capture:
    fields = b"".join(b"\r\n%b" % each for each in (b"Content-Type: %b" % mime, *headers))
    message = b"HTTP/1.1 %b%b\r\n\r\n%b" % (status, fields, body)
    made = capture(odd=Odd(message, body, truncated), url=url)
    return replace(made, started=STARTED + 60 * minute)


def archived(folder: Path, *files: Iterable[Capture]) -> Path:
    """Write a WARC file for each of ``files``, in which known payloads are revisits."""
    for captures in files:
        with deduplicating(folder) as series:
            for each in captures:
                series.append(each)
    return folder


def changes(folder: Path, *options: object, code: int = 0) -> list[dict[str, Any]]:
    done = scrapy("changes", folder, *options, code=code)
    assert code or not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def faults(folder: Path, *options: object) -> list[str]:
    """Return the lines on standard error of a call that finds something wrong."""
    return scrapy("changes", folder, *options, code=1).stderr.decode().splitlines()


def time(minute: int) -> str:
    return f"2026-01-01T00:{minute:02}:00Z"


def test_a_line_has_both_fetches_and_how_they_differ(tmp_path: Path):
    before, after = b"<p>One two three four.<p>Five.", b"<p>One two three six.<p>Five."
    unchanged = fetch(3, b"", status=b"304 Not Modified")
    folder = archived(
        tmp_path / "warc",
        [fetch(0, before), fetch(1, before), unchanged, fetch(4, after)],
    )
    [file] = finished(folder)
    lines = sorted(map(parse, map(str.encode, index_file(file))), key=lambda line: line.timestamp)
    # Of "one two three", "two three four.", "three four. five." the first is in both.
    expected = {
        "url": URL,
        "before": {
            "time": time(0),
            "status": 200,
            "digest": digest(before),
            "file": file.name,
            "offset": lines[0].offset,
        },
        "after": {
            "time": time(4),
            "status": 200,
            "digest": digest(after),
            "file": file.name,
            "offset": lines[3].offset,
        },
        "fetched_between": 2,
        "unchanged_until": time(3),
        "media_type": "text/html",
        "similarity": 0.2,
        "text_changed": True,
        "truncated": False,
    }
    assert changes(folder) == [expected]
    assert changes(folder, "--diff") == [
        {
            **expected,
            "diff": "@@ -1,2 +1,2 @@\n-One two three four.\n+One two three six.\n Five.\n",
            "diff_cut": False,
        }
    ]


@pytest.mark.parametrize(
    ("before", "after", "similarity", "text_changed"),
    [
        ((b"<p>a",), (b"<p class=x>a<!-- 2 --><script nonce=2>b</script>",), 1, False),
        ((b"<p>a b",), (b"<div>a</div> b",), 1, False),
        ((b"<p>a",), (b"<p>b",), 0, True),
        ((b"<p>A b",), (b"<p>a b",), 1, True),
        ((b"<p>caf\xe9",), ("<meta charset=utf-8><p>caf\xe9".encode(),), 1, False),
        (
            (b"<p>\xeb", b"Content-Type: text/html; charset=koi8-r"),
            ("<p>\u041a".encode(),),
            1,
            False,
        ),
        ((b"<p>a",), (gzip.compress(b"<p>b"), b"Content-Encoding: gzip"), 0, True),
        # Not in the coding that it claims to be.
        ((b"<p>a",), (b"\x1f\x8bno", b"Content-Encoding: gzip"), None, None),
        ((b"<p>a",), (b"x" * 17_000_000,), None, None),
    ],
)
def test_two_versions_of_a_page(
    tmp_path: Path,
    before: tuple[bytes, ...],
    after: tuple[bytes, ...],
    similarity: float | None,
    text_changed: bool | None,
):
    folder = archived(tmp_path / "warc", [fetch(0, *before), fetch(1, *after)])
    [change] = changes(folder)
    assert (change["similarity"], change["text_changed"]) == (similarity, text_changed)


@pytest.mark.parametrize(
    ("old", "new", "similarity"),
    [
        (b"text/plain", b"text/plain", 0),
        (b"text/html", b"text/plain", 0),
        (b"image/png", b"image/png", None),
        (b"application/json", b"application/json", None),
        (b"text/html", b"application/pdf", None),
    ],
)
def test_only_html_and_text_are_compared(
    tmp_path: Path, old: bytes, new: bytes, similarity: float | None
):
    folder = archived(tmp_path / "warc", [fetch(0, b"a", mime=old), fetch(1, b"b", mime=new)])
    [change] = changes(folder, "--diff")
    assert change["media_type"] == new.decode()
    assert change["similarity"] == similarity
    assert (change["diff"] is None) == (similarity is None)


def test_another_compression_is_no_change(tmp_path: Path):
    one, other = (gzip.compress(b"<p>a", level, mtime=level) for level in (1, 9))
    coding = b"Content-Encoding: gzip"
    folder = archived(tmp_path / "warc", [fetch(0, one, coding), fetch(1, other, coding)])
    assert changes(folder) == []


def test_a_page_that_goes_and_comes_back(tmp_path: Path):
    gone = fetch(1, b"no", status=b"404 Not Found")
    folder = archived(tmp_path / "warc", [fetch(0, b"a"), gone, fetch(2, b"a")])
    found = changes(folder, "--diff")
    assert [(each["before"]["status"], each["after"]["status"]) for each in found] == [
        (200, 404),
        (404, 200),
    ]
    for each in found:
        assert (each["similarity"], each["text_changed"], each["diff"]) == (None, None, None)


def test_revisits_are_compared_by_the_bodies_that_they_refer_to(tmp_path: Path):
    """The second version is that of another page, the third is the first one again."""
    folder = archived(
        tmp_path / "warc",
        [
            fetch(0, b"<p>b", url=f"{URL}twin"),
            fetch(1, b"<p>a"),
            fetch(2, b"<p>b"),
            fetch(3, b"<p>a"),
        ],
    )
    assert [each["diff"].split("\n")[1:3] for each in changes(folder, "--diff")] == [
        ["-a", "+b"],
        ["-b", "+a"],
    ]


def test_a_truncated_version_is_marked(tmp_path: Path):
    folder = archived(
        tmp_path / "warc", [fetch(0, b"<p>a b"), fetch(1, b"<p>a", truncated="disconnect")]
    )
    assert [each["truncated"] for each in changes(folder)] == [True]


def test_changes_of_several_files_come_in_the_order_of_time(tmp_path: Path):
    folder = archived(
        tmp_path / "warc",
        [fetch(minute, b"1", url=f"{URL}{name}") for minute, name in enumerate("abc")],
        [fetch(10 + minute, b"2", url=f"{URL}{name}") for minute, name in enumerate("cab")],
        [fetch(20 + minute, b"3", url=f"{URL}{name}") for minute, name in enumerate("bca")],
    )
    assert len(finished(folder)) == 3
    found = changes(folder)
    assert "".join(each["url"][-1] for each in found) == "cabbca"
    assert [each["after"]["time"] for each in found] == sorted(
        each["after"]["time"] for each in found
    )
    assert len(changes(folder, "--since", "2026-01-01T00:20")) == 3
    assert len(changes(folder, "--since", "2026-01-01T00:20:01")) == 2
    assert changes(folder, "--since", "2027") == []


def test_the_pages_of_a_host_can_be_chosen(tmp_path: Path):
    urls = [URL, "http://example.org:81/", "http://www.example.org/"]
    folder = archived(
        tmp_path / "warc", [fetch(n, b"%d" % n, url=url) for url in urls for n in (0, 1)]
    )
    assert len(changes(folder)) == 3
    assert {each["url"] for each in changes(folder, "--host", "EXAMPLE.org")} == {*urls[:2]}


def test_an_open_file_is_read_to_its_last_whole_record(tmp_path: Path):
    """As it is beside a crawl that runs, or after one that was killed."""
    folder = archived(tmp_path / "warc", [fetch(0, b"a"), fetch(1, b"b")], [fetch(2, b"c")])
    last = finished(folder)[1]
    index_path(last).unlink()
    still_open = last.rename(last.with_name(f"{last.name}.open"))
    with still_open.open("ab") as file:
        file.write(finished(folder)[0].read_bytes()[:100])
    found = changes(folder)
    assert [each["after"]["file"] for each in found] == [finished(folder)[0].name, last.name]


def test_a_file_that_is_finished_meanwhile_counts_once(tmp_path: Path):
    """Its open name is read before the finished ones are listed, so both may be found."""
    folder = archived(tmp_path / "warc", [fetch(0, b"a")], [fetch(1, b"a")], [fetch(2, b"b")])
    second = finished(folder)[1]
    second.with_name(f"{second.name}.open").write_bytes(second.read_bytes())
    assert [each["fetched_between"] for each in changes(folder)] == [1]


def test_a_damaged_record_is_named_and_the_rest_goes_on(tmp_path: Path):
    folder = archived(
        tmp_path / "warc",
        [
            fetch(0, b"a"),
            fetch(0, b"1", url=f"{URL}x"),
            fetch(1, b"b"),
            fetch(1, b"2", url=f"{URL}x"),
        ],
    )
    [file] = finished(folder)
    [whole, *_] = found = changes(folder)
    offset = found[1]["after"]["offset"]
    content = bytearray(file.read_bytes())
    content[offset + 20 : offset + 40] = bytes(20)
    modified = index_path(file).stat().st_mtime_ns
    file.write_bytes(content)
    os.utime(file, ns=(modified, modified))
    one, other = changes(folder, code=1)
    assert one == whole
    assert other == {
        **found[1],
        **dict.fromkeys(("media_type", "similarity", "text_changed", "truncated")),
    }
    said = faults(folder)
    assert said[0].startswith(f"krowlspider: {file.name} at byte {offset}: ")
    assert said[1:] == ["krowlspider: not compared, for want of a body: 1 change"]
    cat = scrapy("warc", "cat", f"{URL}x", folder, code=2).stderr.decode()
    assert cat.startswith(f"krowlspider: {file.name} at byte {offset}: ")


def test_bodies_in_a_file_that_is_gone_are_not_compared(tmp_path: Path):
    folder = archived(tmp_path / "warc", [fetch(0, b"a"), fetch(1, b"b")], [fetch(2, b"c")])
    first, second = finished(folder)
    first.unlink()
    found = changes(folder, code=1)
    assert [each["similarity"] for each in found] == [None, None]
    assert [each["after"]["file"] for each in found] == [first.name, second.name]
    assert faults(folder) == [
        f"krowlspider: 1 file no longer in {folder}",
        "krowlspider: not compared, for want of a body: 2 changes",
    ]


def test_a_revisit_of_a_response_elsewhere_is_named(tmp_path: Path):
    """As with KROWL_WARC_DEDUP: its response is in the archive of another crawl."""
    folder = tmp_path / "warc"
    with deduplicating(folder, max_size=1) as series:
        for each in (fetch(0, b"b", url=f"{URL}x"), fetch(1, b"a"), fetch(2, b"b")):
            series.append(each)
    elsewhere = finished(folder)[0]
    elsewhere.unlink()
    index_path(elsewhere).unlink()
    [change] = changes(folder, code=1)
    assert (change["similarity"], change["text_changed"]) == (None, None)
    assert "is a revisit, and the record that it refers to is missing" in faults(folder)[0]


def test_a_damaged_file_is_read_as_far_as_it_can_be(tmp_path: Path):
    folder = archived(tmp_path / "warc", [fetch(0, b"a"), fetch(1, b"b"), fetch(2, b"c")])
    [file] = finished(folder)
    offset = changes(folder)[0]["after"]["offset"]
    content = bytearray(file.read_bytes())
    content[offset + 20 : offset + 40] = bytes(20)
    file.write_bytes(content)
    index_path(file).unlink()
    scrapy("warc", "index", folder, code=1)
    [change] = changes(folder, code=1)
    assert (change["before"]["time"], change["after"]["time"]) == (time(0), time(2))
    way = f"scrapy warc check {folder}"
    assert faults(folder) == [
        f"krowlspider: read as far as they can be read: 1 damaged file: {way}"
    ]


def test_what_has_no_index_is_counted(tmp_path: Path):
    folder = archived(tmp_path / "warc", [fetch(0, b"a")], [fetch(1, b"b")])
    index_path(finished(folder)[1]).unlink()
    assert faults(folder) == [
        f"krowlspider: not read, for want of an index: 1 file: scrapy warc index {folder}"
    ]
    scrapy("warc", "index", folder)
    assert len(changes(folder)) == 1


def test_files_of_other_forms_are_counted(tmp_path: Path):
    folder = archived(tmp_path / "warc", [fetch(0, b"a")])
    plain(folder / "other.warc")
    assert "not read: 1 file: scrapy warc extract" in faults(folder)[0]


def test_a_folder_without_an_archive_is_bad_input(tmp_path: Path):
    said = scrapy("changes", tmp_path, code=2).stderr.decode()
    assert said.startswith(f"krowlspider: {tmp_path} is neither a crawl's folder nor one of WARC")
    JobFolder(tmp_path / "job").take()
    said = scrapy("changes", tmp_path / "job", code=2).stderr.decode()
    assert "has no WARC files yet" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--since", "yesterday"], "'yesterday' is not a date"),
        (["--since", ""], "'' is not a date"),
        (["--host", ""], "fits no page"),
        (["--host", "http://a.test"], "fits no page"),
        (["--all"], "--all"),
        (["more"], "scrapy changes <JOBDIR>"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, options: list[str], message: str):
    folder = archived(tmp_path / "warc", [fetch(0, b"a")])
    assert message in scrapy("changes", folder, *options, code=2).stderr.decode()


def test_a_broken_index_is_bad_input(tmp_path: Path):
    folder = archived(tmp_path / "warc", [fetch(0, b"a"), fetch(1, b"b")])
    [file] = finished(folder)
    index = index_path(file)
    index.write_bytes(index.read_bytes() + b"z\n")
    said = scrapy("changes", folder, code=2).stderr.decode()
    assert "an index has a line that is broken, b'z\\n': remove that index" in said


def test_a_reader_that_goes_away_ends_it(tmp_path: Path):
    bodies = (b"<p>%d %b" % (n, b"word. " * 2000) for n in range(60))
    folder = archived(tmp_path / "warc", [fetch(n, body) for n, body in enumerate(bodies)])
    words = f"{sys.executable} -m scrapy changes {folder} --diff"
    done = subprocess.run(
        f"{words} | head -1", shell=True, cwd=ROOT, capture_output=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["url"] == URL
    assert not done.stderr
