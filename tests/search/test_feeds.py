"""Titles of a feed's entries, as anchors of the pages that they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.search.documents import ANCHOR_MAX, LINKS_MAX, CapturedResponse, IndexedLink
from krowlspider.search.feeds import links_in
from tests.catalogue.warcs import fetch
from tests.search.test_builder import build
from tests.search.webs import found, urls
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://log.test/feed"
A, B = "https://a.test/", "https://b.test/x"
ATOM = f"""<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>Log</title>
<link href="/"/><entry><title type="html">The granite
 quarry &amp;amp; more</title><link href="{A}"/><updated>2026-11-01T12:00:00Z</updated></entry>
<entry><link href="{B}"/><link rel="edit" href="/edit"/><title>Tides</title></entry>
<entry><title>No link</title></entry><entry><link href="{URL}"/><title>Me</title></entry></feed>"""
RSS = f"""<rss><channel><title>Log</title><link>/</link><item>
<title>The granite quarry &amp;amp; more
</title><link>{A}</link></item><item><guid>{B}</guid><title>Tides</title></item></channel></rss>"""
SITEMAP = f"<urlset><url><loc>{A}</loc></url></urlset>"
LINKS = [IndexedLink(A, "The granite quarry &amp; more"), IndexedLink(B, "Tides")]


@table(
    ("body", "media", "expected"),
    [
        (ATOM, "application/atom+xml", LINKS),
        (RSS, "application/rss+xml", LINKS),
        (ATOM, "text/xml", LINKS),
        # That of a picture of the item.
        (RSS.replace("</link></item>", "</link><media:title>1.jpg</media:title></item>"),
         "application/rss+xml", LINKS),
        # Broken from the end of the first entry on.
        (ATOM.replace("</updated>", "<"), "application/atom+xml", LINKS),
        (SITEMAP, "application/xml", []),
        ("no XML", "text/xml", []),
        (f"=> {A} 2026-11-01 - Tides\n=> {B} 2026-11-02", "text/gemini",
         [IndexedLink(A, "Tides"), IndexedLink(B, "2026-11-02")]),
        (ATOM, "application/json", []),
    ],
)  # fmt: skip
def test_titles_of_entries_are_anchors(body: str, media: str, expected: list[IndexedLink]) -> None:
    assert links_in(URL, CapturedResponse([], body.encode(), media, None)) == expected


def test_a_feed_has_as_many_links_as_a_page() -> None:
    entry = f"<entry><title>{'t' * 1000}</title><link href='/%d'/></entry>"
    body = f"<feed>{''.join(entry % number for number in range(3 * LINKS_MAX))}</feed>"
    links = links_in(URL, CapturedResponse([], body.encode(), "application/atom+xml", None))
    assert len(links) == LINKS_MAX
    assert {len(each.anchor) for each in links} == {ANCHOR_MAX}


def test_pages_are_found_by_what_feeds_call_them(tmp_path: Path) -> None:
    """The feed itself has no document."""
    kind = b"application/atom+xml"
    index = build(tmp_path, [found(A, 1), fetch(URL, ATOM.encode(), mime=kind)])
    assert urls(index, "anchors", "granite") == {A}
