"""The links of pages and of feeds. The title of a feed's entry is the anchor of its link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.catalogue.records.content import clean
from krowlspider.gemini.feeds import TYPES, title_of
from krowlspider.search import documents
from krowlspider.search.documents import (
    ANCHOR_MAX,
    GEMTEXT,
    LINKS_CHARS_MAX,
    LINKS_MAX,
    IndexedLink,
)
from krowlspider.urls.page.sitemap import Sitemap

if TYPE_CHECKING:
    from krowlspider.search.documents import CapturedResponse


def is_feed(media: str) -> bool:
    """Return whether a media type may be that of Atom or RSS."""
    return media in TYPES


def links_in(url: str, answer: CapturedResponse) -> list[IndexedLink]:
    """Return the links of a page as `documents.links_in`, or those of a feed's entries.

    A sitemap has none: it says nothing of its pages.
    """
    if is_feed(answer.media):
        return _links_of_feed(url, answer.body)
    found = documents.links_in(url, answer)
    if answer.media == GEMTEXT:
        return [IndexedLink(each.target, title_of(each.anchor)) for each in found]
    return found


def _links_of_feed(url: str, body: bytes) -> list[IndexedLink]:
    titles: dict[str, str] = {}
    feed = Sitemap(url, titles=titles)
    for _ in feed.read(body):
        if len(titles) >= LINKS_MAX:
            break
    found: list[IndexedLink] = []
    chars = 0
    for target, title in titles.items():
        chars += len(target)
        if len(found) == LINKS_MAX or chars > LINKS_CHARS_MAX:
            break
        if target != url:
            found.append(IndexedLink(target, clean(title, ANCHOR_MAX)))
    return found
