"""The encoding of a page: what is declared counts, unless it does not fit."""

from __future__ import annotations

import pytest

from krowlspider.corpus.text.document import decoded
from krowlspider.urls.encoding import encoding_named
from tests.support.tables import table
from tests.support.work import seconds

JAPANESE = "これは日本語の文章です。今日は天気が良いので散歩に行きました。"


def read(body: bytes, charset: str) -> str:
    return decoded(body, encoding_named(charset))[1]


@table(
    ("charset", "codec", "text"),
    [
        ("euc-kr", "cp949", "똠방각하"),
        ("ks_c_5601-1987", "cp949", "한국어 펲"),
        ("shift_jis", "cp932", "髙橋①"),
        ("big5", "big5hkscs", "我嘅書"),
        ("gb2312", "gb18030", "朱镕基𠀀"),
        ("iso-8859-9", "cp1254", "“İstanbul”"),
        ("tis-620", "cp874", "“ไทย”…"),
        ("euc-jp", "euc_jp", "日本˘"),
    ],
)
def test_labels_name_the_larger_sets_of_the_standard(charset: str, codec: str, text: str) -> None:
    assert read(text.encode(codec), charset) == text
    assert decoded(f"<meta charset={charset}>{text}".encode(codec), None)[1].endswith(text)


@table(
    ("charset", "body", "text"),
    [
        ("windows-1251", "Русский текст".encode("cp1251") + b"\x98.", "Русский текст\x98."),
        ("windows-1252", "“So,” he’d".encode("cp1252") + b"\x81.", "“So,” he’d\x81."),
        ("windows-1253", b"\xaa" + "Ελλάδα".encode("cp1253"), "\ufffdΕλλάδα"),
        ("gbk", "价格".encode("gbk") + b"\x80 5", "价格€ 5"),
        ("euc-jp", b"\xad\xa1\xfc\xe2" + "さん".encode("euc_jp"), "①髙さん"),
        ("euc-jp", "日本".encode("euc_jp") + b"\xadb", "日本\ufffdb"),
        ("iso-2022-jp", b"\x1b$B\x2d\x21\x24\x22\x1b(B.", "①あ."),
        *(
            (charset, JAPANESE.encode(charset) + b"\xff.", f"{JAPANESE}\ufffd.")
            for charset in ("euc-jp", "utf-8")
        ),
    ],
)
def test_a_few_bad_bytes_do_not_change_the_encoding(charset: str, body: bytes, text: str) -> None:
    assert read(body, charset) == text


@table(
    ("charset", "body", "text"),
    [
        ("euc-kr", "Größe, “für”".encode(), "Größe, “für”"),
        ("euc-kr", "kůň úpěl".encode(), "kůň úpěl"),
        ("windows-1252", "Нет, Эрмитаж с".encode() + b"\xff", "Нет, Эрмитаж с\ufffd"),
        ("utf-8", "Größe, Wörter".encode("cp1252"), "Größe, Wörter"),
        ("iso-8859-1", JAPANESE.encode("cp932"), JAPANESE),
        ("big5", JAPANESE.encode("cp932"), JAPANESE),
        ("nonsense", "<meta charset=koi8-r>Да".encode("koi8-r"), "<meta charset=koi8-r>Да"),
        ("", "<meta charset=utf-16>Größe".encode(), "<meta charset=utf-16>Größe"),
    ],
)
def test_a_false_declaration_is_corrected(charset: str, body: bytes, text: str) -> None:
    assert read(body, charset) == text


@table(
    ("body", "charset", "codec"),
    [
        ("Größe".encode("utf-8-sig"), "iso-8859-1", "utf-8"),
        ("Größe".encode("utf-16"), "utf-8", "utf-16-le"),
        ("Größe".encode("cp1252"), "iso-8859-1", "cp1252"),
        ("<meta charset=koi8-r>Größe привет".replace("öß", "").encode("koi8-r"), "", "koi8-r"),
        ("Größe".encode(), "iso-2022-nonsense", "utf-8"),
        # One character may be two of Latin-1 by chance; the label of more is wrong.
        ("Gré".encode(), "ascii", "cp1252"),
        ("Größe".encode(), "ascii", "utf-8"),
        ("Größe, Straße".encode(), "koi8-r", "utf-8"),
        ("<!-- <meta charset=koi8-r> --><p>Größe, Straße".encode("cp1252"), "", "cp1252"),
        ("<p>Größe".encode("cp1252"), "x-user-defined", "cp1252"),
        ("<p>Größe".encode("cp1252"), "iso-2022-kr", "cp1252"),
    ],
)
def test_mark_header_and_meta_count_in_turn(body: bytes, charset: str, codec: str) -> None:
    assert decoded(body, encoding_named(charset))[0] == codec


@pytest.mark.parametrize("charset", ["windows-1252", "euc-jp", "utf-8"])
@pytest.mark.parametrize("noise", [b"\x81", b"\xff", b"\xad\xff"])
def test_noise_is_read_in_linear_time(charset: str, noise: bytes) -> None:
    body = noise * 100_000
    # 10 µs a byte: at least five times what it takes.
    most = 10e-6 * len(body)
    assert seconds(lambda: read(body, charset), enough=most) < most


def test_bytes_that_overflow_a_decoder_are_read() -> None:
    assert read(b"\x1b$>>\xff(\x1b\xa1<", "iso-2022-jp")
