"""Files of a site that the broad spider reads: sitemaps, ai.txt and tdmrep.json.

Queue ai.txt and tdmrep.json, in which a site forbids training models on its pages. The frontier
treats such a file as a page with its own callback: it is fetched once, under the delay and
robots.txt of its host, and archived whatever its status is. It yields no item.

Which sitemaps the broad spider fetches, and which URLs it takes from them. The frontier treats a
sitemap as a page with its own callback. It is deduplicated, fetched under the delay and robots.txt
of its host, retried and archived. A sitemap yields no item.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Request

from krowlspider.engine.requests import Redirects
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import counted
from krowlspider.job.crawls import job_of
from krowlspider.urls.canonical import authority_of, domain_of, host_of, normalise
from krowlspider.urls.page.sitemap import BYTES_MAX, Sitemap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from krowlspider.job.intake import Intake
    from krowlspider.spiders.site_claims import SiteClaims
    from krowlspider.urls.page.sitemap_xml import Claim

# Spawning's ai.txt; the TDM Reservation Protocol (W3C community group, 2024), section 6.
PATHS = ("/ai.txt", "/.well-known/tdmrep.json")
# Authorities that are remembered: for the others, the seen set is asked again.
_KNOWN_MAX = 16_384


class OptOuts:
    """Queues the files of each authority of which a page has come."""

    def __init__(
        self,
        crawler: Crawler,
        callback: Callable[[Response], AsyncIterator[Any]],
        errback: Callable[[Failure], None],
    ):
        self._crawler = crawler
        self._request = partial(Request, callback=callback, errback=errback)
        self._known: dict[str, None] = {}

    def of_page(self, response: Response) -> None:
        """Queue the files for a page, before all else of its host; known ones are not queued again.

        They have the depth of the page, so that no limit of depth refuses them.

        :raises StoreError: the store cannot be written
        """
        authority = authority_of(response.url)
        if authority in self._known:
            return
        if len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[authority] = None
        depth = response.meta["depth"]
        meta = {"depth": depth, "handle_httpstatus_all": True, "krowl_opt_out": True}
        Scheduler.of(self._crawler).intake.discover(
            [authority + path for path in PATHS],
            depth=depth,
            via=host_of(response.url),
            page=response.url,
            hop="P",
            path=response.meta.get("krowl_path", ""),
            request=partial(self._request, meta=meta),
            is_first=True,
        )


logger = logging.getLogger(__name__)

# Levels of nested sitemap indexes that are followed.
LEVELS_MAX = 3
# Sitemaps taken from one robots.txt. Large sites name a few dozen.
NAMED_MAX = 200
# Unpacked bytes after which no further sitemap of a domain is read in a day: a domain that names
# sitemaps without end must not delay other hosts. The last one is read to its end, at most 50 MB.
# The count begins anew after a day: a crawl that goes on reads sitemaps again.
DOMAIN_BYTES_MAX = 4 * BYTES_MAX
# Domains whose byte count is kept; the least recently read one is forgotten first.
_DOMAINS = 16_384
_DAY = 86_400.0
# Feeds of one host that are read in a run. Many sites have one for each page.
_FEEDS_MAX = 10
# The level of a feed, which a page names. Its URLs are links, and it names no sitemaps.
_FEED_LEVEL = 0
# Addresses of data that many pages name as alternates of themselves.
_NO_FEED = "/wp-json/"
# Asked for at each authority, whatever its robots.txt names.
_GUESSED = "/sitemap.xml"
# Page URLs and sitemaps queued between two turns of the event loop, so that no turn is long.
_URLS_AT_ONCE = 500
_SITEMAPS_AT_ONCE = 100
# Domains of which the first broken sitemap is logged at INFO; all others are logged at DEBUG.
_BROKEN_LOGGED = 20


class SitemapReader:
    """Queues and reads the sitemaps of one crawl.

    ``meta["krowl_sitemap"]`` of a request is [level, host]. The level is 1 for a sitemap that a
    robots.txt names; the host is that of this robots.txt. A sitemap may name URLs of two domains:
    its own, and the domain of this host. ``meta["krowl_guess"]`` is true for a sitemap that no
    robots.txt names. A feed that a page names has level 0, and the host of this page.
    """

    def __init__(
        self,
        crawler: Crawler,
        callback: Callable[[Response], AsyncIterator[Any]],
        errback: Callable[[Failure], None],
    ):
        self._crawler = crawler
        self._callback = callback
        self._errback = errback
        self._redirects = Redirects(crawler.settings)
        # Only one sitemap is read at a time, because each step takes a turn of the event loop.
        self._reading = asyncio.Lock()
        # When the count of a domain began, in seconds of the monotonic clock, and its bytes.
        self._taken: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._broken: set[str] = set()
        # Feeds by the host whose pages name them.
        self._feeds: OrderedDict[str, set[str]] = OrderedDict()

    @property
    def _intake(self) -> Intake:
        return Scheduler.of(self._crawler).intake

    def look(self, authority: str, sitemaps: list[str], depth: int, seed: str) -> None:
        """Queue the sitemaps that an authority's robots.txt names, and ``/sitemap.xml``.

        ``sitemaps`` are the URLs as written there; known ones are not queued again. ``depth`` and
        ``seed`` are those of the page that waits for this robots.txt. Sitemaps, and the URLs they
        name, have ``depth`` + 1, as links of that page have. So max_depth bounds them too.
        """
        base = authority + "/"
        named = list(dict.fromkeys(sitemaps))
        urls = [normalise(line, base) for line in named[:NAMED_MAX]]
        self._drop("url", urls.count(None))
        self._drop("sitemap_count", len(named) - len(urls))
        found = list(dict.fromkeys(url for url in urls if url is not None))
        queue = partial(
            self._queue,
            depth=depth + 1,
            of=(1, host_of(base)),
            page=base + "robots.txt",
            path="P",
            seed=seed,
        )
        queue(found)
        if (guess := authority + _GUESSED) not in found:
            queue([guess], is_guess=True)

    def look_at_feeds(self, feeds: list[str], page: str, depth: int, path: str, seed: str) -> None:
        """Queue the feeds that a page names; known ones are not queued again."""
        host = host_of(page)
        known = self._feeds.pop(host, set())
        self._feeds[host] = known
        if len(self._feeds) > _DOMAINS:
            self._feeds.popitem(last=False)
        for url in feeds:
            if len(known) < _FEEDS_MAX and url not in known and _NO_FEED not in url:
                known.add(url)
                of = (_FEED_LEVEL, host)
                self._queue([url], depth=depth + 1, of=of, page=page, path=path, seed=seed)

    def _queue(
        self,
        urls: Sequence[str],
        *,
        depth: int,
        of: tuple[int, str],
        page: str,
        path: str,
        seed: str,
        chain: tuple[str, ...] = (),
        is_guess: bool = False,
    ) -> None:
        """Queue the URLs of sitemaps.

        ``of`` is their level, and the host whose robots.txt led to them. ``page`` is the URL of
        the document that names them, ``path`` its path from the seed ``seed``, ``chain`` the URLs
        whose redirects led to them. ``is_guess``: no robots.txt names them.
        """
        meta = {"depth": depth, **self._meta(of)}
        if chain:
            meta |= {"redirect_times": len(chain), "redirect_urls": list(chain)}
        if is_guess:
            meta["krowl_guess"] = True
        make = partial(Request, callback=self._callback, errback=self._errback, meta=meta)
        self._intake.discover(
            urls,
            depth=depth,
            via=of[1],
            page=page,
            hop="R" if chain else "M",
            path=path,
            seed=seed,
            chain=chain,
            request=make,
        )

    async def read(self, response: Response) -> bool:
        """Queue the URLs that a sitemap names, or the target of its redirect.

        Any other status than 2xx and redirects is ignored. Return False if a 2xx response is no
        sitemap, else True.
        """
        if not 200 <= response.status < 300:
            location = response.headers.get(b"Location")
            if location is not None and 300 <= response.status < 400:
                self._redirect(response, location)
            return True
        domain = domain_of(host_of(response.url))
        async with self._reading:
            if self._add_bytes(domain, 0) >= DOMAIN_BYTES_MAX:
                self._drop("sitemap_count", 1)
                return True
            sitemap = await self._read(response)
            self._add_bytes(domain, max(sitemap.size, len(response.body)))
        stats = self._crawler.stats
        if sitemap.kind is not None:
            stats.inc_value("krowl/sitemaps/read_count")
            stats.inc_value("krowl/sitemaps/url_count", sitemap.found - len(sitemap.children))
        if sitemap.error is not None or sitemap.truncated:
            stats.inc_value("krowl/sitemaps/bad_count")
        if sitemap.kind is not None and sitemap.error is not None:
            self._report(response.url, domain, sitemap)
        return sitemap.kind is not None

    def _report(self, url: str, domain: str, sitemap: Sitemap) -> None:
        level = logging.DEBUG
        if domain not in self._broken and len(self._broken) < _BROKEN_LOGGED:
            self._broken.add(domain)
            level = logging.INFO
        logger.log(
            level,
            "Sitemap %s is not whole: %s. Recognised in it: %s. Further broken ones of %s are"
            " logged with LOG_LEVEL=DEBUG",
            url,
            sitemap.error,
            counted(sitemap.found, "URL"),
            domain,
        )

    def _add_bytes(self, domain: str, size: int) -> int:
        """Add to the bytes read from a domain, and return their sum of a day so far."""
        now = job_of(self._crawler).monotonic()
        begun, taken = self._taken.pop(domain, (now, 0))
        if now - begun >= _DAY:
            begun, taken = now, 0
        taken += size
        self._taken[domain] = begun, taken
        if len(self._taken) > _DOMAINS:
            self._taken.popitem(last=False)
        return taken

    async def _read(self, response: Response) -> Sitemap:
        level, named_by = response.meta["krowl_sitemap"]
        depth, path = response.meta["depth"], response.meta.get("krowl_path", "")
        hop = "L" if level == _FEED_LEVEL else "M"
        seed = response.meta.get("krowl_seed", "")
        spoken_for = {domain_of(host_of(response.url)), domain_of(named_by)}
        claims = self._claims()
        sitemap = Sitemap(response.url, claims=None if claims is None else [])
        for found in sitemap.read(response.body):
            while claims is not None and sitemap.claims:
                claims.take(sitemap, spoken_for)
                await asyncio.sleep(0)
            urls = found if level == _FEED_LEVEL else self._spoken_for(found, spoken_for)
            at_once = self._intake.at_once(_URLS_AT_ONCE)
            for start in range(0, len(urls), at_once):
                part = urls[start : start + at_once]
                self._intake.discover(
                    part,
                    depth=depth,
                    via=named_by,
                    page=response.url,
                    hop=hop,
                    path=path,
                    seed=seed,
                )
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        self._drop("url", sitemap.invalid)
        if claims is not None:
            while sitemap.claims:
                claims.take(sitemap, spoken_for)
                await asyncio.sleep(0)
            self._hint(response, sitemap, claims)
        children = self._spoken_for(sitemap.children, spoken_for)
        if level >= LEVELS_MAX or level == _FEED_LEVEL:
            self._drop("sitemap_depth", len(children))
            return sitemap
        for start in range(0, len(children), _SITEMAPS_AT_ONCE):
            part = children[start : start + _SITEMAPS_AT_ONCE]
            of = (level + 1, named_by)
            self._queue(part, depth=depth, of=of, page=response.url, path=path, seed=seed)
            await asyncio.sleep(0)
        return sitemap

    def _claims(self) -> SiteClaims | None:
        """Return what collects the claims of a sitemap; None where nobody asks for them."""
        recrawl = Scheduler.of(self._crawler).recrawl
        if recrawl is None or not recrawl.takes_hints:
            return None
        # Few crawls have a schedule.
        from krowlspider.spiders.site_claims import SiteClaims  # noqa: PLC0415

        return SiteClaims(recrawl.key)

    def _hint(self, response: Response, sitemap: Sitemap, claims: SiteClaims) -> None:
        """Bring pages forward by the claims of a sitemap, and have it fetched again itself."""
        scheduler = Scheduler.of(self._crawler)
        assert scheduler.recrawl is not None
        if sitemap.kind is None:
            return
        level, named_by = response.meta["krowl_sitemap"]
        scheduler.flights.keep_listing(
            response.request, bytes([min(level, LEVELS_MAX)]) + named_by.encode()
        )
        self._bring_forward(response.url, sitemap.kind, claims)

    async def hint(self, url: str, claims: list[Claim]) -> None:
        """Bring pages of its domain forward by the claims of a page that is a feed itself."""
        found = self._claims()
        if found is None:
            return
        feed, domains = Sitemap(url, claims=claims), {domain_of(host_of(url))}
        while feed.claims:
            found.take(feed, domains)
            await asyncio.sleep(0)
        self._bring_forward(url, None, found)

    def _bring_forward(self, url: str, kind: str | None, claims: SiteClaims) -> None:
        """Give the hints of a document of a kind, as in `Sitemap`, to the schedule."""
        recrawl = Scheduler.of(self._crawler).recrawl
        assert recrawl is not None
        now = job_of(self._crawler).wall()
        if not recrawl.take_hints(claims.hints(kind, now), len(claims)):
            logger.debug("The hints of %s are left out: too many others wait", url)

    def _spoken_for(self, urls: list[str], domains: set[str]) -> list[str]:
        own = [url for url in urls if domain_of(host_of(url)) in domains]
        self._drop("sitemap_domain", len(urls) - len(own))
        return own

    def request(self, url: str, meta: dict[str, Any], listing: bytes) -> Request:
        """Return the request for a sitemap that is fetched again, by what its row has kept."""
        level, named_by = min(listing[0], LEVELS_MAX) if listing else 1, listing[1:]
        meta |= self._meta((level, named_by.decode(errors="replace") or host_of(url)))
        if url == authority_of(url) + _GUESSED:
            meta["krowl_guess"] = True
        return Request(url, callback=self._callback, errback=self._errback, meta=meta)

    @staticmethod
    def _meta(of: tuple[int, str]) -> dict[str, Any]:
        return {
            "krowl_sitemap": list(of),
            "download_maxsize": BYTES_MAX,
            "handle_httpstatus_all": True,
        }

    def _redirect(self, response: Response, location: bytes) -> None:
        """Queue the target of a redirect as a sitemap of the same level, on any host."""
        meta = response.meta
        found = self._redirects.target(response, location, self._intake.count_dropped)
        if found is not None:
            target, chain = found
            level, named_by = meta["krowl_sitemap"]
            self._queue(
                [target],
                depth=meta["depth"],
                of=(level, named_by),
                page=response.url,
                path=meta.get("krowl_path", ""),
                seed=meta.get("krowl_seed", ""),
                chain=chain,
                is_guess=bool(meta.get("krowl_guess")),
            )

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._intake.count_dropped(reason, count)


def is_guessed(response: Response) -> bool:
    """Return whether nobody has named the URL of a sitemap: HTML there says that it is missing.

    A redirect names any other path.
    """
    path = response.url.removeprefix(authority_of(response.url))
    return bool(response.meta.get("krowl_guess")) and path == _GUESSED
