from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive import cdxj
from krowlspider.archive.cdxj import IndexLine, index_file, index_path, line, parse, timestamp
from krowlspider.archive.payload import digest
from krowlspider.archive.reading import Location, read_record
from tests.archive.captures import ALL_ODD, capture, durable_steps, finished, series
from tests.archive.index.lines import every_kind
from tests.support.tables import table

CDXJ_INDEXER = Path(sys.executable).parent / "cdxj-indexer"


def by_cdxj_indexer(*paths: Path) -> list[str]:
    done = subprocess.run(
        [CDXJ_INDEXER, "--sort", *paths], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines(keepends=True)


def without_digest(lines: list[str]) -> list[str]:
    return [each.partition('"digest"')[0] + each.partition('"length"')[2] for each in lines]


def test_lines_are_those_of_cdxj_indexer_with_two_exceptions(tmp_path: Path) -> None:
    path = every_kind(tmp_path / "warc")
    ours, theirs = sorted(index_file(path)), by_cdxj_indexer(path)
    assert len(ours) == len(ALL_ODD) + 4 + 2 + 1 + 1
    differ = [(mine, other) for mine, other in zip(ours, theirs, strict=True) if mine != other]
    of_a_chunked, *of_no_value = [
        (mine, other) for mine, other in differ if mine != other.replace("Text/HTML", "text/html")
    ]
    assert without_digest([of_a_chunked[0]]) == without_digest([of_a_chunked[1]])
    assert parse(of_a_chunked[0].encode()).digest == digest(b"hello world")
    # It says that there is a media type, and that it is empty.
    assert [(mine, other.replace('"mime": "", ', "")) for mine, other in of_no_value] == [
        (mine, mine) for mine, _ in of_no_value
    ]
    assert len(of_no_value) == 1


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_index_written_with_a_file_equals_the_one_made_from_it(
    tmp_path: Path, algorithm: str
) -> None:
    path = every_kind(tmp_path / "warc", algorithm)
    made = sorted(index_file(path))
    assert index_path(path).read_text().splitlines(keepends=True) == made
    digests = [parse(each.encode()).digest.partition(":")[0] for each in made]
    # The answer 304 has none.
    assert sorted(digests) == ["", *[algorithm] * (len(made) - 1)]


def test_every_line_leads_to_its_record(tmp_path: Path) -> None:
    path = every_kind(tmp_path / "warc")
    size = path.stat().st_size
    for each in map(parse, index_path(path).read_bytes().splitlines()):
        fields, _ = read_record(path, each.offset)
        assert fields["WARC-Target-URI"] == each.url
        assert timestamp(fields["WARC-Date"]) == each.timestamp
        member = path.read_bytes()[each.offset : each.offset + each.length]
        assert gzip.decompress(member).startswith(b"WARC/1.1\r\n")
        assert each.offset + each.length <= size


LINE = IndexLine(
    key="org,example)/a?x=%20",
    timestamp="20260101000000",
    url="http://example.org/A?x=%20",
    mime="text/html",
    status="200",
    digest="sha1:X",
    length=12,
    offset=34,
    filename="a.warc.gz",
)


def test_line_holds_the_given_values() -> None:
    text = line(
        Location("a.warc.gz", 34, 12),
        url=LINE.url,
        date="2026-01-01T00:00:00.999999Z",
        mime="Text/HTML; charset=x",
        status="200",
        digest="sha1:X",
    )
    assert text == (
        'org,example)/a?x=%20 20260101000000 {"url": "http://example.org/A?x=%20", '
        '"mime": "text/html", "status": "200", "digest": "sha1:X", "length": "12", '
        '"offset": "34", "filename": "a.warc.gz"}\n'
    )
    assert parse(text.encode()) == LINE


@given(
    url=st.text(),
    mime=st.text(),
    status=st.text(),
    digest=st.text(),
    filename=st.text(),
    length=st.integers(0),
    offset=st.integers(0),
)
def test_any_text_is_escaped_as_by_json_dumps(
    *, url: str, mime: str, status: str, digest: str, filename: str, length: int, offset: int
) -> None:
    """Quotes, line breaks and non-ASCII characters are escaped."""
    place = Location(filename, offset, length)
    text = line(place, url=url, date="2026", mime=mime, status=status, digest=digest)
    values = {
        "url": url,
        "mime": re.split(r"[;\s]", mime)[0].lower(),
        "status": status,
        "digest": digest,
        "length": str(length),
        "offset": str(offset),
        "filename": filename,
    }
    kept = {name: value for name, value in values.items() if value or name in {"url", "filename"}}
    assert text.endswith(f" 20260101000000 {json.dumps(kept)}\n")


@pytest.mark.parametrize(
    ("date", "stamp"),
    [
        ("2026-01-31T12:34:56Z", "20260131123456"),
        ("2026-01-31T12:34:56.000001Z", "20260131123456"),
        ("2026-01-31", "20260131000000"),
        ("2026", "20260101000000"),
    ],
)
def test_timestamp_is_the_date_to_the_second(date: str, stamp: str) -> None:
    assert timestamp(date) == stamp


@table(
    "bad", [b"", b"a b", b"a b c", b"a b {}", b'a b {"url": 1}', b"a b []", b"\xff b {}", b"a b 1"]
)
def test_broken_line_raises_value_error(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse(bad)


def test_records_about_records_are_not_indexed(tmp_path: Path) -> None:
    fields = (
        "WARC/1.1\r\nWARC-Type: %s\r\nWARC-Record-ID: <urn:uuid:0>\r\n"
        "WARC-Date: 2026-01-01T00:00:00Z\r\nWARC-Target-URI: http://example.org/\r\n"
        "Content-Type: %s\r\nContent-Length: 1\r\n\r\nx\r\n\r\n"
    )
    kinds = [
        ("metadata", "application/warc-fields"),
        ("metadata", "text/plain; x"),
        ("resource", "application/warc-fields"),
        ("resource", "image/png"),
        ("conversion", "text/plain"),
        ("warcinfo", "application/warc-fields"),
    ]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(gzip.compress((fields % kind).encode()) for kind in kinds))
    lines = list(index_file(path))
    assert [parse(each.encode()).mime for each in lines] == ["text/plain", "image/png"]
    assert sorted(lines) == by_cdxj_indexer(path)


def test_revisit_without_digest_gets_none(tmp_path: Path) -> None:
    """Heritrix writes such records for unchanged answers. The status here is 203, not 304."""
    block = b"HTTP/1.1 203 X\r\n\r\n"
    head = (
        "WARC/1.1\r\nWARC-Type: revisit\r\nWARC-Record-ID: <urn:uuid:0>\r\n"
        "WARC-Date: 2026-01-01T00:00:00Z\r\nWARC-Target-URI: http://example.org/\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    path = tmp_path / "a.warc.gz"
    path.write_bytes(gzip.compress(head.encode() + block + b"\r\n\r\n"))
    assert list(index_file(path)) == by_cdxj_indexer(path)
    assert parse(next(index_file(path)).encode()).digest == ""


def test_angle_brackets_round_a_url_are_removed(tmp_path: Path) -> None:
    """wget wrote them before 1.20."""
    files = series(tmp_path)
    files.append(capture(1))
    files.close()
    (path,) = finished(tmp_path)
    record = gzip.decompress(path.read_bytes())
    path.write_bytes(
        b"".join(
            gzip.compress(re.sub(rb"(WARC-Target-URI: )(\S+)", rb"\1<\2>", part))
            for part in re.split(rb"(?=WARC/1\.1\r\n)", record)
            if part
        )
    )
    assert [parse(line.encode()).url for line in index_file(path)] == ["http://example.org/page/1"]


def test_index_gets_its_name_after_its_content_is_durable(tmp_path: Path) -> None:
    warc = tmp_path / "a.warc.gz"
    steps = durable_steps(lambda: cdxj.write_index(warc, ["a\n", "b\n"]))
    assert steps == ["fsync", "rename", "fsync"]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.cdxj", "a\nb\n")]


def test_failed_write_leaves_the_earlier_index(tmp_path: Path) -> None:
    warc = tmp_path / "a.warc.gz"
    cdxj.write_index(warc, ["a\n"])

    def failing() -> list[str]:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        cdxj.write_index(warc, (each for _ in "x" for each in failing()))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.cdxj", "a\n")]
