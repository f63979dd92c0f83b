"""The text, the encoding, the metadata and the signals of a page."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
from io import BytesIO

import pytest
from fastwarc.warc import ArchiveIterator
from msgspec import to_builtins
from msgspec.json import encode as json_of

from bench.venvs import python_of
from krowlspider.archive.write.records import SEED_TAG
from krowlspider.corpus.optouts import signals
from krowlspider.corpus.record import record_of
from krowlspider.corpus.text.document import LANGUAGES as LANGUAGE_CODES
from krowlspider.corpus.text.document import (
    MACRO,
    SPACELESS,
    STOP_WORDS,
    Document,
    Reading,
    decoded,
    detected,
    pdf_document,
    with_markdown,
)
from krowlspider.corpus.warc_pages import CapturedPage, NoPage, Unreadable, page_of
from tests.corpus.warcs import html, pdf, prose, response
from tests.support.crawling import ROOT
from tests.support.tables import table

READING = Reading()
HEAD = """
<meta name=none><meta content=x><meta name=Description content="  What it
 is "><meta property=og:site_name content=Site><meta name=article:published_time content=2026-01-02>
<link rel=Canonical href="/b?x#y"><link rel=license href=https://l.example/by>
<script type="application/ld+json">
{"@graph": [{"@type": ["Article", "Thing"], "author": [{"name": "A. Writer"}], "datePublished": 3,
 "headline": "News", "isAccessibleForFree": false}]}
