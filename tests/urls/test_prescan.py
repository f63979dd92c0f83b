"""The declaration in a document, found alike by the crawl and by the corpus.

Each case is how a document begins, and the encoding that it declares there. Without one the
document is in UTF-8: whoever takes a label from elsewhere reads other text.
"""

from __future__ import annotations

import pytest

from krowlspider.corpus.text.document import decoded
from krowlspider.urls.encoding import codec_for, decode, encoding_of

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
]


@pytest.mark.parametrize(("start", "encoding"), DECLARED)
def test_crawl_and_corpus_find_the_same_declaration(start: str, encoding: str) -> None:
    page = f"{start}\n{TEXTS[encoding]}"
    body, codec = page.encode(codec_for(encoding)), codec_for(encoding)
    assert encoding_of(body, None) == encoding
    assert decode(body, codec) == page
    assert decoded(body, None) == (codec, page)
