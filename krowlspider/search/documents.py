"""What a capture says, as the fields of a document.

HTML is read as ``scrapy corpus`` reads it, gemtext and plain text as they stand. No bytes raise an
error other than `NoDocument`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive.payload import body_of
from krowlspider.catalogue.records.content import clean, links_of
from krowlspider.corpus.optouts import signals
from krowlspider.corpus.text.document import UNKNOWN, Reading, detected, document
from krowlspider.corpus.warc_pages import CapturedPage, codings_of, head_of
from krowlspider.fetch.http.decode import decoded
from krowlspider.gemini import gemtext
from krowlspider.internals.frostwork import Plan
from krowlspider.urls.canonical import normalise
from krowlspider.urls.encoding import (
    HTML,
    codec_for,
    computed_type,
    decode,
    encoding_named,
    encoding_of,
)
from krowlspider.urls.page.headers import bounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Bytes of a record that are read, and of its decoded body.
BLOCK_MAX = 16 * 1024 * 1024
# Bytes of a body that are read as a document; the rest of a longer one is left out.
BODY_MAX = 4 * 1024 * 1024
# Characters of the text of a document, of its title and its headings.
TEXT_MAX = 1_000_000
TITLE_MAX = 300
_HEADINGS_MAX, _HEADING_MAX = 100, 300
# Links of a page that are kept, the characters of their URLs together, and those of an anchor.
LINKS_MAX = 1_000
LINKS_CHARS_MAX = 64 * 1024
ANCHOR_MAX = 120
# Links that the author of a page does not vouch for.
_NOT_VOUCHED = frozenset({"nofollow", "ugc", "sponsored"})
# What refuses an index of search; other signals are about archives and models.
REFUSALS = ("noindex", "search=no", "search=n")
_PLAIN, GEMTEXT = "text/plain", "text/gemini"
# Texts with marks that people read as they stand; of these a first line may be a heading.
_MARKED = frozenset({"text/markdown", "text/x-markdown", "text/x-rst"})
# Some servers of Gemini say "plaintext".
_TEXTS = _MARKED | {_PLAIN, "plaintext"}
_GEMINI = "application/gemini"
# A header line of Gemini: status, a blank, and at most 1,024 bytes.
_LINE_MAX = 1_030
_HEADINGS = Plan(["h1::text", "h2::text", "h3::text"], [])
_READING = Reading()
_decode = partial(decoded, cap=BLOCK_MAX)


class NoDocument(Exception):
    """A capture without a document; the message is the reason, a count's name."""


class IndexedLink(NamedTuple):
    """A link: its target in normal form and its text."""

    target: str
    anchor: str


@dataclass(frozen=True, slots=True)
class CapturedResponse:
    """What a server answered. ``media`` is the type that browsers find, in lower case.

    ``language`` is what Gemini's ``lang`` declares.
    """

    headers: list[tuple[str, str]]
    body: bytes
    media: str
    charset: str | None
    language: str = ""


@dataclass(slots=True)
class Content:
    """The document in an answer. ``language`` is "" if it is not known, ``size`` in bytes.

    ``fingerprint`` is that of `krowlspider.search.copies.stored`, once the text was compared.
    """

    media: str
    text: str
    language: str
    title: str = ""
    size: int = 0
    headings: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    fingerprint: bytes = b""


def is_indexable(media: str) -> bool:
    """Return whether documents are made of a media type; an empty one is known by its body."""
    return media in HTML or media in _TEXTS or media in {"", GEMTEXT}


def answer_of(fields: Mapping[str, str], block: bytes) -> CapturedResponse:
    """Return the answer in a response record, given its WARC fields and its block.

    :raises NoDocument: its body is not in its content coding
    """
    if (fields.get("Content-Type") or "").startswith(_GEMINI):
        return _gemini_answer(block)
    headers = head_of(block)[1]
    types, options = (
        [value.encode("latin-1") for each, value in headers if each == name]
        for name in ("content-type", "x-content-type-options")
    )
    try:
        body = body_of(block, lambda body, _: _decode(body, codings_of(headers)))
    except ValueError as error:
        raise NoDocument("not decodable") from error
    media, charset = computed_type(types, options, body)
    return CapturedResponse(headers, body[:BODY_MAX], media, charset)


