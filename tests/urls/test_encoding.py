"""The encoding of a document, as Chromium finds it: it has judged each case but the valid UTF-8."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.encoding import encoding_named, encoding_of, known_encoding

# A byte that is no UTF-8.
END = b"<p>caf\xe9"
KOI = b"<meta charset=koi8-r>"
HEAD = b"<head>" + b"<meta name=x content=y>" * 100
BODY = b"<body>" + b"<p>xxxxxxxxxxxxx</p>" * 100


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("utf-8", "UTF-8"),
        (" UTF8\t", "UTF-8"),
        ("latin1", "windows-1252"),
        ("iso-8859-1", "windows-1252"),
        ("ks_c_5601-1987", "EUC-KR"),
        ("x-sjis", "Shift_JIS"),
        ("gb2312", "GBK"),
        ("unicode", "UTF-16LE"),
        ("utf-16be", "UTF-16BE"),
        ("x-user-defined", "x-user-defined"),
        ("iso-2022-kr", "replacement"),
        ("logical", "ISO-8859-8-I"),
        # Python's names, and other text that is no label.
        *((label, None) for label in ("utf_8", "latin_1", "cp936", "punycode", "utf-7", "rot13")),
        *((label, None) for label in ("", "none", "utf8mb4", "'utf-8'", "utf-8;", "koi8-r x", "é")),
    ],
)
def test_a_label_names_what_browsers_know(label: str, expected: str | None) -> None:
    assert encoding_named(label) == expected


@pytest.mark.parametrize(
    "body",
    [
        KOI,
        b"<META CHARSET = 'KOI8-R' >",
        b"<meta/charset=koi8-r>",
        b"<meta charset=koi8-r charset=utf-8>",
        b"<meta http-equiv=content-type content='text/html; charset=koi8-r'>",
        b"<meta content='text/html;charset = \"koi8-r\"' http-equiv=Content-Type>",
        b"<meta charset=bogus>" + KOI,
        KOI + b"<meta charset=utf-8>",
        HEAD + KOI,
        b"<script>var a = '<body>';</script><title><p></title>" + HEAD + KOI,
        b"<body><p>x" + KOI,
        BODY[:1000] + KOI,
        b"<noscript>" + KOI,
        b"<template>" + KOI,
        b"<svg>" + KOI,
        b"<!-->" + KOI,
        b"<!--->" + KOI,
        b"<!-- x --!>" + KOI,
        b"<p title=it's>" + KOI,
        b"<!doctype html '>" + KOI,
        b"<?xml version='1.0' encoding='koi8-r'?>",
        b"<?xml version='1.0' encoding='utf-8'?>" + KOI,
    ],
)
def test_a_declaration_in_the_document_is_found(body: bytes) -> None:
    assert encoding_of(body + END, None) == "KOI8-R"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!-- %b -->" % KOI,
        b"<!-- %b" % KOI,
        b"<!--[if IE]>%b<![endif]-->" % KOI,
        b"<script>'%b'</script>" % KOI,
        b"<style>%b</style>" % KOI,
        b"<title>%b</title>" % KOI,
        b"<textarea>%b</textarea>" % KOI,
        b"<iframe>%b</iframe>" % KOI,
        b"<p title='%b'>" % KOI,
        b'</p title="%b">' % KOI,
        b"<meta name='%b'>" % KOI,
        b"<meta data-charset=koi8-r>",
        b"<metadata charset=koi8-r>",
        b"</meta charset=koi8-r>",
        b"<meta name=description content='charset=koi8-r'>",
        b"<meta http-equiv=refresh content='9;charset=koi8-r'>",
        b"<meta http-equiv=content-type content='text/html; charset=\"koi8-r'>",
        b"<meta charset=bogus http-equiv=content-type content='charset=koi8-r'>",
        b"<meta charset=utf_8>",
        b"<meta charset=x-user-defined>",
        BODY + KOI,
        b"\n<?xml version='1.0' encoding='koi8-r'?>",
        b"charset=koi8-r",
        # html5lib-tests, encoding/tests1.dat.
        b"<metacharset=koi8-r>",
        b"<meta content=' text/html; charset = koi8-r '>",
        b'<meta http-equiv="Content-Type " content="text/html; charset=koi8-r">',
        b'<meta http-equiv="Content-Style-Type" content="text/html; charset=koi8-r">',
        b'<meta http-equiv="Content-Type>" content="text/html; charset=koi8-r">',
        b'<meta test=" charset=koi8-r>\n<p>"',
        b'<head></head><p title="x>\n<meta test=x charset=koi8-r>\n<p>"',
    ],
)
def test_what_declares_nothing_leaves_windows_1252(body: bytes) -> None:
    assert known_encoding(body + END, None) in {None, "windows-1252"}
    assert encoding_of(body + END, None) == "windows-1252"


@pytest.mark.parametrize(
    ("body", "charset", "expected"),
    [
        (KOI + END, "windows-1251", "windows-1251"),
        (END, "UTF-8", "UTF-8"),
        (END, "x-user-defined", "x-user-defined"),
        (b"\xef\xbb\xbf" + END, "KOI8-R", "UTF-8"),
        ("<p>é".encode("utf-16"), "KOI8-R", "UTF-16LE"),
        (b"\xfe\xff" + "<p>é".encode("utf-16-be"), None, "UTF-16BE"),
        ("<p>é".encode("utf-16-le"), "UTF-16LE", "UTF-16LE"),
        ("<?xml version='1.0'?>é".encode("utf-16-le"), None, "UTF-16LE"),
        ("<?xml version='1.0'?>é".encode("utf-16-be"), None, "UTF-16BE"),
        (b"<meta charset=utf-16>" + END, None, "UTF-8"),
        (b"<meta charset=utf-8>" + END, None, "UTF-8"),
        (
            b"\n<!DOCTYPE html>\n<html lang='a>b' x>\n<head>\n<META charset='UTF-8' />" + END,
            None,
            "UTF-8",
        ),
        (b"<html a='><head><meta charset=utf-8>'>" + KOI + END, None, "KOI8-R"),
        (b'<html a="><head><meta charset=utf-8>' + KOI + END, None, "UTF-8"),
        (b"<meta charset=utf-8x>" + KOI + END, None, "KOI8-R"),
        (b"<?xml version='1.0' encoding='utf-16'?>" + END, None, "UTF-8"),
        (b"<meta charset=iso-2022-kr>" + END, None, "replacement"),
        ("<p>é".encode(), None, "UTF-8"),
        (b"<p>e", None, "UTF-8"),
        (b"", None, "UTF-8"),
        (b"\xe9<meta charset=koi8-r", None, "windows-1252"),
        # Cut within a character.
        ("<p>é".encode()[:-1], None, "windows-1252"),
        (("<p>" + "é" * 3_000_000).encode(), None, "UTF-8"),
    ],
)
def test_mark_header_document_and_bytes_count_in_turn(
    body: bytes, charset: str | None, expected: str
) -> None:
    assert encoding_of(body, charset) == expected


@pytest.mark.parametrize(
    "piece",
    [
        *(b"<a ='", b"<!--", b"<script>", b"<meta ", b"<meta charset=", b"<", b"<a =\"'", b"<a = "),
        *(
            b"<title",
            b"<meta content='charset",
            b"<?xml encoding",
            b"</",
            b"= ",
            b"<meta a='charset'",
        ),
    ],
)
def test_time_is_linear_in_the_bytes(piece: bytes) -> None:
    """Quadratic work for so many bytes takes minutes."""
    began = process_time()
    encoding_of(b"\xe9<meta http-equiv=content-type content='" + piece * 200_000, None)
    encoding_of(b"\xe9" + piece * 200_000, None)
    assert process_time() - began < 5


@given(
    st.binary()
    | st.lists(st.sampled_from([KOI, b"<", b"'", b">", b"<!--", b"=", b"\xe9"])).map(b"".join)
)
def test_any_bytes_have_an_encoding(body: bytes) -> None:
    assert encoding_of(body, None)
