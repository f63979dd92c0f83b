"""Reading of HTML pages."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.canonical import URL_MAX, normalise
from krowlspider.urls.page.headers import read_links, read_refresh
from krowlspider.urls.page.links import (
    FEEDS_MAX,
    MAX_LANG,
    MAX_LINKS,
    MAX_TEXT,
    MAX_TITLE,
    ReadPage,
    read_page,
    read_text,
    reading_plan,
)
from tests.support.tables import table

URL = "https://example.com/dir/page?q"


def read(html: str | bytes, charset: str | None = None) -> ReadPage:
    body = html if isinstance(html, bytes) else html.encode()
    return read_page(body, URL, charset)


def links(html: str | bytes, charset: str | None = None) -> list[str]:
    """Return the links of a page, relative to https://example.com/."""
    return [url.removeprefix("https://example.com/") for url in read(html, charset).links]


def test_all_parts_of_a_page_are_read() -> None:
    page = read(
        """<!DOCTYPE html><html lang=" de-AT "><head><title> A
        page  of &quot;text&quot; </title><base href="/base/"><base href="/second/">
        <meta name="Robots" content="index, NoFollow"><link rel="x Canonical" href="c#d">
        </head><body><a href="a?x=1&amp;y=2">1</a><a href="/b">2</a><a href="./a?x=1&y=2">3</a>"""
    )
    assert page.links == ["https://example.com/base/a?x=1&y=2", "https://example.com/b"]
    assert page.title == 'A page of "text"'
    assert (page.nofollow, page.noindex) == (True, False)
    assert page.canonical == "https://example.com/base/c"
    assert page.lang == "de-AT"


FEEDS = b"""<base href="/base/"><link rel="alternate" type="application/rss+xml" href="rss">
    <LINK REL="Alternate home" TYPE="Application/Atom+XML" HREF=/atom>
    <link rel=alternate type=application/feed+json href=feed.json>
    <link rel=alternate type=application/json+oembed href=oembed>
    <link rel=stylesheet type=application/rss+xml href=no><a href=a>1</a>"""


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize("requisites", [True, False])
def test_feeds_are_read_where_they_are_sought(described: bool, requisites: bool) -> None:
    for feeds in (True, False):
        plan = reading_plan(
            "k", follow_nofollow=False, described=described, requisites=requisites, feeds=feeds
        )
        page = read_page(FEEDS, URL, None, plan, feeds=feeds)
        paths = [url.removeprefix("https://example.com/") for url in page.feeds]
        assert paths == (["base/rss", "atom", "base/feed.json"] if feeds else [])
        assert page.links == ["https://example.com/base/a"]
        assert (page.requisites is not None) is requisites


def test_a_page_has_few_feeds() -> None:
    body = b"".join(b"<link rel=alternate type=application/rss+xml href=%d>" % n for n in range(99))
    plan = reading_plan("k", follow_nofollow=False, feeds=True)
    assert len(read_page(body, URL, None, plan, feeds=True).feeds) == FEEDS_MAX


def test_undescribed_page_has_links_and_rules() -> None:
    body = b"""<html lang=de><title>A</title><base href="/base/"><link rel=canonical href=c>
        <meta name=robots content=nofollow><meta http-equiv=refresh content="0; url=r">
        <a href=a>1</a>"""
    plan = reading_plan("krowlspider", follow_nofollow=False, described=False)
    whole, page = read_page(body, URL, None), read_page(body, URL, None, plan)
    assert page.links == whole.links == ["https://example.com/base/r", "https://example.com/base/a"]
    assert (page.nofollow, page.noindex) == (True, False)
    assert (page.title, page.canonical, page.lang) == ("", None, "")


def test_an_empty_page_says_nothing() -> None:
    page = read(b"")
    assert (page.links, page.title, page.lang) == ([], "", "")
    assert (page.nofollow, page.noindex, page.canonical) == (False, False, None)


@table(
    ("html", "expected"),
    [
        ("<a href=/1><area href=/2><iframe src=/3></iframe><a href=/4>", ["1", "2", "3", "4"]),
        ("<frameset><frame src=/1><frame src=/2></frameset>", ["1", "2"]),
        ("<A HREF='/1'>x</A><IFRAME SRC=\"/2\"></IFRAME>", ["1", "2"]),
        ("<a\nhref\n=\n/1 ><a class=x href=/2/>", ["1", "2/"]),
        ("<a href='/1?a=1&amp;b=2&#38;c&copy=3'>", ["1?a=1&b=2&c&copy=3"]),
        ("<a href=' /1\n2 '>", ["12"]),
        ("<a href=/1 href=/2>", ["1"]),
        ("<div><p><a href=/1><b><a href=/2><table><a href=/3><tr><td><a href=/4", ["1", "2", "3"]),
        ("<svg><a href=/1></svg><noscript><a href=/2></noscript>", ["1", "2"]),
        ("<a name=x><a href><a href=#top><area><iframe></iframe>", ["dir/page?q"]),
    ],
)
def test_links_are_found_in_document_order(html: str, expected: list[str]) -> None:
    assert links(html) == expected


