"""``scrapy warc`` on files of the archive's own writer, and on those of a whole crawl."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partialmethod
from pathlib import Path
from zipfile import ZipFile

import pytest
from msgspec import structs
from tqdm import tqdm
from warcio.archiveiterator import ArchiveIterator

from krowlspider.archive.cdxj import index_file, index_path, parse
from krowlspider.archive.disk import lock_directory
from krowlspider.archive.uploads import Destination, LocalFile, UploadLog
from krowlspider.archive.write.composer import PayloadIndex
from krowlspider.archive.write.records import Capture, dns_resource
from krowlspider.archive.write.series import WarcSeries
from krowlspider.job.folder import JobFolder
from krowlspider.views import captures
from tests.archive.captures import STARTED, Odd, capture, finished, options, series
from tests.archive.command import warc
from tests.archive.tools.foreign import in_zstandard, plain
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.support.crawling import ROOT, scrapy
from tests.support.crawls import crawl_of, page
from tests.support.in_process import execute_here
from tests.support.simulated_web import SimulatedWeb
from tests.support.small_disk import SmallDisk

ZIPPED = gzip.compress(b"hello world", mtime=0)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(ZIPPED), ZIPPED)
CODED = Odd(
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    ZIPPED,
)
BROKEN = Odd(
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nthis is no gzip", b"this is no gzip"
)
UNCHANGED = Odd(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", b"")
DAY = 86_400


def day(number: int, each: Capture) -> Capture:
    """Return a capture of a later day."""
    return structs.replace(each, started=STARTED + number * DAY)


def note_upload(path: Path, content: bytes | None = None) -> None:
    """Note that a file is in a bucket, as an upload does."""
    if content is not None:
        path.write_bytes(content)
    notes = UploadLog(path.parent, Destination("bucket", ""))
    notes.open()
    notes.add(LocalFile(path.name, path.stat().st_size, path.stat().st_mtime_ns), "etag")
    notes.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two files: a page three times, the second time as a revisit, and odd pages once."""
    directory = tmp_path / "warc"
    directory.mkdir()
    with closing(PayloadIndex(tmp_path / "payloads", most=100, warn=pytest.fail)) as payloads:
        files = WarcSeries(directory, options(), payloads)
        files.append(capture(1))
        files.append(day(1, capture(1)))
        files.close()
        files.append(day(2, capture(2, url="http://example.org/page/1")))
        files.append(capture(3, CODED))
        files.append(capture(4, BROKEN))
        files.append(capture(5, url="http://www.example.org/Page/5"))
        files.append(capture(6, url="http://example.org/page/6/"))
        files.append(day(1, capture(6, UNCHANGED, url="http://example.org/page/6/")))
        files.resource(dns_resource("example.org", STARTED, [("192.0.2.7", 60.0)]))
        files.close()
    return directory


def response(number: int) -> bytes:
    return capture(number).response_bytes


def test_index_merges_all_files_and_makes_missing_indexes(
    folder: Path,
) -> None:
    first, second = finished(folder)
    wanted = "".join(sorted([*index_file(first), *index_file(second)]))
    before = index_path(first).read_bytes()
    index_path(first).unlink()
    text, said = warc("index", folder)
    assert (text.decode(), said) == (f"9 captures of 2 files in {folder}/index.cdxj\n", "")
    assert (folder / "index.cdxj").read_text() == wanted
    assert index_path(first).read_bytes() == before
    out = folder.parent / "all.cdxj"
    assert warc("index", folder, "-o", out)[0].decode() == f"9 captures of 2 files in {out}\n"
    assert out.read_text() == wanted


def test_files_that_are_not_in_gzip_are_not_ignored(folder: Path, tmp_path: Path) -> None:
    plain(folder / "other.warc")
    in_zstandard(folder / "other.warc.zst")
    for code, *words in (
        (1, "index", folder),
        (0, "cat", "http://example.org/page/1", folder),
        (1, "wacz", folder, "-o", tmp_path / "a.wacz"),
    ):
        assert warc(*words, code=code)[1] == (
            f"krowlspider: not read: 2 files: scrapy warc extract {folder} -o FOLDER copies them"
            " into gzip\n"
        )


