"""Captures of POST and other methods have the keys that pywb and ReplayWeb.page look up."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from krowlspider.archive.cdxj import index_file, index_path, parse
from krowlspider.archive.surt import RequestQuery, query_of
from tests.archive.captures import capture, deduplicating, finished
from tests.support.tables import table

if TYPE_CHECKING:
    from krowlspider.archive.write.records import Capture

CDXJ_INDEXER = Path(sys.executable).parent / "cdxj-indexer"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b0"
PARTS = (
    b'--b0\r\nContent-Disposition: form-data; name="a"\r\n\r\n1 \xc3\xa9\r\n'
    b'--b0\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n\xff\x00\r\n\r\n'
    b"--b0--\r\n"
)
NESTED = b'{"a": "x", "b": {"a": "y z", "c": [1, 2]}, "d": [{"a": "&"}]}'
# The method, the type and the body of a request, and what is added to its URL, by pywb's rules.
REQUESTS = [
    ("POST", FORM, b"foo=bar&dir=%2Fbaz+1", "foo=bar&dir=/baz 1"),
    ("PUT", f"{FORM}; charset=utf-8", b"a=%C3%A9#x", "a=é#x"),
    ("POST", FORM, b"a=\xe9", "__wb_post_data=YT3p"),
    ("POST", "application/json", NESTED, "a=x&a.2_=y+z&c=1&c.2_=2&a.3_=%26"),
    ("POST", "application/json", b"no", ""),
    ("POST", "text/plain", b'{"q": "A"}', "q=A"),
    ("POST", "text/plain;charset=UTF-8", b"q=A", "__wb_post_data=cT1B"),
    ("POST", "", b"\x00\xff", "__wb_post_data=AP8="),
    ("POST", "application/octet-stream", b"x" * 9000, "__wb_post_data=" + "eHh4" * 1020 + "e"),
    ("POST", MULTIPART, PARTS, "a=1+%C3%A9&f=%FF%00%0D%0A"),
    ("POST", "multipart/form-data", b"--b0", "__wb_post_data=LS1iMA=="),
]
# pywb, unlike cdxj-indexer, spells values as JavaScript does, and indexes all methods.
PYWB_ONLY = [
    (
        "POST",
        "application/json",
        b'[{"v": [true, false, null, 44.0, 3.5]}]',
        "v=true&v.2_=false&v.3_=null&v.4_=44&v.5_=3.5",
    ),
    ("POST", "application/json", b'{"v": 1e999}', ""),
    ("POST", FORM, b"", ""),
    ("DELETE", "", b"x", ""),
]


def request(method: str, kind: str, body: bytes) -> bytes:
    head = f"{method} /page HTTP/1.1\r\nHost: example.org\r\n"
    head += f"Content-Type: {kind}\r\n" if kind else ""
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def file_of(directory: Path, captures: list[Capture]) -> Path:
    with deduplicating(directory) as files:
        for each in captures:
            files.append(each)
    [path] = finished(directory)
    return path


@table(("method", "kind", "body", "query"), REQUESTS + PYWB_ONLY)
def test_body_is_added_to_the_url_as_by_pywb(
    method: str, kind: str, body: bytes, query: str
) -> None:
    found = query_of(request(method, kind, body))
    assert found == RequestQuery(method, query)
    assert found.added_to("http://h/").startswith(f"http://h/?__wb_method={method}")
    assert found.added_to("http://h/?a").endswith(f"&{query}" if query else method)


@pytest.mark.parametrize("coding", [b"", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_without_length_is_added(coding: bytes) -> None:
    """As by cdxj-indexer, which reads 8,192 bytes of it."""
    head = b"POST /page HTTP/1.1\r\nContent-Type: text/plain\r\n" + coding + b"\r\n"
    body = b'{"q": "A"}'
    stored = b"a\r\n%b\r\n0\r\n\r\n" % body if coding else body
    assert query_of(head + stored) == RequestQuery("POST", "q=A")
    assert query_of(head) == RequestQuery("POST", "")
    long = head.replace(b"text/plain", b"a/b") + b"x" * 9000
    wrong = long.replace(b"POST /page HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n")
    assert query_of(wrong) == RequestQuery("POST", "")
    if not coding:
        assert query_of(long) == RequestQuery("POST", "__wb_post_data=" + "eHh4" * 1020 + "e")


def test_get_and_head_add_nothing() -> None:
    assert query_of(request("GET", FORM, b"a=1")) is None
    assert query_of(request("HEAD", "", b"")) is None


def test_hostile_bodies_add_little() -> None:
    deep = b"[" * 100_000
    assert query_of(request("POST", "application/json", deep)) == RequestQuery("POST", "")
    huge = request("POST", FORM, b"a").replace(b"Length: 1", b"Length: " + b"9" * 5000)
    assert query_of(huge) == RequestQuery("POST", "")
    many = b'{"a": [' + b"1," * 10_000 + b"1]}"
    assert len((query_of(request("POST", "text/plain", many)) or RequestQuery("", "")).body) == 4096


def test_lines_are_those_of_cdxj_indexer_for_post(tmp_path: Path) -> None:
    """Both of the file as it was written and of the one made from it, with a GET between."""
    captures = []
    for number, (method, kind, body, _) in enumerate(REQUESTS * 2):
        message = request(method, kind, body)
        if number >= len(REQUESTS):
            message = message.replace(b"Content-Length", b"X-Length")
        url = f"http://example.org/{number}{'?z=1' if number % 2 else ''}"
        captures += [replace(capture(number), url=url, request_bytes=message), capture(number + 99)]
    path = file_of(tmp_path, captures)
    made = sorted(index_file(path))
    assert index_path(path).read_text().splitlines(keepends=True) == made
    done = subprocess.run(
        [CDXJ_INDEXER, "--sort", "--post-append", path], capture_output=True, text=True, check=True
    )
    theirs = done.stdout.splitlines()
    assert [each.rstrip("\n") for each in made if '"GET"' not in each] == theirs
    assert sum(parse(each.encode()).method == "POST" for each in made) == 2 * len(REQUESTS) - 2


def test_request_before_its_response_counts_too(tmp_path: Path) -> None:
    """Other tools write it first; the record that comes later names the earlier one."""
    message = request("POST", FORM, b"q=1")
    path = file_of(tmp_path, [replace(capture(1), request_bytes=message)])
    info, response, sent = (
        gzip.decompress(path.read_bytes())
        .replace(b"\r\n\r\nWARC/", b"\r\n\r\n\0WARC/")
        .split(b"\0")
    )
    [identity] = [line for line in response.split(b"\r\n") if line.startswith(b"WARC-Record-ID")]
    own = next(line for line in sent.split(b"\r\n") if line.startswith(b"WARC-Record-ID"))
    beside = b"WARC-Concurrent-To" + own[len(b"WARC-Record-ID") :]
    response = response.replace(identity, identity + b"\r\n" + beside)
    sent = b"\r\n".join(line for line in sent.split(b"\r\n") if b"Concurrent" not in line)
    path.write_bytes(b"".join(map(gzip.compress, (info, sent, response))))
    [line] = index_file(path)
    assert line.startswith("org,example)/page/1?__wb_method=post&q=1 ")
    assert json.loads(line.partition("{")[1] + line.partition("{")[2])["requestBody"] == "q=1"


def test_answer_to_a_post_is_never_a_revisit(tmp_path: Path) -> None:
    """A revisit names its original by the URL alone, by which replay finds no POST."""
    page = capture(1)
    posted = [replace(capture(1), request_bytes=request("POST", FORM, b"q=%d" % n)) for n in (1, 2)]
    path = file_of(tmp_path, [*posted, page, *posted, capture(1)])
    kinds = [parse(each.encode()) for each in index_path(path).read_text().splitlines()]
    assert sorted((each.method, each.mime) for each in kinds) == [
        ("", "text/html"),
        ("", "warc/revisit"),
        *[("POST", "text/html")] * 4,
    ]
