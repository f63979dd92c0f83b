"""The links of records that count."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from fastwarc.warc import ArchiveIterator
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.graph import references
from krowlspider.graph.references import linked_by
from tests.corpus.warcs import response
from tests.support.tables import table

if TYPE_CHECKING:
    from krowlspider.graph.references import Linked

URL = "https://www.source.org/page"


def of_record(record: bytes) -> Linked | None:
    [found] = map(linked_by, ArchiveIterator(io.BytesIO(record), parse_http=False))
    return found


def linked(
    body: bytes, headers: str = "Content-Type: text/html", status: str = "200 OK", url: str = URL
) -> str:
    """Return the hosts that a response links to."""
    found = of_record(response(url, body, headers, status))
    assert found is not None
    return " ".join(sorted(found.targets))


def gemini(block: bytes, url: str = "gemini://capsule.org/") -> str:
    head = (
        f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\n"
        "Content-Type: application/gemini; msgtype=response\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n"
        f"WARC-Record-ID: <urn:uuid:1>\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    found = of_record(head.encode() + block + b"\r\n\r\n")
    assert found is not None
    assert found.source == "org.capsule:1965"
    return " ".join(sorted(found.targets))


@table(
    ("html", "hosts"),
    [
        ("<a href=https://a.com/>x</a><a href=//b.com/1></a><a href=//b.com/2></a>", "com.a com.b"),
        ("<a rel='nofollow sponsored' href=https://a.com/>x</a>", "com.a"),
        ("<a href=/x></a><a href=https://source.org:8080/></a><a href=http://www.source.org/>", ""),
        ("<link rel=stylesheet href=//a.com/x.css><script src=https://b.com/y.js></script>",
         "com.a com.b"),
        ("<img src=//a.com/i.png><iframe src=https://b.com/></iframe><video poster=//c.com/p>",
         "com.a com.b com.c"),
        ("<form action=https://a.com/s><button formaction=//b.com/></form><q cite=//c.com/>",
         "com.a com.b com.c"),
        ("<meta property=og:url content=https://a.com/><meta name=description content='b.com'>",
         "com.a"),
        ("<base href=https://a.com/><a href=x></a>", "com.a"),
        ("<base href=https://a.com/><a href=https://b.com/></a>", "com.b"),
        ("<a href=gemini://a.com/>x</a><a href=https://a.com/>y</a>", "com.a com.a:1965"),
        ("<a href=mailto:x@a.com>x</a><a href=ftp://b.com/></a><a href=https://1.2.3.4/></a>", ""),
    ],
)  # fmt: skip
def test_references_of_html_are_links(html: str, hosts: str):
    assert linked(html.encode()) == hosts


def test_headers_link_too():
    headers = (
        "Content-Type: text/plain\r\nLink: <https://a.com/>; rel=next, <//b.com>; rel=icon\r\n"
        "Content-Location: https://c.com/x"
    )
    assert linked(b"<a href=https://d.com/>", headers) == "com.a com.b com.c"


@pytest.mark.parametrize(
    ("status", "hosts"),
    [("301 Moved", "com.a"), ("308 Moved", "com.a"), ("304 Same", ""), ("200 OK", "com.b"),
     ("404 None", ""), ("500 Error", "")],
)  # fmt: skip
def test_targets_of_redirects_are_links(status: str, hosts: str):
    headers = "Content-Type: text/html\r\nLocation: https://a.com/"
    assert linked(b"<a href=//b.com>", headers, status) == hosts


def test_sitemaps_are_links_of_robots_txt():
    body = b"User-agent: *\nsitemap: https://a.com/s.xml\nSitemap:https://www.source.org/t.xml\n"
    plain = "Content-Type: text/plain"
    assert linked(body, plain, url="https://source.org/robots.txt") == "com.a"
    assert linked(body, plain, url="https://source.org/x/robots.txt") == ""


def test_a_page_has_a_bounded_number_of_links(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(references, "REFERENCES_MAX", 3)
    page = "".join(f"<a href=/{n}></a><a href=https://{name}.com/></a>" for n, name in
                   enumerate("aabcd"))  # fmt: skip
    assert linked(page.encode()) == "com.a com.b"


def test_gemtext_links_outside_of_preformatted_text():
    body = (
        "20 text/gemini; lang=en\r\n# A\n=> gemini://a.org/x A\r\n=>https://b.org/ B\n"
        "=> //c.org\n=>/own\n => //indented.org/\ntext => //text.org/\n"
        "```\n=> //art.org/\n``` \n=> gemini://capsule.org/ self\n=> gemini://d.org:1966/"
    )
    assert gemini(body.encode()) == "org.a:1965 org.b org.c:1965 org.d:1966"


@table(
    ("block", "hosts"),
    [
        (b"31 gemini://a.org/new\r\n", "org.a:1965"),
        (b"30 /new\r\n", ""),
        (b"20 text/plain\r\n=> gemini://a.org/\n", ""),
        (b"20\r\n=> gemini://a.org/\n", "org.a:1965"),
        (b"20 text/gemini; charset=utf-16le\r\n" + "=> //a.org\n".encode("utf-16le"), "org.a:1965"),
        (b"20 text/gemini; charset=x-user-defined\r\n=> //a.org\n", "org.a:1965"),
        (b"20 text/gemini; charset=replacement\r\n=> //a.org\n", "org.a:1965"),
        (b"20 text/gemini; charset=none\r\n=> //a.org\n", "org.a:1965"),
        (b"51 gone\r\n=> gemini://a.org/\n", ""),
        (b"", ""),
    ],
)
def test_statuses_of_gemini(block: bytes, hosts: str):
    assert gemini(block) == hosts


def test_addresses_are_no_hosts_of_the_graph():
    assert of_record(response("http://192.0.2.1/", b"<a href=//a.com>")) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read(body: bytes):
    linked(body)
    linked(b"<a href=//a.com>" + body, "Content-Type: text/html\r\nContent-Encoding: gzip")
    gemini(body)
    gemini(b"20 text/gemini\r\n=> " + body)