def test_check_of_a_broken_archive_exits_with_1(folder: Path) -> None:
    assert warc("check", folder)[0] == b"2 files, 19 records: 0 problems, 0 warnings\n"
    first, second = finished(folder)
    first.rename(first.with_name(first.name + ".open"))
    second.write_bytes(second.read_bytes()[:-1])
    index_path(first).unlink()
    lines = warc("check", folder, code=1)[0].decode().splitlines()
    assert lines[0].startswith(f"{second.name} at byte ")
    assert lines[0].endswith(": the gzip member is cut off")
    assert lines[1] == "1 file, 13 records: 1 problem, 0 warnings"
    assert lines[2].startswith("not checked: 1 open file; ")


def test_revisit_without_its_original_is_a_warning(tmp_path: Path) -> None:
    with closing(PayloadIndex(tmp_path / "payloads", most=100, warn=pytest.fail)) as payloads:
        files = WarcSeries(tmp_path, options(), payloads)
        for number in range(2):
            files.append(day(number, capture()))
            files.close()
    first, second = finished(tmp_path)
    first.unlink()
    index_path(first).unlink()
    lines = warc("check", tmp_path)[0].decode().splitlines()
    assert lines[0].startswith(f"warning: {second.name} at byte ")
    assert lines[0].endswith(": the record that this revisit refers to is missing")
    assert lines[1] == "1 file, 3 records: 0 problems, 1 warning"
    url = "http://example.org/page/0"
    _, said = warc("cat", tmp_path, url, code=2)
    assert said == f"krowlspider: '{tmp_path}' is not a URL that is crawled: give https://...\n"
    _, said = warc("cat", url, tmp_path, code=1)
    assert "is a revisit, and the record that it refers to is missing" in said


def test_help_has_a_line_for_each_command() -> None:
    lines = scrapy("warc", "--help").stdout.decode().splitlines()
    at = lines.index("  scrapy warc check <JOBDIR>")
    assert lines[at + 1].startswith("      check structure, lengths, digests")


def test_mend_finishes_and_indexes_open_files(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture(1))
    files.append(capture(2))
    files.abandon()
    path = next(tmp_path.glob("*.open"))
    path.write_bytes(path.read_bytes()[:-9])
    said = warc("index", tmp_path)[1]
    assert said.startswith("krowlspider: not in it: 1 open file: if no crawl writes there, scrapy")
    unindexed = tmp_path / "a.warc.gz"
    unindexed.write_bytes(path.read_bytes()[:-400])
    unindexed.write_bytes(b"")
    text = warc("mend", tmp_path)[0].decode()
    lines = text.splitlines()
    assert lines[0].startswith("mended 1 file with 4 records; removed 0 without one; cut away ")
    assert lines[1] == "indexed 1 file besides"
    final = path.with_suffix("")
    assert index_path(final).read_text() == "".join(sorted(index_file(final)))
    assert index_path(unindexed).read_bytes() == b""
    assert warc("mend", tmp_path)[0].startswith(b"mended 0 files with 0 records;")


def test_files_of_a_running_crawl_are_not_mended(folder: Path) -> None:
    lock = lock_directory(folder)
    try:
        _, said = warc("mend", folder, code=2)
    finally:
        os.close(lock)
    assert said == f"krowlspider: a crawl is writing to {folder}: stop it first\n"


def test_the_newest_capture_is_printed_as_it_was_on_the_wire(folder: Path) -> None:
    url = "http://example.org/page/1"
    assert warc("cat", url, folder) == (response(2), "")
    assert warc("cat", f"{url}#part", folder)[0] == response(2)
    assert warc("cat", url, folder, "--payload")[0] == b"<p>page 2</p>"
    assert warc("cat", "http://example.org/page/3", folder)[0] == CODED.response
    assert warc("cat", "http://example.org/page/3", folder, "--payload")[0] == b"hello world"
    answer = b"example.org.\t60\tIN\tA\t192.0.2.7\r\n"
    for option in ([], ["--payload"]):
        assert warc("cat", "dns:example.org", folder, *option)[0] == answer


