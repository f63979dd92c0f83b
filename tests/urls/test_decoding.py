"""Decoding by the Encoding Standard, by the names that `codec_for` returns."""

from __future__ import annotations

import pytest

from krowlspider.urls.encoding import codec_for, decode

NAMES = (
    *("UTF-8", "IBM866", *(f"ISO-8859-{part}" for part in (*range(2, 9), 10, 13, 14, 15, 16))),
    *("ISO-8859-8-I", "KOI8-R", "KOI8-U", "macintosh", "windows-874", "x-mac-cyrillic", "GBK"),
    *(f"windows-{page}" for page in range(1250, 1259)),
    *("gb18030", "Big5", "EUC-JP", "ISO-2022-JP", "Shift_JIS", "EUC-KR", "replacement"),
    *("UTF-16BE", "UTF-16LE", "x-user-defined"),
)


@pytest.mark.parametrize("encoding", NAMES)
def test_every_encoding_of_the_standard_is_decoded(encoding: str) -> None:
    codec = codec_for(encoding)
    width = 2 if encoding.startswith("UTF-16") else 1
    plain = b"<a>" if width == 1 else "<a>".encode(codec)
    for is_exact in (True, False):
        assert decode(plain, codec, is_exact=is_exact) == "<a>"
        assert decode(b"", codec, is_exact=is_exact) == ""
        # No bytes raise an error.
        decode(bytes(range(256)) * 2, codec, is_exact=is_exact)


@pytest.mark.parametrize(
    ("encoding", "body", "text"),
    [
        ("windows-1252", b"\x80\x81\x9f\xe9", "€\x81Ÿé"),
        ("x-user-defined", b"a\x80\xff", "a\uf780\uf7ff"),
        ("EUC-JP", b"\xad\xa1", "①"),
        ("ISO-2022-JP", b"\x1b$B\x2d\x21\x1b(B.", "①."),
        ("GBK", b"\x80", "€"),
        ("Shift_JIS", "髙①".encode("cp932"), "髙①"),
        ("EUC-KR", "똠".encode("cp949"), "똠"),
        ("UTF-8", b"\xff\xc3", "\ufffd\ufffd"),
    ],
)
def test_text_is_that_of_the_standard(encoding: str, body: bytes, text: str) -> None:
    assert decode(body, codec_for(encoding)) == text


def test_a_character_that_is_cut_is_left_out() -> None:
    body = "é".encode()[:1]
    assert decode(body, "utf-8", is_whole=False) == ""
    assert decode(body, "utf-8") == "\ufffd"
