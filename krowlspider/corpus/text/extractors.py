"""Take the main text of a page: by resiliparse or trafilatura, as plain text or as Markdown.

Nodes are taken by ``values()``: a loop over a collection searches it again for each node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from krowlspider.corpus.text.part import (
    LEAST,
    is_forum,
    keep_main_part,
    remove_titled,
    without_noise,
)
from krowlspider.errors import need

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
class Source:
    """What the text of a page is made of. ``has_part``: only its main part is left in the tree."""

    tree: Any
    html: str
    url: str
    extractor: str
    has_part: bool = False


def plain_text(source: Source) -> str:
    """Return the main text of a page, without the heading that its title has; changes the tree."""
    if source.extractor == "trafilatura":
        return _by_trafilatura(source.html)
    html = source.html
    source.has_part = keep_main_part(source.tree, html, is_forum=is_forum(source.url, html))
    text = _extracted(source) if source.has_part else ""
    if len(text) < LEAST:
        text = max(text, _whole(source), key=len)
    return without_noise(text)


def _whole(source: Source) -> str:
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


def markdown(source: Source) -> str:
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


def _extracted(source: Source, **options: bool) -> str:
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