def test_revisit_is_printed_as_its_original(folder: Path) -> None:
    url = "http://example.org/page/1"
    assert warc("cat", url, folder, "--at", "2026-01-02")[0] == response(1)
    # An answer 304 stands for the page before it.
    assert warc("cat", "http://example.org/page/6/", folder)[0] == response(6)


def test_revisit_is_printed_with_its_own_head(tmp_path: Path) -> None:
    """One body is sent as a page in gzip, as a gzip file, and with an error."""
    heads = [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/gzip\r\n\r\n",
        b"HTTP/1.1 404 Gone\r\nContent-Encoding: gzip\r\n\r\n",
    ]
    with closing(PayloadIndex(tmp_path / "payloads", most=100, warn=pytest.fail)) as payloads:
        files = WarcSeries(tmp_path, options(), payloads)
        for number, head in enumerate(heads):
            files.append(capture(number, Odd(head + ZIPPED, ZIPPED)))
        files.close()
    assert files.stats.revisits == 2
    for number, (head, payload) in enumerate(
        zip(heads, (b"hello world", ZIPPED, b"hello world"), strict=True)
    ):
        url = f"http://example.org/page/{number}"
        assert warc("cat", url, tmp_path)[0] == head + ZIPPED
        assert warc("cat", url, tmp_path, "--payload")[0] == payload


def test_control_characters_of_a_site_are_not_printed(tmp_path: Path) -> None:
    odd = Odd(b"HTTP/1.1 200 OK\r\nContent-Type: text/\x1b]0;owned\x07html\r\n\r\nx", b"x")
    files = series(tmp_path)
    files.append(capture(1, odd))
    files.close()
    listed = warc("cat", "http://example.org/page/1", tmp_path, "--all")[0]
    assert b" text/?]0 " in listed
    assert not set(listed) & {0x1B, 0x07}


def test_capture_nearest_to_a_date_is_printed(folder: Path) -> None:
    url = "http://example.org/page/1"
    for date, number in (("1999", 1), ("20260101120000", 1), ("2026-01-03", 2), ("2999-12", 2)):
        assert warc("cat", url, folder, "--at", date)[0] == response(number), date


def test_all_captures_are_listed_with_their_places(folder: Path) -> None:
    first, second = finished(folder)
    lines = warc("cat", "http://example.org/page/1", folder, "--all")[0].decode().splitlines()
    known = [
        parse(line)
        for path in (first, second)
        for line in index_path(path).read_bytes().splitlines()
    ]
    assert lines == [
        f"{line.timestamp} {line.status} {line.mime} {line.filename}:{line.offset} {line.url}"
        for line in sorted(known, key=lambda line: line.timestamp)
        if line.url == "http://example.org/page/1"
    ]
    assert [line.split()[2] for line in lines] == ["text/html", "warc/revisit", "text/html"]


def test_captures_of_equal_keys_are_found(folder: Path) -> None:
    assert warc("cat", "https://example.org/page/5", folder)[0] == response(5)


def test_without_a_capture_it_exits_with_1(folder: Path) -> None:
    text, said = warc("cat", "http://example.org/none", folder, code=1)
    assert (text, said) == (b"", "krowlspider: there is no capture of http://example.org/none\n")
    _, said = warc("cat", "http://example.org/none", folder, "--all", code=1)
    assert "there is no capture" in said


def test_files_without_an_index_are_named(folder: Path) -> None:
    first, second = finished(folder)
    index_path(second).unlink()
    text, said = warc("cat", "http://example.org/page/1", folder)
    assert text == response(1)
    assert said == (
        f"krowlspider: not searched, for want of an index: 1 file: scrapy warc index {folder}\n"
    )
    first.unlink()
    _, said = warc("cat", "http://example.org/page/1", folder, code=1)
    assert f"is in {first.name}, which is not in {folder}" in said


def test_place_of_an_uploaded_capture_is_named(folder: Path) -> None:
    first, _ = finished(folder)
    note_upload(first)
    first.unlink()
    _, said = warc("cat", "http://example.org/page/1", folder, "--at", "2026-01-01", code=1)
    assert said.endswith(f"which is not in {folder}: it was uploaded to s3://bucket/{first.name}\n")


