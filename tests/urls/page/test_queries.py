"""Queries of links in the encoding of their page."""

from __future__ import annotations

import pytest

from krowlspider.urls.canonical import REFERENCE_MAX, normalise
from krowlspider.urls.page.headers import QUERIES_MAX, encode_queries
from krowlspider.urls.page.links import MAX_LINKS, read_page
from tests.support.tables import table


@table(
    ("encoding", "query", "expected"),
    [
        # web-platform-tests, url/percent-encoding.window.js.
        ("EUC-KR", "\u2020", "%A2%D3"),
        ("windows-1252", "\u2020", "%86"),
        ("ISO-2022-JP", "\u000eA\u65e5", "%26%2365533%3BA%1B$BF|%1B(B"),
        ("ISO-2022-JP", "\u203e\\", "%1B(J~%1B(B\\"),
        ("gb18030", "\ue5e5", "%26%2358853%3B"),
        ("Shift_JIS", "\u2212", "%81|"),
        ("ISO-8859-2", "\u00a2", "%26%23162%3B"),
        # The Encoding Standard's variants of the encodings.
        ("windows-1251", "привет &a=€+x", "%EF%F0%E8%E2%E5%F2%20&a=%88+x"),
        ("windows-1252", "\u0081é日'", "%81%E9%26%2326085%3B%27"),
        ("Shift_JIS", "ソ¥‾～①", "%83\\\\~%81`%87@"),
        ("EUC-JP", "日本～①", "%C6%FC%CB%DC%A1%C1%AD%A1"),
        ("ISO-2022-JP", "三a", "%1B$B;0%1B(Ba"),
        ("GBK", "中€", "%D6%D0%80"),
        ("gb18030", "€𠀀", "%A2%E3%952%826"),
        ("Big5", "中€", "%A4%A4%A3%E1"),
        ("EUC-KR", "똠", "%8Cc"),
        ("KOI8-U", "ї", "%A7"),
        ("x-mac-cyrillic", "я", "%DF"),
        ("windows-874", "ก", "%A1"),
        ("ISO-8859-8-I", "א", "%E0"),
        ("UTF-8", "é", "%C3%A9"),
        ("UTF-16LE", "é", "%C3%A9"),
        ("UTF-16BE", "é", "%C3%A9"),
        ("replacement", "é", "%C3%A9"),
        ("x-user-defined", "\uf7e9é\uf780", "%E9%26%23233%3B%80"),
    ],
)
def test_query_is_encoded_as_in_browsers(encoding: str, query: str, expected: str) -> None:
    (href,) = encode_queries([f"/é?{query}#é?é"], encoding, [])
    assert normalise(href, "http://a/") == f"http://a/%C3%A9?{expected}"


@pytest.mark.parametrize(
    "encoding", ["Big5", "EUC-JP", "GBK", "ISO-2022-JP", "KOI8-R", "Shift_JIS"]
)
def test_every_character_has_an_ascii_form(encoding: str) -> None:
    every = [f"?{chr(code)}é" for code in range(0x20, 0x10000, 7) if not 0xD800 <= code < 0xE000]
    oversize: list[str] = []
    assert all(href.isascii() for href in encode_queries(every, encoding, oversize))
    assert oversize == []


def test_all_links_of_a_page_are_in_its_encoding() -> None:
    body = """<meta charset=windows-1251><base href='/é/?б'><link rel=canonical href='?к'>
    <meta http-equiv=refresh content='0;url=?р'><a href=' ?\tа\n '><frame src='/ф?&#233;'>
    <a href='#x'><a href='http://b/?ы'><a href='?u=%D0%B0&amp;v=%e0'>"""
    page = read_page(body.encode("cp1251", "xmlcharrefreplace"), "http://a/", None)
    assert page.canonical == "http://a/%C3%A9/?%EA"
    assert page.links == [
        "http://a/%C3%A9/?%F0",
        "http://a/%C3%A9/?%E0",
        "http://a/%D1%84?%26%23233%3B",
        "http://a/%C3%A9/?%E1",
        "http://b/?%FB",
        "http://a/%C3%A9/?u=%D0%B0&v=%e0",
    ]


@pytest.mark.parametrize(
    ("body", "charset", "expected"),
    [
        ("<meta charset=latin1><a href='?é'>".encode("utf-8-sig"), "latin1", "%C3%A9"),
        ("<meta charset=utf-8><a href='?é'>".encode("latin1"), "latin1", "%E9"),
        ("<a href='?é'>".encode("latin1"), None, "%E9"),
        ("<meta charset=utf-8><p>\xff<a href='?é'>".encode("latin1"), None, "%EF%BF%BD"),
    ],
)
def test_encoding_of_queries_is_that_of_the_page(
    body: bytes, charset: str | None, expected: str
) -> None:
    assert read_page(body, "http://a/", charset).links == [f"http://a/?{expected}"]


def test_queries_of_a_page_are_encoded_up_to_a_bound() -> None:
    hrefs = [f"?{number}{'日' * (REFERENCE_MAX // 2)}" for number in range(MAX_LINKS)]
    oversize: list[str] = []
    found = encode_queries([*hrefs, "/é"], "windows-1252", oversize)
    assert len(found) == QUERIES_MAX // (REFERENCE_MAX // 2)
    assert len(found) + len(oversize) == MAX_LINKS + 1
