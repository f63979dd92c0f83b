"""Take the main text and the metadata from a page of HTML."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from krowlspider.corpus.detection import detected
from krowlspider.corpus.encodings import decoded
from krowlspider.corpus.extractors import Source, markdown, plain_text
from krowlspider.corpus.extras import need
from krowlspider.corpus.head import links, read_head
from krowlspider.corpus.optouts.named import Licences, licences_in

if TYPE_CHECKING:
    from krowlspider.corpus.pages import Page


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