def test_answer_to_get_is_preferred_to_an_answer_to_head(
    tmp_path: Path,
) -> None:
    head = Odd(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", b"")
    files = series(tmp_path)
    files.append(capture(1))
    files.append(day(1, structs.replace(capture(2, head), url=capture(1).url)))
    files.append(capture(3, head))
    files.close()
    url = "http://example.org/page/1"
    assert warc("cat", url, tmp_path)[0] == response(1)
    assert warc("cat", url, tmp_path, "--at", "2026-01-02")[0] == head.response
    assert warc("cat", "http://example.org/page/3", tmp_path)[0] == head.response


def test_original_of_a_revisit_is_found_by_its_digest(
    tmp_path: Path,
) -> None:
    with closing(PayloadIndex(tmp_path / "payloads", most=100, warn=pytest.fail)) as payloads:
        files = WarcSeries(tmp_path, options(), payloads)
        for number, seconds in ((1, 0.0), (2, 0.3), (2, 100.0)):
            page = capture(number, url="http://example.org/")
            files.append(structs.replace(page, started=STARTED + seconds))
        files.close()
    assert warc("cat", "http://example.org/", tmp_path, "--payload")[0] == b"<p>page 2</p>"


def test_broken_line_of_an_index_is_reported_with_the_way_out(folder: Path) -> None:
    first, _ = finished(folder)
    index = index_path(first)
    one, other = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(one + other[:70] + b"\n")
    out = folder.parent / "a.wacz"
    for words in (["cat", "http://example.org/page/1", folder], ["wacz", folder, "-o", out]):
        _, said = warc(*words, code=2)
        way_out = "remove it, and scrapy warc index makes it anew"
        assert said == f"krowlspider: {index} has a line that is broken: {way_out}\n"
    index.unlink()
    warc("index", folder)
    assert index.read_bytes() == one + other


def test_body_that_is_not_in_its_coding_is_printed(folder: Path) -> None:
    url = "http://example.org/page/4"
    assert warc("cat", url, folder)[0] == BROKEN.response
    assert warc("cat", url, folder, "--payload") == (BROKEN.payload, "")


def test_a_wacz_holds_the_files_and_their_index(folder: Path, tmp_path: Path) -> None:
    index_path(finished(folder)[0]).unlink()
    out = tmp_path / "job.wacz"
    page = "http://example.org/page/1"
    words = ("--title", "Test", "--description", "Of a test", "--main-page", page)
    text, said = warc("wacz", folder, "-o", out, *words)
    assert (text.decode(), said) == (f"2 files, 9 captures, 5 pages in {out}\n", "")
    with ZipFile(out) as packed:
        assert packed.testzip() is None
        assert sum(name.startswith("archive/") for name in packed.namelist()) == 2
        package = json.loads(packed.read("datapackage.json"))
    assert package["software"].startswith("krowlspider ")
    assert (package["title"], package["description"]) == ("Test", "Of a test")
    assert (package["mainPageUrl"], package["mainPageDate"]) == (page, "2026-01-01T00:00:00Z")
    before = out.read_bytes()
    _, said = warc("wacz", folder, "-o", out, code=2)
    assert said == f"krowlspider: {out} exists: give another name, or --force to overwrite it\n"
    assert out.read_bytes() == before
    warc("wacz", folder, "-o", out, "--force")
    assert out.read_bytes() != before


def test_files_missing_from_a_wacz_are_named(folder: Path, tmp_path: Path) -> None:
    first, second = finished(folder)
    note_upload(first)
    first.unlink()
    # One whose index is gone too, and one that went without being uploaded.
    note_upload(folder / "older.warc.gz", b"")
    (folder / "older.warc.gz").unlink()
    lost = index_path(second).read_text().replace(second.name, "lost.warc.gz")
    (folder / "lost.cdxj").write_text(lost)
    files = series(folder)
    files.append(capture(9))
    files.abandon()
    out = tmp_path / "job.wacz"
    text, said = warc("wacz", folder, "-o", out, code=1)
    assert text.decode() == f"1 file, 7 captures, 3 pages in {out}\n"
    assert said == (
        f"krowlspider: not in it: 3 files no longer in {folder}, uploaded to s3://bucket;"
        " 1 open file: if no crawl writes there,"
        f" scrapy warc mend {folder}\n"
    )
    with ZipFile(out) as packed:
        assert f"archive/{second.name}" in packed.namelist()


WORDS = (
    "index",
    "check",
    "stats",
    "extract",
    "mend",
    "cat",
    "wacz",
    "replay",
    "serve",
    "dedup-index",
    "upload",
)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], f"give one of the words {', '.join(WORDS)}"),
        (
            ["dance", "x"],
            f"give one of the words {', '.join(WORDS)}, not 'dance'",
        ),
        (["check", "--nonsense", "FOLDER"], "--nonsense is not an option"),
        (["check", "FOLDER", "--payload"], "--payload does not go with check"),
        (["mend", "FOLDER", "-o", "x"], "--output does not go with mend"),
        (["index", "FOLDER", "-o", ""], "--output is given nothing"),
        (["index", "FOLDER", "-o", "/none/x"], "/none/x cannot be written: there is no folder"),
        (["index", "FOLDER", "-o", "FOLDER"], "FOLDER cannot be written: it is a folder"),
        (["index", "FOLDER", "--main-page", "x"], "--main-page does not go with index"),
        (["wacz", "FOLDER", "-o", "a", "--main-page", "x"], "'x' is not a URL that is crawled"),
        (["wacz", "FOLDER"], "give the file to write: scrapy warc wacz"),
        (["check", "/none"], "/none is neither a crawl's folder nor one of WARC files"),
        (["cat", "ftp://example.org/", "FOLDER"], "'ftp://example.org/' is not a URL that is"),
        (["cat", "http://example.org/page/1", "FOLDER", "--at", "soon"], "'soon' is not a date"),
        (["cat", "http://example.org/page/1", "FOLDER", "--at", "2026-13"], "'2026-13' is not a"),
        (["extract", "FOLDER", "-o", "FOLDER/x", "--status", "abc"], "--status abc fits no"),
        (["extract", "FOLDER", "-o", "FOLDER/x", "--mime", "html"], "--mime html fits no"),
        (
            ["extract", "FOLDER", "-o", "FOLDER/x", "--host", "http://a.test"],
            "--host http://a.test fits",
        ),
        (["serve", "FOLDER", "--port", "http"], "--port http: give 1 to 65535, or 0 for a free"),
        (["serve", "FOLDER", "--cors", "example.org"], "--cors example.org is not an origin: give"),
        (
            ["serve", "FOLDER", "--bind", "192.0.2.1"],
            "nothing can listen at port 8091 of 192",
        ),
        (["check", "FOLDER", "-s", "KROWL_WARC_PREFX=x"], "KROWL_WARC_PREFX is not a setting"),
    ],
)
def test_mistake_is_reported_in_one_line(folder: Path, words: list[str], complaint: str) -> None:
    text, said = warc(*(word.replace("FOLDER", str(folder)) for word in words), code=2)
    assert text == b""
    assert said.startswith(f"krowlspider: {complaint.replace('FOLDER', str(folder))}"), said
    assert said.count("\n") == 1
    # So the right command can be given at once.
    assert not (folder / "x").exists()