@table(
    "html",
    [
        "<script>document.write('<a href=/1>')</script>",
        "<style><a href=/1></style>",
        "<!-- <a href=/1> -->",
        "<!-- <a href=/1>",
        "<textarea><a href=/1></textarea><title><a href=/1></title>",
        "<p title='<a href=/1>'>",
        "<iframe><a href=/1></iframe>",
        "&lt;a href=/1>",
        "<link href=/1><link href=/1 rel><img src=/1><form action=/1><script src=/1></script>",
        "<a href=mailto:a@b.c><a href='javascript:x'><a href='ftp://h/'><a href='//u:p@h/'>",
    ],
)
def test_other_elements_are_no_links(html: str) -> None:
    assert links(html + "<!-- --><a href=/end>") in (["end"], [])
    assert "1" not in links(html)


def test_links_with_rel_nofollow_are_left_out() -> None:
    html = """<a rel=nofollow href=/1><a rel='noopener NoFollow' href=/2><area rel=nofollow href=/3>
    <a rel=nofollowing href=/4><a rel href=/5>"""
    assert links(html) == ["4", "5"]
    every = read_page(html.encode(), URL, None, reading_plan("krowlspider", follow_nofollow=True))
    assert [url[-1] for url in every.links] == ["1", "2", "3", "4", "5"]


# A relation, and what else the element or header says; whether it is followed.
RELATIONS = [
    *((f"rel={name}", True) for name in ("next", "Prev", "previous", "first", "last", "up")),
    *((f"rel={name}", True) for name in ("contents", "item", "collection", "related", "bookmark")),
    *((f"rel={name}", False) for name in ("stylesheet", "icon", "preload", "canonical", "nexts")),
    *((f"rel={name}", False) for name in ("dns-prefetch", "manifest", "search", "pingback")),
    ('rel="start next"', True),
    ('rel="next nofollow"', False),
    ('rel="alternate stylesheet"', False),
    ("rel=alternate;hreflang=de", True),
    ("rel=alternate;media=handheld;type=text/html", True),
    ("rel=alternate;type=application/xhtml+xml", True),
    ('rel=alternate;type=""', True),
    ("rel=alternate;type=application/rss+xml", False),
    ("rel=alternate;type=application/json+oembed", False),
    ("rel=next;type=image/png", False),
]


@table(("parameters", "is_followed"), RELATIONS)
def test_a_link_element_and_a_link_header_are_one(parameters: str, is_followed: bool) -> None:
    attributes = parameters.replace(";", " ")
    found = links(f"<link {attributes} href=/1><body><a href=/2><LINK href=/3 {attributes}>")
    assert found == (["1", "2", "3"] if is_followed else ["2"])
    header, _ = read_links([f"</1>;{parameters}"], URL, follow_nofollow=False)
    assert header == (["https://example.com/1"] if is_followed else [])


def test_link_elements_with_nofollow_may_be_followed() -> None:
    html = b"<link rel='next nofollow' href=/1>"
    assert read_page(html, URL, None).links == []
    every = read_page(html, URL, None, reading_plan("krowlspider", follow_nofollow=True))
    assert every.links == ["https://example.com/1"]


def test_meta_may_address_another_product_token() -> None:
    html = b"<meta name=krowlspider content=noindex><meta name=My_Bot content=nofollow>"
    page = read_page(html, URL, None, reading_plan("my_bot", follow_nofollow=False))
    assert (page.nofollow, page.noindex) == (True, False)


