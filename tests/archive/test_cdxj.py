from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.archive.index import cdxj
from krowlspider.archive.index.cdxj import IndexLine, index_file, index_path, line, parse, timestamp
from krowlspider.archive.index.indexes import (
    MERGED_AT_ONCE,
    captures_of,
    indexes_in,
    lines_with,
    make_indexes,
    merge,
    original_of,
)
from krowlspider.archive.index.lookup import header, read_record
from krowlspider.archive.payloads.digests import digest
from krowlspider.archive.payloads.payload_index import PayloadIndex
from krowlspider.archive.write.capture import NameAnswer
from krowlspider.archive.write.records import warc_date
from krowlspider.archive.write.series import WarcSeries

from .captures import ALL_ODD, STARTED, Odd, capture, durable_steps, finished, options, series

if TYPE_CHECKING:
    from krowlspider.archive.write.capture import Capture

CDXJ_INDEXER = Path(sys.executable).parent / "cdxj-indexer"
TYPED = Odd(
    b"HTTP/1.1 404 Not Found\r\nServer: x\r\nContent-Type: Text/HTML; charset=utf-8\r\n"
    b"Content-Type: text/plain\r\n\r\nnone",
    b"none",
)
FOLDED = Odd(b"HTTP/1.1 200 OK\r\nContent-Type: text/css;\r\n x=y\r\n\r\na", b"a")
EMPTY_TYPE = Odd(b"HTTP/1.1 200 OK\r\nContent-Type:\r\nServer: x\r\n\r\n7", b"7")
UNCHANGED = Odd(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", b"")


def typed(each: Capture) -> Capture:
    """A capture whose media type is that of its head."""
    return replace(each, media_type=header(each.response_bytes, "Content-Type"))


def every_kind(directory: Path, algorithm: str = "sha1") -> Path:
    """One file of odd responses, revisits and a DNS answer."""
    directory.mkdir(exist_ok=True)
    odd = [*ALL_ODD.values(), TYPED, FOLDED, EMPTY_TYPE, UNCHANGED]
    payloads = PayloadIndex(
        directory.parent / f"payloads-{directory.name}", most=1000, warn=pytest.fail
    )
    files = WarcSeries(directory, options(digest=algorithm), payloads)
    for number, response in enumerate([*odd, TYPED, FOLDED]):
        url = f"http://www.Example.org/{number}/?b=2&a={'é' if number % 2 else 'x'}".lower()
        files.append(typed(capture(number, response, url=url.replace("é", "%C3%A9"))))
    files.append(capture(1, url="https://192.0.2.1:8443/A%20b"))
    files.name(NameAnswer("example.org", STARTED, [("192.0.2.7", 60.0)]))
    files.close()
    payloads.close()
    [path] = finished(directory)
    return path


def by_cdxj_indexer(*paths: Path) -> list[str]:
    done = subprocess.run(
        [CDXJ_INDEXER, "--sort", *paths], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines(keepends=True)


def without_digest(lines: list[str]) -> list[str]:
    return [each.partition('"digest"')[0] + each.partition('"length"')[2] for each in lines]


def test_lines_are_those_of_cdxj_indexer_but_for_case_and_the_digests_of_chunked_bodies(
    tmp_path: Path,
) -> None:
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
def test_the_index_written_beside_a_file_is_the_one_made_from_it(
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


def test_a_line_says_what_it_is_given() -> None:
    text = line(
        url=LINE.url,
        date="2026-01-01T00:00:00.999999Z",
        mime="Text/HTML; charset=x",
        status="200",
        digest="sha1:X",
        length=12,
        offset=34,
        filename="a.warc.gz",
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
def test_whatever_a_line_is_given_is_a_value_in_its_object(
    *, url: str, mime: str, status: str, digest: str, filename: str, length: int, offset: int
) -> None:
    """The object is that of `json.dumps`: quotes, line breaks and what is not ASCII are escaped."""
    text = line(
        url=url,
        date="2026",
        mime=mime,
        status=status,
        digest=digest,
        length=length,
        offset=offset,
        filename=filename,
    )
    values = {
        "url": url,
        "mime": re.split(r"[;\s]", mime)[0].lower(),
        "status": status,
        "digest": digest,
        "length": str(length),
        "offset": str(offset),
        "filename": filename,
    }
    said = {name: value for name, value in values.items() if value or name in {"url", "filename"}}
    assert text.endswith(f" 20260101000000 {json.dumps(said)}\n")


@pytest.mark.parametrize(
    ("date", "stamp"),
    [
        ("2026-01-31T12:34:56Z", "20260131123456"),
        ("2026-01-31T12:34:56.000001Z", "20260131123456"),
        ("2026-01-31", "20260131000000"),
        ("2026", "20260101000000"),
    ],
)
def test_a_timestamp_is_the_date_to_the_second(date: str, stamp: str) -> None:
    assert timestamp(date) == stamp


@pytest.mark.parametrize(
    "bad", [b"", b"a b", b"a b c", b"a b {}", b'a b {"url": 1}', b"a b []", b"\xff b {}", b"a b 1"]
)
def test_what_is_no_line_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse(bad)


def test_a_broken_file_is_not_indexed(tmp_path: Path) -> None:
    path = every_kind(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordError, match="cut off"):
        list(index_file(path))
    index_path(path).unlink()
    with pytest.raises(ArchiveError, match=f"^{path} cannot be indexed, at byte"):
        make_indexes([path])
    assert list(tmp_path.glob("*.cdxj*")) == []


def test_records_about_records_are_not_indexed(tmp_path: Path) -> None:
    fields = (
        "WARC/1.1\r\nWARC-Type: %s\r\nWARC-Record-ID: <urn:uuid:0>\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        "WARC-Target-URI: http://example.org/\r\nContent-Type: %s\r\nContent-Length: 1\r\n\r\nx\r\n\r\n"
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


def test_a_revisit_that_says_no_digest_has_none(tmp_path: Path) -> None:
    """As Heritrix writes them for answers that nothing has changed; of 203 here, which 304 is like."""
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


def test_an_index_has_its_name_only_when_its_content_is_durable(tmp_path: Path) -> None:
    warc = tmp_path / "a.warc.gz"
    steps = durable_steps(lambda: cdxj.write_index(warc, ["a\n", "b\n"]))
    assert steps == ["fsync", "rename", "fsync"]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.cdxj", "a\nb\n")]


def test_an_index_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    warc = tmp_path / "a.warc.gz"
    cdxj.write_index(warc, ["a\n"])

    def failing() -> list[str]:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        cdxj.write_index(warc, (each for _ in "x" for each in failing()))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.cdxj", "a\n")]


def small_index(path: Path, keys: list[str], filename: str | None = None) -> Path:
    """An index of captures at the root of hosts, one a second."""
    lines = [
        line(
            url=f"http://{key}/",
            date=warc_date(STARTED + number),
            mime="text/html",
            status="200",
            digest="sha1:X",
            length=1,
            offset=number,
            filename=filename or path.name.replace(".cdxj", ".warc.gz"),
        )
        for number, key in enumerate(keys)
    ]
    path.write_text("".join(sorted(lines)))
    return path


@pytest.mark.parametrize("files", [1, 2, 23, 2 * MERGED_AT_ONCE + 1])
def test_merging_sorts_and_leaves_out_repeats(tmp_path: Path, files: int) -> None:
    chance = random.Random(files)
    paths = [
        small_index(tmp_path / f"{n}.cdxj", chance.choices("abcdefgh", k=chance.randrange(9)), "x")
        for n in range(files)
    ]
    every = {each for path in paths for each in path.read_text().splitlines(keepends=True)}
    # Another tool's may lack its last line break.
    paths[-1].write_bytes(paths[-1].read_bytes().rstrip(b"\n"))
    told: list[int] = []
    assert merge(paths, tmp_path / "out", told.append) == len(every)
    assert (tmp_path / "out").read_text() == "".join(sorted(every))
    assert sum(told) == (tmp_path / "out").stat().st_size
    assert {path.name for path in tmp_path.iterdir()} == {*(path.name for path in paths), "out"}


def test_no_more_files_are_open_than_are_merged_at_once(tmp_path: Path) -> None:
    """Of more indexes than a process may open."""
    for number in range(450):
        small_index(tmp_path / f"{number:03}.cdxj", [f"host{number}"])
    child = (
        "import resource, sys; from pathlib import Path;"
        "from krowlspider.archive.index.indexes import merge, indexes_in;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
        "folder = Path(sys.argv[1]);"
        "print(merge(indexes_in(folder).there, folder / 'index.cdxj'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", child, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "450\n"


def test_an_index_that_is_not_sorted_is_refused_and_nothing_written(tmp_path: Path) -> None:
    path = small_index(tmp_path / "a.cdxj", ["a", "b"])
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    with pytest.raises(ArchiveError, match="is not sorted"):
        merge([path], tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["a.cdxj"]


def test_what_is_missing_or_of_another_time_or_file_is_made_anew(tmp_path: Path) -> None:
    for number in range(5):
        files = series(tmp_path)
        files.append(capture(number))
        files.close()
    current, none, older, foreign, broken = finished(tmp_path)
    index_path(none).unlink()
    os.utime(index_path(older), (1, 1))
    index_path(foreign).write_bytes(index_path(current).read_bytes())
    index_path(broken).write_bytes(b"junk\n")
    # Its file has gone into a store.
    away = small_index(tmp_path / "away.cdxj", ["a"])
    small_index(tmp_path / "index.cdxj", ["a"], filename="away.warc.gz")
    found = indexes_in(tmp_path)
    assert found.missing == [none, older, foreign, broken]
    assert found.there == sorted([index_path(current), away])
    make_indexes(found.missing)
    found = indexes_in(tmp_path)
    assert found.missing == []
    assert len(found.there) == 6
    for warc in finished(tmp_path):
        assert index_path(warc).read_text() == "".join(index_file(warc))


def test_a_file_without_captures_has_an_empty_index(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"")
    make_indexes([path])
    assert index_path(path).read_bytes() == b""
    assert indexes_in(tmp_path).missing == []


NAMES = st.lists(st.sampled_from(["a", "aa", "ab", "b", "b.a", "c", "d"]), max_size=30)


@given(NAMES, st.sampled_from(["a", "aa", "b", "b.a", "c", "0", "zz"]))
def test_binary_search_finds_what_a_scan_finds(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], wanted: str
) -> None:
    path = small_index(tmp_path_factory.mktemp("index") / "a.cdxj", names)
    every = list(map(parse, path.read_bytes().splitlines()))
    found = captures_of([path], f"http://{wanted}/")
    assert found == [each for each in every if each.url == f"http://{wanted}/"]
    for beginning in ("", "a", "b", "b)/ 2", "~"):
        assert list(lines_with(path, beginning)) == [
            each for each in every if f"{each.key} {each.timestamp}".startswith(beginning)
        ]


def test_a_search_reads_no_more_than_it_must(tmp_path: Path) -> None:
    path = small_index(tmp_path / "a.cdxj", [f"host{number:05}" for number in range(20_000)])
    before = Path("/proc/self/io").read_text()
    assert len(captures_of([path], "http://host12345/")) == 1
    after = Path("/proc/self/io").read_text()
    read = [int(each.split()[1]) for each in (before, after)]
    # A buffer of 8 KB or two for each halving.
    assert read[1] - read[0] < 400_000 < path.stat().st_size / 5


def revisit_fields(url: str, seconds: float) -> dict[str, str]:
    return {
        "WARC-Refers-To-Target-URI": url,
        "WARC-Refers-To-Date": warc_date(STARTED + seconds),
    }


def test_a_revisit_leads_to_the_capture_that_it_names(tmp_path: Path) -> None:
    path = every_kind(tmp_path / "warc")
    there = [index_path(path)]
    lines = list(map(parse, index_path(path).read_bytes().splitlines()))
    revisits = [each for each in lines if each.mime == cdxj.REVISIT]
    named = [each for each in revisits if each.status != "304"]
    assert len(named) == len(revisits) - 1 == 5
    for revisit in named:
        fields, _ = read_record(path, revisit.offset)
        original = original_of(there, revisit, fields)
        assert original is not None
        assert original.digest == revisit.digest
        assert original.mime != cdxj.REVISIT
    assert original_of(there, revisits[0], revisit_fields("http://nowhere.test/", 0)) is None
    assert original_of(there, revisits[0], revisit_fields(lines[0].url, 99)) is None


def test_an_answer_that_nothing_has_changed_leads_to_the_last_whole_one_before(
    tmp_path: Path,
) -> None:
    path = small_index(tmp_path / "a.cdxj", ["x", "x", "y", "x"])
    revisit = replace(parse(path.read_bytes().splitlines()[1]), mime=cdxj.REVISIT, status="304")
    original = original_of([path], revisit, {})
    assert original is not None
    assert original.timestamp == revisit.timestamp
    earlier = replace(revisit, timestamp="20250101000000")
    assert original_of([path], earlier, {}) is None


def line_of(second: float, **said: str) -> IndexLine:
    """The line of a page, so many seconds on."""
    values = {
        "url": "http://example.org/",
        "mime": "text/html",
        "status": "200",
        "digest": "sha1:A",
    }
    text = line(
        date=warc_date(STARTED + second), length=1, offset=0, filename="a.warc.gz", **values | said
    )
    return parse(text.encode())


def as_text(each: IndexLine) -> str:
    values = {name: str(getattr(each, name)) for name in IndexLine.__slots__[2:]}
    return f"{each.key} {each.timestamp} {json.dumps(values)}\n"


def index_of(path: Path, *lines: IndexLine) -> list[Path]:
    path.write_text("".join(sorted(map(as_text, lines))))
    return [path]


def test_of_two_captures_of_one_second_a_revisit_leads_to_the_one_of_its_digest(
    tmp_path: Path,
) -> None:
    there = index_of(
        tmp_path / "a.cdxj", line_of(0, digest="sha1:A"), line_of(0.3, digest="sha1:B")
    )
    fields = revisit_fields("http://example.org/", 0.3)
    for digest_ in ("sha1:A", "sha1:B"):
        revisit = line_of(100, mime=cdxj.REVISIT, digest=digest_)
        original = original_of(there, revisit, fields)
        assert original is not None
        assert original.digest == digest_
    other = line_of(100, mime=cdxj.REVISIT, digest="sha1:C")
    assert original_of(there, other, fields) is None
    # Another algorithm says nothing, nor does no digest.
    for digest_ in ("sha256:C", ""):
        assert original_of(there, line_of(100, mime=cdxj.REVISIT, digest=digest_), fields)


def test_of_urls_that_share_a_key_a_revisit_leads_to_the_very_one(tmp_path: Path) -> None:
    urls = ["http://example.org/a", "http://www.example.org/A", "https://example.org/a"]
    there = index_of(tmp_path / "a.cdxj", *(line_of(0, url=url) for url in urls))
    for url in urls:
        revisit = line_of(100, url="http://other.test/", mime=cdxj.REVISIT)
        original = original_of(there, revisit, revisit_fields(url, 0))
        assert original is not None
        assert original.url == url


def test_an_answer_that_nothing_has_changed_leads_to_a_page_rather_than_to_an_error_or_a_head(
    tmp_path: Path,
) -> None:
    head = line_of(2, digest=digest(b""))
    path = tmp_path / "a.cdxj"
    index_of(path, line_of(0), line_of(1, digest="sha1:B"), head, line_of(3, status="404"))
    unchanged = line_of(4, mime=cdxj.REVISIT, status="304")
    original = original_of([path], unchanged, {})
    assert original is not None
    assert (original.status, original.digest) == ("200", "sha1:B")
    # An empty page, if there is no other.
    assert original_of(index_of(path, head), unchanged, {}) == head
    assert original_of(index_of(path, line_of(3, status="404")), unchanged, {}) is None


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_an_answer_200_of_no_payload_is_bare(algorithm: str) -> None:
    assert line_of(0, digest=digest(b"", algorithm)).is_bare
    assert not line_of(0, digest=digest(b"", algorithm), status="301").is_bare
    assert not line_of(0, digest=digest(b"x", algorithm)).is_bare
    assert not line_of(0, digest="").is_bare


def test_a_broken_line_is_told_by_its_index_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "a.cdxj"
    index_of(path, line_of(0))
    path.write_text(path.read_text() + f"{line_of(0).key} 2027 junk\n")
    with pytest.raises(ArchiveError, match=f"^{path} has a line that is broken: remove it, or get"):
        captures_of([path], "http://example.org/")
    (tmp_path / "a.warc.gz").touch()
    with pytest.raises(ArchiveError, match="remove it, and scrapy warc index makes it anew"):
        captures_of([path], "http://example.org/")


def test_a_file_that_goes_while_others_are_indexed_is_passed_over(tmp_path: Path) -> None:
    for number in range(3):
        files = series(tmp_path)
        files.append(capture(number))
        files.close()
    first, second, third = finished(tmp_path)
    for path in (first, second, third):
        index_path(path).unlink()
    told: list[int] = []

    def remove(length: int) -> None:
        told.append(length)
        second.unlink(missing_ok=True)

    sizes = first.stat().st_size + third.stat().st_size
    make_indexes([first, second, third], remove)
    assert sorted(tmp_path.glob("*.cdxj")) == [index_path(first), index_path(third)]
    assert (len(told), sum(told)) == (6, sizes)


def test_a_file_that_is_listed_and_gone_is_away_when_its_index_says_so(tmp_path: Path) -> None:
    """A link that leads nowhere is listed like a file that is removed right after."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.warc.gz").symlink_to("nowhere")
    small_index(tmp_path / "a.cdxj", ["a"])
    # Of no captures.
    (tmp_path / "c.cdxj").touch()
    found = indexes_in(tmp_path)
    assert (found.there, found.missing, found.away) == (
        [tmp_path / "a.cdxj"],
        [],
        ["a.warc.gz"],
    )


def test_values_are_text_as_other_readers_expect(tmp_path: Path) -> None:
    path = every_kind(tmp_path / "warc")
    for each in index_path(path).read_text().splitlines():
        assert all(type(value) is str for value in json.loads(each.split(" ", 2)[2]).values())


def test_a_url_in_angle_brackets_is_the_url_within(tmp_path: Path) -> None:
    """As wget wrote it before 1.20."""
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
