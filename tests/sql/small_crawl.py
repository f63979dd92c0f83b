"""A small crawl with an archive of two days, its catalogue, and a queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.crawling import scrapy, write_seeds
from tests.support.crawls import AT_ONCE, anchors, page
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

_NEWS, _SHOP, _BLOG = "news.example.org", "www.example.com", "blogg.example.no"
_DOWN = "down.example.net"
_ENGLISH = (
    "<p>The harbour of the town opens again on Monday, after a winter with much ice. Ships from"
    " the north may wait in the bay, and the pilots ask them for some patience."
)
_NORWEGIAN = (
    "<p>Havnen i byen åpner igjen på mandag, etter en vinter med mye is. Skip fra nord kan vente"
    " i bukta, og losene ber dem om litt tålmodighet. Vi gleder oss til våren."
)
_UTF_8 = {"Content-Type": "text/html; charset=utf-8"}


def _page(host: str, path: str, title: str, body: str, **more: object) -> dict[str, object]:
    text = f"<title>{title}</title>{body}"
    return page(path, text, host=host, **{"headers": _UTF_8, **more})


_PDF = {"headers": {"Content-Type": "application/pdf"}}
_WEB = [
    page("/robots.txt", "User-agent: *\nCrawl-delay: 0.1\nDisallow: /private\n"
         "Sitemap: http://news.example.org/sitemap.xml\n", host=_NEWS),
    page("/sitemap.xml", '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/'
         'sitemap/0.9"><url><loc>http://news.example.org/harbour</loc></url></urlset>',
         host=_NEWS, headers={"Content-Type": "application/xml"}),
    page("/robots.txt", "User-agent: *\nDisallow:\n", host=_SHOP),
    page("/robots.txt", "", host=_DOWN, status=503),
    _page(_NEWS, "/", "News", anchors("/harbour", "/winter", "/private/x")),
    _page(_NEWS, "/harbour", "Harbour", _ENGLISH, first=1),
    _page(_NEWS, "/harbour", "Harbour", _ENGLISH.replace("Monday", "Tuesday")),
    _page(_NEWS, "/winter", "Winter", _ENGLISH, first=1),
    _page(_SHOP, "/", "Shop", anchors("/boats", "/boats?ref=1", "/list.pdf", "/old")),
    _page(_SHOP, "^/boats", "Boats", "<p>Boats of all kinds." + _ENGLISH),
    page("/list.pdf", "%PDF-1.4 of boats", host=_SHOP, **_PDF),
    page("/old", "", host=_SHOP, status=301, headers={"Location": "/boats"}),
    _page(_BLOG, "/", "Blogg", _NORWEGIAN + anchors("http://news.example.org/",
          "http://down.example.net/a", "http://down.example.net/b")),
]  # fmt: skip
_SEEDS = {_NEWS: "news", _SHOP: "shop", _BLOG: ""}


def crawl(folder: Path) -> Path:
    """Return a JOBDIR of the name ``autumn``."""
    with SimulatedWeb(spec=_WEB, port=80):
        lines = [
            f"http://{host}/" + (f"\t{json.dumps({'tag': tag})}" if tag else "")
            for host, tag in _SEEDS.items()
        ]
        for _ in range(2):
            made = SimulatedCrawl(
                folder / "autumn",
                arguments={"seeds": write_seeds(folder / "seeds.txt", lines)},
                settings={
                    **AT_ONCE,
                    "KROWL_RECRAWL": "once",
                    "KROWL_SITEMAPS": True,
                    "RETRY_TIMES": 0,
                    "KROWL_RESOLVE": json.dumps(dict.fromkeys((*_SEEDS, _DOWN), "127.0.0.1")),
                },
            ).run()
    scrapy("catalogue", made.jobdir, "--links")
    return made.jobdir