@table(
    ("content", "target"),
    [
        # web-platform-tests, the-meta-element/pragma-directives/attr-meta-http-equiv-refresh.
        *((text, None) for text in ("", "1", "1 ", "1\t", "1\f", "1;", "1,", "0", "+1", "-0")),
        *((f"1{mark}url=foo", "foo") for mark in (";", ",", "; ", ", ", " ", "\t", ";\n", ",\f")),
        *((text, None) for text in ("1url=foo", "1x;url=foo", "; foo", ", foo", "foo")),
        *((f"{text}; url=foo", None) for text in ("+1", "-1", "+0", "1e0", "10e-1", "-0.1")),
        *((f"{text}; url=foo", "foo") for text in ("0", "1.9", "1.9..5.", ".9", "0.9", "00")),
        ("1 x;url=foo", "x;url=foo"),
        ("1;;url=foo", ";url=foo"),
        ("  1  ;  url  =  foo", "foo"),
        ("  1  ,  foo", "foo"),
        ("  1  URL  =  foo ", "foo"),
        ("1; url=f\to\no", "foo"),
        ('1; url="foo"bar', "foo"),
        ("1; url='foo'bar", "foo"),
        ("1; url=\"foo'bar", "foo'bar"),
        ("1; url foo", "url%20foo"),
        *((f"1; {text}", text) for text in ("urlfoo", "urfoo", "ufoo")),
        # Not "url=".
        ("1; url/../foo", "foo"),
        ('1; "foo"bar', "foo"),
        ("1; foo", "foo"),
        # The document itself, or nothing that is fetched.
        ("1; url=", None),
        ("1; url=''", None),
        ("1; url=data:x", None),
        ("1; url=javascript:x", None),
    ],
)
def test_a_refresh_is_the_first_link(content: str, target: str | None) -> None:
    """As an element and as a header."""
    meta = f"<meta http-equiv=Refresh content={quoteattr(content)}>"
    page = read(f"<base href=/base/><a href=/2>{meta}")
    led_to = [] if target is None else [f"https://example.com/base/{target}"]
    assert page.links == [*led_to, "https://example.com/2"]
    refused: list[str] = []
    header = read_refresh([content.encode()], URL, "UTF-8", refused)
    assert header == [url.replace("/base/", "/dir/") for url in led_to]
    assert len(refused) == page.refused


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b"0;url=/\xe9?\xe9"], "/%C3%A9?%E9"),
        (["0;url=/é?é".encode()], "/%C3%83%C2%A9?%C3%A9"),
        # One value: Fetch Standard, section 2.2.2.
        ([b"0;url=/a", b"0;url=/b"], "/a,%200;url=/b"),
        ([b"0", b"url=/b"], "/b"),
    ],
)
def test_refresh_header_is_read_as_in_chromium(values: list[bytes], expected: str) -> None:
    found = read_refresh(values, URL, "windows-1252", [])
    assert found == [f"https://example.com{expected}"]


@pytest.mark.parametrize(
    "base",
    ["mailto:x", "data:,x", "ftp://h/", "http://[", "https://u:p@h/", "/x" * (URL_MAX // 2)],
)
def test_a_base_that_is_of_no_use_leaves_the_page_its_own(base: str) -> None:
    page = read(f"<base href='{base}'><a href=x>")
    assert page.links == ["https://example.com/dir/x"]


def test_base_applies_to_all_links_and_may_be_another_host() -> None:
    page = read("<a href=x><base target=_top><base href='//other.example/y/'>")
    assert page.links == ["https://other.example/y/x"]


@table(
    ("html", "nofollow", "noindex"),
    [
        ("<meta name=robots content='noindex'>", False, True),
        ("<META NAME=ROBOTS CONTENT='NOFOLLOW'>", True, False),
        ("<meta name=robots content='none'>", True, True),
        ("<meta name=robots content='all,max-snippet:-1'>", False, False),
        ("<meta name=krowlspider content=' noindex , nofollow '>", True, True),
        ("<meta name=robots content=noindex><meta name=krowlspider content=nofollow>", True, True),
        ("<meta name=googlebot content=none><meta name=description content=none>", False, False),
        ("<meta name=robots content><meta name=robots content=index>", False, False),
    ],
)
def test_meta_robots_speaks_for_the_page(html: str, nofollow: bool, noindex: bool) -> None:
    page = read(html + "<a href=/1>")
    assert (page.nofollow, page.noindex) == (nofollow, noindex)
    assert page.links == ["https://example.com/1"]


@table(
    ("html", "title"),
    [
        ("<title>one</title><title>two</title>", "one"),
        ("<title>a <b>&amp; c</title>", "a <b>& c"),
        ("<p>x<title>in the body</title>", "in the body"),
        ("<body><svg><title>icon</title></svg>", "icon"),
        ("<head><title>page</title></head><svg><title>icon</title></svg>", "page"),
        ("<title>x\u00a0\u2003y</title>", "x y"),
        (f"<title>{'x' * 5000}</title>", "x" * MAX_TITLE),
        (f"<title>{'x' * (MAX_TITLE - 1)} y</title>", "x" * (MAX_TITLE - 1)),
    ],
)
def test_title_is_the_first_collapsed_and_cut(html: str, title: str) -> None:
    assert read(html).title == title


def test_a_language_is_cut() -> None:
    assert read(f"<html lang='{'x' * 99}'>").lang == "x" * MAX_LANG


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        ("<meta charset=iso-8859-1><title>Ä</title><a href='/ä'>".encode("latin-1"), None),
        ("<title>Ä</title><a href='/ä'>".encode("latin-1"), "cp1252"),
        ("<title>Ä</title><a href='/ä'>".encode("utf-16-le"), "utf-16-le"),
    ],
)
def test_the_encoding_is_found_as_browsers_find_it(body: bytes, charset: str | None) -> None:
    page = read(body, charset)
    assert page.title == "Ä"
    assert page.links == ["https://example.com/%C3%A4"]


