"""The text, the encoding, the metadata and the signals of a page."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import pytest
from fastwarc.warc import ArchiveIterator

from krowlspider.corpus.pages import NoPage, Unreadable, page_of
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.signals import signals
from tests.corpus.warcs import html, response

if TYPE_CHECKING:
    from krowlspider.corpus.document import Document
    from krowlspider.corpus.pages import Page

HEAD = """
<meta name=Description content="  What it
 is "><meta property=og:site_name content=Site><meta name=article:published_time content=2026-01-02>
<link rel=Canonical href="/b?x#y"><link rel=license href=https://l.example/by>
<script type="application/ld+json">
{"@graph": [{"@type": ["Article", "Thing"], "author": {"name": "A. Writer"}, "datePublished": 3}]}
</script><script type="application/ld+json">{"@type":</script>
"""


def page(record: bytes) -> Page:
    records = ArchiveIterator(BytesIO(record), parse_http=False)
    return page_of(next(records), lambda payload, codings: payload)


def document(body: bytes, headers: str = "Content-Type: text/html") -> Document:
    from krowlspider.corpus import document as module  # noqa: PLC0415

    return module.document(page(response("http://example.org/a", body, headers)))


def test_head_becomes_fields() -> None:
    found = document(html(1, HEAD))
    assert found.fields == {
        "title": "Page 1",
        "description": "What it is",
        "site_name": "Site",
        "published": "2026-01-02",
        "canonical": "http://example.org/b?x",
        "license": "https://l.example/by",
        "html_lang": "en",
        "author": "A. Writer",
        "json_ld": ["Article", "Thing"],
    }
    assert found.language == "en"
    assert "Home" not in found.text
    assert found.link_chars == len("Home")


def test_a_page_in_no_language_has_the_distance_by_which_it_is_rejected() -> None:
    found = document(b"<html><body><main><p>" + b"1234567890 " * 40)
    assert found.language == "unknown"
    assert found.rank > 1200
    rejected = read_rules().judge(found, "http://example.org/a", [])
    assert rejected is not None
    assert rejected.rule == "rank"


@pytest.mark.parametrize(
    ("body", "charset", "encoding"),
    [
        ("Größe".encode("utf-8-sig"), "iso-8859-1", "utf-8"),
        ("Größe".encode("utf-16"), "utf-8", "utf-16-le"),
        ("Größe".encode("cp1252"), "iso-8859-1", "cp1252"),
        ("<meta charset=koi8-r>Größe привет".replace("öß", "").encode("koi8-r"), "", "koi8-r"),
        ("Größe".encode(), "iso-2022-nonsense", "utf-8"),
        ("Größe".encode(), "ascii", "cp1252"),
    ],
)
def test_encoding_is_by_mark_header_then_meta(body: bytes, charset: str, encoding: str) -> None:
    declared = f"; charset={charset}" if charset else ""
    found = document(body, f"Content-Type: text/html{declared}")
    assert found.encoding == encoding


@pytest.mark.parametrize(
    ("record", "error", "reason"),
    [
        (response("http://a/", b"", status="404 Not Found"), NoPage, "not status 200"),
        (response("http://a/", b"", "Content-Type: text/css"), NoPage, "not HTML"),
        (response("http://a/", b"x" * 999)[:-500], Unreadable, "cut off"),
        (response("http://a/", b"x" * (1 << 24)), Unreadable, "too large"),
    ],
)
def test_other_responses_are_no_pages(record: bytes, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        page(record)


@pytest.mark.parametrize(
    ("headers", "metas", "expected"),
    [
        (
            [("x-robots-tag", "NoIndex, nofollow"), ("x-robots-tag", "noai")],
            [],
            ["noai", "noindex"],
        ),
        ([("x-robots-tag", "googlebot: noindex")], [], []),
        ([("x-robots-tag", "unavailable_after: 25 Jun 2026, noarchive")], [], ["noarchive"]),
        ([], [("robots", "none")], ["noindex"]),
        ([], [("robots", "index,noimageai"), ("googlebot", "noindex")], ["noimageai"]),
        ([("tdm-reservation", "1")], [], ["tdm-reservation"]),
        (
            [("content-signal", "ai-train = no,search=yes")],
            [],
            ["ai-train=no"],
        ),
        ([("tdm-reservation", "0")], [("tdm-reservation", " 1 ")], ["tdm-reservation"]),
    ],
)
def test_opt_outs_are_found(
    headers: list[tuple[str, str]], metas: list[tuple[str, str]], expected: list[str]
) -> None:
    assert signals(headers, metas) == expected
