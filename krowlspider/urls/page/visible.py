"""Read the text that a reader of a page sees, by lines. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.internals.frostwork import Plan
from krowlspider.urls.encoding import codec_for, decode, encoding_of, mark_of
from krowlspider.urls.page.bound import bounded

if TYPE_CHECKING:
    from collections.abc import Iterable

# Bytes of a body that are read: as many as `bounded` leaves.
READ_MAX = 4 * 1024 * 1024
_PLAN = Plan(["*:not(script, style, iframe, noframes, noembed)::text"], [])
# Stands in the text where a line begins.
_BREAK = "\x1e"
# The tags, of start or end, at which a browser begins a line or a cell.
_LINES = re.compile(
    "<(?=/?(?:address|article|aside|blockquote|body|br|caption|dd|details|dialog|div|dl|dt|fieldset"
    "|figcaption|figure|footer|form|h[1-6]|header|hr|legend|li|main|nav|ol|option|p|pre|section"
    r"|summary|table|tbody|td|tfoot|th|thead|title|tr|ul)[\s/>])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?…]) |(?<=[。！？])")


def lines_of_html(body: bytes, charset: str | None) -> list[str]:
    """Return title and text of HTML: a line for each block, and for each sentence of it.

    Whitespace is collapsed. No bytes raise an error. ``charset`` is the WHATWG name of the encoding
    by the HTTP header, if any.
    """
    html = _LINES.sub(f"{_BREAK}<", _text(body, charset))
    [texts] = _PLAN.extract(bounded(html.encode(errors="replace")), "UTF-8")
    return _sentences("".join(texts).split(_BREAK))


def lines_of_text(body: bytes, charset: str | None) -> list[str]:
    """Return the lines of plain text, and of each line its sentences, as `lines_of_html`."""
    return _sentences(_text(body, charset).splitlines())


def _text(body: bytes, charset: str | None) -> str:
    encoding = encoding_of(body, charset)
    cut = body[:READ_MAX].removeprefix(mark_of(body)[0])
    return decode(cut, codec_for(encoding), is_whole=len(body) <= READ_MAX, is_exact=False)


def _sentences(lines: Iterable[str]) -> list[str]:
    collapsed = (" ".join(line.split()) for line in lines)
    return [each for line in collapsed for each in _SENTENCE_END.split(line) if each]
