"""Bodies of archives: in the codings that their headers name, or stored without them."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.fetch.http.decode import decoded
from tests.fetch.http.coders import CODERS, PAGE, raw_deflate

BIG = 10_000_000
TEXTS = {
    "html": b"<!doctype html><title>A page</title>",
    "xml": b'<?xml version="1.0"?><a/>',
    "json": b'{"a": [1, 2, 3]}',
    "zlib": b"x^2 + y^2 = 1",
    "brotli of nothing": b"function f() {}",
    "letter": b"n",
    "digits": b"1234567890" * 9,
    "latin-1": b"caf\xe9 " * 40,
    "utf-8": "привет ".encode() * 40,
    "utf-16": "<p>a page".encode("utf-16"),
    "shift_jis": "日本語の頁".encode("shift_jis") * 9,
    "iso-2022-jp": "日本語の頁".encode("iso-2022-jp") * 9,
}

ZIPPED = gzip.compress(PAGE, mtime=0)

coding = pytest.mark.parametrize("coding", CODERS)


@coding
@pytest.mark.parametrize("body", TEXTS.values(), ids=TEXTS)
def test_text_that_is_stored_decoded_is_left_as_it_is(coding: bytes, body: bytes) -> None:
    assert decoded(body, coding.decode(), BIG) == body


@coding
@given(st.text("abc <>/=\né語", min_size=60, max_size=600))
def test_coded_text_is_decoded_and_plain_text_kept(coding: bytes, text: str) -> None:
    assert decoded(text.encode(), coding.decode(), BIG) == text.encode()
    assert decoded(CODERS[coding](text.encode()), coding.decode(), BIG) == text.encode()


@coding
def test_a_body_in_its_coding_is_decoded(coding: bytes) -> None:
    body = CODERS[coding](PAGE)
    assert decoded(body, coding.decode(), BIG) == PAGE
    assert decoded(CODERS[coding](b""), coding.decode(), BIG) == b""
    assert decoded(b"", coding.decode(), BIG) == b""
    large = PAGE * 9
    most = CODERS[coding](large)[:-9]
    half = decoded(most, coding.decode(), BIG)
    assert half
    assert large.startswith(half)
    with pytest.raises(ValueError, match="more than"):
        decoded(body, coding.decode(), len(PAGE) - 1)


def test_one_of_two_codings_may_be_undone_already() -> None:
    for body in (PAGE, gzip.compress(PAGE), brotli.compress(gzip.compress(PAGE))):
        assert decoded(body, "gzip, br", BIG) == PAGE
    assert decoded(gzip.compress(PAGE), "unknown, gzip, identity", BIG) == PAGE
    assert decoded(gzip.compress(PAGE), "gzip, unknown", BIG) == gzip.compress(PAGE)
    assert decoded(PAGE, "gzip, gzip, gzip", BIG) == PAGE
    thrice = gzip.compress(gzip.compress(gzip.compress(PAGE)))
    with pytest.raises(ValueError, match="more than 2 content codings"):
        decoded(thrice, "gzip, gzip, gzip", BIG)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", ZIPPED[:99] + b"\xff" * 99),
        ("gzip", ZIPPED[:11]),
        ("deflate", zlib.compress(PAGE)[:99] + b"\xff" * 99),
        ("deflate", raw_deflate(PAGE)[:99] + b"\xff" * 99),
        ("br", b"\x00\x01\xff" * 99),
        ("zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 99),
        ("zstd", CODERS[b"zstd"](PAGE)[:20]),
    ],
)
def test_a_broken_body_raises(coding: str, body: bytes) -> None:
    """Nothing is not returned for something."""
    with pytest.raises(ValueError, match=r"broken|cut off"):
        decoded(body, coding, BIG)
