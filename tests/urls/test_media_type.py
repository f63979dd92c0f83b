"""What a response is. Chromium has judged the cases, or web-platform-tests where it differs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.encoding import HTML, computed_type, content_type_of
from tests.support.tables import table

PAGE = b"<!DOCTYPE html><html><a href=/x>x</a>"
XHTML = b"<html xmlns='http://www.w3.org/1999/xhtml'><a href='/x'/></html>"


def sniffed(body: bytes, *types: bytes, options: tuple[bytes, ...] = ()) -> str:
    return computed_type(types, options, body).essence


@table(
    ("value", "charset"),
    [
        # web-platform-tests, mimesniff/mime-types/resources/mime-types.json.
        ("text/html;charset=gbk", "GBK"),
        ("TEXT/HTML;CHARSET=GBK", "GBK"),
        ("text/html;charset=gbk(", None),
        ("text/html;x=(;charset=gbk", "GBK"),
        ("text/html;charset=gbk;charset=windows-1255", "GBK"),
        ("text/html;charset =gbk", None),
        ("text/html ;charset=gbk", "GBK"),
        ("text/html;charset= gbk", "GBK"),
        ("text/html;charset='gbk'", None),
        ("text/html;charset=gbk'", None),
        ("text/html;test;charset=gbk", "GBK"),
        ("text/html;test=;charset=gbk", "GBK"),
        ("text/html;';charset=gbk", "GBK"),
        ('text/html;";charset=gbk', "GBK"),
        ("text/html ; ; charset=gbk", "GBK"),
        ('text/html;charset="gbk"', "GBK"),
        ('text/html;charset="gbk', "GBK"),
        ('text/html;charset=gbk"', None),
        ('text/html;charset=" gbk"', "GBK"),
        ('text/html;charset="\\ gbk"', "GBK"),
        ('text/html;charset="\\g\\b\\k"', "GBK"),
        ('text/html;charset="gbk"x', "GBK"),
        ("text/html;charset={gbk}", None),
        ("text/html;test=ÿ;charset=gbk", "GBK"),
        ('text/html;x="charset=gbk"', None),
        ("\ttext/html; charset=no-such", None),
    ],
)
def test_charset_is_the_parameter(value: str, charset: str | None) -> None:
    assert content_type_of([value.encode("latin-1")]) == ("text/html", charset)


@table(
    ("values", "essence", "charset"),
    [
        # web-platform-tests, fetch/content-type/resources/content-types.json.
        (["", "text/plain"], "text/plain", None),
        (["text/plain", ""], "text/plain", None),
        (["text/html", "text/plain"], "text/plain", None),
        (["text/plain;charset=gbk", "text/html"], "text/html", None),
        (["text/plain;charset=gbk", "text/html;charset=windows-1254"], "text/html", "windows-1254"),
        (["text/plain;charset=gbk", "text/plain"], "text/plain", "GBK"),
        (["text/plain;charset=gbk", "text/plain;charset=latin1"], "text/plain", "windows-1252"),
        (["text/html;charset=gbk", 'text/html;x=",text/plain'], "text/html", "GBK"),
        (["text/html;charset=gbk", "text/plain", "text/html"], "text/html", None),
        (["text/html", "*/*;charset=gbk"], "text/html", None),
        (['text/html;x="', "text/plain"], "text/html", None),
        (['text/html;"', "text/plain"], "text/html", None),
        (["text/html, text/html; charset=utf-8"], "text/html", "UTF-8"),
        (["text/html", "none"], "text/html", None),
        ([",text/html"], "text/html", None),
    ],
)
def test_the_last_valid_type_counts(values: list[str], essence: str, charset: str | None) -> None:
    assert content_type_of(value.encode() for value in values) == (essence, charset)


UNUSABLE = [
    *([], [b""], [b" \t"], [b"*/*"], [b"*/*; charset=utf-8"], [b"none"], [b"charset=utf-8"]),
    *([b"unknown/unknown"], [b"Application/Unknown; x=y"], [b"text"], [b"html"], [b"text/"]),
    *([b"text/html charset=utf-8"], [b"text/html: utf-8"], [b'"text/html"'], [b"</>"], [b"/html"]),
    *([b"Content-Type: text/html"], [b"text\\html"], [b"*/*", b"none"], [b"\xff/\xff"], [b"(/)"]),
]


@table("types", UNUSABLE)
def test_without_a_usable_type_the_body_decides(types: list[bytes]) -> None:
    assert sniffed(PAGE, *types) == "text/html"
    assert sniffed(b"%PDF-1.4", *types) == "application/pdf"
    assert sniffed(b"<a", *types) == sniffed(b"\x89PNG\r\n\x1a\n<html>", *types) == ""
    assert sniffed(PAGE, *types, options=(b"NoSniff, x",)) == ""
    assert sniffed(PAGE, *types, options=(b"x", b"nosniff")) == "text/html"


@table(
    "value",
    [
        *(b"text/plain", b"text/plain; charset=utf-8", b"application/octet-stream", b"image/png"),
        *(b"text/htm", b"text/htmlx", b"text/x-html", b"application/html", b"text/xml", b"x/y"),
        *(b"application/x-unknown-content-type", b"'text/html'", b"application/json"),
    ],
)
def test_a_usable_type_is_not_doubted(value: bytes) -> None:
    assert sniffed(PAGE, value) == value.partition(b";")[0].decode()
    assert sniffed(PAGE, value) not in HTML


@pytest.mark.parametrize(
    "value", [b"text/html", b"application/xhtml+xml", b"Application/VND.wap.xhtml+xml;x"]
)
def test_html_is_html_whatever_its_bytes(value: bytes) -> None:
    assert sniffed(b"\0\1\2", value, options=(b"nosniff",)) in HTML


@table(
    "tag",
    [
        *(b"<!DOCTYPE HTML", b"<!doctype html", b"<HTML", b"<head", b"<script", b"<iframe", b"<h1"),
        *(b"<div", b"<font", b"<table", b"<a", b"<style", b"<title", b"<b", b"<body", b"<br"),
        b"<p",
        b"<!--",
    ],
)
def test_html_begins_with_one_of_these(tag: bytes) -> None:
    """MIME Sniffing, section 7.1; Chrome takes any whitespace for the end of a tag."""
    for before, end in product((b"", b"\t\n\f\r ", b"\r\n" * 100), (b" ", b">", b"\n", b"\t")):
        assert sniffed(before + tag + end + b"x") == "text/html"
        assert sniffed(before + tag) == sniffed(b"x" + before + tag + end) == ""
        if tag != b"<!--":
            assert sniffed(before + tag + b"x" + end) == ""


@table(
    ("body", "essence"),
    [
        (b"<?xml version='1.0'?>" + XHTML, "application/xhtml+xml"),
        (
            b"\n<?xml?><!DOCTYPE html PUBLIC 'x' 'y'>\n<!-- <a> --><?p ?>\n" + XHTML,
            "application/xhtml+xml",
        ),
        (b"<?xml version='1.0'?><html><a href='/x'/></html>", "text/xml"),
        (b"<?xml version='1.0'?><rss>" + XHTML + b"</rss>", "text/xml"),
        (b"<?xml version='1.0'?><!-- " + XHTML, "text/xml"),
        (b"<?xml" + b"<!-- - -->" * 500, "text/xml"),
        (b"<?XML version='1.0'?>" + XHTML, ""),
        (b"<meta charset=utf-8><a href=/x>x</a>", ""),
        (b"<ul><li><a href=/x>x</a>", ""),
        (b"see <a href=/x>x</a>", ""),
        (b"\xef\xbb\xbf" + PAGE, ""),
        (PAGE.decode().encode("utf-16"), ""),
        (b" %PDF-1.4", ""),
        (b" " * 1445 + PAGE, ""),
        (b"", ""),
    ],
)
def test_the_start_of_a_body_shows_what_it_is(body: bytes, essence: str) -> None:
    assert sniffed(body) == essence


@given(st.lists(st.binary() | st.text('text/html;=", \\charset').map(str.encode)), st.binary())
def test_any_header_and_body_have_a_type(values: list[bytes], body: bytes) -> None:
    essence, charset = computed_type(values, (), body)
    assert essence == essence.lower()
    assert charset is None or charset
