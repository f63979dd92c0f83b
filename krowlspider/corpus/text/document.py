"""Take the text and the metadata from a page of HTML or a PDF.

HTML is decoded as browsers do, unless what is declared does not fit the bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from w3lib.encoding import resolve_encoding

from krowlspider.corpus.optouts.signals import Licences, licences_in
from krowlspider.corpus.pages import Unreadable
from krowlspider.corpus.text.extractors import Source, markdown, plain_text
from krowlspider.corpus.text.head import links, read_head, short
from krowlspider.corpus.text.languages import detected
from krowlspider.errors import need
from krowlspider.urls.encoding import DEFAULT, codec_for, decode, known_encoding, mark_of

if TYPE_CHECKING:
    from krowlspider.corpus.pages import Page

# Encodings without the text that the bytes were meant for.
_NO_TEXT = frozenset({"replacement", "x-user-defined"})
# Bytes that an encoding does not define. Python has private characters for some of them.
_LOST = re.compile("[\ufffd\ue000-\uf8ff]")
# The standard has control characters for others, which no text needs.
_ODD = re.compile("[\ufffd\ue000-\uf8ff\x80-\x9f]")
# An encoding that is wrong loses more characters, and a larger share of the non-ASCII ones.
_LOST_MAX = 3
_LOST_SHARE_MAX = 0.05
# Of other encodings two thirds or more are odd in UTF-8.
_UTF8_MAX = 0.5
# Characters outside ASCII by which UTF-8 is known where another encoding is declared.
_UTF8_MIN = 2
# The sets that the standard has made larger. Short UTF-8 may fit the larger one.
_SMALLER = {"cp949": "euc_kr", "cp932": "shift_jis", "big5hkscs": "big5", "gb18030": "gbk"}
# Bytes by which encodings are compared, from the first that is not plain ASCII.
_SAMPLE = 128 * 1024
_NOT_PLAIN = re.compile(rb"[\x1b\x80-\xff]")


@dataclass(frozen=True, slots=True)
class _Reading:
    """A sample in one encoding. ``odd`` is the share of odd characters, 0 if it fits."""

    encoding: str
    text: str
    odd: float


def decoded(body: bytes, charset: str | None) -> tuple[str, str]:
    """Return Python's name of the encoding of HTML, and its text: by byte order mark, ``charset``
    of the HTTP header, meta element, guess.

    A few bytes that a declared encoding does not define are replaced. With more of them, UTF-8 or
    the guess is taken, if it fits better.
    """
    mark, marked = mark_of(body)
    if mark:
        name = codec_for(marked)
        return name, decode(body[len(mark) :], name)
    known = known_encoding(body, charset)
    declared = "" if known is None or known in _NO_TEXT else codec_for(known)
    text = _strict(body, declared or "utf-8")
    if text is not None and (declared == "utf-8" or _fits(body, text, declared or "utf-8")):
        return declared or "utf-8", text
    first = _NOT_PLAIN.search(body)
    # An even place: a character of UTF-16 has two bytes.
    start = first.start() & ~1 if first else 0
    name = _best(body[start : start + _SAMPLE], declared, _guessed(body))
    return name, decode(body, name)


def _guessed(body: bytes) -> str:
    """Return the codec of the encoding that the frequencies of the bytes suggest."""
    encodings = need("resiliparse.parse.encoding")
    label = encodings.detect_encoding(body)
    name = encodings.map_encoding_to_html5(label, fallback_utf8=False)
    return (name and resolve_encoding(name)) or codec_for(DEFAULT)


def _strict(body: bytes, name: str) -> str | None:
    try:
        return body.decode(name)
    except UnicodeDecodeError:
        return None


def _fits(body: bytes, text: str, name: str) -> bool:
    """Return whether a strictly decoded text is no UTF-8 or private characters by chance."""
    if _LOST.search(text) or (len(text) == len(body) and _is_utf8(body)):
        return False
    smaller = _SMALLER.get(name)
    return smaller is None or _strict(body, "utf-8") is None or _strict(body, smaller) is not None


def _is_utf8(body: bytes) -> bool:
    """Return whether a body has at least two characters outside ASCII, and all are UTF-8. In an
    encoding with one byte a character that does not come by chance."""
    if body.isascii() or (text := _strict(body, "utf-8")) is None:
        return False
    return len(text) - len(text.encode("ascii", "ignore")) >= _UTF8_MIN


def _best(sample: bytes, declared: str, guessed: str) -> str:
    # The escapes of ISO-2022-JP are UTF-8 too.
    has_escapes = declared.startswith("iso2022") and sample.isascii()
    if not has_escapes and _read(sample, "utf-8").odd < _UTF8_MAX:
        return "utf-8"
    if declared in {"", "utf-8"}:
        return guessed
    first, guess = _read(sample, declared), _read(sample, guessed)
    return guessed if _is_better(guess, first, sample) else declared


def _is_better(guess: _Reading, declared: _Reading, sample: bytes) -> bool:
    if len(guess.text) < len(sample):
        return guess.odd < declared.odd / 2
    # An encoding with one byte a character fits most bytes.
    lost, share = _count(_LOST, declared.text)
    return lost > _LOST_MAX and share > _LOST_SHARE_MAX and guess.odd < declared.odd


def _read(sample: bytes, name: str) -> _Reading:
    text = decode(sample, name, is_whole=False)
    return _Reading(name, text, _count(_ODD, text)[1])


def _count(characters: re.Pattern[str], text: str) -> tuple[int, float]:
    """Return how many of these characters a text has, and their share of its non-ASCII ones."""
    count = len(characters.findall(text))
    return count, count / (len(text) - len(text.encode("ascii", "ignore"))) if count else 0


# Pages of a PDF that are read, and characters of its text.
_PAGES_MAX = 2000
_CHARS_MAX = 8 * 1024 * 1024
# pdfium's sign for a hyphen at the end of a line, with the line break.
_HYPHEN = re.compile("[\ufffe\x02]\n?")
_PDF_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
_NAMES = {"title": "Title", "author": "Author", "description": "Subject"}
_DATES = {"published": "CreationDate", "modified": "ModDate"}


@dataclass(frozen=True, slots=True)
class Reading:
    """How a page is read: by which of EXTRACTORS, as Markdown or not, with its links or not.

    ``pdf``: PDFs are read too.
    """

    extractor: str = "resiliparse"
    markdown: bool = False
    links: bool = False
    pdf: bool = False


@dataclass(slots=True)
class Document:
    """The text of a page, its language, what its head says of it, and its RSL licences.

    ``confidence`` is that of `detected`. ``metas`` are pairs of lower-case name and content.
    Markdown is made of ``source``.
    """

    text: str
    language: str
    confidence: float
    encoding: str
    metas: list[tuple[str, str]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    source: Source | None = None
    licences: Licences = field(default_factory=Licences)


def document(page: Page, reading: Reading) -> Document:
    """Return the document in a page. Whatever the bytes are, some text is found."""
    encoding, html = decoded(page.body, page.charset)
    tree = need("resiliparse.parse.html").HTMLTree.parse(html)
    # Before the text is taken, which changes the tree.
    fields, metas = read_head(tree, html, page.url) if tree.head is not None else ({}, [])
    licences = licences_in(tree, html, page.url)
    if reading.links:
        fields["links"] = links(tree, page.url)
    source = Source(tree, html, page.url, reading.extractor)
    text = plain_text(source)
    language, confidence = detected(text)
    made_of = source if reading.markdown else None
    return Document(text, language, confidence, encoding, metas, fields, made_of, licences)


def with_markdown(found: Document) -> Document:
    """Return a document with its text as Markdown, if it is read so."""
    if found.source is None:
        return found
    return replace(found, text=markdown(found.source))


def pdf_document(page: Page) -> Document:
    """Return the document in a PDF.

    :raises Unreadable: it is no PDF, or needs a password
    """
    pdfium = need("pypdfium2", "pdf")
    try:
        file = pdfium.PdfDocument(page.body)
    except pdfium.PdfiumError as error:
        raise Unreadable("not a readable PDF") from error
    texts, chars = [], 0
    try:
        about = {key: _about(file, key) for key in (*_NAMES.values(), *_DATES.values())}
        for number in range(min(len(file), _PAGES_MAX)):
            pdf_page = file[number]
            text = pdf_page.get_textpage().get_text_bounded()
            pdf_page.close()
            chars += len(text)
            if chars > _CHARS_MAX:
                break
            texts.append(text.replace("\r\n", "\n").strip())
    except pdfium.PdfiumError as error:
        raise Unreadable("not a readable PDF") from error
    finally:
        file.close()
    text = _HYPHEN.sub("", "\n\n".join(filter(None, texts)))
    found = Document(text, *detected(text), "")
    for name, key in _NAMES.items():
        if value := short(about[key]):
            found.fields[name] = value
    for name, key in _DATES.items():
        if date := _PDF_DATE.match(about[key]):
            found.fields[name] = "-".join(filter(None, date.groups()))
    return found


def _about(file: Any, key: str) -> str:
    try:
        value: str = file.get_metadata_value(key)
    except UnicodeDecodeError:
        # Half of a surrogate pair.
        return ""
    return value