</script><script type="application/ld+json">{"@type":</script>
<link rel=alternate hreflang=de href=/de><link rel=alternate href=/feed>
<link rel=alternate hreflang=x-default href=/>
"""
BODY = """
<p>Microdata: <time itemprop="dateModified" datetime="2026-02-03">then</time></p>
<ul><li><a href="../c#d">See  <b>this</b></a><a href="javascript:x">no</a></li></ul>
"""


def page(record: bytes, *, pdf: bool = False) -> CapturedPage:
    records = ArchiveIterator(BytesIO(record), parse_http=False)
    return page_of(next(records), lambda payload, codings: payload, pdf=pdf)


def document(
    body: bytes, headers: str = "Content-Type: text/html", reading: Reading = READING
) -> Document:
    from krowlspider.corpus.text import document as module  # noqa: PLC0415

    return module.document(page(response("http://example.org/a", body, headers)), reading)


def test_head_becomes_fields() -> None:
    found = document(html(1, HEAD) + BODY.encode(), reading=Reading(links=True))
    assert to_builtins(found.fields) == {
        "title": "Page 1",
        "description": "What it is",
        "site_name": "Site",
        "published": "2026-01-02",
        "canonical": "http://example.org/b?x",
        "license": "https://l.example/by",
        "html_lang": "en",
        "author": "A. Writer",
        "json_ld": ["Article", "Thing"],
        "json_ld_fields": [
            {"name": "headline", "value": "News"},
            {"name": "author", "value": "A. Writer"},
            {"name": "isAccessibleForFree", "value": "false"},
        ],
        "open_graph": [{"name": "site_name", "value": "Site"}],
        "hreflang": [
            {"name": "de", "value": "http://example.org/de"},
            {"name": "x-default", "value": "http://example.org/"},
        ],
        "modified": "2026-02-03",
        "links": [
            {"url": "http://example.org/", "text": "Home"},
            {"url": "http://example.org/c", "text": "See this"},
        ],
    }
    assert found.language == "en"
    assert "Home" not in found.text


CODE = """
<main><h1>The <i>head</i></h1><p>Use <code>a_b</code> so:</p>
<div class="highlight-python"><pre><span>def</span> f():

    • return  "```"
</pre></div>
<ul><li>one<ul><li>more</li></ul></li><li>two</li></ul><h3>Third</h3><ol><li>first</li></ol>
<table><caption>Not kept</caption><tr><th>A</th><th>B |</th></tr><tr><td>1</td></tr></table>
<table><tr><td><p>Layout<ul><li>item</li></ul></td><td>beside</td></tr></table>
</main>
"""
MARKDOWN = """\
# The head

Use `a_b` so:

````python
def f():

    • return  "```"
````

- one
  - more
- two

### Third

1. first

| A | B \\| |
| --- | --- |
| 1 |  |

Layout"""


def test_markdown_keeps_headings_lists_tables_and_code() -> None:
    reading = Reading(markdown=True)
    found = document(CODE.encode(), reading=reading)
    assert found.text.startswith("The head\n\nUse a_b so:")
    assert with_markdown(found).text.startswith(MARKDOWN)
    plain = document(CODE.encode())
    assert with_markdown(plain).text == found.text


# JSON-LD with as many types as fit.
SCRIPTS = "<p>a</p>" + "".join(
    f'<script type="application/ld+json">{json.dumps({"@type": [f"{n}{t}" for t in range(9999)]})}'
    "</script>"
    for n in range(5)
)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<pre>a<pre>b<table><tr><td>c<td>d<tr><td>e<td>f</table>", "```\na"),
        ("<table><tr><td>c<td><pre>d</pre><tr><td>e", "c"),
        ("<code>x</code> <a href=/>y</a> " * 3000, "`x` y `x` y"),
        ("<pre>" + "x" * 200_000 + "`" * 200_000 + "</pre>", "`" * 200_001 + "\nx"),
        ("<table><tr>" + "<td>a" * 500 + "<tr><td>b" * 500 + "</table>", "a\t\ta"),
        (SCRIPTS, "a"),
    ],
    ids=str.__len__,
)
def test_markdown_of_any_nesting_in_linear_time(body: str, expected: str) -> None:
    reading = Reading(markdown=True, links=True)
    found = with_markdown(document(f"<main>{body}".encode(), reading=reading))
    assert found.text.startswith(expected)


def test_lists_below_the_body_are_text_unless_they_are_links() -> None:
    found = document(b"<body><ul><li>One item<li>Another</ul><ul><li><a href=/>Home</a></ul><p>End")
    assert found.text == "  • One item\n  • Another\n\nEnd"


@pytest.mark.slow
def test_trafilatura_takes_text_and_markdown() -> None:
    """It runs in the venv of the benchmarks, because its pins conflict with ours."""
    code = (
        "import sys, msgspec\n"
        "from krowlspider.corpus.text.document import Reading, document, with_markdown\n"
        "from krowlspider.corpus.warc_pages import CapturedPage\n"
        "reading = Reading('trafilatura', markdown=True)\n"
        "page = CapturedPage('http://a.example/', '', '', '', [], sys.stdin.buffer.read())\n"
        "found = document(page, reading)\n"
        "print(msgspec.json.encode([found.text, with_markdown(found).text]).decode())\n"
    )
    done = subprocess.run(
        [python_of("trafilatura"), "-c", code],
        input=html(1),
        env={"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}"},
        capture_output=True,
        check=True,
    )
    plain, marked = json.loads(done.stdout)
    assert prose(1)[:50] in plain
    assert marked.startswith("# Page 1\n")
    assert "# " not in plain


def test_text_and_head_of_a_pdf() -> None:
    body = pdf("The first exam-\nple.\nAnother one.")
    record = response("http://a/b", body, "content-type: application/PDF")
    found = pdf_document(page(record, pdf=True))
    assert found.text == "The first example.\nAnother one."
    assert found.fields == {"title": "A paper", "published": "2026-03-04"}


@pytest.mark.parametrize(
    "script", ['{"@graph": 5}', '{"@type": "A\\ud800", "headline": "\\ud83d", "author": "\\ud800"}']
)
def test_broken_json_ld_breaks_no_record(script: str) -> None:
    found = document(html(1, f'<script type="application/ld+json">{script}</script>'))
    assert json_of(found.fields)


def test_broken_title_of_a_pdf_is_left_out() -> None:
    body = pdf("A").replace(b"(A paper)", b"<FEFFD8000041>")
    found = pdf_document(
        page(response("http://a/b", body, "content-type: application/PDF"), pdf=True)
    )
    assert found.fields == {"published": "2026-03-04"}


def test_what_is_no_pdf_is_named() -> None:
    record = response("http://a/b", b"%PDF-1.4 no", "Content-Type: application/pdf")
    with pytest.raises(Unreadable, match="not a readable PDF"):
        pdf_document(page(record, pdf=True))


LANGUAGES = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "am": "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
    "yo": "Gbogbo ènìyàn ni a bí ní òmìnira; iyì àti ẹ̀tọ́ kọ̀ọ̀kan sì dọ́gba.",
    "zu": "Bonke abantu bazalwa bekhululekile belingana ngesithunzi nangamalungelo.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।",
    "no": "Vi vet ikke noe om hva som skjedde etter at han gikk hjem, men noen så ham i byen.",
    "nn": "Alle menneske er fødde til fridom og med same menneskeverd og menneskerettar.",
    "he": "כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "jv": "Saben uwong kalairake kanthi mardika lan darbe martabat lan hak-hak kang padha.",
    "zh": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "ja": "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。",
}
NONE = {
    "nothing": "",
    "numbers": "1234567890 " * 40,
    "a word": "Hello",
    "signs": "--- *** !!! " * 40,
    "a script that is not known": "ߡߐ߱ ߓߍ߯ ߘߟߊߣߍ߲߫ ߦߋ߫ ߤߐ߬ߙߐ߬ߧߊ ߟߋ߬ ߘߐ߫ ߊ߬ ߣߌ߫ ߘߊ߲߬ߓߍ",
    "a script that is known alone": "ⵉⵎⴷⴰⵏⵏ ⴰⴽⴽⵯ ⵜⵜⵍⴰⵍⵏ ⴷ ⵉⵍⴻⵍⵍⵉⵢⵏ ⵎⵙⴰⵡⴰⵏ " * 9,
    "letters of chance": "qxj vkz wqp zzxk qjv xkq pzw vjq kxz wqj " * 9,
}


@table(("language", "text"), LANGUAGES.items())
def test_languages_are_detected(language: str, text: str) -> None:
    """Characters that are no text, and tags, do not disturb it."""
    found, confidence = detected(text)
    assert found == language
    assert 0.4 <= confidence <= 1
    assert detected(text.replace(" ", " \x85\x00 ", 2))[0] == language


@pytest.mark.parametrize("text", NONE.values(), ids=NONE)
def test_what_is_in_no_language_is_unknown(text: str) -> None:
    found, confidence = detected(text)
    assert found == "unknown"
    assert 0 <= confidence < 0.4


def test_half_of_a_character_disturbs_no_detection() -> None:
    assert detected(LANGUAGES["en"] + "\ud800")[0] == "en"


def test_a_macro_language_is_as_certain_as_its_members_together() -> None:
    """CLD2 takes parts of Serbian for Bosnian. That makes it no less certain that it is "sh"."""
    croatian = (
        "Sva ljudska bića rađaju se slobodna i jednaka u dostojanstvu i pravima. Vlada je jučer"
        " odlučila da će tvrtke u županiji plaćati manji porez tijekom sljedećeg tjedna."
    )
    serbian = (
        "Opština je saopštila da će se radovi na mostu preko reke završiti do kraja nedelje, a"
        " građani će moći da koriste novu saobraćajnicu."
    )
    found, confidence = detected(f"{croatian} {serbian}")
    assert found in MACRO["sh"]
    assert confidence > 0.9
    traditional = (
        "人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心,並應以兄弟關係的精神相對待。"
    )
    found, confidence = detected(LANGUAGES["zh"] * 2 + traditional)
    assert (found, confidence > 0.9) == ("zh", True)
    # Two languages that are not of one macro language.
    assert detected(f"{LANGUAGES['de'] * 4} {LANGUAGES['yo'] * 4}")[0] == "unknown"


def test_each_language_has_codes_and_a_place() -> None:
    """A macro language names languages that are detected."""
    assert all(re.fullmatch("[a-z]{2,3}", one) for one in LANGUAGE_CODES)
    assert all(re.fullmatch("[a-z]{3}", other) for other in LANGUAGE_CODES.values())
    assert {each for members in MACRO.values() for each in members} < LANGUAGE_CODES.keys()
    assert LANGUAGE_CODES.keys() > {*SPACELESS, *STOP_WORDS, *LANGUAGES}


@pytest.mark.parametrize(
    ("record", "error", "reason"),
    [
        (response("http://a/", b"", status="404 Not Found"), NoPage, "not status 200"),
        (response("http://a/", b"", "Content-Type: text/css"), NoPage, "not HTML"),
        (response("http://a/", b"", "Content-Type: application/pdf"), NoPage, "PDF"),
        (response("http://a/", b"<html>", "X-Content-Type-Options: nosniff"), NoPage, "not HTML"),
        (response("http://a/", b"x" * 999)[:-500], Unreadable, "cut off"),
        (response("http://a/", b"x" * (1 << 24)), Unreadable, "too large"),
    ],
)
def test_other_responses_are_no_pages(record: bytes, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        page(record)


@pytest.mark.parametrize(
    ("headers", "body", "media_type"),
    [
        ("A: b", b"<html>", "text/html"),
        ("Content-Type: unknown/unknown", b"%PDF-1.4", "application/pdf"),
        ("Content-Type: text/html\r\nContent-Type: none", b"x", "text/html"),
    ],
)
def test_a_page_is_what_browsers_take_for_one(headers: str, body: bytes, media_type: str) -> None:
    assert page(response("http://a/", body, headers), pdf=True).media_type == media_type


FOLDED = (
    "Content-Type:\r\n text/html;\r\n\t charset=koi8-r\r\nContent-Encoding:\r\n\tgzip\n , br\r\n"
    "X-Robots-Tag: noindex,\r\n noai\r\ntdm-reservation:\r\n \r\n  1\r\nA: b\r\n X: y"
)


def test_folded_headers_are_whole() -> None:
    record = response("http://a.example/", "Да".encode("koi8-r"), FOLDED)
    codings = []
    found = page_of(
        next(ArchiveIterator(BytesIO(record), parse_http=False)),
        lambda payload, coding: codings.append(coding) or payload,
    )
    assert codings == ["gzip , br"]
    assert signals(found.headers, []) == ["noai", "noindex", "tdm-reservation"]
    assert decoded(found.body, found.charset) == ("koi8-r", "Да")
    assert found.headers[-1] == ("a", "b X: y")


def test_record_has_the_tag_of_its_seed() -> None:
    """As the crawl has written it; no other WARC file has one."""
    stored = response("http://a.test/", html(1))
    assert page(stored).tag is None
    head, end, rest = stored.partition(b"WARC-Date:")
    tagged = page(head + f"{SEED_TAG}: Zürich #1\r\n".encode() + end + rest)
    assert record_of(tagged, document(html(1)), [], ("a.warc.gz", 0)).tag == "Zürich #1"
