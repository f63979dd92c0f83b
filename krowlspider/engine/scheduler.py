"""The scheduler: connects Scrapy's engine to the frontier and the robots gate."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import CloseSpider
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import build_from_crawler, load_object

from krowlspider.archive.disk import ArchiveError
from krowlspider.cluster.membership import ClusterError, end
from krowlspider.engine.awaited import AwaitedRequests
from krowlspider.engine.crash_marking import PageReader, mark_work
from krowlspider.engine.dispatcher import Dispatcher, LastRequests, Waker
from krowlspider.engine.logformatter import send_order, send_where_heard
from krowlspider.engine.requests import RequestWarnings
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.frontier.work_mark import is_poison
from krowlspider.internals.engine import (
    call_when_over,
    is_closing,
    is_starting,
    start_requests_with,
)
from krowlspider.job.answers.host_feedback import why_nothing_was_fetched
from krowlspider.job.cluster_traffic import ClusterTraffic
from krowlspider.job.codec import RequestCodec, request_limits
from krowlspider.job.crawls import crawl_of
from krowlspider.job.flights import Flights
from krowlspider.job.intake import Intake
from krowlspider.job.limits import PageBudget
from krowlspider.job.recrawl import CONTINUOUS, Afforded, Recrawl, recrawl_work
from krowlspider.job.requisite_intake import RequisiteIntake
from krowlspider.job.start_log import log_start
from krowlspider.urls.canonical import host_of, is_data, normalise, queued_as
from krowlspider.urls.gemini import is_gemini

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from krowlspider.engine.dupefilter import DupeFilter
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.hosts.host import Host, RobotsFetch
    from krowlspider.job.forecasting import Forecasts
    from krowlspider.job.head_requests import HeadFirst
    from krowlspider.job.hooking.hooked import Hooked
    from krowlspider.job.hooking.life import HookLife
    from krowlspider.job.nodes.node import Node
    from krowlspider.job.site_policies import SitePolicies
    from krowlspider.urls.scope import Scope

logger = logging.getLogger(__name__)

# Scrapy's limits of pages.
_LIMITS = ("CLOSESPIDER_PAGECOUNT", "CLOSESPIDER_ITEMCOUNT")
# Reasons that end the crawl on all nodes of the cluster: no node is left to hand over to.
_FOR_ALL = {"finished", "nodes_left", "cluster_stop", "cluster_pages", "seeds_done"}
# Seconds between two looks at the seeds that are not over, and seeds looked at in one turn of the
# event loop.
_SEEDS_LOOK = 1.0
_SEEDS_AT_ONCE = 200
# Looks in a row that find none at any node of a cluster: one may be on its way to its owner.
_LOOKS_OF_NODES = 5
# Pages fetched for the browser, as a multiple of those that it opens at a time.
_IN_LINE = 2


def _nothing_yet() -> bool:
    return False


class Scheduler(BaseScheduler):
    """Serve requests host by host, politely, and keep them on disk until they are done.

    From `open` on, every discovered URL goes through ``intake``, and ``flights`` knows the requests
    in flight. ``budget`` counts the pages that may still be popped. While ``reads_sitemaps`` is
    false, no robots.txt is reported.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._crawl = crawl_of(crawler)
        self._job, self._node = self._crawl.job, self._crawl.node
        self.meters = self._job.meters
        self.throttle = self._job.throttle
        dupefilter: type[DupeFilter] = load_object(crawler.settings["DUPEFILTER_CLASS"])
        self._dupefilter = build_from_crawler(dupefilter, crawler)
        self._on_robots: Callable[[str, list[str], int, str], None] | None = None
        self.reads_sitemaps = crawler.settings.getbool("KROWL_SITEMAPS")
        self.warnings = RequestWarnings(
            cookies=crawler.settings.getbool("COOKIES_ENABLED"), agent=self._job.user_agent
        )
        # Requests handed to the engine in this turn of the event loop.
        self._in_turn = 0
        self._shrinking: asyncio.Task[None] | None = None
        self.recrawl: Recrawl | None = None
        # None without KROWL_HOOKS.
        self.hook_life: HookLife | None = None
        # None where no URL is asked by HEAD first.
        self.head_first: HeadFirst | None = None
        self._recrawling: asyncio.Task[None] | None = None
        self._forecasts: Forecasts | None = None
        self._forecasting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._policies: asyncio.Task[None] | None = None

    # What Scrapy's engine status (``est()`` in the telnet console) measures: nothing is queued in
    # memory, and ``dqs`` is as long as the queue on disk.
    mqs = ()

    @property
    def dqs(self) -> range:
        return range(self._frontier.queued)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @staticmethod
    def of(crawler: Crawler) -> Scheduler:
        """Return the scheduler of a crawler that is open."""
        scheduler = crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler

    @property
    def codec(self) -> RequestCodec:
        """Return what makes entries of requests, and requests of entries."""
        return self._codec

    # --- opening and closing ---

    def open(self, spider: Spider) -> None:
        """Connect this scheduler to its job.

        The downloader opened the job before the engine existed.
        """
        job, node = self._job, self._node
        settings, engine = self._crawler.settings, self._crawler.engine
        self._frontier = job.frontier
        self._waker = Waker(engine, job.frontier.now)
        pages = job.frontier.pages
        seeds = None if pages is None else pages.seeds
        self._codec = RequestCodec(spider, request_limits(settings), seeds)
        self.budget = PageBudget(
            None if node is None else node.allowance,
            is_limited=any(map(settings.getint, _LIMITS)),
        )
        self.intake = Intake(
            job.frontier,
            job.hasher,
            self._codec,
            settings,
            node=node,
            policies=job.policies,
            hooks=None if job.hooks is None else job.hooks.links,
            fail=job.fail,
            identify=self._dupefilter.identity,
            wake=self._waker.wake,
        )
        self.flights = Flights(
            job,
            self.budget,
            self.intake,
            self._codec,
            retry_delay=settings.getfloat("KROWL_RETRY_DELAY"),
            wake=self._waker.wake,
            others_have_seeds=None if node is None else node.others_have_seeds,
        )
        self.requisites = RequisiteIntake(self.intake, job.hasher, settings, node)
        self.awaited = AwaitedRequests(
            engine,
            job.frontier,
            self.intake,
            self.flights,
            most=settings.getint("CONCURRENT_REQUESTS"),
            most_pages=_IN_LINE * settings.getint("KROWL_BROWSER_PAGES"),
            is_node=node is not None,
            same_site=settings["KROWL_REQUISITES"] == "site",
        )
        self.recrawl = self._recrawl_of(settings["KROWL_RECRAWL"])
        if settings.getbool("KROWL_HEAD") or job.sites is not None:
            from krowlspider.job.head_requests import HeadFirst  # noqa: PLC0415 - for few crawls

            self.head_first = HeadFirst(
                is_usual=settings.getbool("KROWL_HEAD"),
                skipped=settings.getlist("KROWL_SKIP_EXTENSIONS"),
                sites=job.sites,
            )
        has_parts = settings["KROWL_REQUISITES"] != "none" or settings.getbool("KROWL_BROWSER")
        has_parts |= job.sites is not None
        self._dispatcher = Dispatcher(
            job,
            self.flights,
            self.intake,
            self._codec,
            self._waker,
            awaited=self.awaited,
            recrawl=self.recrawl,
            head_first=self.head_first,
            obey_robots=settings.getbool("ROBOTSTXT_OBEY"),
            # Without requisites and a browser, a page waits for each robots.txt.
            on_page=self._look_at_robots if has_parts else None,
        )
        self.last_requests = LastRequests(
            self.flights,
            self.budget,
            is_closing=partial(is_closing, engine),
            timeout=settings.getfloat("DOWNLOAD_TIMEOUT"),
            clock=job.monotonic,
        )
        self._before = job.frontier.counters.copy()
        # Pages that this start set aside as poison count as dropped since this start.
        self._before["dropped/poison"] -= sum(map(is_poison, job.last_process.struck))
        call_when_over(engine, self.flights.finish)
        # Until the spider is opened and the downloader has its runner, nothing is popped: the
        # engine would queue again what was put back.
        start_requests_with(engine, _nothing_yet)
        if node is not None:
            self._traffic = self._connect(node)
        self._crawl.stopping = self.last_requests.stop_text
        if job.hooks is not None:
            self.hook_life = self._begin_hooks(job.hooks, spider)
        if job.policies is not None:
            self._policies = self._follow(job.policies)
        job.run(
            on_failure=self._stop_crawl,
            on_stop=self._stop_for,
            on_robots=self._robots_found,
            on_room=self._waker.wake,
            is_ending=lambda: is_closing(engine),
        )
        reader = spider if isinstance(spider, PageReader) else None
        mark_work(engine.scraper, job, self.flights.get, reader, self.flights.charge_page)
        send_where_heard(self._crawler)
        log_start(job)
        self.warnings.of_spider(spider)

    def _begin_hooks(self, hooked: Hooked, spider: Spider) -> HookLife:
        """Return what runs the hooks of the crawl as a whole."""
        from krowlspider.job.hooking.life import HookLife  # noqa: PLC0415 - for few crawls

        life = HookLife(
            hooked,
            give=self.intake.give,
            promote=self.intake.promote_known,
            make_durable=self._job.commits.make_durable,
        )
        connect = self._crawler.signals.connect
        if not self._codec.makes_pages:
            # The start requests of an ordinary spider come from the spider alone.
            connect(self._start_hooks, signals.spider_opened)
        if hooked.pages.error is not None:
            connect(self._callback_failed, signals.spider_error)
        return life

    async def _start_hooks(self) -> None:
        assert self.hook_life is not None
        # Its URLs have owners.
        await self.join()
        await self.hook_life.start(())

    def _callback_failed(self, failure: Failure, response: Response) -> None:
        hooked, request = self._job.hooks, response.request
        in_flight = None if request is None else self.flights.get(request)
        error = failure.value
        if hooked is not None and in_flight is not None and error is not None:
            hooked.pages.failed("callback", in_flight, "error", error)

    def _follow(self, policies: SitePolicies) -> asyncio.Task[None]:
        """Archive the sheets that are in force, and those of each later version of their file."""
        notes = self._job.notes
        notes.policies(policies.version.text)
        policies.changes.append(lambda version: notes.policies(version.text))
        self._crawl.reloads["KROWL_POLICIES"] = policies.reload
        logger.info("KROWL_POLICIES: %s in force", policies.words())
        return asyncio.ensure_future(policies.watch())

    def _recrawl_of(self, kind: str) -> Recrawl | None:
        """Return what fetches pages again, and begin to queue them; None if nothing does."""
        settings, pages = self._crawler.settings, self._frontier.pages
        sites, hooks = self._job.sites, self._job.hooks
        terms_of = None if sites is None else sites.terms
        work = recrawl_work(
            *(kind, self._frontier, pages, settings, self._job.wall),
            terms_of=terms_of if hooks is None else hooks.terms(terms_of),
        )
        if work is None or pages is None:
            return None
        half = settings.getint("KROWL_FRONTIER_MAX") // 2
        recrawl = Recrawl(
            work,
            pages,
            # Those of deferred hosts may wait for long.
            is_full=lambda: (
                self.is_holding or self._frontier.queued - self._frontier.deferred_queued > half
            ),
            wake=self._waker.wake,
            between_commits=self._job.commits.between,
            fail=self._job.fail,
        )
        logger.info("Fetch again: %s", recrawl.text())
        if kind == CONTINUOUS:
            self._forecasting = asyncio.ensure_future(self.forecasts().log())
        self._recrawling = asyncio.ensure_future(self._queue_again(recrawl))
        return recrawl

    def forecasts(self) -> Forecasts:
        """Return what forecasts how fresh the pages stay."""
        if self._forecasts is None:
            from krowlspider.job.forecasting import Forecasts  # noqa: PLC0415 - if it is asked

            schedule = self._frontier.schedule
            self._forecasts = Forecasts(
                self._job.store,
                lambda host: schedule.rule.of(host.name).delay(host.rate),
                Afforded.by(self._crawler.settings),
            )
        return self._forecasts

    async def _queue_again(self, recrawl: Recrawl) -> None:
        try:
            await recrawl.run()
        except STORE_ERRORS as error:
            self._job.fail(error)

    def _connect(self, node: Node) -> ClusterTraffic:
        """Return the traffic with the other nodes, once `join` runs the node."""
        self._crawler.signals.connect(self._idle, signals.spider_idle)
        return ClusterTraffic(
            self._job,
            node,
            self._codec,
            self.intake,
            settings=self._crawler.settings,
            is_out_of_work=lambda: self._is_out_of_work,
            seeds=self.flights.seeds_first,
            carry_out=partial(send_order, self._crawler),
        )

    async def join(
        self,
        *,
        scope: Scope | None = None,
        page_budget: int | None = None,
        on_robots: Callable[[str, list[str], int, str], None] | None = None,
    ) -> None:
        """Connect to the other nodes, if any, and return when the owner of each URL is known.

        Await it before anything is queued. ``scope`` decides which URLs are queued; None queues
        all. ``page_budget`` is the number of pages that may be popped; None is no limit.
        ``on_robots`` is called for each robots.txt that came or is known to be missing: authority,
        sitemaps as written there (none if missing), depth and seed of the page that waits.

        :raises CloseSpider: the owners will never be known
        """
        if scope is not None:
            self.intake.scope = scope
        if page_budget is not None:
            self.budget.left = self.budget.total = page_budget
        self._on_robots = on_robots
        if (node := self._node) is not None:
            if not node.running:
                node.run(
                    self._traffic,
                    on_over=self._all_over,
                    on_stop=self._all_stop,
                    policies=self._job.policies,
                )
            await node.owners_settled.wait()
            if not node.knows_owners:
                raise CloseSpider("no_cluster")

    async def shrink(self) -> None:
        """Hand most hosts over to the other nodes of the cluster while the crawl goes on.

        Return when only the last step is left for `close`, or when `close` begins.
        """
        if self._node is not None and self._job.failure is None:
            self._shrinking = asyncio.ensure_future(self._node.shrink())
            await asyncio.wait([self._shrinking])

    def close(self, reason: str) -> Deferred[None]:
        """Leave the cluster, if there is one, and close the job."""
        self._waker.cancel()
        return deferred_from_coro(self._close(reason))

    async def _close(self, reason: str) -> None:
        if self.hook_life is not None:
            await self.hook_life.end(reason)
        if self._forecasts is not None:
            await self._forecasts.close()
        hinting = None if self.recrawl is None else self.recrawl.hinting
        tasks = (
            *(self._shrinking, self._recrawling, self._forecasting, hinting),
            *(self._policies, self._watching),
        )
        await end([task for task in tasks if task is not None])
        if self.recrawl is not None and reason == "finished" and self._job.failure is None:
            self.recrawl.end()
        if self._node is not None and self._job.failure is None and reason not in _FOR_ALL:
            try:
                await self._node.drain()
            except (*STORE_ERRORS, ArchiveError, OSError) as error:
                self._job.fail(error)
        await self._crawl.close()
        if refused := self.intake.seed_redirects.warning():
            logger.warning(refused)
        if reason == "finished" and self._job.failure is None:
            self._warn_of_nothing()

    def _warn_of_nothing(self) -> None:
        """Warn if the crawl has fetched no page although there were pages to fetch."""
        # A node does not know what the other nodes have fetched.
        stats, alone = self._crawler.stats.get_stats(), self._node is None
        why = why_nothing_was_fetched(self._frontier, self.counted(), stats, alone=alone)
        if not why:
            return
        self._crawl.nothing_fetched = alone
        by_whom = "" if alone else " by this node"
        logger.warning("No page was fetched%s: %s", by_whom, why)

    # --- reasons to end ---

    def end_with_seeds(self) -> None:
        """Stop the crawl once each seed is over: it was fetched, dropped or refused, or its host is
        deferred. So is each URL at which it goes on. Seeds come before links until then.

        In a cluster, the seeds of the other nodes are waited for.
        """
        self._frontier.schedule.seed_turns.limit()
        self._watching = asyncio.ensure_future(self._watch_seeds())

    async def _watch_seeds(self) -> None:
        node, first, over = self._node, "", 0
        needed = 1 if node is None else _LOOKS_OF_NODES
        try:
            while over < needed:
                await asyncio.sleep(_SEEDS_LOOK)
                first = await self._waiting_seed(first)
                is_over = not first and (node is None or not node.others_have_seeds())
                over = over + 1 if is_over else 0
        except STORE_ERRORS as error:
            self._job.fail(error)
            return
        logger.info("All seeds are over: the crawl stops, as -a until=seeds asks")
        self._end("seeds_done")

    async def _waiting_seed(self, last: str) -> str:
        """Return a seed that is not over, "" if there is none; ``last`` is one that was not."""
        seeds = self._frontier.seeds
        if last and seeds.is_waiting(last):
            return last
        # Once more from the start: a seed may go on at a URL before the last one.
        for after in (last, "") if last else ("",):
            for number, url in enumerate(seeds.waiting(after)):
                if url:
                    return url
                if number % _SEEDS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return ""

    def _end(self, reason: str) -> None:
        self._closing = asyncio.ensure_future(
            self._crawler.engine.close_spider_async(reason=reason)
        )

    def _stop_crawl(self, error: Exception) -> None:
        logger.critical("The crawl stops; pages that were not committed stay queued: %s", error)
        self._end("cluster_error" if isinstance(error, ClusterError) else "storage_error")

    def _stop_for(self, reason: str) -> None:
        logger.critical("The crawl stops; what is queued stays queued: %s", reason)
        self._end("proxy_error")

    def _all_over(self) -> None:
        node = self._node
        assert node is not None
        if node.stopped_nodes:
            logger.warning(
                "Nodes %s have left before all URLs were done: start all nodes again to go on",
                ", ".join(node.stopped_nodes),
            )
            self._end("nodes_left")
        self._waker.wake()

    def _all_stop(self) -> None:
        logger.info(
            "Stopped by the cluster signal STOP; resume with `scrapy ring --signal RUNNING`"
        )
        self._end("cluster_stop")

    def _idle(self) -> None:
        if self._node is not None and self._node.spent:
            raise CloseSpider("cluster_pages")

    # --- queueing ---

    def enqueue_request(self, request: Request) -> bool:
        """Queue a new request durably; return False if it is known or refused.

        Each refusal is counted with its reason.
        """
        self.warnings.of_meta(request)
        url = self._queued_as(request)
        if url is None:
            self.warnings.of_scheme(request)
            return self._refuse("url")
        try:
            entry = self._codec.entry(request, url)
        except ValueError as error:
            logger.error("%s cannot be queued: %s", request, error)
            return self._refuse("unserializable")
        self.warnings.of_cookies(request)
        return self.intake.request(request, url, entry)

    def _queued_as(self, request: Request) -> str | None:
        """Return the URL under which a request is queued; None if it cannot be fetched."""
        if is_data(request.url):
            # Another node would fetch the URL under which it is queued.
            return queued_as(request.url) if self._node is None else None
        url = normalise(request.url)
        # Gemini has no other method.
        return None if url is not None and is_gemini(url) and request.method != "GET" else url

    def _refuse(self, reason: str) -> bool:
        self.intake.count_dropped(reason)
        return False

    def _robots_found(self, robots_fetch: RobotsFetch, sitemaps: list[str]) -> None:
        """Report a robots.txt that came, or is known to be missing, to ``on_robots``."""
        if self._on_robots is None or not self.reads_sitemaps:
            return
        if (lease := self._frontier.queues.pop(robots_fetch.host)) is None:
            return
        self._frontier.queues.unpop(lease)
        if lease.entry.is_part:
            # Its host need not be one whose pages are crawled: see `_look_at_robots`.
            return
        self._report_robots(robots_fetch.host, robots_fetch.authority, sitemaps, lease.entry)

    def _look_at_robots(self, host: Host, authority: str, page: Entry) -> None:
        """Report a robots.txt that may have come for a requisite, as a page is fetched now.

        Sitemaps that are known are not queued again.
        """
        _, rules = self._job.robots_fetches.cache.look_up(authority)
        if self._on_robots is not None and self.reads_sitemaps and rules is not None:
            self._report_robots(host, authority, rules.sitemaps, page)

    def _report_robots(self, host: Host, authority: str, sitemaps: list[str], page: Entry) -> None:
        assert self._on_robots is not None
        if is_gemini(authority):
            # Gemini has no sitemaps.
            return
        base = authority + "/"
        # The authority may be another host that shares the robots.txt, as www does. Skip it if the
        # crawl keeps to the hosts of its seeds.
        if self.intake.scope.refusal(base, host_of(base), 0, host.name) != "host":
            self._on_robots(authority, sitemaps, page.depth, self._codec.seed_of(page))

    # --- the next request ---

    def set_page_limit(self, pages: int) -> None:
        """Let this start fetch ``pages`` pages in all."""
        budget = self.budget
        if budget.total is None or budget.left is None:
            budget.left = pages - self.counted()["done"] - len(self.flights)
        else:
            budget.left += pages - budget.total
        budget.total = pages

    def next_request(self) -> Request | None:
        job, node = self._job, self._node
        left = self.budget.left
        # Pages under way may still wait for requests.
        is_spent = left is not None and left <= 0
        if (is_spent and not self.awaited.waiting) or job.failure is not None or self.is_holding:
            return None
        if (node is not None and not node.ready) or not job.memory.admits():
            return None
        if self._in_turn >= job.loop_turns.at_once:
            # The engine asks until it gets None, and sends all in this turn of the event loop.
            self._in_turn = 0
            self._waker.wake()
            return None
        try:
            request = self._dispatcher.next(awaited_only=is_spent)
        except STORE_ERRORS as error:
            job.fail(error)
            return None
        self._in_turn = 0 if request is None else self._in_turn + 1
        return request

    def needless(self) -> Sequence[Request]:
        """Return the robots fetches in flight, if this start has fetched all pages that it may."""
        left = self.budget.left
        return () if left is None or left > 0 else self.flights.only_robots_fetches()

    def next_awaited(self) -> Request | None:
        """Return the next request of a host that has an awaited request queued, if one is due.

        The limits of memory do not hold, because it is the pages in memory that wait.
        """
        if self._job.failure is not None or self.is_holding or self._job.outages.is_out:
            return None
        try:
            return self._dispatcher.next_awaited()
        except STORE_ERRORS as error:
            self._job.fail(error)
            return None

    @property
    def is_holding(self) -> bool:
        """Return whether nothing may be sent: the crawl waits for room on its disk, or a person has
        paused it."""
        return self._job.is_paused or self._job.full is not None

    def has_pending_requests(self) -> bool:
        node = self._node
        if node is not None and not (node.over or self.budget.is_spent):
            return True
        # Requests in flight count too: between downloader and scraper, a response is in neither.
        return (
            self._job.stalled is not None
            or len(self.flights) > 0
            or (self.hook_life is not None and self.hook_life.is_taking)
            or (self._has_work and not self.budget.is_spent)
        )

    @property
    def _has_work(self) -> bool:
        is_pending = self.recrawl is not None and self.recrawl.is_pending
        return is_pending or self._frontier.has_fetchable

    @property
    def _is_out_of_work(self) -> bool:
        """Return whether nothing is left to do on this node, but for what is in the outbox."""
        frontier = self._frontier
        # A spent page budget does not matter here: other nodes may fetch what is left. Entries that
        # no other node can take do not count.
        stays = self._traffic.stays
        has_fetchable = (
            frontier.has_fetchable and not 0 < frontier.queued - frontier.deferred_queued <= stays
        )
        return not (
            is_starting(self._crawler.engine)
            or has_fetchable
            or (self.recrawl is not None and self.recrawl.is_pending)
            or self._job.stalled is not None
            or len(self.flights)
            or frontier.leased
            or self._job.robots_fetches.asked
        )

    def counted(self) -> Counter[str]:
        """Return what the frontier has counted since this start."""
        return self._frontier.counters - self._before