@pytest.mark.parametrize("word", ["index", "wacz"])
def test_folder_without_permission_is_named(
    folder: Path, tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The permissions of a folder do not hold for root.
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    _, said = warc(word, folder, "-o", tmp_path / "out", code=2)
    assert said == (
        f"krowlspider: {tmp_path}/out cannot be written: no permission to write to {tmp_path}\n"
    )


def test_wrong_number_of_arguments_shows_the_usage(folder: Path) -> None:
    for words in (["check"], ["cat", folder], ["mend", folder, folder]):
        text, said = warc(*words, code=2)
        assert f"scrapy warc {words[0]} <" in text.decode() + said


def test_jobdir_of_scrapys_own_scheduler_is_read_too(folder: Path, tmp_path: Path) -> None:
    """It has no file of a crawl but the WARC files."""
    (tmp_path / "job").mkdir()
    folder.rename(tmp_path / "job" / "warc")
    assert warc("check", tmp_path / "job")[0].startswith(b"2 files, ")


def test_warc_folder_of_a_job_is_that_of_its_settings(folder: Path, tmp_path: Path) -> None:
    job = JobFolder(tmp_path / "job")
    job.take()
    job.leave()
    _, said = warc("check", job.path, code=2)
    assert said == f"krowlspider: {job.path} has no WARC files yet: there is no {job.path}/warc\n"
    where = f"KROWL_WARC_DIR={folder}"
    assert warc("check", job.path, "-s", where)[0].startswith(b"2 files, ")
    folder.rename(job.path / "warc")
    assert warc("check", job.path)[0].startswith(b"2 files, ")


@pytest.mark.parametrize("words", [["warc", "wacz"], ["corpus"]])
def test_file_whose_name_is_not_utf8_is_refused(tmp_path: Path, words: list[str]) -> None:
    name = os.fsdecode(b"a b\xff.warc.gz")
    (tmp_path / name).write_bytes(gzip.compress(b""))
    said = scrapy(*words, tmp_path, "-o", tmp_path / "out", code=2).stderr.decode()
    assert said.splitlines()[-1] == (
        "krowlspider: 'a b\\udcff.warc.gz' has a name that is not in UTF-8: rename it"
    )


def test_damaged_file_is_named_and_the_others_are_used(folder: Path, tmp_path: Path) -> None:
    first, _ = finished(folder)
    content = first.read_bytes()
    lines = list(index_file(first))
    at = parse(lines[0].encode()).offset
    first.write_bytes(content[: at + 100] + bytes([content[at + 100] ^ 1]) + content[at + 101 :])
    out = tmp_path / "a.wacz"
    for words in (["index", folder], ["wacz", folder, "-o", out]):
        text, said = warc(*words, code=1)
        assert text.startswith((b"8 captures of 2 files in ", b"2 files, 8 captures, "))
        *others, last = said.splitlines()
        assert last.startswith(f"krowlspider: {first} is damaged at byte {at}: ")
        # The damaged record is the original of a revisit.
        missing = words[0] == "wacz"
        assert ["the bodies of 1 revisit" in other for other in others] == [True] * missing
    # Its records that can be read are found.
    text, said = warc("cat", "http://example.org/page/1", folder, "--all")
    assert text.count(b"\n") == 2
    assert said.startswith("krowlspider: searched as far as they can be read: 1 damaged file: ")


@pytest.mark.parametrize("words", [["check"], ["stats"], ["cat", "http://example.org/page/1"]])
def test_output_that_cannot_be_written_exits_with_2(folder: Path, words: list[str]) -> None:
    # What waits in a buffer meets the full disk last.
    said, null = folder.with_name("said"), Path(os.devnull)
    with (
        null.open("rb") as given,
        Path("/dev/full").open("wb") as full,
        said.open("wb") as errors,
    ):
        assert execute_here(["warc", *words, str(folder)], given, full, errors) == 2
    assert said.read_text() == (
        "krowlspider: standard output cannot be written: No space left on device\n"
    )


def test_an_extract_that_fails_can_be_repeated(folder: Path, tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", 64_000)
    try:
        if not disk.mounted:
            pytest.skip("no small file system can be mounted here")
        disk.fill()
        _, said = warc("extract", folder, "-o", disk.outside / "out", code=3)
        assert said.endswith("No space left on device: make room on its disk, and do it again\n")
        disk.make_room()
        warc("extract", folder, "-o", disk.outside / "out")
    finally:
        disk.close()


@pytest.mark.slow
def test_without_room_for_an_index_it_exits_with_3(
    folder: Path,
) -> None:
    before = sorted(folder.iterdir())
    command = ["prlimit", "--fsize=100", sys.executable, "-B", "-m", "scrapy", "warc", "index"]
    done = subprocess.run(
        [*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == ("krowlspider: File too large: make room on its disk, and do it again\n")
    assert sorted(folder.iterdir()) == before


def all_of(terminal: int) -> str:
    """Return the output on a terminal until its last writer closes it."""
    pieces = []
    # Then Linux says that there is no such device.
    with suppress(OSError):
        while piece := os.read(terminal, 100_000):
            pieces.append(piece)
    return b"".join(pieces).decode()


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["check"], ["checking"]),
        (["index"], ["indexing", "merging"]),
        (["mend"], ["mending", "indexing"]),
        (["wacz", "-o", "OUT"], ["indexing", "index", "pages of"]),
    ],
)
def test_progress_is_shown_on_a_terminal(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    steps: list[str],
) -> None:
    """Every step is shown to its end if every change is shown."""
    index_path(finished(folder)[0]).unlink()
    if words == ["mend"]:
        files = series(folder)
        files.append(capture(9))
        files.abandon()
    often = partialmethod(tqdm.__init__, mininterval=0, miniters=0)
    monkeypatch.setattr(tqdm, "__init__", often)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 200))
    word, *rest = (each.replace("OUT", str(tmp_path / "a.wacz")) for each in words)
    null = Path(os.devnull)
    with ThreadPoolExecutor(1) as reader:
        text = reader.submit(all_of, ours)
        with null.open("rb") as given, null.open("wb") as out, os.fdopen(theirs, "wb") as terminal:
            code = execute_here(["warc", word, str(folder), *rest], given, out, terminal)
        shown = text.result()
    os.close(ours)
    assert code == 0
    for step in steps:
        assert re.search(rf"\r{step}[^\r]*: 100%", shown), step


