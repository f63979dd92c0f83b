"""Take the main text and the metadata from the HTML of a page."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from krowlspider.corpus.extras import need
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.corpus.pages import Page

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
# The standard looks for the declaration in the first 1,024 bytes.
_DECLARED = 1024
# Characters of a field that are kept, and of text in which the language is detected.
_FIELD_MAX = 1000
_DETECTED = 4000
# A language at a larger distance is usually false (resiliparse's documentation).
_RANK_MAX = 1200
# No distance is larger.
_RANK_ANY = 2**31 - 1
_TAG = re.compile(r"<[^<>]*>")
# Which meta elements fill which field, the best first.
_FIELDS = {
    "description": ("description", "og:description"),
    "author": ("author", "article:author"),
    "published": ("article:published_time", "date", "dc.date", "dcterms.created"),
    "modified": ("article:modified_time", "last-modified", "dcterms.modified"),
    "site_name": ("og:site_name",),
    "og_type": ("og:type",),
}
_LD_FIELDS = {
    "author": "author", "published": "datePublished", "modified": "dateModified",
    "license": "license",
}  # fmt: skip
_LD_MAX = 100_000


@dataclass(slots=True)
class Document:
    """The text of a page, its language, and what its head says of it.

    ``rank`` is the distance from the nearest profile of a language: larger is less certain, and
    above 1,200 the language is "unknown". ``metas`` are pairs of lower-case name and content.
    ``link_chars`` are the characters of its links' texts.
    """

    text: str
    language: str
    rank: int
    encoding: str
    html_chars: int
    link_chars: int
    metas: list[tuple[str, str]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)


def document(page: Page) -> Document:
    """Return the document in a page. Whatever the bytes are, some text is found."""
    encoding, html = decoded(page.body, next(iter(page.values("content-type")), ""))
    tree = need("resiliparse.parse.html").HTMLTree.parse(html)
    text = need("resiliparse.extract.html2text").extract_plain_text(
        tree, main_content=True, preserve_formatting=True, alt_texts=False, list_bullets=True
    )
    language, rank = need("resiliparse.parse.lang").detect_fast(text[:_DETECTED], cutoff=_RANK_ANY)
    # Not by the cutoff: it returns 0 as the rank of all that is above.
    language = language if rank <= _RANK_MAX else "unknown"
    found = Document(text, language, rank, encoding, len(html), _link_chars(html))
    if tree.head is not None:
        _read_head(tree, page.url, found)
    return found


def decoded(body: bytes, content_type: str) -> tuple[str, str]:
    """Return the encoding and the text of HTML: by byte order mark, header, meta element, guess.

    An encoding that does not fit the bytes is guessed too.
    """
    encodings = need("resiliparse.parse.encoding")
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name, body[len(mark) :].decode(name, "replace")
    header = _CHARSET.search(content_type)
    meta = _META_CHARSET.search(body, 0, _DECLARED)
    declared = header[1] if header else meta[1].decode("ascii") if meta else ""
    for name in filter(None, (declared, "utf-8")):
        try:
            known = codecs.lookup(encodings.map_encoding_to_html5(name)).name
            return known, body.decode(known)
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
    guessed = encodings.detect_encoding(body)
    try:
        return guessed, body.decode(guessed, "replace")
    except LookupError:
        return "windows-1252", body.decode("windows-1252", "replace")


def _link_chars(html: str) -> int:
    """Return the characters of the texts of all links, in linear time."""
    count = 0
    for part in html.replace("<A ", "<a ").split("<a ")[1:]:
        inner = part.partition(">")[2].partition("</")[0]
        count += len((_TAG.sub("", inner) if "<" in inner else inner).strip())
    return count


def _read_head(tree: Any, url: str, found: Document) -> None:
    fields = found.fields
    if title := tree.title:
        fields["title"] = _short(title)
    for meta in tree.head.query_selector_all("meta"):
        name = meta.getattr("name") or meta.getattr("property") or ""
        content = meta.getattr("content") or ""
        if name and content:
            found.metas.append((name.lower(), content))
    first = dict(reversed(found.metas))
    for wanted, names in _FIELDS.items():
        value = next((first[name] for name in names if name in first), "")
        if value:
            fields[wanted] = _short(value)
    if language := tree.document.query_selector("html").getattr("lang"):
        fields["html_lang"] = _short(language)
    for link in tree.head.query_selector_all("link[rel~=canonical i], link[rel~=license i]"):
        rel, href = (link.getattr("rel") or "").lower().split(), link.getattr("href") or ""
        if href and "canonical" in rel and "canonical" not in fields:
            fields["canonical"] = normalise(href, url) or _short(href)
        elif href and "license" in rel:
            fields["license"] = _short(href)
    for script in tree.head.query_selector_all('script[type="application/ld+json"]'):
        _read_json_ld(script, fields)


def _read_json_ld(script: Any, fields: dict[str, Any]) -> None:
    node = script.first_child
    source = node.value if node is not None else None
    if not source or len(source) > _LD_MAX:
        return
    try:
        items = list(_items(json.loads(source)))
    except (ValueError, RecursionError):
        return
    for item in items:
        kinds = item.get("@type")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if isinstance(kind, str) and kind not in fields.setdefault("json_ld", []):
                fields["json_ld"].append(_short(kind))
        for name, key in _LD_FIELDS.items():
            value = item.get(key)
            value = value.get("name") if isinstance(value, dict) else value
            if isinstance(value, str):
                fields.setdefault(name, _short(value))


def _items(data: Any) -> Iterator[dict[str, Any]]:
    values: Iterable[Any] = data if isinstance(data, list) else [data]
    for value in values:
        if isinstance(value, dict):
            yield value
            graph = value.get("@graph")
            yield from (each for each in graph or () if isinstance(each, dict))


def _short(text: str) -> str:
    return " ".join(text.split())[:_FIELD_MAX]
