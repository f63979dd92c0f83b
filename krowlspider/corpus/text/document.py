"""Take the text and the metadata from a page of HTML or a PDF."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from krowlspider.corpus.optouts.signals import Licences, licences_in
from krowlspider.corpus.pages import Unreadable
from krowlspider.corpus.text.encodings import decoded
from krowlspider.corpus.text.extractors import Source, markdown, plain_text
from krowlspider.corpus.text.head import links, read_head, short
from krowlspider.corpus.text.languages import detected
from krowlspider.errors import need

if TYPE_CHECKING:
    from krowlspider.corpus.pages import Page

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
