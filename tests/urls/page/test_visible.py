"""The text that a reader of a page sees, by lines."""

from __future__ import annotations

import pytest

from krowlspider.urls.page.links import READ_MAX, lines_of_html, lines_of_text
from tests.support.tables import table
from tests.support.work import seconds


@table(
    ("html", "lines"),
    [
        ("", []),
        ("<title>A  title</title><p>One", ["A title", "One"]),
        ("<p>One <b>bold</b> word<p>Two", ["One bold word", "Two"]),
        ("<ul><li>a<li>b</ul>c", ["a", "b", "c"]),
        ("<tr><td>a</td><td>b</td></tr>", ["a", "b"]),
        ("a<br>b<br/>c", ["a", "b", "c"]),
        ("<p>First one. Second? Yes! 3.5 m", ["First one.", "Second?", "Yes!", "3.5 m"]),
        ("<p>港口开放。船晚了。", ["港口开放。", "船晚了。"]),
        (
            "<p>a<script>var x = '<p>'</script><style>p{}</style><!-- <p>c --><iframe>i</iframe>b",
            ["ab"],
        ),
        ("<p title='<p>x'>a <pre>x\n  y</pre>", ["a", "x y"]),
        ("<p>&#60;p&#62; a&#160;b", ["<p> a b"]),
        ("<plan>a<h7>b", ["ab"]),
    ],
)
def test_lines_of_html(html: str, lines: list[str]):
    assert lines_of_html(html.encode(), None) == lines
    assert lines_of_html(html.upper().encode(), None) == [line.upper() for line in lines]


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        ("<p>caf\xe9".encode("latin-1"), None),
        ("<p>caf\xe9".encode("latin-1"), "windows-1252"),
        ("<p>caf\xe9".encode(), None),
        ("\ufeff<p>caf\xe9".encode(), "windows-1252"),
        ("\ufeff<p>caf\xe9".encode("utf-16-le"), None),
        ("<meta charset=koi8-r><p>caf\xe9".encode(), "UTF-8"),
    ],
)
def test_the_encoding_is_that_of_browsers(body: bytes, charset: str | None):
    assert lines_of_html(body, charset) == ["caf\xe9"]


def test_lines_of_text():
    text = "<p>First  line.\r\nSecond. Third\n\n  \nfourth\xe9"
    found = ["<p>First line.", "Second.", "Third", "fourth\xe9"]
    assert lines_of_text(text.encode("latin-1"), None) == found
    assert lines_of_text(f"\ufeff{text}".encode(), "windows-1252") == found


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 400_000 + b"</span>" * 300_000,
        b"<p>a" * 1_000_000,
        b"<" * READ_MAX,
        b"\xff" * READ_MAX * 2,
        b". " * READ_MAX,
        b"\xff\xfe" + b"<\0p\0>\0" * 700_000,
    ],
)
def test_work_is_bounded(body: bytes):
    assert seconds(lambda: lines_of_html(body, None), enough=3) < 3
    assert seconds(lambda: lines_of_text(body, None), enough=3) < 3
