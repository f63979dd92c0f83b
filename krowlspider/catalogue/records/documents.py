"""The rows of what a capture is: robots.txt, a sitemap, a page with links."""

from __future__ import annotations

import json
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING

from krowlspider.catalogue.records.content import clean, gemtext_links, links_of
from krowlspider.catalogue.records.hosts import split
from krowlspider.urls.page.sitemap import Sitemap
from krowlspider.urls.robots_groups import (
    ALL,
    ALLOW,
    BODY_MAX,
    CRAWL_DELAY,
    DISALLOW,
    SITEMAP,
    groups_in,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.catalogue.records.captures import CapturedRecord
    from krowlspider.catalogue.sinks import Row

# Sitemaps of a robots.txt that are kept, and characters of each.
_SITEMAPS_MAX = 1000
_URL_MAX = 2048
_KINDS = {"urlset": "urlset", "sitemapindex": "index"}


def robots_row(capture: CapturedRecord) -> Row:
    """Return the row of a robots.txt. What its rules are is null unless its status is 200."""
    row = _common(capture)
    if not capture.has_page or capture.is_revisit:
        return row
    sitemaps: list[str] = []
    root: list[str] = []
    groups, delay = 0, None
    for agents, lines in groups_in(capture.body[:BODY_MAX]):
        groups += bool(agents)
        for kind, value in lines:
            text = text_of(value)
            if kind == SITEMAP and len(sitemaps) < _SITEMAPS_MAX:
                sitemaps.append(clean(text, _URL_MAX))
            elif ALL in agents and kind == CRAWL_DELAY and delay is None:
                delay = _seconds(text)
            elif ALL in agents and kind in {ALLOW, DISALLOW} and text in {"/", "/*", "*"}:
                root.append(kind)
    return row | {
        "bytes": len(capture.body),
        "groups": groups,
        "crawl_delay": delay,
        # Of two rules that match equally, Allow counts (RFC 9309, section 2.2.2).
        "disallows_all": DISALLOW in root and ALLOW not in root,
        "sitemaps": json.dumps(sitemaps, ensure_ascii=False) if sitemaps else None,
    }


def _seconds(text: str) -> float | None:
    with suppress(ValueError):
        value = float(text)
        if isfinite(value) and value >= 0:
            return value
    return None


def sitemap_row(capture: CapturedRecord) -> Row | None:
    """Return the row of a sitemap by the protocol of sitemaps.org; None of anything else."""
    path = capture.parts.path.lower()
    is_xml = capture.type.essence.endswith("xml") or path.endswith((".xml", ".xml.gz"))
    if capture.status != 200 or not is_xml or capture.is_html or not capture.body:
        return None
    found = Sitemap(capture.url, claims=[])
    urls, newest = 0, ""
    for pages in found.read(capture.body):
        if found.kind is not None and found.kind not in _KINDS:
            return None
        urls += len(pages)
        assert found.claims is not None
        newest = max([newest, *(date for claim in found.claims for date in claim.dates)])
        found.claims.clear()
    if found.kind not in _KINDS:
        return None
    return _common(capture) | {
        "kind": _KINDS[found.kind],
        "urls": urls + len(found.children),
        "newest_lastmod": clean(newest, 64) or None,
    }


def link_rows(capture: CapturedRecord) -> Iterator[Row]:
    """Yield the rows of the links of a page with status 200, or of gemtext."""
    if capture.gemtext is not None:
        links = gemtext_links(capture.gemtext, capture.url)
    elif capture.status == 200 and capture.is_html:
        links = links_of(capture.body, capture.url, capture.type.charset)
    else:
        return
    for number, link in enumerate(links):
        yield {
            "url_surtkey": capture.line.key,
            "source_url": capture.url,
            "target_url": link.target,
            "target_host_name": split(link.target)[0].name,
            "text": link.text,
            "rel": link.rel,
            "number": number,
            "record_id": capture.record_id,
            "warc_filename": capture.line.filename,
        }


def _common(capture: CapturedRecord) -> Row:
    """Return the columns that these tables share, null those of `robots_row`."""
    return {
        "url_surtkey": capture.line.key,
        "url": capture.url,
        "url_host_name": capture.host.name,
        "url_host_registered_domain": capture.host.registered_domain,
        "fetch_time": capture.time,
        "fetch_status": capture.status,
        "digest": capture.digest,
        "record_id": capture.record_id,
        "warc_filename": capture.line.filename,
    }
