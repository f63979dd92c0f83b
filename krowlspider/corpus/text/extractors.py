"""Take metadata and main text from the HTML of a page.

resiliparse or trafilatura finds the main text, as plain text or as Markdown. Nodes are taken by
``values()``: a loop over a collection searches it again for each node.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.corpus.text.part import (
    LEAST,
    is_forum,
    keep_main_part,
    remove_titled,
    without_noise,
)
from krowlspider.errors import need
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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


class NameValue(msgspec.Struct):
    """A name and its value."""

    name: str
    value: str


class CorpusLink(msgspec.Struct):
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


def links(tree: Any, url: str) -> list[CorpusLink]:
    """Return the links of a page with their texts, each URL and text once, in their order."""
    nodes = tree.document.query_selector_all("a[href]").values()
    pairs = ((node.getattr("href") or "", node.text or "") for node in nodes)
    return links_of(pairs, url, normalise)


def links_of(
    references: Iterable[tuple[str, str]], url: str, resolve: Callable[[str, str], str | None]
) -> list[CorpusLink]:
    """Return what `links` does, of pairs of reference and text; ``resolve`` makes a URL of a
    reference, as `normalise`."""
    found: dict[tuple[str, str], None] = {}
    for reference, text in references:
        if target := resolve(reference, url):
            found[target, short(text)] = None
        if len(found) == _LINKS_MAX:
            break
    return [CorpusLink(*each) for each in found]


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
    graph = [NameValue(short(name[3:]), short(text)) for name, text in metas if name[:3] == "og:"]
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
            known.append(NameValue(short(language), normalise(href, url) or short(href)))


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
        main += [NameValue(*each) for each in values.items() if len(main) < _PAIRS_MAX]
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


# Characters below which a text may be in a noscript element instead.
_FEW = 100
EXTRACTORS = ("resiliparse", "trafilatura")
_BULLET = re.compile(r"^((?:  )*)  (?:• |(?=\d+\. ))")
_FENCE = "```"
_FENCES = re.compile(f"{_FENCE}`*")
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight)-([A-Za-z0-9+#_]+)")
# resiliparse takes lists that are less than four levels deep for navigation.
_SHALLOW = "body > ul, body > * > ul, body > * > * > ul"
# A table that contains one of these is used for layout.
_NO_CELL = "table, pre, ul, ol, dl, form, h1, h2, h3, h4"
# So is one with more empty cells than this for each cell, once its rows are equally long.
_FILLED = 20


@dataclass(slots=True)
class TextSource:
    """What the text of a page is made of. ``has_part``: only its main part is left in the tree."""

    tree: Any
    html: str
    url: str
    extractor: str
    has_part: bool = False


def plain_text(source: TextSource) -> str:
    """Return the main text of a page, without the heading that its title has; changes the tree."""
    if source.extractor == "trafilatura":
        return _by_trafilatura(source.html)
    html = source.html
    source.has_part = keep_main_part(source.tree, html, is_forum=is_forum(source.url, html))
    text = _extracted(source) if source.has_part else ""
    if len(text) < LEAST:
        text = max(text, _whole(source), key=len)
    return without_noise(text)


def _whole(source: TextSource) -> str:
    """Return what resiliparse takes for the main text; ``source`` is of the whole page then."""
    if source.has_part:
        # What had most of the paragraphs was no text: captions, or a dialogue.
        source.tree = need("resiliparse.parse.html").HTMLTree.parse(source.html)
        source.has_part = False
        remove_titled(source.tree)
    document = source.tree.document
    for each in document.query_selector_all(_SHALLOW).values():
        _deepen(document, each)
    text = _extracted(source)
    return max(text, _extracted(source, noscript=True), key=len) if len(text) < _FEW else text


def markdown(source: TextSource) -> str:
    """Return the main text with headings, lists, tables and code as Markdown; changes the tree.

    Call `plain_text` first. Characters with a meaning in Markdown are not escaped.
    """
    if source.extractor == "trafilatura":
        return _by_trafilatura(source.html, output_format="markdown", include_formatting=True)
    document = source.tree.document
    for cell in document.query_selector_all("td.linenos").values():
        cell.remove()
    for block in document.query_selector_all("pre").values():
        # A block inside another one was replaced with it.
        if block.parent is not None:
            _set_apart(document, block, _fenced(block), block)
    for table in document.query_selector_all("table").values():
        if rows := _rows(table):
            block = document.create_element("pre")
            block.class_name = table.class_name or ""
            _set_apart(document, table, "\n".join(rows), block)
    for code in document.query_selector_all("code, tt").values():
        code.prepend(document.create_text_node("`"))
        code.append(document.create_text_node("`"))
    for level in range(1, 7):
        for heading in document.query_selector_all(f"h{level}").values():
            heading.prepend(document.create_text_node("#" * level + " "))
    return without_noise(_with_list_items(_extracted(source)))


def _by_trafilatura(html: str, **options: Any) -> str:
    extract = need("trafilatura", "trafilatura").extract
    return extract(html, include_comments=False, **options) or ""


def _extracted(source: TextSource, **options: bool) -> str:
    # Its own rules for what is no text take four times as long as the rest.
    text: str = need("resiliparse.extract.html2text").extract_plain_text(
        source.tree, main_content=not source.has_part, preserve_formatting=True, alt_texts=False,
        list_bullets=True, **options,
    )  # fmt: skip
    return text


def _deepen(document: Any, node: Any) -> None:
    """Put a node three levels deeper."""
    outer = inner = document.create_element("div")
    for _ in range(2):
        child = document.create_element("div")
        inner.append_child(child)
        inner = child
    node.replace_with(outer)
    inner.append_child(node)


def _set_apart(document: Any, node: Any, text: str, block: Any) -> None:
    """Put a block with ``text`` in the place of a node, with empty lines around it."""
    paragraph = document.create_element("p")
    node.replace_with(paragraph)
    block.text = text
    paragraph.append_child(block)


def _rows(table: Any) -> list[str]:
    """Return a table as lines of Markdown; none if it is used for layout."""
    if table.query_selector(_NO_CELL) is not None:
        return []
    rows = [
        [_cell(cell.text or "") for cell in row.children.values() if cell.tag in {"td", "th"}]
        for row in table.query_selector_all("tr").values()
    ]
    width = max(map(len, rows), default=0)
    if len(rows) < 2 or width < 2 or width * len(rows) > _FILLED * sum(map(len, rows)):
        return []
    lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
    lines.insert(1, f"|{' --- |' * width}")
    return lines


def _cell(text: str) -> str:
    return " ".join(text.removesuffix("¶").split()).replace("|", "\\|")


def _fenced(block: Any) -> str:
    text = (block.text or "").strip("\n")
    longest = max(_FENCES.findall(text), key=len, default="")
    fence = f"{longest}`" if longest else _FENCE
    code, around = block.first_element_child, block.parent
    classes = " ".join(
        each.class_name or ""
        for each in (code, block, around, around.parent)
        if each is not None and hasattr(each, "class_name")
    )
    language = _LANGUAGE.search(classes)
    named = language[1] if language and language[1] not in {"default", "none", "text"} else ""
    return f"{fence}{named}\n{text}\n{fence}"


def _with_list_items(text: str) -> str:
    """Write resiliparse's list items as those of Markdown, outside code."""
    lines, fence = text.split("\n"), ""
    for number, line in enumerate(lines):
        start = line.lstrip()
        if fence:
            fence = "" if start == fence else fence
        elif start.startswith(_FENCE):
            fence = start[: len(start) - len(start.lstrip("`"))]
        else:
            lines[number] = _BULLET.sub(
                lambda match: match[1] + ("- " if "•" in match[0] else ""), line
            )
    return "\n".join(lines)
