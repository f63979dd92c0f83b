from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from warcio.utils import Digester

from krowlspider.archive import cdxj
from krowlspider.archive.cdxj import IndexLine, index_path, line, parse
from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.indexes import captures_of, lines_with, original_of
from krowlspider.archive.payload import digest
from krowlspider.archive.reading import Location, read_record
from krowlspider.archive.write.records import warc_date
from krowlspider.urls.canonical import normalise
from tests.archive.captures import STARTED, capture, written
from tests.archive.index.lines import every_kind, small_index

ODD = "|[]^`{}\\"
# Scheme, host, path and query, without user and fragment.
RFC_3986 = re.compile(
    r"https?://[A-Za-z0-9.-]+(?::[0-9]+)?"
    r"(?:[/?](?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
)
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


def test_url_is_found_in_both_spellings_of_its_characters(tmp_path: Path) -> None:
    """A record has the URL as browsers and pywb spell it: with the characters of ODD, and "%" that
    begins no escape, as they are. All else in it is valid by RFC 3986."""
    url = normalise(f'http://example.org/a|b[c]^d`{{e}}"f<g> h%zz?q={ODD}"<>\' %zz&p=%20~#f')
    assert url is not None
    [path] = written(tmp_path, [capture(1, url=url)])
    there = [index_path(path)]
    escaped = re.sub(r"[]\[\\^`{|}]|%(?![0-9A-F]{2})", lambda odd: f"%{ord(odd[0]):02X}", url)
    assert RFC_3986.fullmatch(escaped)
    assert not RFC_3986.fullmatch(url)
    for spelling in (url, escaped):
        [found] = captures_of(there, spelling)
        assert found.url == url
        assert read_record(path, found.offset)[0]["WARC-Target-URI"] == url


def test_binary_search_reads_little_of_a_large_index(tmp_path: Path) -> None:
    path = small_index(tmp_path / "a.cdxj", [f"host{number:05}" for number in range(20_000)])
    before = Path("/proc/self/io").read_text()
    assert len(captures_of([path], "http://host12345/")) == 1
    after = Path("/proc/self/io").read_text()
    read = [int(each.split()[1]) for each in (before, after)]
    # A buffer of 8 KB or two for each halving.
    assert read[1] - read[0] < 400_000 < path.stat().st_size / 5


def revisit_fields(url: str, seconds: float) -> dict[str, str]:
    return {"WARC-Refers-To-Target-URI": url, "WARC-Refers-To-Date": warc_date(STARTED + seconds)}


def test_revisit_leads_to_the_capture_it_names(tmp_path: Path) -> None:
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


def test_304_leads_to_the_last_200_not_after_it(tmp_path: Path) -> None:
    path = small_index(tmp_path / "a.cdxj", ["x", "x", "y", "x"])
    revisit = replace(parse(path.read_bytes().splitlines()[1]), mime=cdxj.REVISIT, status="304")
    original = original_of([path], revisit, {})
    assert original is not None
    assert original.timestamp == revisit.timestamp
    earlier = replace(revisit, timestamp="20250101000000")
    assert original_of([path], earlier, {}) is None


def line_of(second: float, **changes: str) -> IndexLine:
    """Return the index line of a page, captured that many seconds later."""
    values = {
        "url": "http://example.org/",
        "mime": "text/html",
        "status": "200",
        "digest": "sha1:A",
    }
    place = Location("a.warc.gz", 0, 1)
    text = line(place, date=warc_date(STARTED + second), **values | changes)
    return parse(text.encode())


def as_text(each: IndexLine) -> str:
    values = {name: str(getattr(each, name)) for name in IndexLine.__struct_fields__[2:]}
    return f"{each.key} {each.timestamp} {json.dumps(values)}\n"


def index_of(path: Path, *lines: IndexLine) -> list[Path]:
    path.write_text("".join(sorted(map(as_text, lines))))
    return [path]


def test_digest_selects_among_captures_of_one_second(tmp_path: Path) -> None:
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
    # An older record may spell the digest otherwise.
    spelt = Digester("sha256")
    old = index_of(
        tmp_path / "b.cdxj", line_of(0, digest=str(spelt)), line_of(0.3, digest="sha1:B")
    )
    again = line_of(100, mime=cdxj.REVISIT, digest=digest(b"", "sha256"))
    found = original_of(old, again, revisit_fields("http://example.org/", 0))
    assert found is not None
    assert found.digest == str(spelt)
    # Another algorithm says nothing, nor does no digest.
    for digest_ in ("sha256:C", ""):
        assert original_of(there, line_of(100, mime=cdxj.REVISIT, digest=digest_), fields)


def test_url_selects_among_captures_of_one_key(tmp_path: Path) -> None:
    urls = ["http://example.org/a", "http://www.example.org/A", "https://example.org/a"]
    there = index_of(tmp_path / "a.cdxj", *(line_of(0, url=url) for url in urls))
    for url in urls:
        revisit = line_of(100, url="http://other.test/", mime=cdxj.REVISIT)
        original = original_of(there, revisit, revisit_fields(url, 0))
        assert original is not None
        assert original.url == url


def test_304_prefers_a_page_to_an_error_or_an_answer_to_head(tmp_path: Path) -> None:
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
def test_200_without_payload_is_bare(algorithm: str) -> None:
    assert line_of(0, digest=digest(b"", algorithm)).is_bare
    assert line_of(0, digest=str(Digester(algorithm))).is_bare
    assert not line_of(0, digest=digest(b"", algorithm), status="301").is_bare
    assert not line_of(0, digest=digest(b"x", algorithm)).is_bare
    assert not line_of(0, digest="").is_bare


def test_broken_line_is_reported_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "a.cdxj"
    index_of(path, line_of(0))
    path.write_text(path.read_text() + f"{line_of(0).key} 2027 junk\n")
    with pytest.raises(
        ArchiveError, match=f"^{path} has a line that is broken: remove it, or copy"
    ):
        captures_of([path], "http://example.org/")
    (tmp_path / "a.warc.gz").touch()
    with pytest.raises(ArchiveError, match="remove it, and scrapy warc index makes it anew"):
        captures_of([path], "http://example.org/")