def _gemini_answer(block: bytes) -> CapturedResponse:
    """The parameters of the type are those of RFC 2045; ``lang`` is a list of BCP 47 tags."""
    # Some servers end the line without its first byte.
    head = block[:_LINE_MAX].partition(b"\n")[0]
    meta = head[3:].decode(errors="replace").strip()
    media, *parameters = (part.strip() for part in (meta or GEMTEXT).split(";"))
    given = {
        name.strip().lower(): value.strip().strip('"')
        for name, equals, value in (each.partition("=") for each in parameters)
        if equals
    }
    body = block[len(head) + 1 :][:BODY_MAX]
    language = given.get("lang", "").partition(",")[0]
    return CapturedResponse([], body, media.lower(), given.get("charset") or "utf-8", language)


def content_of(url: str, answer: CapturedResponse, site: Iterable[str] = ()) -> Content:
    """Return the document in the answer of ``url``. ``site`` are signals of its robots.txt.

    :raises NoDocument: its type has none
    """
    if answer.media in HTML:
        found = _html_content(url, answer, site)
    elif answer.media == GEMTEXT:
        found = _gemini_content(url, answer)
    elif answer.media in _TEXTS:
        found = _plain_content(answer)
    else:
        raise NoDocument("media type")
    if not found.signals:
        found.signals = signals(answer.headers, (), site)
    found.size = len(answer.body)
    found.text = _whole(found.text[:TEXT_MAX])
    found.title = clean(found.title, TITLE_MAX)
    found.headings = [clean(each, _HEADING_MAX) for each in found.headings[:_HEADINGS_MAX]]
    return found


def _html_content(url: str, answer: CapturedResponse, site: Iterable[str]) -> Content:
    page = CapturedPage(
        url, "", "", "", answer.headers, answer.body, answer.media, charset=answer.charset
    )
    read = document(page, _READING)
    declared = read.fields.get("html_lang") or ""
    language = read.language if read.language != UNKNOWN else _language(declared)
    grouped = _HEADINGS.extract_grouped(
        bounded(answer.body), encoding_of(answer.body, answer.charset)
    )
    headings = [text for level in grouped[0] for text in level]
    said = signals(answer.headers, read.metas, site)
    title = read.fields.get("title") or ""
    return Content(answer.media, read.text, language, title, headings=headings, signals=said)


def _gemini_content(url: str, answer: CapturedResponse) -> Content:
    read = gemtext.read(_text_of(answer), url)
    headings = list(read.headings)
    language = _language_of(read.text, answer)
    return Content(answer.media, read.text, language, read.title, headings=headings)


def _plain_content(answer: CapturedResponse) -> Content:
    text = _text_of(answer)
    title = next((line for line in text[:4096].split("\n") if line.strip()), "")
    if answer.media in _MARKED:
        title = title.strip().strip("#").strip()
    return Content(answer.media, text, _language_of(text, answer), title)


def _whole(text: str) -> str:
    """Return a text without halves of surrogate pairs, which no index takes."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _language_of(text: str, answer: CapturedResponse) -> str:
    found = detected(text)[0]
    return found if found != UNKNOWN else _language(answer.language)


def _language(tag: str) -> str:
    """Return the primary language of a tag of BCP 47; "" if it is none."""
    first = tag.replace("_", "-").partition("-")[0].strip().lower()
    return first if first.isascii() and first.isalpha() and len(first) in {2, 3} else ""


def _text_of(answer: CapturedResponse) -> str:
    return decode(answer.body, codec_for(encoding_of(answer.body, _known(answer.charset))))


def _known(charset: str | None) -> str | None:
    """Return a charset of a Gemini header by its standard name; None if it is not known."""
    return None if charset is None else encoding_named(charset)


def links_in(url: str, answer: CapturedResponse) -> list[IndexedLink]:
    """Return the links of a page in their order, each target once, within the bounds above.

    Links to the page itself are left out, and those that its author does not vouch for.
    """
    found: dict[str, str] = {}
    chars = 0
    for target, anchor in _links(url, answer):
        if target == url or (target in found and (found[target] or not anchor)):
            continue
        chars += 0 if target in found else len(target)
        if len(found) == LINKS_MAX or chars > LINKS_CHARS_MAX:
            break
        found[target] = clean(anchor, ANCHOR_MAX)
    return [IndexedLink(*each) for each in found.items()]


def _links(url: str, answer: CapturedResponse) -> Iterator[tuple[str, str]]:
    if answer.media in HTML:
        for link in links_of(answer.body, url, answer.charset):
            if _NOT_VOUCHED.isdisjoint((link.rel or "").split()):
                yield link.target, link.text or ""
    elif answer.media == GEMTEXT:
        for each in gemtext.read(_text_of(answer), url).links:
            if target := normalise(each.url_reference, url):
                yield target, each.text


def refusal_in(found: Iterable[str]) -> str | None:
    """Return the signal that refuses an index of search; None if none does."""
    said = set(found)
    return next((each for each in REFUSALS if each in said), None)
