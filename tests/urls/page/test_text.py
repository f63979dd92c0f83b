"""The text of a page is what a reader sees, as far as it can be told without a layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.page.links import MAX_TEXT, MAX_TITLE, read_text

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
