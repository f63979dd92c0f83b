"""What the body of a page says: head, language, links. No bytes raise an error.

It is read as the crawl reads links: by frostwork, with the encoding that browsers find. Languages
need the extra ``corpus``; without it they are not known.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.corpus.text.document import languages
from krowlspider.errors import KrowlError, need
from krowlspider.internals.frostwork import Plan
from krowlspider.urls.canonical import URL_MAX, normalise, normalise_archived
from krowlspider.urls.encoding import encoding_of
from krowlspider.urls.page.headers import bounded, bounded_with_link_texts
from krowlspider.urls.page.links import MAX_LANG, MAX_TITLE, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.gemini.gemtext import Gemtext

# Characters of a description and of a value of a pair that are kept, pairs and types of a page,
# and links of a page with the characters of their text.
_FIELD_MAX = 1000
_PAIRS_MAX = 100
LINKS_MAX = 2000
_TEXT_MAX = 500
# Characters of a JSON-LD script that is read.
_LD_MAX = 100_000
_HEAD = Plan(
    [
        "title::text",
        "html::attr(lang)",
        "base[href]::attr(href)",
        "script[type='application/ld+json' i]::text",
    ],
    [
        (
            "meta[content]",
            [
                ("name", "::attr(name)"),
                ("property", "::attr(property)"),
                ("content", "::attr(content)"),
            ],
        ),
        (
            "link[rel~=alternate i][hreflang][href]",
            [("language", "::attr(hreflang)"), ("href", "::attr(href)")],
        ),
    ],
)
_LINKS = Plan(
    ["base[href]::attr(href)"],
    [("a[href]", [("href", "::attr(href)"), ("text", "::text"), ("rel", "::attr(rel)")])],
)


class PageHead(NamedTuple):
    """What a page says of itself; JSON values are text, None without any."""

    title: str | None
    description: str | None
    og: str | None
    jsonld_types: str | None
    hreflang: str | None
    language: str | None


class CatalogueLink(NamedTuple):
    """A link of a page: its normalised target, its text, and the words of ``rel``."""

    target: str
    text: str | None
    rel: str | None


def head_of(body: bytes, url: str, charset: str | None) -> PageHead:
    """Return what the HTML of ``url`` says of itself; ``charset`` is that of the HTTP header."""
    found, (metas, alternates) = _HEAD.extract_grouped(bounded(body), encoding_of(body, charset))
    titles, langs, bases, scripts = found
    description, graph = "", []
    for names, properties, contents in metas:
        name, content = "".join(names or properties).lower(), contents[0]
        if name == "description" and not description:
            description = clean(content)
        elif (named := "".join(properties or names).lower()).startswith("og:"):
            graph.append([clean(named[3:]), clean(content)])
    description = description or next((text for key, text in graph if key == "description"), "")
    base = _base(bases, url)
    pages = [
        [clean(language[0]), normalise(href[0], base) or clean(href[0])]
        for language, href in alternates[:_PAIRS_MAX]
    ]
    return PageHead(
        clean("".join(titles[:1]), MAX_TITLE) or None,
        description or None,
        _json(graph[:_PAIRS_MAX]),
        _json(_types_in(scripts)),
        _json(pages),
        clean("".join(langs[:1]), MAX_LANG) or None,
    )


def links_of(body: bytes, url: str, charset: str | None) -> Iterator[CatalogueLink]:
    """Yield the links of the HTML of ``url`` in their order, the first LINKS_MAX of them."""
    html = bounded_with_link_texts(body)
    [bases], [anchors] = _LINKS.extract_grouped(html, encoding_of(body, charset))
    base = _base(bases, url)
    for hrefs, texts, rels in anchors[:LINKS_MAX]:
        target = normalise(hrefs[0], base)
        if target is not None:
            rel = clean("".join(rels[:1]).lower(), _TEXT_MAX)
            yield CatalogueLink(target, clean("".join(texts), _TEXT_MAX) or None, rel or None)


def gemtext_links(page: Gemtext, url: str) -> Iterator[CatalogueLink]:
    """Yield the links of a page of gemtext in their order, the first LINKS_MAX of them."""
    for link in page.links[:LINKS_MAX]:
        target = normalise_archived(link.url_reference, url)
        if target is not None:
            yield CatalogueLink(target, clean(link.text, _TEXT_MAX) or None, None)


def languages_of_text(text: str) -> str | None:
    """Return what `languages_of` does, of a text."""
    return ",".join(languages(text)) or None if _can_detect() else None


def languages_of(body: bytes, charset: str | None) -> str | None:
    """Return the languages of HTML as Common Crawl has them: codes of ISO 639-3, the most frequent
    first, with commas; None if they are not known."""
    if not _can_detect():
        return None
    title, text = read_text(body, charset)
    return languages_of_text(f"{title}\n{text}")


@cache
def _can_detect() -> bool:
    try:
        need("pycld2")
    except KrowlError:
        return False
    return True


def _base(hrefs: list[str], url: str) -> str:
    base = normalise(hrefs[0], url) if hrefs else None
    return url if base is None or len(base) > URL_MAX else base


def _types_in(scripts: list[str]) -> list[str]:
    """Return the types that JSON-LD names at its top and in its graphs, each once."""
    found: dict[str, None] = {}
    for script in scripts:
        if len(script) > _LD_MAX:
            continue
        try:
            data = json.loads(script)
        except (ValueError, RecursionError):
            continue
        for item in _items(data):
            kinds = item.get("@type")
            for kind in kinds if isinstance(kinds, list) else [kinds]:
                if isinstance(kind, str) and len(found) < _PAIRS_MAX:
                    found[clean(kind)] = None
    return list(found)


def _items(data: Any) -> Iterator[dict[str, Any]]:
    for value in data if isinstance(data, list) else [data]:
        if isinstance(value, dict):
            yield value
            graph = value.get("@graph")
            if isinstance(graph, list):
                yield from (each for each in graph if isinstance(each, dict))


def clean(text: str, most: int = _FIELD_MAX) -> str:
    """Return a text with whitespace collapsed, cut to ``most`` characters, without what no database
    takes: NUL, and halves of a surrogate pair, which JSON may have."""
    kept = " ".join(text.replace("\0", " ").split())[:most]
    return kept if kept.isascii() else kept.encode(errors="replace").decode()


def _json(values: list[Any]) -> str | None:
    return json.dumps(values, ensure_ascii=False) if values else None
