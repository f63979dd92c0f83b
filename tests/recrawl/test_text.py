"""The digest of a page changes with what a reader came for, and with nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.recrawl.text import READ_MAX, text_digest
from tests.support.tables import table

HEAD = "<!DOCTYPE html><html><head><title>Bridge news</title><style>p { x: 1 }</style></head><body>"
NAV = "<nav><ul><li><a href=/>Home</a></li><li><a href=/about>About us</a></li></ul></nav>"
PAGE = f"""{HEAD}{NAV}<main><h1>The bridge is closed</h1>
<p>The old bridge over the <a href=/river>river</a> is closed for repairs. Cars take the ferry.</p>
<p>A crossing costs <b>$4.50</b> for each car.</p></main>
<footer>Printed in the old town</footer></body></html>"""


def changed(before: str, after: str, media_type: str = "text/html") -> bool:
    digests = [text_digest(page.encode(), media_type) for page in (before, after)]
    assert all(digests)
    return digests[0] != digests[1]


def within(first: str, second: str) -> tuple[str, str]:
    """Return two pages that have these beside each other's text."""
    return PAGE.replace("</p></main>", f"</p>{first}</main>"), PAGE.replace(
        "</p></main>", f"</p>{second}</main>"
    )


FALSE = {
    "nonce of a script": within(
        "<script nonce=a1b2>x='k3'</script>", "<script nonce=ff>x</script>"
    ),
    "csrf token": within('<input type=hidden value="q9Zk">', '<input type=hidden value="Lm4x">'),
    "attribute": within('<img src="/a.png?v=81">', '<img src="/a.png?v=82">'),
    "comment": within("<!-- built by web1 -->", "<!-- built by web2, cached -->"),
    "request id": within(
        "<p>Request 550e8400-e29b-41d4-a716-446655440000</p>",
        "<p>Request 9b2f11cc-0a4d-4c8e-9d5b-1f2e3d4c5b6a</p>",
    ),
    "session id": within("<p>Session x9k2m4qz7</p>", "<p>Session p3r8t1wy5</p>"),
    "views": within("<p>1,234 views</p>", "<p>987 views</p>"),
    "views by thousands": within("<p>999 views</p>", "<p>1.2K views</p>"),
    "date": within("<p>Sunday, 29 November 2026</p>", "<p>Tuesday, 1 December 2026</p>"),
    "date in German": within("<p>Montag, 30. November</p>", "<p>Dienstag, 1. Dezember</p>"),
    "ISO date": within("<p>2026-11-29T10:00:00Z</p>", "<p>2026-12-01T11:30:09Z</p>"),
    "age": within("<p>Posted 5 minutes ago</p>", "<p>Posted 1 day ago</p>"),
    "time element": within("<time>this morning</time>", "<time>last week</time>"),
    "time of building": within("<p>Page made in 0.123 s</p>", "<p>Page made in 0.087 s</p>"),
    "ad": within("<aside>Buy shoes now</aside>", "<aside>Fly to the <b>sun</b></aside>"),
    "ad in a frame": within("<iframe>shoes</iframe>", "<iframe>beaches</iframe>"),
    "footer": within("<footer>by web one</footer>", "<footer>by web two</footer>"),
    "related links": within(
        "<ul><li><a href=1>Ferry breaks down</a></li><li><a href=2>New mayor speaks</a></li></ul>",
        "<ul><li><a href=3>Rain for days to come</a></li><li><a href=4>Fish are back</a></li></ul>",
    ),
    "current entry of the menu": (
        PAGE,
        PAGE.replace("<li><a href=/>Home</a>", "<li><b>Home</b>"),
    ),
    "case of tags, and spaces": (
        PAGE,
        PAGE.replace("<p>", "<P>\n  ").replace("</a>", "</A>").replace("<nav>", "<Nav>"),
    ),
    "rest of an empty page": (
        f"{HEAD}<p>Nothing here.</p><p>12:01</p>",
        f"{HEAD}<p>Nothing here.</p><p>12:02</p>",
    ),
}
TRUE = {
    "word in a long page": (
        PAGE.replace("</main>", "<p>The rest is history.</p>" * 500 + "</main>"),
        PAGE.replace("</main>", "<p>The rest is history.</p>" * 500 + "</main>").replace(
            "closed for", "open after"
        ),
    ),
    "price": (PAGE, PAGE.replace("$4.50", "$4.80")),
    "price in euros": within("<p>12,50 &euro;</p>", "<p>12,90 &euro;</p>"),
    "paragraph": within("", "<p>A night ferry is planned.</p>"),
    "headline": (PAGE, PAGE.replace("is closed</h1>", "is open</h1>")),
    "title": (PAGE, PAGE.replace("<title>Bridge", "<title>Ferry")),
    "link inside a sentence": (PAGE, PAGE.replace(">river<", ">canal<")),
    "text behind a link": (PAGE, PAGE.replace("is closed for repairs", "is gone for good")),
    "word in a short page": (f"{HEAD}<p>We are open", f"{HEAD}<p>We are closed"),
    "script without end hides no text before": (
        f"{PAGE}<script>x",
        PAGE.replace("ferry", "tunnel") + "<script>x",
    ),
    "menu without end": (
        PAGE.replace("</nav>", ""),
        PAGE.replace("</nav>", "").replace("ferry", "tunnel"),
    ),
    "item of a list of links": tuple(
        f"{HEAD}{NAV}<h2>News</h2>"
        + "".join(f"<h3><a href=/{name}>The {name} has come to our town</a></h3>" for name in names)
        for names in (("circus", "mayor", "winter"), ("circus", "mayor", "summer"))
    ),
    "entry of a menu, as there is no other text": (
        "<body><div><a href=1>Apples</a></div>",
        "<body><div><a href=1>Pears</a></div>",
    ),
}


