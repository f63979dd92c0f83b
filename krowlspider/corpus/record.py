"""The record of a page, as it is written, and the lines that workers hand over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from krowlspider.corpus.optouts.signals import Signal  # noqa: TC001
from krowlspider.corpus.text.head import Link, Pair  # noqa: TC001  # msgspec resolves them

if TYPE_CHECKING:
    from krowlspider.corpus.pages import Page
    from krowlspider.corpus.text.document import Document


# Increase it when a field gets another form: a corpus has one.
FORM = 2


class Record(msgspec.Struct):
    """A page of the corpus; docs/corpus.md describes the fields. All are in each record."""

    url: str
    date: str
    warc_file: str
    warc_offset: int
    record_id: str
    digest: str
    text: str
    language: str
    language_confidence: float
    media_type: str
    encoding: str
    signals: list[Signal]
    title: str | None = None
    description: str | None = None
    author: str | None = None
    published: str | None = None
    modified: str | None = None
    site_name: str | None = None
    canonical: str | None = None
    html_lang: str | None = None
    license: str | None = None
    og_type: str | None = None
    json_ld: list[str] | None = None
    json_ld_fields: list[Pair] | None = None
    open_graph: list[Pair] | None = None
    hreflang: list[Pair] | None = None
    links: list[Link] | None = None


class Refusal(msgspec.Struct, omit_defaults=True):
    """A page that is not in the corpus: the rule and its value, or what went wrong.

    ``overlap`` is the share of its sequences of words that a near duplicate has in common with the
    page that is kept.
    """

    warc_file: str
    warc_offset: int
    url: str
    rule: str
    value: float | str
    overlap: float | None = None


class Line(msgspec.Struct):
    """A record on its way to the duplicates, or a page refused already.

    ``chars`` is the length of the text; a page that could not be read has no language. ``masked``
    counts what was masked, by kind.
    """

    number: int
    offset: int
    url: str
    language: str = ""
    chars: int = 0
    exact: bytes = b""
    minhash: bytes = b""
    record: msgspec.Raw = msgspec.Raw(b"null")
    refusal: Refusal | None = None
    masked: dict[str, int] = {}


def record_of(
    page: Page, document: Document, signals: list[Signal], place: tuple[str, int]
) -> Record:
    return Record(
        page.url,
        page.date,
        *place,
        page.record_id,
        page.digest,
        document.text,
        document.language,
        document.confidence,
        page.media_type,
        document.encoding,
        signals,
        **document.fields,
    )
