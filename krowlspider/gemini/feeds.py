"""Read the feeds of Gemini: dated links of gemtext, and Atom and RSS.

A page of gemtext is a feed by the companion specification "Subscribing to Gemini pages": each link
whose text begins with a date, YYYY-MM-DD, is an entry of that day.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.sitemap import Sitemap
from krowlspider.urls.page.sitemap_xml import Claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.gemini.gemtext import Gemtext, LinkLine

# Media types of feeds that are XML. Servers that do not know them name only the language.
TYPES = frozenset({"application/atom+xml", "application/rss+xml", "application/xml", "text/xml"})
# Entries in a row that make a page a feed, if they are of its own server.
_IN_A_ROW = 3

_DATED = re.compile(r"(\d{4}-\d{2}-\d{2})(?!\d)[\s:–—-]*+(.*)", re.DOTALL | re.ASCII)
_AUTHORITY = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*+):)?//([^/?#]*+)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")
_GEMINI = "gemini"
_PORT = ":1965"


class FeedEntry(NamedTuple):
    """An entry of a feed: its reference as written, its title, and its day, noon UTC in epoch
    seconds."""

    url_reference: str
    title: str
    updated: float


def entries(document: Gemtext) -> list[FeedEntry]:
    """Return the entries of a page of gemtext, in its order. A link without a valid date is none;
    one whose text is its date has it as title."""
    return [entry for link in document.links if (entry := _entry(link)) is not None]


def is_feed(document: Gemtext) -> bool:
    """Return whether a page is a feed: three links in a row are entries of its own server."""
    in_a_row, own = 0, _server(document.url)
    for link in document.links:
        is_own = _entry(link) is not None and _server(link.url_reference) in {None, own}
        in_a_row = in_a_row + 1 if is_own else 0
        if in_a_row == _IN_A_ROW:
            return True
    return False


def links_in(body: bytes, url: str, claims: list[Claim] | None = None) -> Iterator[str]:
    """Yield the normalised URLs that a feed of XML names; ``url`` is its own. No bytes raise.

    What it says of their changes is appended to ``claims``, if that is given.
    """
    for found in Sitemap(url, claims=claims).read(body):
        yield from found


def claims_in(document: Gemtext) -> list[Claim]:
    """Return what a page of gemtext says of the pages that it names as a feed; nothing if it is
    none. They have changed at noon of their day."""
    if not is_feed(document):
        return []
    found = ((normalise(each.url_reference, document.url), each) for each in entries(document))
    return [
        Claim(url, (datetime.fromtimestamp(each.updated, UTC).isoformat(),))
        for url, each in found
        if url is not None
    ]


def title_of(text: str) -> str:
    """Return the text of a link without the date of an entry; one that is a date alone as it is."""
    found = _DATED.match(text)
    return text if found is None else found[2].strip() or text


def _entry(link: LinkLine) -> FeedEntry | None:
    found = _DATED.match(link.text)
    if found is None:
        return None
    day, title = found.groups()
    # No calendar has the 31st of February.
    with suppress(ValueError):
        noon = datetime.strptime(day, "%Y-%m-%d").replace(hour=12, tzinfo=UTC)
        return FeedEntry(link.url_reference, title.strip() or day, noon.timestamp())
    return None


def _server(reference: str) -> str | None:
    """Return the name and port that a reference names with gemini as its scheme, "" of another
    scheme, and None if it names no server."""
    found = _AUTHORITY.match(reference)
    if found is None:
        return "" if _SCHEME.match(reference) else None
    if (found[1] or _GEMINI).lower() != _GEMINI:
        return ""
    return found[2].lower().removesuffix(_PORT)