def test_open_file_of_a_killed_crawl_is_read(tmp_path: Path) -> None:
    """While the crawl runs too, and when its last record is torn."""
    links = "<a href=/next>x</a><a href=/slow>x</a>"
    web = [page("/robots.txt", ""), page("/", links), page("/slow", "", latency=60)]
    with MockWeb(spec=[*web, page("/next", "the last page")]) as site:
        often = {"KROWL_STATUS_INTERVAL": 0.1}
        crawl = crawl_of(site, tmp_path, [site.url("a.test")], settings=often).start()
        crawl.wait_until(lambda: "INFO: 2 pages | " in crawl.log)
        first, last = site.url("a.test"), site.url("a.test", "/next")
        assert warc("cat", last, crawl.jobdir, "--payload")[0] == b"the last page"
        crawl.kill()
    (path,) = (crawl.jobdir / "warc").glob("*.open")
    listed, _ = warc("cat", first, crawl.jobdir, "--all")
    assert f" 200 text/html {path.name}:".encode() in listed
    path.write_bytes(path.read_bytes()[:-9])
    text, said = warc("cat", first, crawl.jobdir, "--payload")
    assert (text.decode(), said) == (links, "")
    _, said = warc("cat", site.url("a.test", "/none"), crawl.jobdir, code=1)
    assert said == f"krowlspider: there is no capture of {site.url('a.test', '/none')}\n"


