"""WARC records of Gemini: their bytes, their index lines, and what other tools make of them."""

from __future__ import annotations

import gzip
import ssl
from typing import TYPE_CHECKING

import pytest
from fastwarc.warc import ArchiveIterator
from msgspec.structs import replace
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from krowlspider.archive import cdxj, gemini
from krowlspider.archive.cdxj import parse
from krowlspider.archive.payload import digest
from krowlspider.archive.surt import surt
from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.write.records import Receipt
from tests.archive.captures import capture as web_capture
from tests.archive.captures import deduplicating, finished, written
from tests.archive.command import warc
from tests.archive.test_other_tools import BIN, run
from tests.archive.tools.test_replay import program
from tests.gemini.answers import Answer, page, redirect, refusal
from tests.gemini.archived import DER, PAGE, URL, capture

if TYPE_CHECKING:
    from pathlib import Path

ANSWERS = {
    "gemini://example.org/": PAGE,
    "gemini://example.org/empty": Answer(b"20 \r\n", b"# No META\n"),
    "gemini://example.org/no-blank": Answer(b"20\r\n", b"# No blank\n"),
    "gemini://example.org/picture": Answer(b"20 image/png\r\n", bytes(range(256)) * 9),
    "gemini://example.org/web": page("HTTP/1.1 200 OK\r\n\r\nno", kind="text/html"),
    "gemini://example.org/moved": redirect("gemini://other.example/"),
    "gemini://example.org/gone": refusal(52),
    "gemini://example.org:1966/ask?a%20b&a=c": refusal(10, "name?"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a file with each kind of capture of Gemini, one of the web between them."""
    captures = [capture(answer, url=url) for url, answer in ANSWERS.items()]
    captures.append(capture(url="gemini://example.org/cut", truncated="disconnect"))
    captures.insert(1, web_capture(url="http://example.org/a.gmi"))
    captures.append(capture(certificate=DER, url="gemini://example.org/certified"))
    with deduplicating(tmp_path / "archive") as files:
        for each in captures:
            files.append(each)
        assert files.stats.records == 2 * len(captures) + 1 + 1
    return tmp_path / "archive"


def heads(path: Path) -> list[tuple[dict[str, str], bytes]]:
    with path.open("rb") as stream:
        records = ArchiveIterator(stream, parse_http=False)
        return [(record.headers.to_dict(), record.reader.read()) for record in records]


def test_a_record_has_header_line_and_body_byte_for_byte(tmp_path: Path):
    [path] = written(tmp_path, [capture()])
    _, (response, block), (request, asked) = heads(path)
    assert block == PAGE.header + PAGE.body
    assert asked == URL.encode() + b"\r\n"
    assert response["Content-Type"] == "application/gemini; msgtype=response"
    assert request["Content-Type"] == "application/gemini; msgtype=request"
    assert request["WARC-Concurrent-To"] == response["WARC-Record-ID"]
    assert response["WARC-Target-URI"] == URL
    with path.open("rb") as stream:
        fields = [record.rec_headers.headers for record in WarcioIterator(stream)][1]
    found = [value for name, value in fields if name in {"WARC-Protocol", "WARC-Cipher-Suite"}]
    assert found == ["gemini", "tls/1.3", "TLS_AES_256_GCM_SHA384"]
    assert "WARC-Payload-Digest" not in response


def test_a_repeated_body_is_a_revisit_of_gemini_alone(tmp_path: Path):
    """The head of a revisit is its header line. A web page with the same body is stored too."""
    body = b"The same bytes on the web\n"
    other = replace(capture(page(body.decode())), receipt=Receipt())
    again = replace(capture(Answer(b"20 text/gemini; lang=de\r\n", body)), receipt=Receipt())
    web = web_capture()
    head = web.response_bytes[: web.head]
    with deduplicating(tmp_path / "archive") as files:
        files.append(replace(web, response_bytes=bytes(head) + body, payload=body))
        files.append(other)
        files.append(replace(again, url="gemini://example.org/b"))
        files.append(capture(refusal(51, "not found")))
    [path] = finished(tmp_path / "archive")
    found = [
        (fields, block) for fields, block in heads(path) if "msgtype=request" not in str(fields)
    ]
    kinds = [fields["WARC-Type"] for fields, _ in found]
    assert kinds == ["warcinfo", "response", "response", "revisit", "response"]
    fields, block = found[3]
    assert block == b"20 text/gemini; lang=de\r\n"
    assert fields["WARC-Refers-To-Target-URI"] == URL
    assert fields["WARC-Payload-Digest"] == digest(body)
    assert fields["WARC-Profile"].endswith("/identical-payload-digest")
    assert again.receipt is not None
    assert again.receipt.url == URL
    assert warc("cat", "--payload", "gemini://example.org/b", tmp_path / "archive")[0] == body
    assert check_folder(tmp_path / "archive").problems == []


def test_a_certificate_is_a_metadata_record_of_its_capture(tmp_path: Path):
    [path] = written(tmp_path, [capture(certificate=DER)])
    *_, (response, _), _, (fields, block) = heads(path)
    assert block == ssl.DER_cert_to_PEM_cert(DER).encode()
    assert (fields["WARC-Type"], fields["Content-Type"]) == ("metadata", gemini.CERTIFICATE)
    assert fields["WARC-Concurrent-To"] == response["WARC-Record-ID"]
    assert len(cdxj.index_path(path).read_text().splitlines()) == 1


def test_index_lines_are_those_of_the_records(folder: Path):
    [path] = finished(folder)
    lines = cdxj.index_path(path).read_text().splitlines(keepends=True)
    assert lines == sorted(cdxj.index_file(path))
    found = {line.url: line for line in map(parse, (each.encode() for each in lines))}
    for url, answer in ANSWERS.items():
        assert found[url].status == answer.status
        assert found[url].digest == digest(answer.body)
    kinds = [found[url].mime for url in ANSWERS]
    assert kinds == ["text/gemini"] * 3 + ["image/png", "text/html"] + [""] * 3


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("gemini://example.org/", "gemini://org,example)/"),
        ("gemini://example.org", "gemini://org,example)/"),
        ("GEMINI://Example.ORG:1965/A/B?x&a=1", "gemini://org,example)/A/B?x&a=1"),
        ("gemini://example.org:1966?a/b", "gemini://org,example:1966)/?a/b"),
        ("gemini://bücher.example/ü%C3%BC#x", "gemini://example,xn--bcher-kva)/%C3%BC%C3%BC"),
        ("gemini://[::1]:1966/", "gemini://::1:1966)/"),
        ("gemini://www.example.org/", "gemini://org,example,www)/"),
        ("gemini://example.org:x/", "gemini://example.org:x/"),
    ],
)
def test_a_key_begins_with_the_scheme(url: str, key: str):
    """So look-ups of the web and of Gemini never find each other."""
    assert surt(url) == key


def test_tools_of_warc_know_gemini(folder: Path, tmp_path: Path):
    report = check_folder(folder)
    assert (report.problems, report.warnings) == ([], [])
    assert warc("cat", "--payload", "gemini://example.org/", folder)[0] == PAGE.body
    assert b"<p>page" in warc("cat", "http://example.org/a.gmi", folder)[0]
    whole = warc("cat", "gemini://example.org/moved", folder)[0]
    assert whole == b"31 gemini://other.example/\r\n"
    assert warc("cat", "--payload", "gemini://example.org/moved", folder)[0] == b""
    warc("extract", "--mime", "text/gemini", "-o", tmp_path / "out", folder)
    [copied] = finished(tmp_path / "out")
    urls = {parse(line).url for line in cdxj.index_path(copied).read_bytes().splitlines()}
    assert URL not in urls
    assert "gemini://example.org/empty" in urls
    assert "gemini://example.org/picture" not in urls
    warc("extract", "--status", "31", "-o", tmp_path / "moved", folder)
    [copied] = finished(tmp_path / "moved")
    lines = cdxj.index_path(copied).read_bytes().splitlines()
    assert [parse(line).url for line in lines] == ["gemini://example.org/moved"]
    assert b"text/gemini" in warc("stats", folder)[0]


def test_replay_says_what_is_not_replayed(folder: Path):
    """pywb knows HTTP alone; the program here ends at once."""
    program(folder, "exit 1")
    _, errors = warc("replay", folder, code=2)
    assert "not replayed, as pywb knows HTTP alone: 10 captures of Gemini" in errors


def test_a_lost_index_is_made_again(folder: Path):
    [path] = finished(folder)
    index = cdxj.index_path(path)
    before = index.read_bytes()
    index.unlink()
    warc("index", folder)
    assert index.read_bytes() == before


def test_a_wrong_body_is_found(folder: Path, tmp_path: Path):
    [path] = finished(folder)
    wrong = tmp_path / "wrong" / path.name
    wrong.parent.mkdir()
    content = gzip.decompress(path.read_bytes()).replace(b"Words of", b"Wordz of")
    wrong.write_bytes(b"".join(gzip.compress(each) for each in _records(content)))
    problems = [problem.what for problem in check_folder(wrong.parent).problems]
    assert "the block does not match its digest" in problems


def _records(content: bytes) -> list[bytes]:
    parts = content.split(b"\r\n\r\nWARC/1.1\r\n")
    whole = [parts[0], *(b"WARC/1.1\r\n" + part for part in parts[1:])]
    return [each + b"\r\n\r\n" for each in whole[:-1]] + [whole[-1]]


def test_other_tools_find_nothing_wrong(folder: Path):
    [path] = finished(folder)
    for command in (("fastwarc", "check", "--quiet"), ("warcio", "check", "--verbose")):
        done = run(BIN / command[0], *command[1:], path)
        assert done.returncode == 0, done.stdout + done.stderr
    with path.open("rb") as stream:
        blocks = [record.content_stream().read() for record in WarcioIterator(stream)]
    assert PAGE.header + PAGE.body in blocks
    with path.open("rb") as stream:
        parsed = [(record.is_http, record.reader.read()) for record in ArchiveIterator(stream)]
    assert (False, PAGE.header + PAGE.body) in parsed