def test_a_page_gives_its_first_ten_thousand_links_at_most() -> None:
    many = "".join(f"<a href=/{i}>" for i in range(MAX_LINKS + 10))
    assert links(many) == [str(i) for i in range(MAX_LINKS)]


def test_nul_bytes_do_no_harm() -> None:
    assert links(b"\x00<a \x00 href=/1>\x00</a><a href=/2>") == ["1", "2"]


# fmt: off
PIECES = [
    "<a ", "<a href=", "<base href=", "<meta http-equiv=refresh content=", "<link rel=canonical ",
    "<meta name=robots content=", "href=", "<title>", "</title>", "<html lang=", "<!--", "-->",
    "<script>", "</script>", "<svg>", "</", ">", '"', "'", "/", "/x", " ", "0;url=", "&", "&#",
    "&amp;", "=", "\x00", "http://", "[", "]", ":", "@", "nofollow", "\ud7ff",
]
# fmt: on
HTML = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=30).map("".join)


@given(st.binary() | HTML.map(str.encode), st.none() | st.text(max_size=12))
def test_any_bytes_give_normalised_urls(body: bytes, charset: str | None) -> None:
    page = read_page(body, URL, charset)
    assert [normalise(link) for link in page.links] == page.links
    assert len(set(page.links)) == len(page.links) <= MAX_LINKS
    assert page.canonical is None or normalise(page.canonical) == page.canonical
    assert len(page.title) <= MAX_TITLE


def test_links_that_are_no_url_or_too_many_are_counted() -> None:
    """Each link counts once, however often the page repeats it."""
    odd = ["mailto:a@b", "javascript:0", "ftp://a/", "http://me:x@a/", "http://[", "mailto:a@b"]
    hrefs = [*odd, *(f"/{number}" for number in range(MAX_LINKS))]
    page = read_page("".join(f"<a href='{href}'>" for href in hrefs).encode(), "http://a/", None)
    assert (page.refused, page.surplus, len(page.links)) == (5, 6, MAX_LINKS - 6)


# --- the text of a page is what a reader sees, as far as it can be told without a layout ---


LARGE = b"<p>word <b>x</b><noscript>no</noscript>" * 20_000


@pytest.mark.parametrize(
    ("html", "title", "text"),
    [
        (b"<title> A &amp;\n B </title><body>one <b>two</b>\nthree", "A & B", "one two three"),
        (b"<p>one<style>p {}</style><script>two</script><p>three", "", "one three"),
        (b"<div>one</div><iframe>two</iframe>three<title>no</title>", "no", "one three"),
        (b"<svg><title>one</title></svg><title>two</title>", "one", ""),
        (b"", "", ""),
    ],
)
def test_text_is_what_a_reader_sees(html: bytes, title: str, text: str) -> None:
    assert read_text(html, None) == (title, text)


def test_text_is_decoded_as_the_header_says() -> None:
    assert read_text("<p>größer".encode("latin-1"), "latin-1") == ("", "größer")


@pytest.mark.parametrize("html", [b"<p>" + b"word " * MAX_TEXT, LARGE])
def test_text_of_a_large_page_is_cut(html: bytes) -> None:
    _, text = read_text(b"<title>" + b"t" * 999 + b"</title>" + html, None)
    assert len(text) in {MAX_TEXT, MAX_TEXT - 1}
    assert text.startswith("word ")


@given(st.binary(max_size=200))
def test_any_bytes_have_a_text(html: bytes) -> None:
    title, text = read_text(html, None)
    assert len(title) <= MAX_TITLE
    assert text == " ".join(text.split())
