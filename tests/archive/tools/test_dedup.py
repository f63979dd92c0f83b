"""Bodies that other crawls have stored become revisits that refer to them."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
from contextlib import closing
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from msgspec.structs import replace
from scrapy.settings import Settings

from krowlspider import settings
from krowlspider.archive.cdxj import index_path, parse
from krowlspider.archive.dedup import BuildCounts, DedupIndex, OtherCrawls, build, source_at
from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.indexes import make_indexes
from krowlspider.archive.payload import digest
from krowlspider.archive.reading import read_members, read_record
from krowlspider.archive.uploads import NOTES
from krowlspider.archive.write.composer import Composer, PayloadIndex
from krowlspider.archive.write.records import Capture, RecordMaker, record_id, warc_date
from krowlspider.archive.write.series import WarcSeries
from krowlspider.errors import SettingsError
from krowlspider.job.folder import JobFolder
from krowlspider.job.job import Job
from krowlspider.job.provenance import open_other_crawls
from tests.archive.captures import (
    CHUNKED,
    REQUEST,
    STARTED,
    Odd,
    capture,
    options,
    parsed,
    undamaged,
    written,
)
from tests.archive.command import warc
from tests.support.crawling import CONTACT

if TYPE_CHECKING:
    from pathlib import Path

    from fastwarc.warc import WarcRecord


TAGGED = Odd(b'HTTP/1.1 200 OK\r\nETag: W/"a"\r\nLast-Modified: then\r\n\r\nold', b"old")
UNCHANGED = Odd(b'HTTP/1.1 304 Not Modified\r\nETag: W/"a"\r\n\r\n', b"")
LATER = STARTED + 86_400
MAKER = RecordMaker(record_id(bytes(16)), "sha1")


def plain(body: bytes, truncated: str = "") -> Odd:
    return Odd(b"HTTP/1.1 200 OK\r\n\r\n" + body, body, truncated)


def first_crawl(folder: Path) -> Path:
    """Archive a plain, a chunked, a tagged and a truncated page; return the JOBDIR."""
    (folder / "warc").mkdir(parents=True)
    pages = [plain(b"body"), CHUNKED, TAGGED, plain(b"part", "length")]
    captures = [capture(number, odd) for number, odd in enumerate(pages)]
    written(folder / "warc", captures, max_size=1)
    return folder


def others(sources: list[Path], folder: Path, max_age: float = 0) -> OtherCrawls | None:
    given = {"KROWL_WARC_DEDUP": list(map(str, sources)), "KROWL_WARC_DEDUP_MAX_AGE": max_age}
    return open_other_crawls(Settings({**given, "KROWL_WARC_DIGEST": "sha1"}), folder)


def second_crawl(found: OtherCrawls | None, folder: Path, *captures: Capture) -> list[WarcRecord]:
    """Return the first record of each capture, a day later, of a crawl that knows others."""
    index = PayloadIndex(folder / "payloads", most=100, warn=pytest.fail, others=found)
    composer = Composer("sha1", bytes, index, 7)
    records = []
    for each in captures:
        composed = composer.compose(replace(each, started=LATER), MAKER)
        records.append(parsed(composed.first))
        if records[-1].headers["WARC-Type"] != "revisit":
            composer.written(each, composed)
    index.close()
    return records


def kinds(records: list[WarcRecord]) -> list[str]:
    return [each.headers["WARC-Type"] for each in records]


def test_wacz_takes_the_bodies_of_other_crawls_along(tmp_path: Path) -> None:
    """A WACZ without them is named as incomplete."""
    job, second = first_crawl(tmp_path / "first"), tmp_path / "second"
    second.mkdir()
    with closing(
        PayloadIndex(
            tmp_path / "payloads",
            most=100,
            warn=pytest.fail,
            others=others([job], tmp_path / "dedup"),
        )
    ) as index:
        files = WarcSeries(second, options(), index)
        for number, odd in enumerate([plain(b"body"), CHUNKED, plain(b"new"), plain(b"new")]):
            files.append(replace(capture(number, odd), started=LATER))
        files.close()
    out = tmp_path / "a.wacz"
    _, said = warc("wacz", second, "-o", out, code=1)
    assert said == (
        "krowlspider: not in it: the bodies of 2 revisits, which other crawls have: name their"
        f" JOBDIRs: scrapy warc wacz {second} EARLIER... -o FILE\n"
    )
    text, said = warc("wacz", second, job / "warc", "-o", out, "--force")
    told = "3 files, 6 captures, 2 of them of other crawls, 0 pages"
    assert (text.decode(), said) == (f"{told} in {out}\n", "")
    with ZipFile(out) as packed:
        packed.extractall(tmp_path / "unpacked")
    folder = tmp_path / "unpacked" / "archive"
    warc("index", folder)
    warc("check", folder)
    bodies = [warc("cat", capture(number).url, folder, "--payload")[0] for number in (0, 1, 2, 3)]
    assert bodies == [b"body", CHUNKED.payload, b"new", b"new"]


def test_body_of_another_crawl_is_a_revisit_of_it(tmp_path: Path) -> None:
    """It refers by URI, exact date and record id. Transfer codings must agree, as readers need."""
    job = first_crawl(tmp_path / "first")
    found = others([job], tmp_path / "dedup")
    moved = "http://example.org/moved"
    records = second_crawl(
        found,
        tmp_path,
        capture(9, plain(b"body"), url=moved),
        capture(9, CHUNKED, url=moved),
        capture(9, plain(CHUNKED.payload)),
        capture(9, plain(b"part")),
        capture(9, plain(b"new")),
    )
    assert kinds(records) == ["revisit", "revisit", "response", "response", "response"]
    fields = records[0].headers
    assert fields["WARC-Profile"].endswith("/identical-payload-digest")
    assert fields["WARC-Refers-To-Target-URI"] == capture(0).url
    assert fields["WARC-Refers-To-Date"] == warc_date(STARTED)
    assert fields["WARC-Payload-Digest"] == digest(b"body")
    warc = min((job / "warc").glob("*.warc.gz"))
    line = parse(index_path(warc).read_bytes().splitlines()[0])
    assert fields["WARC-Refers-To"] == read_record(warc, line.offset)[0]["WARC-Record-ID"]


def test_date_of_another_form_costs_no_capture(tmp_path: Path) -> None:
    """A file of another crawl may have any; its index has the time too."""
    file = min((first_crawl(tmp_path / "first") / "warc").glob("*.warc.gz"))
    index = index_path(file)
    line = parse(index.read_bytes().splitlines()[0])
    content, end = file.read_bytes(), line.offset + line.length
    stored = gzip.decompress(content[line.offset : end])
    odd = gzip.compress(re.sub(rb"(WARC-Date: \S+)T", rb"\1 ", stored))
    file.write_bytes(content[: line.offset] + odd + content[end:])
    found = others([index], tmp_path / "dedup")
    (record,) = second_crawl(found, tmp_path, capture(0, plain(b"body")))
    assert record.headers["WARC-Refers-To-Date"] == f"{warc_date(STARTED)[:19]}Z"


def test_max_age_bounds_the_other_capture(tmp_path: Path) -> None:
    job = first_crawl(tmp_path / "first")
    for max_age, kind in (LATER - STARTED, "revisit"), (LATER - STARTED - 1, "response"):
        found = others([job], tmp_path / "dedup", max_age)
        assert kinds(second_crawl(found, tmp_path, capture(0, plain(b"body")))) == [kind]


@pytest.mark.parametrize(
    "condition", [b'If-None-Match: W/"a"', b'If-None-Match: "z", W/"a"', b"If-Modified-Since: then"]
)
def test_304_refers_to_the_response_that_its_condition_names(
    tmp_path: Path, condition: bytes
) -> None:
    found = others([first_crawl(tmp_path / "first")], tmp_path / "dedup")
    asked = REQUEST.replace(b"\r\n\r\n", b"\r\n" + condition + b"\r\n\r\n")
    named, elsewhere, unasked = second_crawl(
        found,
        tmp_path,
        capture(2, UNCHANGED, request=asked),
        capture(5, UNCHANGED, request=asked),
        capture(2, UNCHANGED, request=REQUEST),
    )
    assert named.headers["WARC-Profile"].endswith("/server-not-modified")
    assert named.headers["WARC-Refers-To-Target-URI"] == capture(2).url
    assert named.headers["WARC-Refers-To-Date"] == warc_date(STARTED)
    assert [each.headers["WARC-Type"] for each in (elsewhere, unasked)] == ["revisit", "response"]
    assert "WARC-Refers-To-Date" not in elsewhere.headers


def test_revisits_of_a_crawl_are_no_originals(tmp_path: Path) -> None:
    job = first_crawl(tmp_path / "first")
    built = build([source_at(job)], tmp_path / "index")
    assert built == BuildCounts(captures=3)
    index = next((job / "warc").glob("*.cdxj"))
    line = index.read_text().replace('"url"', '"mime": "warc/revisit", "url"')
    (tmp_path / "revisits.cdxj").write_text(line)
    assert build([source_at(tmp_path / "revisits.cdxj")], tmp_path / "none") == BuildCounts()


def test_line_without_its_file_serves_the_same_url_only(tmp_path: Path) -> None:
    """A CDXJ file does not say whether the body has chunk sizes. Other spellings are kept."""
    raw = digest(b"body").removeprefix("sha1:")
    lines = [
        f'org,example)/{number} 20260101000000 {{"url": "{capture(number).url}", "digest": "{each}"'
        f', "length": "9", "offset": "0", "filename": "away.warc.gz"}}\n'
        for number, each in enumerate([raw, f"SHA-1:{raw}", "sha1:odd"])
    ]
    cdxj = tmp_path / "a.cdxj"
    cdxj.write_text("".join(lines))
    found = others([cdxj], tmp_path / "dedup")
    records = second_crawl(found, tmp_path, *(capture(n, plain(b"body")) for n in (0, 1, 2)))
    assert kinds(records) == ["revisit", "revisit", "response"]
    assert records[0].headers["WARC-Refers-To-Date"] == "2026-01-01T00:00:00Z"
    assert [each.headers["WARC-Payload-Digest"] for each in records[:2]] == [
        f"sha1:{raw}",
        f"SHA-1:{raw}",
    ]
    assert "WARC-Refers-To" not in records[0].headers


def test_file_of_a_jobdir_must_be_there_or_uploaded(tmp_path: Path) -> None:
    job = first_crawl(tmp_path / "first")
    warc = min((job / "warc").glob("*.warc.gz"))
    warc.unlink()
    assert build([source_at(job)], tmp_path / "1") == BuildCounts(captures=2, gone=1)
    note = {"name": warc.name, "size": 1, "mtime_ns": 1, "etag": "e", "url": "u", "endpoint": None}
    (warc.parent / NOTES).write_text(json.dumps(note) + "\n")
    assert build([source_at(job)], tmp_path / "2") == BuildCounts(captures=3)


def test_index_is_shared_and_outlives_its_sources(tmp_path: Path) -> None:
    """Several crawls have the same index open, and none changes it."""
    build([source_at(first_crawl(tmp_path / "first"))], tmp_path / "index")
    before = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    open_at_once = [others([tmp_path / "index"], tmp_path / name) for name in ("a", "b")]
    for number, each in enumerate(open_at_once):
        folder = tmp_path / str(number)
        assert kinds(second_crawl(each, folder, capture(0, plain(b"body")))) == ["revisit"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()} == before


def test_sources_are_read_again_only_if_they_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    job = first_crawl(tmp_path / "first")
    index = min((job / "warc").glob("*.cdxj"))
    for read in (1, 1, 2):
        if read == 2:
            os.utime(index, ns=(1, index.stat().st_mtime_ns + 1))
        found = others([job], tmp_path / "dedup")
        assert found is not None
        found.close()
        assert caplog.text.count("Reading 4 CDXJ files") == read


def test_command_builds_an_index_and_says_what_it_lacks(tmp_path: Path) -> None:
    job = first_crawl(tmp_path / "first")
    out = tmp_path / "index"
    said, _ = warc("dedup-index", job / "warc", "-o", out)
    assert said.decode() == f"3 captures in {out}\n"
    min((job / "warc").glob("*.warc.gz")).unlink()
    _, errors = warc("dedup-index", job, job / "warc", "-o", tmp_path / "other", code=1)
    assert errors == "krowlspider: captures not in it: 2 in files that are gone\n"
    _, errors = warc("dedup-index", job, "-o", out, code=2)
    assert errors == f"krowlspider: {out} exists: give a new folder\n"


def cut(index: Path) -> None:
    table = next(index.glob("*.ldb"))
    table.write_bytes(table.read_bytes()[:-1])


def lose(index: Path) -> None:
    next(index.glob("*.ldb")).unlink()


def spoil(index: Path) -> None:
    (index / "krowlspider-dedup.json").write_text("{}")


@pytest.mark.parametrize("damage", [cut, lose, spoil])
def test_damaged_index_stops_the_start(tmp_path: Path, damage: object) -> None:
    index = tmp_path / "index"
    build([source_at(first_crawl(tmp_path / "first"))], index)
    assert callable(damage)
    damage(index)
    with pytest.raises(SettingsError, match=rf"^KROWL_WARC_DEDUP: {index} is damaged: .*again$"):
        others([index], tmp_path / "dedup")


def test_missing_source_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"^KROWL_WARC_DEDUP: {tmp_path}/none is no JOBDIR"):
        others([tmp_path / "none"], tmp_path / "dedup")
    (tmp_path / "a.cdxj").write_text("no line\n")
    with pytest.raises(SettingsError, match=r"a\.cdxj has a line that is broken"):
        others([tmp_path / "a.cdxj"], tmp_path / "dedup")
    assert not (tmp_path / "dedup" / "built").exists()
    build([source_at(first_crawl(tmp_path / "first"))], tmp_path / "index")
    with pytest.raises(ArchiveError, match="has no sha256 digests"):
        DedupIndex(tmp_path / "index", tmp_path / "view", "sha256")


def test_index_that_breaks_later_is_left_out(tmp_path: Path) -> None:
    """A flipped bit in a table costs bodies that are stored again; the crawl goes on."""
    index = tmp_path / "index"
    build([source_at(first_crawl(tmp_path / "first"))], index)
    table = next(index.glob("*.ldb"))
    content = bytearray(table.read_bytes())
    content[20] ^= 1
    table.write_bytes(content)
    said: list[str] = []
    found = OtherCrawls([DedupIndex(index, tmp_path / "view", "sha1")], 0, said.append)
    pages = [capture(0, plain(b"body")), capture(1, plain(b"other"))]
    assert kinds(second_crawl(found, tmp_path, *pages)) == ["response", "response"]
    assert len(said) == 1
    assert said[0].startswith(f"Bodies of other crawls may be archived again: {index} cannot be")


def test_start_that_is_stopped_leaves_the_folder(tmp_path: Path) -> None:
    ours = {name: value for name, value in vars(settings).items() if name.startswith("KROWL_")}
    given = {"KROWL_WARC_DEDUP": [str(tmp_path / "none")], "JOBDIR": str(tmp_path / "job")}
    with pytest.raises(SettingsError, match=r"^KROWL_WARC_DEDUP: "):
        Job(Settings({**ours, **given, "KROWL_CONTACT": CONTACT}))
    folder = JobFolder(tmp_path / "job")
    folder.take()
    folder.leave()


@pytest.mark.parametrize("field", [b"WARC-Segment-Number: 1", b"WARC-Truncated: length"])
def test_part_of_a_payload_is_no_original(tmp_path: Path, field: bytes) -> None:
    [path] = written(tmp_path, [capture(0), capture(1)])
    with path.open("rb") as stream:
        members = [member.content for member in read_members(stream)]
    members[1] = members[1].replace(b"WARC-Date", field + b"\r\nWARC-Date", 1)
    path.write_bytes(b"".join(map(gzip.compress, members)))
    make_indexes([path], undamaged)
    assert build([source_at(tmp_path)], tmp_path / "dedup").captures == 1
