"""What a program and a terminal get as the answer to a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from krowlspider.errors import counted, data_size, printable
from krowlspider.search.filters import read_filter
from krowlspider.search.query import parse
from krowlspider.search.snippets import joined, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.search.query import SearchQuery
    from krowlspider.search.searcher import Result, SearchResults
    from krowlspider.search.snippets import Piece

# Filters that have an option or a field of their own, beside the text.
FIELDS = ("host", "lang", "since", "type")
# Schemes of URLs that a page may link to.
_LINKED = ("http", "https", "gemini")
_BOLD, _FAINT, _GREEN, _END = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"


def query_of(text: str, fields: Mapping[str, str]) -> SearchQuery:
    """Return the query of a text and of the fields beside it.

    :raises ValueError: a field is wrong
    """
    more = [read_filter(name, fields[name]) for name in FIELDS if fields.get(name, "").strip()]
    return parse(text).with_filters(*more)


def linked(url: str) -> str:
    """Return a URL if a page may link to it; else ""."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        return ""
    return url if scheme in _LINKED else ""


@dataclass(frozen=True, slots=True)
class Captures:
    """Where captures are shown: at the prefix ``replay`` in pywb's form, and by /cdx of the server
    itself if ``has_cdx``."""

    replay: str = ""
    has_cdx: bool = False

    def links(self, result: Result) -> list[tuple[str, str]]:
        """Return the name and the URL of each link to the capture of a result."""
        if result.place is None or result.fetched is None:
            return []
        at, url = f"{result.fetched:%Y%m%d%H%M%S}", quote(result.url, safe="")
        found = [("text", f"/search/text?url={url}")]
        if self.replay:
            shown = quote(result.url, safe="/:?&=%@!$*+,;~")
            found.append(("capture", f"{self.replay}{at}/{shown}"))
        if self.has_cdx:
            found.append(("captures", f"/cdx?url={url}&closest={at}&limit=20"))
        return found


def as_object(found: SearchResults) -> dict[str, Any]:
    """Return an answer for JSON."""
    return {
        "query": found.query.text,
        "total": found.total,
        "total_is_exact": found.is_exact,
        "reached": found.reached,
        "pages": found.pages,
        "seconds": round(found.seconds, 4),
        "did_you_mean": found.meant or None,
        "notes": [*found.notes],
        "results": [_result(each) for each in found.results],
    }


def _result(result: Result) -> dict[str, Any]:
    place = result.place
    made: dict[str, Any] = {
        "url": result.url,
        "title": joined(result.title),
        "snippet": joined(result.snippet),
        # Begin and end of each word of the query in the snippet.
        "marks": _marks(result.snippet),
        "host": result.host,
        "lang": result.lang,
        "mime": result.mime,
        "size": result.size,
        "fetched": None if result.fetched is None else f"{result.fetched:%Y-%m-%dT%H:%M:%SZ}",
        "capture": None
        if place is None
        else {
            "jobdir": place.jobdir,
            "file": place.file,
            "offset": place.offset,
            "length": place.length,
        },
        "score": round(result.score, 5),
    }
    if result.parts:
        made["parts"] = [
            {"name": name.strip(), "value": round(value, 5), "of": about}
            for name, value, about in result.parts
        ]
    return made


def _marks(pieces: list[Piece]) -> list[tuple[int, int]]:
    found, at = [], 0
    for piece in pieces:
        if piece.is_marked:
            found.append((at, at + len(piece.text)))
        at += len(piece.text)
    return found


def as_text(found: SearchResults, first: int, *, is_terminal: bool) -> str:
    """Return an answer as lines. ``first`` is the number of its first page."""
    bold, faint, green, end = (_BOLD, _FAINT, _GREEN, _END) if is_terminal else ("", "", "", "")

    def shown(pieces: list[Piece]) -> str:
        return "".join(
            f"{bold}{printable(each.text)}{end}" if each.is_marked else printable(each.text)
            for each in pieces
        )

    lines = [printable(note) for note in found.notes]
    for number, each in enumerate(found.results, first):
        lines.append(f"{number}. {shown(each.title) or printable(each.url)}")
        lines.append(f"   {green}{printable(plain(each.url))}{end}")
        if each.snippet:
            lines.append(f"   {shown(each.snippet)}")
        lines.append(f"   {faint}{', '.join(facts(each))}{end}")
        if each.parts:
            lines.append(f"   {each.score:12.4f}  score")
        lines += [f"   {value:12.4f}  {name}: {about}" for name, value, about in each.parts]
        lines.append("")
    if found.meant:
        lines.append(f"Did you mean: {printable(found.meant)}")
    shown_only = f"; {len(found.results)} shown" if 0 < len(found.results) < found.total else ""
    lines.append(summary(found) + shown_only)
    return "\n".join(lines)


def facts(result: Result) -> list[str]:
    """Return what is said of a page in a line: language, date, size, media type."""
    found = [result.lang] if result.lang else []
    if result.fetched is not None:
        found.append(f"{result.fetched:%Y-%m-%d}")
    return [*found, data_size(result.size), *([result.mime] if result.mime else [])]


def summary(found: SearchResults) -> str:
    """Return how many pages fit, and how long it took."""
    at_least = "" if found.is_exact else "at least "
    return (
        f"{at_least}{counted(found.total, 'page')} found, of {found.pages:,} in the index,"
        f" in {found.seconds * 1000:.0f} ms"
    )