@table("pages", FALSE.values())
def test_what_is_no_change(pages: tuple[str, str]) -> None:
    assert pages[0] != pages[1]
    assert not changed(*pages)


@table("pages", TRUE.values())
def test_what_is_a_change(pages: tuple[str, str]) -> None:
    assert changed(*pages)


@pytest.mark.parametrize(
    ("media_type", "before", "after", "expected"),
    [
        ("text/plain", "a story", "another story", True),
        ("text/plain", "a story, 12:01", "a story, 12:02", False),
        ("application/json", '{"title": "one", "at": 1}', '{"title": "two", "at": 1}', True),
        ("application/json", '{"title": "one", "at": 1}', '{"title": "one", "at": 2}', False),
        ("application/rss+xml", "<item>one</item>", "<item>two</item>", True),
        ("application/xhtml+xml", PAGE, PAGE.replace("Printed", "Sold"), False),
    ],
)
def test_all_of_a_text_counts(media_type: str, before: str, after: str, expected: bool) -> None:
    assert changed(before, after, media_type) is expected


@pytest.mark.parametrize("media_type", ["image/png", "application/pdf", "", "video/mp4"])
def test_what_is_no_text_has_no_digest(media_type: str) -> None:
    assert text_digest(b"words", media_type) == b""


@pytest.mark.parametrize("body", [b"", b"<script>x</script>", b"<body><img src=a.png> 12 "])
def test_a_page_without_words_has_no_digest(body: bytes) -> None:
    assert text_digest(body, "text/html") == b""


def test_utf_16_is_read() -> None:
    before, after = (text_digest(p.encode("utf-16"), "text/html") for p in TRUE["headline"])
    assert before != after
    dates = (text_digest(page.encode("utf-16"), "text/html") for page in FALSE["date"])
    assert len(set(dates)) == 1


def test_what_is_behind_the_limit_is_not_read() -> None:
    start = b"<p>word " + b" " * READ_MAX
    assert text_digest(start + b"one", "text/html") == text_digest(start + b"two", "text/html")


@given(
    st.binary()
    | st.lists(st.sampled_from(b"<a < > <nav </nav> <!-- --> </a> $1 a1b2 x".split())).map(b"".join)
)
def test_any_bytes_have_a_digest_or_none(body: bytes) -> None:
    assert len(text_digest(body, "text/html")) in {0, 8}
