"""What a page of a Gemini server contains that concerns a crawler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.http import TextResponse

from krowlspider.gemini import gemtext
from krowlspider.gemini.feeds import TYPES, claims_in, links_in
from krowlspider.gemini.protocol import GEMTEXT, media_type
from krowlspider.urls.canonical import normalise_all
from krowlspider.urls.encoding import HTML
from krowlspider.urls.page.headers import value_of
from krowlspider.urls.page.links import MAX_LANG, MAX_LINKS, MAX_TITLE, ReadPage

if TYPE_CHECKING:
    from scrapy.http import Response

# Characters of gemtext that are read, some ms of work: no page that a person has written is longer.
TEXT_MAX = 1_000_000


def read_page(response: Response, *, feeds: bool = False) -> ReadPage | None:
    """Return the page of a success; None for HTML, which is read as that of the web is.

    Gemtext has links and a title, and a feed has links. Of any other type only the language is
    known. ``feeds``: what feeds say of changes is read too.
    """
    said = media_type((value_of(response.headers, b"Content-Type") or b"").decode(errors="replace"))
    if said.essence in HTML:
        return None
    page = ReadPage(lang=(said.languages or ("",))[0][:MAX_LANG])
    if said.essence in TYPES:
        claims = page.claims if feeds else None
        found = list(dict.fromkeys(links_in(response.body[:TEXT_MAX], response.url, claims)))
        page.links, page.surplus = found[:MAX_LINKS], len(found[MAX_LINKS:])
        return page
    if said.essence != GEMTEXT or not isinstance(response, TextResponse):
        return page
    document = gemtext.read(response.text[:TEXT_MAX], response.url)
    refused: list[str] = []
    oversize: list[str] = []
    page.title = " ".join(document.title.split())[:MAX_TITLE]
    references = (link.url_reference for link in document.links)
    page.links = normalise_all(references, response.url, refused, oversize)
    page.refused, page.oversize = len(refused), len(oversize)
    page.surplus = document.surplus
    if feeds:
        page.claims = claims_in(document)
    return page
