"""Feeds of Gemini: dated links, by the companion specification and the ancestor's cases, and Atom.

Cases marked TLGS are those of IsGemsub in tlgsutils/tests/gemini_parser_test.cpp.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import Response, TextResponse

from krowlspider.gemini.feeds import FeedEntry, entries, is_feed, links_in
from krowlspider.gemini.gemtext import Gemtext, read
from krowlspider.gemini.pages import read_page
from krowlspider.recrawl.hints import read_date

pytestmark = pytest.mark.usefixtures("gemini")
BASE = "gemini://example.org/gemlog/"
# 2022-01-01 12:00 UTC.
NOON = 1_641_038_400.0
DAY = 86_400.0


def page(*lines: str) -> Gemtext:
    return read("# First First\nHello world\n\n" + "\n".join(lines), BASE)


def dated(*references: str) -> Gemtext:
    days = enumerate(references, 1)
    return page(*(f"=> {each} 2022-01-0{day} An article" for day, each in days))


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        # TLGS.
        (["/index1.gmi", "/index2.gmi", "/index2.gmi"], True),
        (["test1.gmi", "test2.gmi", "test3.gmi"], True),
        ([f"gemini://example.org/{number}" for number in range(3)], True),
        ([f"gemini://EXAMPLE.org:1965/{number}" for number in range(3)], True),
        ([f"//example.org/{number}" for number in range(3)], True),
        # TLGS asks for a page of the same host only if it is given one. Its crawler does so.
        ([f"https://example.org/{number}" for number in range(3)], False),
        ([f"gemini://example.com/{number}" for number in range(3)], False),
        ([f"gemini://example.org:1966/{number}" for number in range(3)], False),
        *((["/1", "/2"], False), (["/1", "mailto:a@example.org", "/2", "/3"], False)),
    ],
)
def test_a_feed_has_three_entries_of_its_own_server(references: list[str], expected: bool):
    assert is_feed(dated(*references)) is expected


@pytest.mark.parametrize("lines", [[], ["=> / home", "=> /food food", "=> /cars cars"]])
def test_other_pages_are_no_feeds(lines: list[str]):
    """TLGS."""
    assert not is_feed(page(*lines))


def test_entries_stand_in_a_row():
    assert not is_feed(page(*["=> /a 2022-01-01 A", "=> /b 2022-01-02 B", "=> / Home"] * 3))


@pytest.mark.parametrize(
    ("label", "title"),
    [
        *(("2022-01-01 A title", "A title"), ("2022-01-01 - A title", "A title")),
        *(("2022-01-01: A title", "A title"), ("2022-01-01 — A title", "A title")),
        *(("2022-01-01A title", "A title"), ("2022-01-01", "2022-01-01")),
    ],
)
def test_the_title_comes_after_the_date(label: str, title: str):
    """The specification: after the first ten characters, without what divides them."""
    assert entries(page(f"=> a.gmi {label}")) == [FeedEntry("a.gmi", title, NOON)]


@pytest.mark.parametrize(
    "label",
    [
        *("2022-02-31 A", "2022-13-01 A", "0000-01-01 A", "A 2022-01-01", "01-01-2022 A"),
        *("2022/01/01 A", "2022-01-011 A", "٢٠٢٢-٠١-٠١ A"),
        # TLGS takes it. The specification has two digits.
        "2022-1-1 A",
    ],
)
def test_other_labels_are_no_entries(label: str):
    assert entries(page(f"=> a.gmi {label}")) == []


def test_entries_are_in_the_order_of_the_page():
    found = [(entry.url_reference, entry.updated) for entry in entries(dated("/b", "/a"))]
    assert found == [("/b", NOON), ("/a", NOON + DAY)]


ATOM = b"""<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom"><title>Gemlog</title>
<link href="https://example.org/gemlog/"/>
<entry><title>One</title><link href="https://example.org/1"/></entry>
<entry><title>Two</title><link rel="alternate" href="https://example.org/2"/></entry></feed>"""


def test_atom_names_its_entries():
    assert list(links_in(ATOM, "https://example.org/atom.xml"))[-2:] == [
        "https://example.org/1",
        "https://example.org/2",
    ]


@pytest.mark.parametrize("kind", ["application/atom+xml", "text/xml; charset=utf-8"])
def test_a_crawl_follows_what_a_feed_names(kind: str):
    response = Response(
        "gemini://example.org/atom.xml", status=20, body=ATOM, headers={"Content-Type": kind}
    )
    found = read_page(response)
    assert found is not None
    assert found.links[-2:] == ["https://example.org/1", "https://example.org/2"]


def test_a_page_has_the_language_of_its_media_type():
    for kind, lang in (("text/gemini; lang=de,en", "de"), ("image/png; lang=fr", "fr")):
        made = Response("gemini://example.org/", status=20, headers={"Content-Type": kind})
        found = read_page(made)
        assert found is not None
        assert found.lang == lang


def test_a_feed_says_when_pages_have_changed():
    """At noon of the day, as the specification says. It is read where a schedule asks for it."""
    lines = "".join(f"=> {name} 2022-01-0{day} An article\n" for day, name in enumerate("abc", 1))
    response = TextResponse(
        BASE, status=20, body=lines.encode(), headers={"Content-Type": "text/gemini"}
    )
    found = read_page(response, feeds=True)
    assert found is not None
    assert [url for url, *_ in found.claims] == [f"{BASE}{name}" for name in "abc"]
    assert [read_date(text) for _, (text,), _ in found.claims] == [NOON, NOON + DAY, NOON + 2 * DAY]
    unasked = read_page(response)
    assert unasked is not None
    assert unasked.claims == []


def test_no_other_page_says_so():
    response = TextResponse(
        BASE, status=20, body=b"=> a 2022-01-01 A\n", headers={"Content-Type": "text/gemini"}
    )
    found = read_page(response, feeds=True)
    assert found is not None
    assert found.claims == []


def test_atom_says_when_pages_have_changed():
    body = ATOM.replace(b"</entry></feed>", b"<updated>2022-01-01</updated></entry></feed>")
    response = Response(
        BASE, status=20, body=body, headers={"Content-Type": "application/atom+xml"}
    )
    found = read_page(response, feeds=True)
    assert found is not None
    assert [(url, *dates) for url, dates, _ in found.claims] == [
        ("https://example.org/2", "2022-01-01")
    ]


@given(st.binary(max_size=200), st.text(max_size=100))
def test_nothing_raises(body: bytes, label: str):
    list(links_in(body, "https://example.org/atom.xml"))
    document = read(f"=> a {label}", BASE)
    assert is_feed(document) in {True, False}
    entries(document)
