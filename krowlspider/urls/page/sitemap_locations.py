"""Decide which texts and attributes of a sitemap are locations of pages or sitemaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from krowlspider.urls.canonical import normalise
from krowlspider.urls.length import URL_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

# Kinds of text. A sitemap, or an entry without ``loc``, may name its URL as plain text.
PAGE, CHILD, LINK, GUID = "page", "child", "link", "guid"
PAGE_TEXT, CHILD_TEXT = "page text", "child text"
# Such a text ends at the next tag, others at the end of their element.
PLAIN = frozenset({PAGE_TEXT, CHILD_TEXT})
# Elements that name one page or sitemap each.
ENTRIES = frozenset({"url", "sitemap", "item", "entry"})

# By parent and element; the parent excludes the ``loc`` of an image. An entry may be missing.
_KINDS = {
    ("url", "loc"): PAGE,
    ("urlset", "loc"): PAGE,
    ("sitemap", "loc"): CHILD,
    ("sitemapindex", "loc"): CHILD,
    ("item", "link"): LINK,
    ("item", "guid"): GUID,
}
_PLAIN_KINDS = {"url": PAGE_TEXT, "sitemap": CHILD_TEXT}
_PROTOCOL = frozenset({"urlset", "sitemapindex"})
_ENTRY_LINK = ("entry", "link")


class Found(Protocol):
    """What was found in a document: `Sitemap`."""

    url: str | None
    kind: str | None
    error: str | None

    def add(self, place: str, *, is_child: bool = False, base: str | None = None) -> None: ...


class Locations:
    """Adds the locations of one sitemap to ``found``, told its elements in document order.

    ``root`` is the name of the root element. ``base`` is the URL to which the links of feeds are
    relative (RFC 4287, section 2); None if it is not known. All names are in lower case.
    """

    def __init__(self, found: Found, root: str):
        self._add = found.add
        self.root = root
        self.base = found.url
        # Of the item that is being read: whether it has a link, and its guid if that is a URL.
        self._is_linked = False
        self._guid = ""

    def start(self, parent: str, name: str, attributes: Mapping[str, str]) -> str | None:
        """Take a start tag; return the kind of the text that follows, None if it is no location."""
        kind = _KINDS.get((parent, name))
        if kind is not None:
            return None if kind == GUID and _is_no_url(attributes) else kind
        if name in ENTRIES:
            self.end_item()
            return _PLAIN_KINDS.get(name) if self.root in _PROTOCOL else None
        if (parent, name) == _ENTRY_LINK and attributes.get("rel", "alternate") == "alternate":
            self._add(attributes.get("href", ""), base=self.base)
        return None

    def take(self, kind: str, text: str) -> None:
        """Take the text of a kind that `start` has returned."""
        if kind in PLAIN:
            # Nearly all such texts are white space.
            if (text := text.strip()) and normalise(text) is not None:
                self._add(text, is_child=kind == CHILD_TEXT)
        elif kind == GUID:
            self._guid = text
        elif kind != LINK:
            self._add(text, is_child=kind == CHILD)
        elif text.strip():
            # An empty one has its URL in an attribute, and is about the feed itself.
            self._is_linked = True
            self._add(text, base=self.base)

    def end_item(self) -> None:
        """End an item of RSS: the page of one without link is its guid, if that is a URL."""
        if self._guid and not self._is_linked and normalise(self._guid.strip()) is not None:
            self._add(self._guid)
        self._guid, self._is_linked = "", False

    def joined(self, base: str) -> str | None:
        """Return the base within an element with this ``xml:base``, the outer one if it is bad."""
        url = normalise(base.strip(), self.base)
        return self.base if url is None or len(url) > URL_MAX else url


def _is_no_url(attributes: Mapping[str, str]) -> bool:
    """Return whether a guid says that it is no URL; by default it is one (RSS 2.0)."""
    said = (value for name, value in attributes.items() if name.lower() == "ispermalink")
    return next(said, "true").strip().lower() == "false"
