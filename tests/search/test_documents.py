"""The answers that documents are made of."""

from __future__ import annotations

import pytest

from krowlspider.search.documents import (
    LINKS_CHARS_MAX,
    LINKS_MAX,
    TEXT_MAX,
    CapturedResponse,
    NoDocument,
    answer_of,
    content_of,
    is_indexable,
    links_in,
)
from krowlspider.search.schema import page_id, pairs_of, split_spaceless

GEMINI = {"Content-Type": "application/gemini; msgtype=response"}
HTTP = {"Content-Type": "application/http; msgtype=response"}
URL = "https://a.test/"


def html(body: str) -> CapturedResponse:
    return CapturedResponse([], body.encode(), "text/html", "utf-8")


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_an_answer_of_gemini_has_the_parameters_of_its_type(end: bytes):
    answer = answer_of(GEMINI, b"20 text/plain; lang=de; charset=iso-8859-1" + end + b"\xfc")
    found = content_of("gemini://a.test/", answer)
    assert (found.media, found.text, found.language) == ("text/plain", "ü", "de")


def test_plaintext_is_plain_text():
    """TLGS takes it."""
    assert is_indexable("plaintext")
    assert content_of(URL, answer_of(GEMINI, b"20 plaintext\r\n# A")).title == "# A"


def test_an_answer_of_gemini_without_a_type_is_gemtext():
    assert answer_of(GEMINI, b"20 \r\n# A").media == "text/gemini"


@pytest.mark.parametrize("kind", ["text/markdown", "text/x-markdown", "text/x-rst"])
@pytest.mark.parametrize("line", ["# Notes on tides", "Notes on tides"])
def test_texts_with_marks_are_documents(kind: str, line: str):
    """The ancestor indexes them too."""
    answer = answer_of(GEMINI, f"20 {kind}\r\n{line}\n\nWords\n".encode())
    assert is_indexable(answer.media)
    assert content_of("gemini://a.test/", answer).title == "Notes on tides"


def test_a_body_that_is_not_in_its_coding_has_no_document():
    with pytest.raises(NoDocument, match="not decodable"):
        answer_of(HTTP, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8bno")


def test_a_text_is_bounded():
    answer = CapturedResponse([], b"word " * 500_000, "text/plain", "utf-8")
    assert len(content_of(URL, answer).text) == TEXT_MAX


def test_the_declared_language_counts_where_none_is_detected():
    assert content_of(URL, html("<html lang='pt-BR'><p>12 34")).language == "pt"


def test_links_are_bounded_in_number_and_size():
    many = "".join(f"<a href=/{n}>x</a>" for n in range(LINKS_MAX + 50))
    assert len(links_in(URL, html(many))) == LINKS_MAX
    long = "".join(f"<a href=/{n}{'x' * 1000}>x</a>" for n in range(100))
    assert sum(len(each.target) for each in links_in(URL, html(long))) <= LINKS_CHARS_MAX


def test_a_target_has_its_first_anchor_that_says_something():
    found = links_in(URL, html("<a href=/b><img></a><a href=/b> The  river </a><a href=/b>x</a>"))
    assert found == [("https://a.test/b", "The river")]


def test_urls_of_one_identity_have_one_id():
    assert page_id(f"{URL}?b=1&a=2&utm_source=x") == page_id(f"{URL}?a=2&b=1")
    assert page_id(URL) != page_id("http://a.test/")


@pytest.mark.parametrize(
    ("text", "rest", "pairs"),
    [
        ("no such letter", "no such letter", ""),
        ("über uns", "über uns", ""),
        ("in 東京都 and 한국", "in   and  ", "東京 京都 한국"),
        ("日", " ", "日"),
    ],
)
def test_runs_without_spaces_are_split_off(text: str, rest: str, pairs: str):
    assert (split_spaceless(text), pairs_of(text)) == ((rest, pairs), pairs)
