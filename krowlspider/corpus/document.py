"""Take the main text and the metadata from a page of HTML."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from krowlspider.corpus.encodings import decoded
from krowlspider.corpus.extractors import Source, markdown, plain_text
from krowlspider.corpus.extras import need
from krowlspider.corpus.head import links, read_head
from krowlspider.corpus.pages import first_of

if TYPE_CHECKING:
    from krowlspider.corpus.pages import Page

# Characters of text in which the language is detected.
_DETECTED = 4000
# A language at a larger distance is usually false (resiliparse's documentation).
_RANK_MAX = 1200
# No distance is larger.
_RANK_ANY = 2**31 - 1
_TAG = re.compile(r"<[^<>]*>")
# What stands between a link's tag and the next closing tag, in linear time: each match and each
# failed one ends where the next link begins, and nothing is read again. Groups are not repeated by
# "*+": before Python 3.11.5 a failed repetition is not undone (gh-106052). Each repetition is kept
# in memory, so there are 1,000 at most.
_LINK_TEXT = re.compile(
    r"<[aA] [^<>]*+(?:<(?![aA] )[^<>]*+){0,1000}>([^<]*+(?:<(?!/|[aA] )[^<]*+){0,1000})"
)


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
    """The text of a page, its language, and what its head says of it.

    ``rank`` is the distance from the nearest profile of a language: larger is less certain, and
    above 1,200 the language is "unknown". ``metas`` are pairs of lower-case name and content.
    ``link_chars`` are the characters of its links' texts, ``images`` its images. Markdown is
    made of ``source``.
    """

    text: str
    language: str
    rank: int
    encoding: str
    html_chars: int
    link_chars: int
    metas: list[tuple[str, str]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    source: Source | None = None
    images: int = 0


def document(page: Page, reading: Reading) -> Document:
    """Return the document in a page. Whatever the bytes are, some text is found."""
    encoding, html = decoded(page.body, first_of(page.headers, "content-type"))
    tree = need("resiliparse.parse.html").HTMLTree.parse(html)
    # Before the text is taken, which changes the tree.
    fields, metas = read_head(tree, html, page.url) if tree.head is not None else ({}, [])
    if reading.links:
        fields["links"] = links(tree, page.url)
    source = Source(tree, html, page.url, reading.extractor)
    text = plain_text(source)
    language, rank = detected(text)
    return Document(
        text, language, rank, encoding, len(html), _link_chars(html), metas, fields,
        source if reading.markdown else None,
        html.count("<img") + html.count("<IMG"),
    )  # fmt: skip


def with_markdown(found: Document) -> Document:
    """Return a document with its text as Markdown, if it is read so."""
    if found.source is None:
        return found
    return replace(found, text=markdown(found.source))


def detected(text: str) -> tuple[str, int]:
    """Return the language of a text, and its rank."""
    language, rank = need("resiliparse.parse.lang").detect_fast(text[:_DETECTED], cutoff=_RANK_ANY)
    # Not by the cutoff: it returns 0 as the rank of all that is above.
    return language if rank <= _RANK_MAX else "unknown", rank


def _link_chars(html: str) -> int:
    """Return the characters of the texts of all links, in linear time."""
    texts = _LINK_TEXT.findall(html)
    return sum(len((_TAG.sub("", text) if "<" in text else text).strip()) for text in texts)
