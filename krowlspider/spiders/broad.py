"""The broad spider: it crawls from seeds, archives pages and follows their links."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import cache, cached_property, partial
from http import HTTPStatus
from itertools import chain as chained
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider
from scrapy.http import TextResponse
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.misc import load_object

from krowlspider.archive.disk import ArchiveError
from krowlspider.engine.logformatter import wants_items
from krowlspider.engine.requests import Redirects, warn_of_proxies
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import SeedsError, counted
from krowlspider.frontier.entry_queues import REDIRECTS
from krowlspider.job.answers.retries import RENDERED, TRUNCATED
from krowlspider.job.crawls import crawl_of, job_of
from krowlspider.job.parts import keeps_pages, trap_rules
from krowlspider.job.recrawl import CONTINUOUS
from krowlspider.job.start_log import log_crawled
from krowlspider.politeness.gemini import FIRST_HTTP, reason_to_drop
from krowlspider.spiders.seeds import (
    SeedList,
    SeedsFile,
    asked_scope,
    asked_until,
    in_chunks,
    number,
    refuse_words,
    seeds_of,
)
from krowlspider.spiders.sitemaps import OptOuts, SitemapReader, is_guessed
from krowlspider.urls.canonical import host_of
from krowlspider.urls.encoding import HTML, ContentType, computed_type, encoding_of
from krowlspider.urls.page.headers import (
    escape_octets,
    price_in,
    read_links,
    read_refresh,
    read_robots_tag,
    value_of,
    values_of,
)
from krowlspider.urls.page.links import ReadPage, read_page, reading_plan, refusals_in
from krowlspider.urls.page.requisites.requisite import ACCEPT
from krowlspider.urls.scope import FOLLOWED_MAX, DuplicateBodies, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

    from krowlspider.engine.requisites import RequisiteReader
    from krowlspider.frontier.seed_table import SeedLine
    from krowlspider.job.hooking.hooked import Hooked
    from krowlspider.job.hooking.life import HookLife
    from krowlspider.job.hooking.page_hooks import PageHooks
    from krowlspider.job.in_flight import InFlight
    from krowlspider.job.sites import Sites
    from krowlspider.spiders.indexnow import IndexNow

logger = logging.getLogger(__name__)

# Seconds between two checks for free space on the disk.
_PAUSED = 1.0
# Links queued between two turns of the event loop, so that no turn is long.
_LINKS_AT_ONCE = 500
# Seeds that the hook `start` gets: about 200 MB.
SEEDS_MAX = 1_000_000
# Pause after each further batch of links of a huge page, as a multiple of the batch's time.
_RESTS = 3

# The spider accepts every status and yields no requests.
_NEEDLESS_SPIDER_MIDDLEWARES = (
    "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware",
    "krowlspider.middlewares.seeds.SeedMiddleware",
    "scrapy.spidermiddlewares.depth.DepthMiddleware",
    "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware",
)
# The spider queues redirect targets as links, checks scope before it queues a URL, and fetches
# directly.
_NEEDLESS_DOWNLOADER_MIDDLEWARES = (
    "krowlspider.middlewares.redirect.RedirectMiddleware",
    "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware",
    "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware",
)
# Reads gemtext. By its path: its room imports this one.
_GEMINI_PAGES = "krowlspider.gemini.pages.read_page"
# Fields of an item, by their keys in the meta of its response.
_OF_SEED = {"seed": "krowl_seed", "tag": "krowl_tag"}
# Used only if somebody has set the setting.
_OPTIONAL_DOWNLOADER_MIDDLEWARES = {
    "HTTPAUTH_DOMAIN": "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware",
    "COOKIES_ENABLED": "scrapy.downloadermiddlewares.cookies.CookiesMiddleware",
    "HTTPCACHE_ENABLED": "scrapy.downloadermiddlewares.httpcache.HttpCacheMiddleware",
}


@cache
def _gemini_reader() -> Callable[..., ReadPage | None]:
    reader: Callable[..., ReadPage | None] = load_object(_GEMINI_PAGES)
    return reader


class BroadSpider(Spider):
    """Crawls from seeds, and follows the links of each page.

    Arguments (``-a name=value``):

    ``seeds``       file of seeds, one per line (domain or URL, ``#`` comments), plain or gzip;
                    or URLs and domains with commas between them
    ``max_pages``   pages to fetch in this run before it stops; 0 means no limit
    ``max_depth``   hops from a seed; 0 means only the seeds; without it DEPTH_LIMIT holds
    ``allow``       regular expression that a URL must match to be queued; separate several by
                    spaces: one of them must match
    ``deny``        regular expression that a URL must not match; separate several by spaces
    ``same_host``   1: follow only links to the page's own host
    ``same_domain`` 1: follow only links to the page's own registrable domain
    ``scope``       new: the five above replace those that the JOBDIR keeps
    ``until``       seeds: the crawl stops once each seed was fetched, dropped or refused
    """

    name = "broad"
    # The fields of an item, and whether each item has them.
    item_fields: ClassVar[Mapping[str, bool]] = {
        **dict.fromkeys(("url", "redirected_from", "status", "depth", "title", "lang"), True),
        **dict.fromkeys(("canonical", "noindex", "content_type", "bytes", "fetch_time"), True),
        **dict.fromkeys(("warc_file", "warc_offset", "warc_record_id"), True),
        **dict.fromkeys(("redirected_from", TRUNCATED, "price", "seed", "tag"), False),
    }
    _sitemaps: SitemapReader
    # None: requisites are not fetched.
    _requisites: RequisiteReader | None = None
    _opt_outs: OptOuts | None = None
    # None: no submissions are taken.
    _index_now: IndexNow | None = None

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Disable the middlewares that this spider does not need, as each costs time per page.

        Cookies are off unless somebody turns them on: a broad crawl has no sessions to keep.
        """
        super().update_settings(settings)
        if _is_unset(settings, "COOKIES_ENABLED"):
            settings.set("COOKIES_ENABLED", False, priority="default")
        if cls is not BroadSpider:
            # A subclass may yield requests.
            return
        for name, needless in (
            ("SPIDER_MIDDLEWARES", _NEEDLESS_SPIDER_MIDDLEWARES),
            ("DOWNLOADER_MIDDLEWARES", _NEEDLESS_DOWNLOADER_MIDDLEWARES),
        ):
            # At spider priority: Scrapy builds a crawler's settings from those of its process,
            # which include the project's.
            wanted = {**settings.getdict(name), **dict.fromkeys(needless)}
            settings.set(name, wanted, priority="spider")
        # Taken out of the base, because Scrapy imports even middlewares that are set to None.
        base = settings.getdict("DOWNLOADER_MIDDLEWARES_BASE")
        for name, path in _OPTIONAL_DOWNLOADER_MIDDLEWARES.items():
            if _is_unset(settings, name):
                base.pop(path, None)
        settings.set("DOWNLOADER_MIDDLEWARES_BASE", base, priority="spider")

    def __init__(
        self,
        *,
        seeds: str | None = None,
        max_pages: str = "0",
        max_depth: str | None = None,
        allow: str | None = None,
        deny: str | None = None,
        same_host: str | None = None,
        same_domain: str | None = None,
        scope: str | None = None,
        until: str | None = None,
        **unknown: str,
    ):
        super().__init__()
        # scrapyd adds its own arguments, whose names start with an underscore.
        if wrong := sorted(name for name in unknown if not name.startswith("_")):
            raise SeedsError(
                f"the broad spider has no argument {wrong[0]!r}; it has seeds, max_pages,"
                " max_depth, allow, deny, same_host, same_domain, scope, until"
            )
        self._seeds = None if seeds is None else seeds_of(seeds)
        self._ends_with_seeds = asked_until(until)
        self._max_pages = number("max_pages", max_pages, "0 for no limit")
        self.asked_scope = asked_scope(
            scope,
            max_depth=max_depth,
            allow=allow,
            deny=deny,
            same_host=same_host,
            same_domain=same_domain,
        )

    def _limit_depth(self, settings: BaseSettings) -> None:
        """Take DEPTH_LIMIT for ``max_depth``, if that was not given; 0 means no limit."""
        asked, limit = self.asked_scope, settings.getint("DEPTH_LIMIT")
        if limit and asked.rules.max_depth is None:
            by_user = (settings.getpriority("DEPTH_LIMIT") or 0) >= SETTINGS_PRIORITIES["cmdline"]
            self.asked_scope = replace(
                asked, rules=replace(asked.rules, max_depth=limit), given=asked.given or by_user
            )

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        if cls is BroadSpider and crawler.settings.getbool("HTTPPROXY_ENABLED"):
            warn_of_proxies()
        spider._limit_depth(crawler.settings)
        if spider._seeds is not None and not keeps_pages(crawler.settings):
            refuse_words(spider._seeds)
        spider._sitemaps = SitemapReader(crawler, spider.parse_sitemap, spider.failed)
        if crawler.settings["KROWL_REQUISITES"] != "none":
            from krowlspider.engine.requisites import RequisiteReader  # noqa: PLC0415 - for few crawls

            spider._requisites = RequisiteReader(crawler)
        if crawler.settings.getbool("KROWL_OPT_OUTS"):
            spider._opt_outs = OptOuts(crawler, spider.parse_opt_out, spider.failed)
        if crawler.settings.getbool("KROWL_INDEXNOW"):
            from krowlspider.spiders.indexnow import IndexNow  # noqa: PLC0415 - for few crawls

            spider._index_now = IndexNow(crawler, spider.parse_index_key, spider.no_index_key)
        spider._read_settings(crawler.settings)
        crawler.signals.connect(spider._idle, signals.spider_idle)
        return spider

    def _read_settings(self, settings: BaseSettings) -> None:
        self._agent: str = settings["ROBOTSTXT_USER_AGENT"]
        self._has_sheets = settings["KROWL_POLICIES"] is not None
        self._has_hooks = bool(settings["KROWL_HOOKS"])
        self._notes = "metadata" in settings.getlist("KROWL_WARC_ALSO")
        self._follow_nofollow = settings.getbool("KROWL_FOLLOW_NOFOLLOW")
        self._redirects = Redirects(settings)
        # Only a schedule has a use for feeds.
        self._reads_feeds = settings["KROWL_RECRAWL"] == CONTINUOUS
        self._duplicates = DuplicateBodies()
        self._huge_pages = asyncio.Lock()
        self._set_yields_items(yields=True)

    def _set_yields_items(self, *, yields: bool) -> None:
        self._yields_items = yields
        plan = partial(
            reading_plan,
            self._agent,
            follow_nofollow=self._follow_nofollow,
            described=yields,
            feeds=self._reads_feeds,
        )
        usual = self._requisites is not None
        self._plan = self._other_plan = plan(requisites=usual)
        if self._has_sheets:
            self._other_plan = plan(requisites=not usual)

    # --- sites with sheets ---

    @cached_property
    def _sites(self) -> Sites | None:
        return job_of(self.crawler).sites if self._has_sheets else None

    @cached_property
    def _reader_for_sites(self) -> RequisiteReader:
        from krowlspider.engine.requisites import RequisiteReader  # noqa: PLC0415 - for few crawls

        return self._requisites or RequisiteReader(self.crawler)

    def _requisites_at(self, url: str) -> RequisiteReader | None:
        """Return what reads the requisites of a document with sheets; None if they are not
        fetched."""
        assert self._sites is not None
        policy = self._sites.of(url)
        if policy is None or policy.requisites is None:
            return self._requisites
        return self._reader_for_sites if policy.requisites else None

    def _is_read_otherwise(self, url: str) -> bool:
        """Return whether requisites of a page are read where they usually are not, or not where
        they are."""
        return (self._requisites_at(url) is None) != (self._requisites is None)

    @cached_property
    def scheduler(self) -> Scheduler:
        return Scheduler.of(self.crawler)

    async def start(self) -> AsyncIterator[Any]:
        """Join the cluster, if any, and queue the seeds in bulk; known seeds are not queued again.

        :raises CloseSpider: there is nothing to crawl
        """
        scheduler, settings = self.scheduler, self.settings
        self._set_yields_items(yields=type(self) is not BroadSpider or wants_items(self.crawler))
        if self._index_now is not None:
            crawl_of(self.crawler).index_now = self._index_now.take
        kept = job_of(self.crawler).scope
        assert kept is not None
        # From here on: an earlier start may have queued links, which must wait.
        scheduler.intake.await_seeds()
        try:
            await scheduler.join(
                scope=Scope(
                    kept,
                    max_url_length=settings.getint("URLLENGTH_LIMIT"),
                    traps=trap_rules(settings),
                ),
                page_budget=self._max_pages or None,
                on_robots=self._sitemaps.look,
            )
            if scheduler.budget.is_limited:
                for _ in scheduler.intake.recall_seeds():
                    await asyncio.sleep(0)
            if (life := scheduler.hook_life) is not None and (
                self._seeds is None or not life.wants_seeds
            ):
                await life.start(())
            source = "without seeds" if self._seeds is None else await self._plant(self._seeds)
        finally:
            scheduler.intake.have_seeds()
        if self._ends_with_seeds:
            scheduler.end_with_seeds()
        log_crawled(job_of(self.crawler), self.name, source)
        # URLs of deferred hosts are no pending requests.
        if not (scheduler.has_pending_requests() or job_of(self.crawler).frontier.pending):
            self._warn_of_empty_queue()
        return
        yield  # an asynchronous generator, as Scrapy requires

    def _warn_of_empty_queue(self) -> None:
        if self._seeds is not None and not self._seeds.good:
            logger.warning(
                "Nothing to crawl: no line of %s is a seed, and no URL is queued",
                self._seeds.source,
            )
            raise CloseSpider("nothing_to_crawl")
        if self._seeds is None and not len(job_of(self.crawler).frontier.seen):
            logger.warning(
                "Nothing to crawl: give -a seeds=FILE, or URLs, or a JOBDIR that has URLs queued"
            )
            raise CloseSpider("nothing_to_crawl")
        # If every seed of a new crawl was refused, the warning at the end says why.
        if len(job_of(self.crawler).frontier.seen) and not self.scheduler.counted()["queued"]:
            logger.warning(
                "No URL is queued: give new seeds; links that pages already done had, as after a"
                " change of the scope, need a new JOBDIR or scrapy frontier JOBDIR --import FILE"
            )

    async def _plant(self, seeds: SeedsFile | SeedList) -> str:
        """Archive and queue the seeds; return in words how many there were."""
        text, truncated = await run_in_thread(seeds.text)
        job_of(self.crawler).notes.seeds(text, truncated=truncated)
        new = last = 0
        end: int | None = None
        chunks, intake = seeds.chunks(), self.scheduler.intake
        states: dict[str, str] | None = None
        if (life := self.scheduler.hook_life) is not None and life.wants_seeds:
            chunks, states = await self._chosen(life, seeds)
        intake.begin_seeds(seeds.name)
        try:
            while lines := await run_in_thread(next, chunks, None):
                at_once = intake.at_once(len(lines))
                for at in range(0, len(lines), at_once):
                    part = lines[at : at + at_once]
                    new += intake.plant(seeds.name, part, after=last, states=states)
                    last = part[-1].number
                    await asyncio.sleep(0)
                for _ in intake.promote_known():
                    await asyncio.sleep(0)
                # No event tells when the disk has room again, so poll.
                while self.scheduler.is_holding:  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSED)
            end = last
        finally:
            intake.end_seeds(seeds.name, after=end)
        self.crawler.stats.set_value("krowl/seeds/read_count", seeds.good)
        self.crawler.stats.set_value("krowl/seeds/bad_count", seeds.bad)
        return (
            f"{counted(seeds.good, 'seed')} read from {seeds.source}, {new:,} new,"
            f" {counted(seeds.bad, 'bad line')}"
        )

    async def _chosen(
        self, life: HookLife, seeds: SeedsFile | SeedList
    ) -> tuple[Iterator[list[SeedLine]], dict[str, str] | None]:
        """Return the lines of the seeds as the hook `start` chooses them, and the states of their
        URLs. What it adds is queued.

        :raises CloseSpider: they are more than it may have
        """
        lines = await run_in_thread(list, islice(chained.from_iterable(seeds.chunks()), SEEDS_MAX))
        if len(lines) == SEEDS_MAX:
            logger.error(
                "The hook start gets fewer than %s seeds: decide about those of %s in the hook"
                " filter",
                f"{SEEDS_MAX:,}",
                seeds.source,
            )
            raise CloseSpider("too_many_seeds")
        chosen = await life.start([line.url for line in lines if line.url])
        if chosen is None:
            return in_chunks(iter(lines)), None
        states = {seed.url: state for seed, state in chosen if state}
        known = {line.url for line in lines if line.url}
        if added := [seed for seed, _ in chosen if seed.url not in known]:
            self.scheduler.intake.give(added, states)
        left_out = known.difference(seed.url for seed, _ in chosen)
        kept = (
            line._replace(url="", error="left out by the hook start")
            if line.url in left_out
            else line
            for line in lines
        )
        return in_chunks(kept), states

    def page_request(self, url: str, meta: dict[str, Any]) -> Request:
        """Return the request for a queued page, with the URL exactly as it was discovered.

        The URL is normalised already, so Scrapy's own escaping of it is skipped. `parse` receives
        the response whatever its status is.
        """
        meta["handle_httpstatus_all"] = meta["verbatim_url"] = True
        request = Request(url, callback=self.parse, errback=self.failed, meta=meta)
        # Scrapy escapes the URL of any other request that is made with the same meta.
        del request.meta["verbatim_url"]
        return request

    def requisite_request(self, url: str, meta: dict[str, Any]) -> Request:
        """Return the request for a queued requisite, of the kind and level in ``meta``."""
        request = self.page_request(url, meta)
        request.callback = self.parse_requisite
        request.headers["Accept"] = ACCEPT[meta["krowl_requisite"][0]]
        return request

    def sitemap_request(self, url: str, meta: dict[str, Any], listing: bytes) -> Request:
        """Return the request for a sitemap that is fetched again; its row has ``listing``."""
        return self._sitemaps.request(url, meta, listing)

    def only_reads(self, request: Request) -> bool:
        """Return whether the callback of a request yields nothing, because nobody wants items."""
        return not self._yields_items and request.callback == self.parse

    async def read(self, response: Response) -> ReadPage | None:
        """Queue the links of a page, and return what was read.

        Queue the target of a redirect, and return None: it is no page.
        """
        await self.scheduler.throttle.for_clients()
        meta, headers = response.meta, response.headers
        depth = meta["depth"]
        location = value_of(headers, b"Location") if response.status in REDIRECTS else None
        if location is not None:
            self._redirect(response, location, depth)
            return None
        if response.status < FIRST_HTTP:
            if reason_to_drop(response.status) is not None:
                return None
            page = self._read_gemini(response)
        else:
            page = self._read(response)
        states = None
        if self._hooks is not None:
            states = await self._visited_by(self._hooks.pages, page, response)
        if (meters := self.scheduler.meters) is not None:
            meters.links.observe(len(page.links))
        if self._notes:
            meta["krowl_outlinks"] = len(page.links)
            if isinstance(response, TextResponse):
                charset = type_of(response).charset
                meta["krowl_charset"] = encoding_of(response.body, charset)
        if self._opt_outs is not None and response.status == HTTPStatus.OK:
            self._opt_outs.of_page(response)
        requisites = self._requisites if self._sites is None else self._requisites_at(response.url)
        # The browser has asked for what the page needs. A page of Gemini needs nothing.
        has_all = RENDERED in response.flags or response.status < FIRST_HTTP
        if requisites is not None and not has_all:
            await requisites.of_page(page, response)
        if page.feeds or page.claims:
            await self._look_at_feeds(page, response, depth)
        await self._follow(page, response, depth, states)
        if self._hooks is not None:
            links = [] if self._is_forbidden(page) else page.links
            await self._hooks.pages.has_visited(self._in_flight(response), links)
        return page

    async def _look_at_feeds(self, page: ReadPage, response: Response, depth: int) -> None:
        """Queue the feeds that a page names, and follow the hints of one that is a feed itself."""
        if page.feeds and not self._is_forbidden(page):
            path, seed = (response.meta.get(key, "") for key in ("krowl_path", "krowl_seed"))
            self._sitemaps.look_at_feeds(page.feeds, response.url, depth, path, seed)
        if page.claims:
            await self._sitemaps.hint(response.url, page.claims)

    # --- hooks ---

    @cached_property
    def _hooks(self) -> Hooked | None:
        return job_of(self.crawler).hooks if self._has_hooks else None

    def _is_forbidden(self, page: ReadPage) -> bool:
        return page.nofollow and not self._follow_nofollow

    def _in_flight(self, response: Response) -> InFlight | None:
        request = response.request
        return None if request is None else self.scheduler.flights.get(request)

    async def _visited_by(
        self, hooks: PageHooks, page: ReadPage, response: Response
    ) -> dict[str, str] | None:
        """Put the links of the hook `visit` in place of those of a page; return their states."""
        found = await hooks.links_of(self._in_flight(response), response)
        if found is None:
            return None
        page.links, states = found
        return states

    async def parse(self, response: Response) -> AsyncIterator[dict[str, Any]]:
        """Queue the links of a page, then yield its item if anybody wants items.

        The item describes the page and names its place in the archive. A redirect has none.
        """
        page = await self.read(response)
        if page is None or not self._yields_items:
            return
        if (item := await self.item_of(page, response)) is not None:
            yield item

    async def item_of(self, page: ReadPage, response: Response) -> dict[str, Any] | None:
        """Return the item of a page once its place in the archive is known; None if the archive
        cannot be written."""
        meta = response.meta
        try:
            where = await meta["krowl_warc"] if "krowl_warc" in meta else None
        except ArchiveError:
            # The archive has reported this error; from now on no commit acknowledges any page.
            return None
        chain = {"redirected_from": meta["redirect_urls"]} if "redirect_urls" in meta else {}
        more = {TRUNCATED: "disconnect"} if TRUNCATED in response.flags else {}
        if asked := price_in(response.headers):
            more["price"] = asked
        for name, key in _OF_SEED.items():
            if key in meta:
                more[name] = meta[key]
        return {
            "url": response.url,
            **chain,
            "status": response.status,
            "depth": meta["depth"],
            "title": page.title,
            "lang": page.lang,
            "canonical": page.canonical,
            "noindex": page.noindex,
            "content_type": _content_type(response),
            "bytes": len(response.body),
            "fetch_time": round(meta["download_latency"], 6),
            "warc_file": where and where.file,
            "warc_offset": where and where.offset,
            "warc_record_id": where and meta["krowl_warc_id"],
            **more,
        }

    def _read(self, response: Response) -> ReadPage:
        """Return what a page and its headers state; a response that is not HTML has no links."""
        url, headers = response.url, response.headers
        media_type, charset = type_of(response)
        is_html = media_type in HTML
        page = ReadPage()
        if is_html:
            plan = self._plan
            if self._sites is not None and self._is_read_otherwise(url):
                plan = self._other_plan
            page = read_page(response.body, url, charset, plan, feeds=self._reads_feeds)
        if links := values_of(headers, b"Link"):
            header_links, canonical = read_links(
                map(escape_octets, links), url, follow_nofollow=self._follow_nofollow
            )
            if is_html:
                page.links = list(dict.fromkeys([*header_links, *page.links]))
            page.canonical = canonical or page.canonical
        if refreshes := values_of(headers, b"Refresh"):
            refused: list[str] = []
            encoding = encoding_of(response.body, charset)
            led_to = read_refresh(refreshes, url, encoding, refused)
            page.links = list(dict.fromkeys([*led_to, *page.links]))
            page.refused += len(refused)
        if tags := values_of(headers, b"X-Robots-Tag"):
            texts = (tag.decode("utf-8", errors="replace") for tag in tags)
            nofollow, noindex = refusals_in(read_robots_tag(texts, self._agent))
            page.nofollow |= nofollow
            page.noindex |= noindex
        return page

    def _read_gemini(self, response: Response) -> ReadPage:
        """Return the page of an answer of Gemini: gemtext, or HTML, which says there what it does
        in the web."""
        # No property: those of a spider are read when a request is stored.
        page = _gemini_reader()(response, feeds=self._reads_feeds)
        return self._read(response) if page is None else page

    async def _follow(
        self, page: ReadPage, response: Response, depth: int, states: dict[str, str] | None
    ) -> None:
        """Queue the links of a page and count those left out.

        Nothing is queued if the page forbids it, or if its host has sent the same body more than
        FOLLOWED_MAX times.
        """
        forbidden = page.nofollow and not self._follow_nofollow
        reasons = {
            "scheme": page.refused,
            "length": page.oversize,
            "link_count": page.surplus,
            "nofollow": len(page.links) if forbidden else 0,
        }
        for reason, count in reasons.items():
            if count:
                self.crawler.stats.inc_value(f"krowl/links/left_count/{reason}", count)
        if not page.links or forbidden:
            return
        url = response.url
        host = host_of(url)
        if self._duplicates.count(host, response.body) > FOLLOWED_MAX:
            self.crawler.stats.inc_value("krowl/pages/duplicate_count")
            return
        discover = partial(
            self.scheduler.intake.discover,
            depth=depth + 1,
            via=host,
            page=url,
            path=response.meta.get("krowl_path", ""),
            seed=response.meta.get("krowl_seed", ""),
            states=states,
        )
        at_once = _LINKS_AT_ONCE if self._hooks is None else self._hooks.links.at_once
        await self._discover(page.links, discover, at_once)

    async def _discover(
        self, links: list[str], discover: Callable[[list[str]], object], at_once: int
    ) -> None:
        """Queue the links of a page in one batch, or in batches of ``at_once`` for a huge page.

        The later batches of all huge pages together get a quarter of the event loop's time.
        """
        first, rest = links[:at_once], range(at_once, len(links), at_once)
        discover(first)
        for start in rest:
            async with self._huge_pages:
                begun = perf_counter()
                part = links[start : start + at_once]
                discover(part)
                await asyncio.sleep(_RESTS * (perf_counter() - begun))

    def _redirect(self, response: Response, location: bytes, depth: int) -> None:
        intake = self.scheduler.intake

        def drop(reason: str) -> None:
            intake.count_dropped(reason)
            if not depth:
                intake.end_seed_at(response.url, location, reason)

        found = self._redirects.target(response, location, drop)
        if found is not None:
            target, chain = found
            # The https URL of a seed was tried once, and is known: its host redirects to it.
            is_guess = bool(response.meta.get("krowl_bare"))
            states = None
            if self._hooks is not None and (in_flight := self._in_flight(response)) is not None:
                states = {target: self._hooks.pages.state_text(in_flight)}
            intake.discover(
                [target],
                again=is_guess and target == response.url.replace("http:", "https:", 1),
                depth=depth,
                via=host_of(response.url),
                page=response.url,
                hop="R",
                path=response.meta.get("krowl_path", ""),
                seed=response.meta.get("krowl_seed", ""),
                redirects=response.meta.get("redirect_times", 0) + 1,
                chain=chain,
                states=states,
            )

    async def parse_opt_out(self, response: Response) -> AsyncIterator[Any]:
        """Yield nothing of an ai.txt or a tdmrep.json: it is in the archive."""
        return
        yield response

    async def parse_index_key(self, response: Response) -> AsyncIterator[Any]:
        """Bring the pages forward that a site has submitted with this key, if it is right."""
        if self._index_now is not None:
            await self._index_now.read(response)
        return
        yield response

    def no_index_key(self, failure: Failure) -> None:
        """End the check of a key whose file could not be fetched."""
        if self._index_now is not None:
            self._index_now.failed(failure)

    async def parse_sitemap(self, response: Response) -> AsyncIterator[dict[str, Any]]:
        """Queue the URLs that a sitemap names.

        HTML that was sent instead, of up to DOWNLOAD_MAXSIZE bytes, is read as a page. What comes
        for a guessed URL is none: its links are followed, and there is no item.
        """
        if await self._sitemaps.read(response):
            return
        too_large = len(response.body) > self.settings.getint("DOWNLOAD_MAXSIZE")
        if type_of(response).essence not in HTML or too_large:
            return
        flights = self.scheduler.flights
        is_page = not is_guessed(response) and flights.count_as_page(response.request)
        if not is_page:
            await self.read(response)
            return
        async for item in self.parse(response):
            yield item

    async def parse_requisite(self, response: Response) -> AsyncIterator[Any]:
        """Queue the requisites that a style sheet or a manifest names in turn.

        No links are followed, and there is no item. Scrapy would run a coroutine in a task of its
        own, for whose CPU the host is not charged: so this is a generator.
        """
        requisites = self._requisites if self._sites is None else self._requisites_at(response.url)
        if requisites is not None:
            await requisites.read(response)
        return
        yield response

    def failed(self, failure: Failure) -> None:
        """Do nothing: the scheduler counts the failed page with its reason."""

    def _idle(self) -> None:
        if self.scheduler.budget.left == 0:
            raise CloseSpider("max_pages")


def _is_unset(settings: BaseSettings, name: str) -> bool:
    """Return whether a setting has Scrapy's own default."""
    return (settings.getpriority(name) or 0) <= SETTINGS_PRIORITIES["default"]


def _content_type(response: Response) -> str:
    return (value_of(response.headers, b"Content-Type") or b"").decode(errors="replace")


def type_of(response: Response) -> ContentType:
    headers = response.headers
    return computed_type(
        values_of(headers, b"Content-Type"),
        values_of(headers, b"X-Content-Type-Options"),
        response.body,
    )
