"""Other people's tools accept every file that is written here."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator
from msgspec.structs import replace
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from krowlspider.archive.tools.mend import mend_folder
from krowlspider.archive.write.records import FetchNote, dns_resource, record_id, seeds_resource
from tests.replay.venv import tool

from .captures import ALL_ODD, STARTED, Odd, capture, deduplicating, finished, series, written

BIN = Path(sys.executable).parent
KINDS = [
    "warcinfo",
    "response",
    "request",
    *["revisit", "request"] * 2,
    "metadata",
    *["resource"] * 2,
]


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [os.fspath(each) if isinstance(each, Path) else str(each) for each in command],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def odd_files(tmp_path: Path) -> list[Path]:
    """Write two files with every odd response and one post; one file is mended."""
    post = b"POST / HTTP/1.1\r\nHost: example.org\r\nContent-Length: 3\r\n\r\na=b"
    captures = [capture(number, odd) for number, odd in enumerate(ALL_ODD.values(), 1)]
    captures.append(capture(request=post))
    written(tmp_path, captures)
    files = series(tmp_path)
    for each in captures:
        files.append(each)
    files.abandon()
    with next(tmp_path.glob("*.open")).open("ab") as stream:
        stream.write(b"\x1f\x8b\x08")
    mend_folder(tmp_path)
    return finished(tmp_path)


@pytest.fixture
def kinds(tmp_path: Path) -> Path:
    """Write one file with every kind of record: a page, two revisits, a note and a DNS answer."""
    folder = tmp_path / "kinds"
    unchanged = Odd(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", b"")
    with deduplicating(folder) as files:
        files.append(capture(1))
        files.append(replace(capture(1), identity=record_id(bytes(16))))
        files.append(capture(2, unchanged))
        fields = [("via", "http://example.org/"), ("fetchTimeMs", "7")]
        files.note(FetchNote("http://example.org/page/1", STARTED, fields, record_id(bytes(16))))
        files.resource(
            dns_resource("example.org", STARTED, [("192.0.2.7", 60.0), ("2001:db8::1", 9.0)])
        )
        files.begin_with(seeds_resource(b"example.org\n", STARTED, truncated=True))
    [path] = finished(folder)
    with path.open("rb") as stream:
        found = [record.headers["WARC-Type"] for record in ArchiveIterator(stream)]
    assert found == KINDS
    return path


def test_gzip_finds_nothing_wrong(odd_files: list[Path], kinds: Path) -> None:
    assert run("gzip", "-t", *odd_files, kinds).returncode == 0


def test_fastwarc_finds_nothing_wrong(odd_files: list[Path], kinds: Path) -> None:
    for path in [*odd_files, kinds]:
        result = run(BIN / "fastwarc", "check", "--quiet", path)
        assert result.returncode == 0, result


def test_warcio_finds_nothing_wrong(odd_files: list[Path], kinds: Path) -> None:
    result = run(BIN / "warcio", "check", "--verbose", kinds)
    assert result.returncode == 0, result.stdout
    # It leaves revisits out.
    assert result.stdout.count("digest pass") == len(KINDS) - 2
    result = run(BIN / "warcio", "check", "--verbose", *odd_files)
    assert result.returncode == 0, result.stdout
    # Each response and request, and the warcinfo, of each file.
    assert result.stdout.count("digest pass") == 2 * (2 * (len(ALL_ODD) + 1) + 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_warcat_finds_nothing_wrong(odd_files: list[Path]) -> None:
    """It compares each record with a rewritten one and complains if that changes the head; only its
    verdict counts."""
    for path in odd_files:
        result = run(tool("python"), "-m", "warcat", "verify", path)
        assert result.returncode == 0, result.stderr
        listed = run(tool("python"), "-m", "warcat", "list", path).stdout
        assert listed.count("Record: ") == 2 * (len(ALL_ODD) + 1) + 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_warcat_finds_nothing_wrong_with_other_records(kinds: Path, tmp_path: Path) -> None:
    """It searches a revisit's own block for the payload, and stops at a resource with a payload
    digest. So the records here have no such digest."""
    plain = tmp_path / "plain.warc"
    records = gzip.decompress(kinds.read_bytes())
    assert records.count(b"WARC-Payload-Digest") == 4
    plain.write_bytes(records.replace(b"WARC-Payload-Digest", b"X-Payload-Digest"))
    result = run(tool("python"), "-m", "warcat", "verify", plain)
    assert result.returncode == 0, result.stderr
    listed = run(tool("python"), "-m", "warcat", "list", kinds).stdout
    assert re.findall("  Type: (.*)", listed) == KINDS
    plain.write_bytes(plain.read_bytes().replace(b"fetchTimeMs: 7", b"fetchTimeMs: 8"))
    result = run(tool("python"), "-m", "warcat", "verify", plain)
    assert (result.returncode, "Bad block digest" in result.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_warcat_finds_a_byte_that_is_wrong(odd_files: list[Path], tmp_path: Path) -> None:
    records = gzip.decompress(odd_files[0].read_bytes())
    wrong = tmp_path / "wrong.warc"
    wrong.write_bytes(records.replace(b"5\r\nhello", b"5\r\nhullo"))
    result = run(tool("python"), "-m", "warcat", "verify", wrong)
    assert result.returncode == 1
    assert "Bad block digest" in result.stderr


def test_two_readers_read_the_same_blocks(odd_files: list[Path]) -> None:
    assert len(odd_files) == 2
    for path in odd_files:
        fast = [
            (record.headers["WARC-Type"], record.reader.read())
            for record in ArchiveIterator(path, parse_http=False)
        ]
        with path.open("rb") as stream:
            slow = [
                (record.rec_headers.get_header("WARC-Type"), record.raw_stream.read())
                for record in WarcioIterator(stream, no_record_parse=True)
            ]
        assert fast == slow
        assert [kind for kind, _ in fast] == ["warcinfo"] + ["response", "request"] * (
            len(ALL_ODD) + 1
        )
        assert [block for kind, block in fast if kind == "response"][:-1] == [
            odd.response for odd in ALL_ODD.values()
        ]
