"""Which sitemaps the broad spider asks for, and what it takes of them.

A sitemap is a page like any other to the frontier, with a callback of its own: known once, in the turn of its host,
after its robots.txt, tried again, archived. It yields no item.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from scrapy import Request

from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import domain_of, host_of
from krowlspider.urls.sitemap import BYTES_MAX, Sitemap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.http import Response

    from krowlspider.spiders.broad import BroadSpider

# An index names sitemaps, which may be indexes, which may be indexes.
LEVELS_MAX = 3
# Sitemaps taken from one robots.txt, in 20 ms. Large sites name some dozens.
NAMED_MAX = 200
# Unpacked bytes of sitemaps after which no more of one domain are read in a run; the last one is read to its end, 50 MB
# at most. That is 0.9 million URLs as a rule, as 50,000 have 11 MB, in about 5 s of CPU. Another host's pages are not
# to wait for one that names sitemaps without end.
DOMAIN_BYTES_MAX = 4 * BYTES_MAX
# Domains for which that is remembered, the last ones.
_DOMAINS = 16_384
# Between two turns of the event loop: URLs queued, 6 to 20 ms when all lead to new hosts; sitemaps, 10 ms.
_URLS_AT_ONCE = 500
_SITEMAPS_AT_ONCE = 100


class SitemapReader:
    """The sitemaps of one spider's crawl.

    ``meta["krowl_sitemap"]`` of a request is the level of its sitemap, 1 for one that a robots.txt names, and the host
    of that robots.txt. A sitemap speaks for its own domain and for the one whose robots.txt led to it.
    """

    def __init__(self, spider: BroadSpider):
        self._spider = spider
        # One is read at a time: each of its steps is a turn of the event loop.
        self._reading = asyncio.Lock()
        self._taken: OrderedDict[str, int] = OrderedDict()

    def look(self, authority: str, sitemaps: list[str], depth: int) -> None:
        """Queue the sitemaps that an authority's robots.txt names, as written there, and ``/sitemap.xml``; known ones
        are known.

        ``depth`` is that of the page by which the crawl came there. They, and what they name, have that of its links:
        so max_depth bounds a site's sitemaps as it bounds its pages.
        """
        base = authority + "/"
        named = list(dict.fromkeys(sitemaps))
        urls = [normalise(line, base) for line in named[:NAMED_MAX]]
        self._drop("url", urls.count(None))
        self._drop("sitemap_count", len(named) - len(urls))
        found = {url: None for url in [*urls, base + "sitemap.xml"] if url is not None}
        self._queue(list(found), depth + 1, (1, host_of(base)), base + "robots.txt")

    def _queue(
        self,
        urls: Sequence[str],
        depth: int,
        of: tuple[int, str],
        page: str,
        chain: tuple[str, ...] = (),
    ) -> None:
        """``of`` is the level of the sitemaps, and the host whose robots.txt led to them; ``page`` is what names them."""
        spider = self._spider
        meta = {
            "depth": depth,
            "krowl_sitemap": list(of),
            "download_maxsize": BYTES_MAX,
            "handle_httpstatus_all": True,
        }
        if chain:
            meta |= {"redirect_times": len(chain), "redirect_urls": list(chain)}
        make = partial(Request, callback=spider.parse_sitemap, errback=spider.failed, meta=meta)
        spider.scheduler.discover(
            urls, depth=depth, via=of[1], page=page, hop="M", chain=chain, request=make
        )

    async def read(self, response: Response) -> bool:
        """Queue what a sitemap names, or what it redirects to. Anything but 2xx says nothing.

        False when what came is no sitemap.
        """
        if not 200 <= response.status < 300:
            location = response.headers.get(b"Location")
            if location is not None and 300 <= response.status < 400:
                self._redirect(response, location.decode("utf-8", errors="replace"))
            return True
        domain = domain_of(host_of(response.url))
        async with self._reading:
            if self._charge(domain, 0) >= DOMAIN_BYTES_MAX:
                self._drop("sitemap_count", 1)
                return True
            sitemap = await self._read(response)
            self._charge(domain, max(sitemap.size, len(response.body)))
        stats = self._spider.crawler.stats
        if sitemap.kind is not None:
            stats.inc_value("krowl/sitemaps/read_count")
            stats.inc_value("krowl/sitemaps/url_count", sitemap.found - len(sitemap.children))
        if sitemap.error is not None or sitemap.truncated:
            stats.inc_value("krowl/sitemaps/bad_count")
        return sitemap.kind is not None

    def _charge(self, domain: str, size: int) -> int:
        """Count bytes that were read of a domain; all that were so far."""
        taken = self._taken.pop(domain, 0) + size
        self._taken[domain] = taken
        if len(self._taken) > _DOMAINS:
            self._taken.popitem(last=False)
        return taken

    async def _read(self, response: Response) -> Sitemap:
        level, named_by = response.meta["krowl_sitemap"]
        depth = response.meta["depth"]
        spoken_for = {domain_of(host_of(response.url)), domain_of(named_by)}
        scheduler = self._spider.scheduler
        sitemap = Sitemap()
        for found in sitemap.read(response.body):
            urls = self._spoken_for(found, spoken_for)
            for start in range(0, len(urls), _URLS_AT_ONCE):
                part = urls[start : start + _URLS_AT_ONCE]
                scheduler.discover(part, depth=depth, via=named_by, page=response.url, hop="M")
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        self._drop("url", sitemap.invalid)
        children = self._spoken_for(sitemap.children, spoken_for)
        if level >= LEVELS_MAX:
            self._drop("sitemap_depth", len(children))
            return sitemap
        for start in range(0, len(children), _SITEMAPS_AT_ONCE):
            part = children[start : start + _SITEMAPS_AT_ONCE]
            self._queue(part, depth, (level + 1, named_by), response.url)
            await asyncio.sleep(0)
        return sitemap

    def _spoken_for(self, urls: list[str], domains: set[str]) -> list[str]:
        own = [url for url in urls if domain_of(host_of(url)) in domains]
        self._drop("sitemap_domain", len(urls) - len(own))
        return own

    def _redirect(self, response: Response, location: str) -> None:
        """What it redirects to is a sitemap of its level, on whatever host it is."""
        meta = response.meta
        chain = (*meta.get("redirect_urls", ()), response.url)
        target = normalise(location, response.url)
        if target is None:
            self._drop("url", 1)
        elif target in chain:
            self._drop("redirect_loop", 1)
        elif len(chain) > self._spider.settings.getint("REDIRECT_MAX_TIMES"):
            self._drop("redirects", 1)
        else:
            level, named_by = meta["krowl_sitemap"]
            self._queue([target], meta["depth"], (level, named_by), response.url, chain)

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._spider.scheduler.count_dropped(reason, count)
