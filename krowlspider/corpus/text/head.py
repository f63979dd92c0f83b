"""Take the metadata from the HTML of a page: meta and link elements, JSON-LD, links."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Characters of a field that are kept, and pairs or links of a page.
_FIELD_MAX = 1000
_PAIRS_MAX = 100
_LINKS_MAX = 2000
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
_LD_MAIN = (
    *("headline", "name", "description", "author", "publisher", "datePublished", "dateModified"),
    *("inLanguage", "keywords", "articleSection", "url", "image", "license", "isAccessibleForFree"),
)
_LD_MAX = 100_000
_LD_TYPE = "application/ld+json"
# Dates of microdata, for pages whose head has none.
_DATE = re.compile(
    r"""itemprop=["']?(datePublished|dateModified)\b[^<>]{0,300}?"""
    r"""\b(?:content|datetime)=["']?([^"'<>\s]+)"""
)
_DATES = {"datePublished": "published", "dateModified": "modified"}


class Pair(msgspec.Struct):
    """A name and its value."""

    name: str
    value: str


class Link(msgspec.Struct):
    """A link of a page."""

    url: str
    text: str


def read_head(tree: Any, html: str, url: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the fields of the record that a page fills, and pairs of its meta elements.

    A pair is a lower-case name and the content.
    """
    fields: dict[str, Any] = {}
    if title := tree.title:
        fields["title"] = short(title)
    metas = _read_metas(tree, fields)
    if language := tree.head.parent.getattr("lang"):
        fields["html_lang"] = short(language)
    for link in tree.head.get_elements_by_tag_name("link").values():
        _read_link(link, url, fields)
    # Searched in the text first: few pages have them.
    if _LD_TYPE in html:
        for script in tree.document.query_selector_all(f'script[type="{_LD_TYPE}"]').values():
            _read_json_ld(script, fields)
    if "itemprop" in html:
        for name, value in _DATE.findall(html):
            fields.setdefault(_DATES[name], short(value))
    return fields, metas


def links(tree: Any, url: str) -> list[Link]:
    """Return the links of a page with their texts, each URL and text once, in their order."""
    found: dict[tuple[str, str], None] = {}
    for node in tree.document.query_selector_all("a[href]").values():
        target = normalise(node.getattr("href") or "", url)
        if target:
            found[target, short(node.text or "")] = None
        if len(found) == _LINKS_MAX:
            break
    return [Link(*each) for each in found]


def _read_metas(tree: Any, fields: dict[str, Any]) -> list[tuple[str, str]]:
    metas = []
    for meta in tree.head.get_elements_by_tag_name("meta").values():
        name = meta.getattr("name") or meta.getattr("property") or ""
        content = meta.getattr("content") or ""
        if name and content:
            metas.append((name.lower(), content))
    first = dict(reversed(metas))
    for wanted, names in _FIELDS.items():
        value = next((first[name] for name in names if name in first), "")
        if value:
            fields[wanted] = short(value)
    graph = [Pair(short(name[3:]), short(text)) for name, text in metas if name[:3] == "og:"]
    if graph:
        fields["open_graph"] = graph[:_PAIRS_MAX]
    return metas


def _read_link(link: Any, url: str, fields: dict[str, Any]) -> None:
    rel, href = (link.getattr("rel") or "").lower().split(), link.getattr("href") or ""
    if not href:
        return
    if "canonical" in rel:
        fields.setdefault("canonical", normalise(href, url) or short(href))
    elif "license" in rel:
        fields["license"] = short(href)
    elif "alternate" in rel and (language := link.getattr("hreflang")) is not None:
        known = fields.setdefault("hreflang", [])
        if len(known) < _PAIRS_MAX:
            known.append(Pair(short(language), normalise(href, url) or short(href)))


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
            if isinstance(kind, str):
                known, name = fields.setdefault("json_ld", []), _ld_text(kind)
                # The limit bounds the search, too.
                if len(known) < _PAIRS_MAX and name not in known:
                    known.append(name)
        values = {key: value for key in _LD_MAIN if (value := _ld_text(item.get(key)))}
        main = fields.setdefault("json_ld_fields", [])
        main += [Pair(*each) for each in values.items() if len(main) < _PAIRS_MAX]
        for name, key in _LD_FIELDS.items():
            if key in values:
                fields.setdefault(name, values[key])


def _items(data: Any) -> Iterator[dict[str, Any]]:
    values: Iterable[Any] = data if isinstance(data, list) else [data]
    for value in values:
        if isinstance(value, dict):
            yield value
            graph = value.get("@graph")
            if isinstance(graph, list):
                yield from (each for each in graph if isinstance(each, dict))


def _ld_text(value: Any) -> str:
    """Return a value as text: of a thing its name or URL, of several the first."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        value = value.get("name") or value.get("url")
    if isinstance(value, bool):
        return str(value).lower()
    # JSON may have half of a surrogate pair, which is in no UTF-8.
    return short(value).encode(errors="replace").decode() if isinstance(value, str) else ""


def short(text: str) -> str:
    return " ".join(text.split())[:_FIELD_MAX]
