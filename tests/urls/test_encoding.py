"""The encoding of a document, as Chromium finds it: it has judged each case but the valid UTF-8."""

from __future__ import annotations

from krowlspider.corpus.text.document import decoded
from krowlspider.urls.encoding import codec_for, decode, encoding_named, encoding_of, known_encoding
from tests.support.tables import table
from tests.support.work import seconds

# A byte that is no UTF-8.
END = b"<p>caf\xe9"
META = b"<meta charset=koi8-r>"


@table(
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


def test_what_declares_nothing_is_in_no_known_encoding() -> None:
    assert known_encoding(END, None) is None


@table(
    ("body", "charset", "expected"),
    [
        (META + END, "windows-1251", "windows-1251"),
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
        (b"<html a='><head><meta charset=utf-8>'>" + META + END, None, "KOI8-R"),
        (b'<html a="><head><meta charset=utf-8>' + META + END, None, "UTF-8"),
        (b"<meta charset=utf-8x>" + META + END, None, "KOI8-R"),
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


@table(
    "piece",
    [
        *(b"<a ='", b"<!--", b"<script>", b"<meta ", b"<meta charset=", b"<", b"<a =\"'", b"<a = "),
        *(b"<title", b"<meta content='charset", b"<?xml encoding", b"</", b"= "),
        b"<meta a='charset'",
    ],
)
def test_time_is_linear_in_the_bytes(piece: bytes) -> None:
    """Quadratic work for so many bytes takes minutes."""
    bodies = (
        b"\xe9<meta http-equiv=content-type content='" + piece * 200_000,
        b"\xe9" + piece * 200_000,
    )
    assert seconds(lambda: [encoding_of(body, None) for body in bodies], enough=5) < 5


# --- the declaration in a document, found alike by the crawl and by the corpus ---


KOI, UTF = "KOI8-R", "UTF-8"
TEXTS = {
    KOI: "<p>Привет, мир! Это самая простая страница.",
    UTF: "<p>Привет, мир! Это самая простая страница.",
    "windows-1252": "<p>“Größe” – naïve façade, à la carte: déjà vu",
    "EUC-KR": "<p>이것은 아주 간단한 한국어 문장입니다.",
}
DECLARED: list[tuple[str, str]] = [
    # How an attribute is written.
    *(
        (f"<meta charset{sign}{label}>", KOI)
        for sign in ("=", " = ", "\n=\t")
        for label in ("koi8-r", '"koi8-r"', "'koi8-r'", "KOI8-R", '" koi8-r\t"', "koi")
    ),
    ("<META CHARSET=koi8-r>", KOI),
    ("<meta charset=koi8-r/>", UTF),
    ("<meta charset=koi8-r />", KOI),
    ("<meta/charset=koi8-r>", KOI),
    ("<meta id=x charset=koi8-r>", KOI),
    ("<meta\fcharset=koi8-r>", KOI),
    # The pragma, in either order.
    ('<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', KOI),
    ('<meta content="text/html; charset=koi8-r" http-equiv="Content-Type">', KOI),
    ("<meta http-equiv=content-type content=charset=koi8-r>", KOI),
    ("<meta http-equiv=content-type content='text/html;charset = \"koi8-r\" x'>", KOI),
    ("<meta http-equiv=content-type content='charset koi8-r; charset=koi8-r; x'>", KOI),
    ("<meta http-equiv=content-type content='text/html; charset=\"koi8-r'>", UTF),
    ("<meta content='text/html; charset=koi8-r'>", UTF),
    ("<meta http-equiv=refresh content='0; charset=koi8-r'>", UTF),
    ("<meta name=content-type content='text/html; charset=koi8-r'>", UTF),
    ("<meta name=description content='charset=\"koi8-r\"'>", UTF),
    ("<meta property=og:title content='charset=koi8-r'>", UTF),
    # Other attributes and elements.
    ("<meta data-charset=koi8-r>", UTF),
    ('<meta data-charset="koi8-r">', UTF),
    ("<meta x='charset=koi8-r'>", UTF),
    ("<metadata charset=koi8-r>", UTF),
    ("<link charset=koi8-r>", UTF),
    ("<script charset=koi8-r src=x></script>", UTF),
    ("<a charset=koi8-r href=/>", UTF),
    ("</meta charset=koi8-r>", UTF),
    ("<title>charset=koi8-r</title>", UTF),
    ("<title><meta charset=koi8-r></title>", UTF),
    ("<script>'<meta charset=koi8-r>'</script>", UTF),
    ("<style><meta charset=koi8-r></style>", UTF),
    ('<p title="<meta charset=koi8-r>">', UTF),
    # Comments.
    ("<!-- <meta charset=koi8-r> -->", UTF),
    ("<!--[if lt IE 9]><meta charset=koi8-r><![endif]-->", UTF),
    ("<![if !IE]><meta charset=koi8-r><![endif]>", KOI),
    ("<!--[if !IE]><!--><meta charset=koi8-r><!--<![endif]-->", KOI),
    ("<!-- > <meta charset=koi8-r> -->", UTF),
    ("<!-- -- <meta charset=koi8-r> -->", UTF),
    ("<!--><meta charset=koi8-r><!-- -->", KOI),
    ("<!doctype html><!-- a --><html><head><!-- b --><meta charset=koi8-r>", KOI),
    ("<?php echo 1 ?><meta charset=koi8-r>", KOI),
    # The first that names a known encoding.
    ('<!-- <meta charset="windows-1251"> --><meta charset="koi8-r">', KOI),
    ('<!-- <meta charset="windows-1251"> --><meta charset="utf-8">', UTF),
    ("<meta charset=koi8-r><meta charset=utf-8>", KOI),
    ("<meta charset=utf-8><meta charset=koi8-r>", UTF),
    ("<meta charset=koi8-r charset=utf-8>", KOI),
    ("<meta charset=nonsense><meta charset=koi8-r>", KOI),
    ("<meta charset=''><meta charset=koi8-r>", KOI),
    ("<meta charset=koi8-r http-equiv=content-type content='charset=utf-8'>", KOI),
    ("<meta http-equiv=content-type content='charset=koi8-r'><meta charset=utf-8>", KOI),
    # Encodings that a document cannot be in, if their name can be read.
    *((f"<meta charset={label}>", UTF) for label in ("utf-16", "utf-16le", "utf-16be", "unicode")),
    ("<meta http-equiv=content-type content='text/html; charset=utf-16'>", UTF),
    ("<meta charset=x-user-defined>", "windows-1252"),
    ("<meta charset=ks_c_5601-1987>", "EUC-KR"),
    ("<meta charset=iso-8859-1>", "windows-1252"),
    # Within 1,024 bytes anywhere, and behind them in the head.
    ("<body><p>a<meta charset=koi8-r>", KOI),
    (f"<body><p>{'a' * 900}</p><meta charset=koi8-r>", KOI),
    (f"<body><p>{'a' * 1200}</p><meta charset=koi8-r>", UTF),
    (f"<head><title>{'a' * 1200}</title><meta charset=koi8-r>", KOI),
    (f"<!-- {'a' * 5000} --><head><meta charset=koi8-r>", KOI),
    # Where a declaration counts, and what hides it.
    *(
        (f"{before}<meta charset=koi8-r>", KOI)
        for before in (
            *("<script>var a = '<body>';</script><title><p></title>" + "<meta name=x>" * 100,),
            *("<noscript>", "<template>", "<svg>", "<!--->", "<!-- x --!>", "<p title=it's>"),
            *(
                "<!doctype html '>",
                "<?xml version='1.0' encoding='utf-8'?>",
                "<body>" + "<p>" * 300,
            ),
        )
    ),
    *(
        (f"{before}<meta charset=koi8-r>{after}", UTF)
        for before, after in (
            *(("<!-- ", ""), ("<textarea>", "</textarea>"), ("<iframe>", "</iframe>")),
            *(("</p title='", "'>"), ("<meta name='", "'>"), ("<body>" + "<p>" * 400, "")),
        )
    ),
    ("<?xml version='1.0' encoding='koi8-r'?>", KOI),
    ("\n<?xml version='1.0' encoding='koi8-r'?>", UTF),
    ("charset=koi8-r", UTF),
    ("<meta charset=utf_8>", UTF),
    ("<meta charset=bogus http-equiv=content-type content='charset=koi8-r'>", UTF),
    # html5lib-tests, encoding/tests1.dat.
    ("<metacharset=koi8-r>", UTF),
    ("<meta content=' text/html; charset = koi8-r '>", UTF),
    ('<meta http-equiv="Content-Type " content="text/html; charset=koi8-r">', UTF),
    ('<meta http-equiv="Content-Style-Type" content="text/html; charset=koi8-r">', UTF),
    ('<meta http-equiv="Content-Type>" content="text/html; charset=koi8-r">', UTF),
    ('<meta test=" charset=koi8-r>\n<p>"', UTF),
    ('<head></head><p title="x>\n<meta test=x charset=koi8-r>\n<p>"', UTF),
]


@table(("start", "encoding"), DECLARED)
def test_crawl_and_corpus_find_the_same_declaration(start: str, encoding: str) -> None:
    page = f"{start}\n{TEXTS[encoding]}"
    body, codec = page.encode(codec_for(encoding)), codec_for(encoding)
    assert encoding_of(body, None) == encoding
    assert decode(body, codec) == page
    assert decoded(body, None) == (codec, page)


# --- decoding by the Encoding Standard, by the names that `codec_for` returns ---


NAMES = (
    *("UTF-8", "IBM866", *(f"ISO-8859-{part}" for part in (*range(2, 9), 10, 13, 14, 15, 16))),
    *("ISO-8859-8-I", "KOI8-R", "KOI8-U", "macintosh", "windows-874", "x-mac-cyrillic", "GBK"),
    *(f"windows-{page}" for page in range(1250, 1259)),
    *("gb18030", "Big5", "EUC-JP", "ISO-2022-JP", "Shift_JIS", "EUC-KR", "replacement"),
    *("UTF-16BE", "UTF-16LE", "x-user-defined"),
)


@table("encoding", NAMES)
def test_every_encoding_of_the_standard_is_decoded(encoding: str) -> None:
    codec = codec_for(encoding)
    width = 2 if encoding.startswith("UTF-16") else 1
    plain = b"<a>" if width == 1 else "<a>".encode(codec)
    for is_exact in (True, False):
        assert decode(plain, codec, is_exact=is_exact) == "<a>"
        assert decode(b"", codec, is_exact=is_exact) == ""
        # No bytes raise an error.
        decode(bytes(range(256)) * 2, codec, is_exact=is_exact)


@table(
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