def test_file_finished_while_it_is_searched_is_read(folder: Path) -> None:
    first, _ = finished(folder)
    line = parse(index_path(first).read_bytes().splitlines()[0])
    was_open = structs.replace(line, filename=f"{line.filename}.open")
    wanted = captures.read(folder, [], line)
    assert captures.read(folder, [], was_open) == wanted


def test_every_page_of_a_crawl_is_printed_as_it_was_sent(tmp_path: Path) -> None:
    with SimulatedWeb(graph=Graph(hosts=3, pages=5, seed=2)) as web:
        crawl = crawl_of(web, tmp_path).run()
    assert b": 0 problems, 0 warnings\n" in warc("check", crawl.jobdir)[0]
    out = tmp_path / "all.cdxj"
    warc("index", crawl.jobdir, "-o", out)
    lines = list(map(parse, out.read_bytes().splitlines()))
    assert {line.url for line in lines} >= {item["url"] for item in crawl.items}
    whole = next(line for line in lines if line.mime == "text/html" and line.status == "200")
    path = next(crawl.jobdir.rglob(whole.filename))
    with path.open("rb") as stream:
        stream.seek(whole.offset)
        sent = next(iter(ArchiveIterator(stream, no_record_parse=True))).raw_stream.read()
    at = ["--at", whole.timestamp]
    assert warc("cat", whole.url, crawl.jobdir, *at)[0] == sent
