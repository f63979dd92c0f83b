"""What sitemaps and feeds say of changes is read beside their locations, and only where asked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.page.sitemap import ITEMS_AT_ONCE, JSON_MAX, URLS_MAX, Sitemap
from krowlspider.urls.page.sitemap_xml import Claim
from tests.support.tables import table

ONE, TWO = "https://example.com/1", "https://example.com/2"
DAY, NEXT = "2026-01-31", "2026-02-01T10:00:00Z"


def claims_in(body: str | bytes, url: str | None = None) -> list[Claim]:
    sitemap = Sitemap(url, claims=[])
    for _ in sitemap.read(body if isinstance(body, bytes) else body.encode()):
        pass
    assert sitemap.claims is not None
    return sitemap.claims


def json_feed(*items: object, version: str = "https://jsonfeed.org/version/1.1") -> str:
    return json.dumps({"version": version, "title": "News", "items": items})


@table(
    ("body", "claim"),
    [
        (
            (
                f"<urlset><url><loc>{ONE}</loc><lastmod>{DAY}</lastmod>"
                "<changefreq>daily</changefreq></url></urlset>"
            ),
            Claim(ONE, (DAY,), "daily"),
        ),
        # The order of the elements is free.
        (
            f"<urlset><url><lastmod>{DAY}</lastmod><loc>{ONE}</loc></url></urlset>",
            Claim(ONE, (DAY,)),
        ),
        (
            (
                f"<sitemapindex><sitemap><loc>{ONE}</loc><lastmod>{DAY}</lastmod></sitemap>"
                "</sitemapindex>"
            ),
            Claim(ONE, (DAY,)),
        ),
        (
            (
                f"<rss><channel><pubDate>{NEXT}</pubDate><item><link>{ONE}</link>"
                f"<pubDate>{DAY}</pubDate></item></channel></rss>"
            ),
            Claim(ONE, (DAY,)),
        ),
        (
            f"<rss><item><guid>{ONE}</guid><pubDate>{DAY}</pubDate></item></rss>",
            Claim(ONE, (DAY,)),
        ),
        (
            (
                f'<rdf:RDF xmlns:rdf="r" xmlns:dc="d"><item><link>{ONE}</link>'
                f"<dc:date>{DAY}</dc:date></item></rdf:RDF>"
            ),
            Claim(ONE, (DAY,)),
        ),
        (
            (
                f'<feed><updated>{NEXT}</updated><entry><link href="{ONE}"/>'
                f"<published>{DAY}</published><updated>{NEXT}</updated></entry></feed>"
            ),
            Claim(ONE, (DAY, NEXT)),
        ),
        # The rest of a broken document is scanned.
        (
            f"<urlset><url><loc>{ONE}</loc>&nbsp;<lastmod>{DAY}</lastmod></url></urlset>",
            Claim(ONE, (DAY,)),
        ),
        (
            json_feed({"id": "1", "url": ONE, "date_published": DAY, "date_modified": NEXT}),
            Claim(ONE, (DAY, NEXT)),
        ),
        (json_feed({"id": ONE, "date_modified": NEXT}), Claim(ONE, (NEXT,))),
    ],
)
def test_claims_are_read_in_each_form(body: str, claim: Claim) -> None:
    assert claims_in(body) == [claim]


def test_an_entry_without_date_claims_nothing() -> None:
    body = (
        f"<urlset><url><loc>{ONE}</loc></url><url><loc>{TWO}</loc><lastmod>{DAY}</lastmod></url>"
        "</urlset>"
    )
    assert claims_in(body) == [Claim(TWO, (DAY,))]


def test_a_date_of_no_page_is_of_none() -> None:
    body = (
        f"<urlset><url><loc>mailto:a</loc><lastmod>{NEXT}</lastmod></url>"
        f"<url><loc>{ONE}</loc><lastmod>{DAY}</lastmod></url></urlset>"
    )
    assert claims_in(body) == [Claim(ONE, (DAY,))]


def test_an_entry_with_endless_dates_keeps_four() -> None:
    dates = f"<lastmod>{DAY}</lastmod>" * 1000
    (claim,) = claims_in(f"<urlset><url><loc>{ONE}</loc>{dates}</url></urlset>")
    assert len(claim.dates) == 4


def test_nothing_is_claimed_where_nobody_asks() -> None:
    sitemap = Sitemap()
    body = f"<urlset><url><loc>{ONE}</loc><lastmod>{DAY}</lastmod></url></urlset>"
    assert [url for step in sitemap.read(body.encode()) for url in step] == [ONE]
    assert sitemap.claims is None
    feed = Sitemap()
    assert list(feed.read(json_feed({"url": ONE}).encode())) == [[]]
    assert feed.kind is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "no JSON Feed"),
        ("[1]", "no sitemap"),
        ('{"version": 1}', "no JSON Feed"),
        (json_feed(version="https://example.com/"), "no JSON Feed"),
        ('{"version": "https://jsonfeed.org/version/1", "items": 1}', "no JSON Feed"),
        ('{"a": ' + "[" * 100_000, "no JSON Feed"),
        ("{" + " " * (JSON_MAX + 1), "more than"),
    ],
)
def test_other_json_is_no_feed(body: str, reason: str) -> None:
    sitemap = Sitemap(claims=[])
    for _ in sitemap.read(body.encode()):
        pass
    assert sitemap.kind is None
    assert reason in (sitemap.error or "")


def test_odd_items_of_a_json_feed_are_left_out() -> None:
    body = json_feed({"url": 1}, {"id": 7}, {"url": "/1", "date_modified": 5}, {"url": ONE})
    sitemap = Sitemap("https://example.com/feed", claims=[])
    assert [url for step in sitemap.read(body.encode()) for url in step] == [ONE, ONE]
    assert sitemap.claims == []


def test_the_items_of_a_json_feed_are_read_in_short_steps() -> None:
    sitemap = Sitemap("https://e.org/", claims=[])
    count = 2 * ITEMS_AT_ONCE + 1
    steps = list(sitemap.read(json_feed(*[{"url": "/1"}] * count).encode()))
    assert max(map(len, steps)) == ITEMS_AT_ONCE
    assert sum(map(len, steps)) == count


def test_a_json_feed_has_at_most_the_urls_of_a_sitemap() -> None:
    body = json_feed(*[{"url": "/1"}] * (URLS_MAX + 5)).replace(" ", "")
    sitemap = Sitemap("https://e.org/", claims=[])
    for _ in sitemap.read(body.encode()):
        pass
    assert sitemap.found == URLS_MAX
    assert sitemap.truncated


@given(st.binary(max_size=300))
def test_no_bytes_raise_an_error(body: bytes) -> None:
    claims_in(b"{" + body)
    claims_in(b"<urlset><url><lastmod>" + body)
