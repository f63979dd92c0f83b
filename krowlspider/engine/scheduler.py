"""The scheduler: connects Scrapy's engine to the frontier and the robots gate."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import CloseSpider
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import build_from_crawler, load_object

from krowlspider.archive.errors import ArchiveError
from krowlspider.cluster.membership import ClusterError
from krowlspider.crawl.cluster_traffic import ClusterTraffic
from krowlspider.crawl.codec import RequestCodec, request_limits
from krowlspider.crawl.in_flight import InFlight
from krowlspider.crawl.intake import Intake
from krowlspider.crawl.job import Job
from krowlspider.engine.crash_marking import PageReader, mark_work, tell, tell_holds
from krowlspider.engine.listeners import send_where_heard
from krowlspider.engine.loop_throttle import AT_ONCE
from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.poison import mark_of
from krowlspider.frontier.robots.gate import RobotsFetch, Verdict
from krowlspider.frontier.store.schema import host_key
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.politeness.delay import next_try
from krowlspider.politeness.loop_cost import HEAVY, NOTICED, LoopCost, alone
from krowlspider.politeness.robots import BODY_MAX
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import authority_of, host_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from krowlspider.engine.dupefilter import DupeFilter
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.frontier import Lease
    from krowlspider.frontier.hosts.host import Host

logger = logging.getLogger(__name__)

# Seconds for which one call of `_next` looks for a request. Matching a robots.txt takes some ms at
# worst, so entries that it refuses must not hold the event loop.
_TURN = 0.01
# Limits on the entries of one host that are refused after one pop of it: their number, and the
# seconds after which no more are looked at.
_REFUSALS_A_HOST = 20
_HOST_TURN = 0.002
# Most hosts named in warnings about a robots.txt that takes too long to match.
_WARNINGS = 5
# URLs of a retired host dropped at once, about 10 ms of work. The rest are dropped when popped.
_DROPPED_AT_ONCE = 1000
# Reasons that end the crawl on all nodes of the cluster: no node is left to hand over to.
_FOR_ALL = {"finished", "nodes_left", "cluster_stop", "cluster_pages"}


def _ignore(response: object) -> None:
    """Do nothing: callback of a robots.txt request, whose answer the robots middleware has read."""


class Scheduler(BaseScheduler):
    """Serve requests host by host, politely, and keep them on disk until they are done.

    ``intake`` exists from `open` on; every discovered URL goes through it. ``page_budget`` is the
    number of pages that may still be popped; None is no limit.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)
        dupefilter: type[DupeFilter] = load_object(crawler.settings["DUPEFILTER_CLASS"])
        self._df = build_from_crawler(dupefilter, crawler)
        self._retry_delay = crawler.settings.getfloat("KROWL_RETRY_DELAY")
        self._obey_robots = crawler.settings.getbool("ROBOTSTXT_OBEY")
        self._requests: dict[Request, InFlight] = {}
        self._timer: CallLaterResult | None = None
        self._timer_due = 0.0
        self.page_budget: int | None = None
        # Called for each robots.txt that came or is known to be missing: authority, sitemaps as
        # written there (none if missing), depth of the page that waits.
        self.on_robots: Callable[[str, list[str], int], None] | None = None
        self._cost = LoopCost()
        # Hosts already named in a warning about a robots.txt that takes too long to match.
        self._undecided: set[str] = set()
        # Requests handed to the engine in this turn of the event loop.
        self._in_turn = 0
        # Requests sent and not ended, robots fetches included.
        self.on_the_wire = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    # --- opening and closing ---

    def open(self, spider: Spider) -> None:
        """Connect this scheduler to its job.

        The downloader opened the job before the engine existed.
        """
        self._codec = RequestCodec(spider, request_limits(self._crawler.settings))
        self._frontier = self._job.frontier
        self._gate = self._job.robots
        self._node = self._job.node
        self._gate.come = self._robots_come
        self.intake = Intake(
            self._job,
            self._codec,
            self._crawler.settings,
            identify=self._df.identity,
            wake=self.wake,
        )
        self._before = self._frontier.counters.copy()
        # Pages that this start set aside as poison count as dropped since this start.
        self._before["dropped/poison"] -= sum(blame.poisoned for blame in self._job.blames)
        for blame in self._job.blames:
            tell(blame, self._job.folder.path)
        tell_holds(self._job.holds, self._job.folder.path)
        self._watch_completions()
        if self._node is not None:
            self._traffic = ClusterTraffic(
                self._job,
                self._node,
                self._codec,
                self.intake,
                identify=self._df.identity,
                settings=self._crawler.settings,
                rests=lambda: self.rests,
                wake=self.wake,
            )
            self._crawler.signals.connect(self._idle, signals.spider_idle)
        self._job.run(on_failure=self._stop_crawl, on_room=self.wake, is_ending=self._is_ending)
        self._job.memory.on_room = self.wake
        reader = spider if isinstance(spider, PageReader) else None
        scraper = self._crawler.engine.scraper
        mark_work(scraper, self._job, self.in_flight, reader, self._charge_page)
        send_where_heard(self._crawler)
        if self._job.folder.temporary:
            logger.warning(
                "No JOBDIR: this crawl is kept in %s and cannot go on after another start without"
                " -s JOBDIR=that folder",
                self._job.folder.path,
            )
        if mode := self._job.folder.open_to_others:
            logger.warning(
                "Others can get into JOBDIR %s, which has mode %s: chmod 700 keeps them out",
                self._job.folder.path,
                mode,
            )
        if (mended := self._job.mended).files:
            logger.log(
                logging.WARNING if mended.bytes_cut else logging.INFO,
                "%d WARC files of a crawl that was killed are mended: %d bytes without a whole record were cut off",
                mended.files,
                mended.bytes_cut,
            )
        for damaged in self._job.mended.damaged:
            logger.error("Damage in a WARC file: what followed it is put aside in %s", damaged)
        if self._frontier.pending:
            logger.info(
                "Going on with %d URLs queued in %s", self._frontier.pending, self._job.folder.path
            )

    def close(self, reason: str) -> Deferred[None]:
        """Leave the cluster, if there is one, and close the job."""
        if self._timer is not None:
            self._timer.cancel()
        return deferred_from_coro(self._close(reason))

    async def _close(self, reason: str) -> None:
        if self._node is not None and self._job.failure is None:
            try:
                await self._node.part(drain=reason not in _FOR_ALL)
            except (*STORE_ERRORS, ArchiveError, OSError) as error:
                self._job.fail(error)
        await self._job.close()

    def _watch_completions(self) -> None:
        """Call `_over` for each request that the engine has finished.

        Scrapy has no signal for it. The engine's slot forgets a request exactly once: when the
        output of its callback or errback is exhausted, or when a middleware's replacement has been
        scheduled. No other place sees every end.
        """
        slot = self._crawler.engine._slot
        assert slot is not None
        forget = slot.remove_request

        def remove_request(request: Request) -> None:
            self._over(request)
            forget(request)

        slot.remove_request = remove_request  # type: ignore[method-assign]

    def _all_over(self) -> None:
        node = self._node
        assert node is not None
        if node.left:
            logger.warning(
                "Nodes %s have left before all was done: start all nodes again to go on",
                ", ".join(node.left),
            )
            self._end("nodes_left")
        self.wake()

    def _all_stop(self) -> None:
        logger.info("The cluster's signal is STOP: scrapy ring --signal RUNNING has it go on")
        self._end("cluster_stop")

    def _end(self, reason: str) -> None:
        self._closing = asyncio.ensure_future(
            self._crawler.engine.close_spider_async(reason=reason)
        )

    def _stop_crawl(self, error: Exception) -> None:
        logger.critical("The crawl stops; what was not committed stays queued: %s", error)
        self._end("cluster_error" if isinstance(error, ClusterError) else "storage_error")

    def _is_ending(self) -> bool:
        slot = self._crawler.engine._slot
        return slot is not None and slot.closing is not None

    def _idle(self) -> None:
        if self._node is not None and self._node.spent:
            raise CloseSpider("cluster_pages")

    async def join(self) -> None:
        """Connect to the other nodes, if any, and return when the owner of each URL is known.

        Await it after ``scope``, ``page_budget`` and ``on_robots`` are set, and before anything is
        queued.

        :raises CloseSpider: the owners will never be known
        """
        if self._node is not None:
            if not self._node.running:
                self._node.run(self._traffic, on_over=self._all_over, on_stop=self._all_stop)
            await self._node.known.wait()
            if not self._node.knows:
                raise CloseSpider("no_cluster")

    @property
    def paused(self) -> bool:
        """Return whether the crawl waits for room on its disk.

        Meanwhile discovered URLs are kept in memory.
        """
        return self._job.full is not None

    # --- queueing ---

    def enqueue_request(self, request: Request) -> bool:
        """Queue a request durably; return False if it is known or refused.

        Each refusal is counted with its reason. A request in flight goes back to the queue of its
        host with its new retry counts, to be tried again later.
        """
        in_flight = self._requests.get(request)
        if in_flight is not None and (
            in_flight.unpopped or in_flight.turned_back or in_flight.robots_fetch
        ):
            # Its page is back in the queue already, or it was a robots fetch and is over.
            return True
        url = normalise(request.url)
        if url is None:
            return self._refuse("url")
        try:
            entry = self._codec.entry(request, url)
        except ValueError as error:
            logger.error("%s cannot be queued: %s", request, error)
            return self._refuse("unserializable")
        if in_flight is not None and in_flight.lease is not None:
            self._put_back(in_flight, in_flight.lease, entry)
            return True
        return self.intake.request(request, url, entry)

    def is_linked_port(self, in_flight: InFlight) -> bool:
        """Return whether a request goes to a port that was found in a link.

        False for the ports that any host may have.
        """
        name = in_flight.host.name
        return ":" in name and self._frontier.linked_ports.is_linked(name)

    def _put_back(self, in_flight: InFlight, lease: Lease, entry: Entry) -> None:
        before = lease.entry
        entry.url, entry.strikes = before.url, before.strikes
        entry.via, entry.hop = before.via, before.hop
        tries = entry.retries + entry.throttling
        if tries > before.retries + before.throttling:
            entry.due = self._frontier.now() + next_try(tries, self._retry_delay)
        self._frontier.replace(lease, entry)
        in_flight.lease = None
        self._return_budget()

    def _refuse(self, reason: str) -> bool:
        self.intake.count_dropped(reason)
        return False

    # --- the next request ---

    @property
    def rests(self) -> bool:
        """Return whether nothing is left to do on this node and nothing to send to other nodes."""
        is_starting = self._crawler.engine._start is not None
        frontier = self._frontier
        # A spent page budget does not matter here: other nodes may fetch what is left. Entries that
        # no other node can take do not count.
        stays = self._traffic.stays
        is_hopeful = (
            frontier.hopeful and not 0 < frontier.queued - frontier.deferred_queued <= stays
        )
        return not (
            is_starting
            or is_hopeful
            or self._job.stalled is not None
            or self._requests
            or frontier.leased
            or frontier.outbox.depth
        )

    def has_pending_requests(self) -> bool:
        node = self._node
        if node is not None and not (node.over or node.spent or self.page_budget == 0):
            return True
        return self._has_work()

    def _has_work(self) -> bool:
        # `_requests` counts too: between downloader and scraper, a response is in neither.
        if self._job.stalled is not None:
            return True
        is_spent = self.page_budget == 0 or (self._node is not None and self._node.spent)
        return bool(self._requests) or (self._frontier.hopeful and not is_spent)

    def next_request(self) -> Request | None:
        if self.page_budget == 0 or self._job.failure is not None or self.paused:
            return None
        if self._node is not None and not self._node.ready:
            return None
        if not self._job.memory.admits():
            return None
        if self._in_turn >= AT_ONCE:
            # The engine asks until it gets None, and sends all in this turn of the event loop.
            self._in_turn = 0
            self.wake()
            return None
        try:
            request = self._next()
        except STORE_ERRORS as error:
            self._job.fail(error)
            return None
        self._in_turn = 0 if request is None else self._in_turn + 1
        return request

    def _next(self) -> Request | None:
        outages = self._job.outages
        if outages.paused and (wait := outages.next_probe()) > 0:
            self._wake_at(self._frontier.now() + wait)
            return None
        clock = self._frontier.now
        end = clock() + _TURN
        while clock() < end:
            host = self._pop_probe() if outages.paused else self._frontier.pop_host()
            if host is None:
                self._wake_when_due()
                return None
            begun = clock()
            # Matching robots.txt and exclusions may hold the event loop: mark the host.
            mark = mark_of(host_key(host.name))
            request = self._job.mark.during(mark, self._next_of, host, begun)
            if request is not None:
                self.charge(self._requests[request], clock() - begun)
                return request
        self.wake()
        return None

    def _pop_probe(self) -> Host | None:
        """Pop the host to probe during an outage; return None if no host is due.

        Prefer a host that answered before the outage.
        """
        for name in self._job.outages.to_probe():
            if (host := self._frontier.pop_named(name)) is not None:
                return host
        return self._frontier.pop_host()

    def charge(self, in_flight: InFlight, took: float) -> None:
        """Make the host of a request rest, for ``took`` seconds that it used of the event loop."""
        if took > HEAVY:
            in_flight.rest = max(in_flight.rest, self._cost.rest(took, self._frontier.now()))
        elif took > NOTICED:
            in_flight.rest = max(in_flight.rest, alone(took))

    def _charge_page(self, request: Request, took: float) -> None:
        """Make the host of a page rest if reading the page used much of the event loop.

        ``took`` is in CPU seconds.
        """
        if took > HEAVY and (in_flight := self._requests.get(request)) is not None:
            self._frontier.rest_longer(in_flight.host, alone(took))

    def _next_of(self, host: Host, begun: float) -> Request | None:
        """Return the host's next request; None if it has none that may be sent now.

        ``begun`` is the time at which the host was popped, in seconds of the job clock.
        """
        # Alternate with pages, so that robots fetches for other hosts do not hold up this host.
        host.robots_fetch_last = bool(host.robots_fetches) and not (
            host.robots_fetch_last and host.queued and not host.waits
        )
        if host.robots_fetch_last:
            robots_fetch = host.robots_fetches.pop(0)
            assert isinstance(robots_fetch, RobotsFetch)
            if self.intake.exclusions.hold_for(robots_fetch.url):
                self._gate.failed(robots_fetch, final=True)
                self._frontier.give_back(host)
                return None
            return self._send_robots_fetch(host, robots_fetch)
        deferred = False
        for _ in range(_REFUSALS_A_HOST):
            lease = self._frontier.pop(host)
            if lease is None:
                break
            url = lease.entry.url
            if self.intake.exclusions.hold_for(url):
                self._frontier.acknowledge(lease, dropped="exclude")
                continue
            authority = authority_of(url)
            verdict = self._verdict(host, authority, url)
            if verdict is Verdict.ALLOWED:
                return self._send_page(host, lease)
            if verdict is Verdict.UNKNOWN:
                self._frontier.unpop(lease)
                return self._send_robots_fetch(host, self._own_robots_fetch(host, authority))
            deferred |= self._turn_away(lease, verdict)
            if self._frontier.now() > begun + _HOST_TURN:
                break
        now = self._frontier.now()
        if deferred and host.health is not Health.RETIRED:
            self._frontier.defer(host)
        else:
            self._frontier.give_back(host, self._cost.rest(now - begun, now))
        return None

    def _verdict(self, host: Host, authority: str, url: str) -> Verdict:
        if not self._obey_robots:
            return Verdict.ALLOWED
        if host.health is Health.RETIRED:
            return Verdict.TOO_SLOW
        verdict = self._gate.verdict(authority, url)
        if verdict is Verdict.ALLOWED and self._gate.too_slow(host.name):
            self._frontier.retire(host)
            return Verdict.TOO_SLOW
        return verdict

    def _own_robots_fetch(self, host: Host, authority: str) -> RobotsFetch:
        """Return the fetch of the host's own robots.txt.

        It is the one that waits at this host, if there is one, else a new one.
        """
        for robots_fetch in host.robots_fetches:
            assert isinstance(robots_fetch, RobotsFetch)
            if robots_fetch.authority == authority:
                host.robots_fetches.remove(robots_fetch)
                return robots_fetch
        return self._gate.robots_fetch(authority, host)

    def _turn_away(self, lease: Lease, verdict: Verdict) -> bool:
        """Drop an entry that robots.txt does not allow.

        Return True if the entry stays queued instead, because robots.txt cannot be fetched now. For
        a seed without a scheme (``bare``), the http URL is queued in its place then.
        """
        if verdict is Verdict.UNREACHABLE and not lease.entry.bare:
            self._frontier.replace(lease, lease.entry)
            return True
        if verdict is Verdict.UNREACHABLE:
            self.intake.fall_back(lease.entry)
        if verdict is Verdict.UNDECIDED:
            self._name_undecided(lease.host.name)
        self._frontier.acknowledge(lease, dropped=verdict.value)
        return False

    def _name_undecided(self, host: str) -> None:
        if host not in self._undecided and len(self._undecided) < _WARNINGS:
            self._undecided.add(host)
            logger.warning(
                "robots.txt of %s takes too long to match: URLs that it does not decide in some ms"
                " are dropped and counted as robots_undecided",
                host,
            )

    def _robots_come(self, robots_fetch: RobotsFetch, sitemaps: list[str]) -> None:
        """Report a robots.txt that came, or is known to be missing, to ``on_robots``."""
        if self.on_robots is None or (lease := self._frontier.pop(robots_fetch.host)) is None:
            return
        self._frontier.unpop(lease)
        base = robots_fetch.authority + "/"
        # The authority may be another host that shares the robots.txt, as www does. Skip it if the
        # crawl keeps to the hosts of its seeds.
        if self.intake.scope.refusal(base, host_of(base), 0, robots_fetch.host.name) != "host":
            self.on_robots(robots_fetch.authority, sitemaps, lease.entry.depth)

    def _send_page(self, host: Host, lease: Lease) -> Request:
        if self._obey_robots:
            host.rate.floor = self._gate.crawl_delay(host.name)
        request = self._codec.request(lease.entry)
        self._requests[request] = InFlight(host, lease.entry.url, lease=lease)
        self._sent(host)
        if self.page_budget is not None:
            self.page_budget -= 1
        if self._node is not None and self._node.allowance is not None:
            self._node.allowance.take()
        return request

    def _send_robots_fetch(self, host: Host, robots_fetch: RobotsFetch) -> Request:
        if robots_fetch.host is host and host.health is not Health.RETIRED:
            host.set_health(Health.ROBOTS)
        meta = {"download_maxsize": BODY_MAX + 1}
        request = Request(robots_fetch.url, callback=_ignore, dont_filter=True, meta=meta)
        self._requests[request] = InFlight(host, robots_fetch.url, robots_fetch=robots_fetch)
        self._sent(host)
        return request

    def _sent(self, host: Host) -> None:
        self.on_the_wire += 1
        if self._job.outages.paused:
            self._job.outages.sent(host)

    # --- in flight ---

    def in_flight(self, request: Request) -> InFlight | None:
        """Return the record of a request in flight.

        Return None if the request is over or did not come from this scheduler.
        """
        return self._requests.get(request)

    def reserve_address(self, in_flight: InFlight, address: str) -> bool:
        """Reserve room at the address to which the request is about to be sent.

        Return False if KROWL_IP_CONCURRENCY hosts of this address are in flight: the caller must
        then turn the request back.
        """
        return self._frontier.reserve_address(in_flight.host, address)

    def turn_back(self, in_flight: InFlight, address: str) -> None:
        """Put back a request that was not sent because its address has no room."""
        in_flight.turned_back = True
        self.on_the_wire -= 1
        robots_fetch = in_flight.robots_fetch
        if robots_fetch is not None and not (
            robots_fetch.host is in_flight.host and robots_fetch.is_fresh
        ):
            # A fresh fetch of the host's own is made again at the next pop: it need not keep its
            # host in memory.
            in_flight.host.robots_fetches.insert(0, robots_fetch)
        self.unpop(in_flight)
        self._frontier.turn_back(in_flight.host, address)

    def unpop(self, in_flight: InFlight) -> None:
        """Put a page back to its old place in the queue; its host stays in flight."""
        if in_flight.lease is not None:
            in_flight.unpopped = True
            self._frontier.unpop(in_flight.lease)
            in_flight.lease = None
            self._return_budget()

    def ended(self, in_flight: InFlight) -> None:
        """Release the host of a request that left the wire: it is due again after its delay."""
        if in_flight.turned_back:
            return
        host = in_flight.host
        wait = max(in_flight.wait, in_flight.rest, self._job.rule.delay(host.rate))
        self.on_the_wire -= 1
        if host.health is Health.RETIRED:
            # The request was the robots fetch of another host.
            pass
        elif host.rate.throttling or host.rate.errors:
            host.set_health(Health.BACKING_OFF)
        elif not (in_flight.hold or host.waits):
            host.set_health(Health.ACTIVE)
        if in_flight.robots_fetch is not None and self._gate.too_slow(host.name):
            self._retire(host)
        if in_flight.robots_fetch is not None:
            self._gate.outlast(in_flight.robots_fetch.authority, wait)
        if in_flight.hold:
            self._frontier.wait(host, wait)
        elif in_flight.resting and host.health is not Health.RETIRED and not host.waits:
            self._frontier.defer(host, wait)
        else:
            self._frontier.release(host, wait)

    def _retire(self, host: Host) -> None:
        """Retire a host in flight whose Crawl-delay is too long, and drop URLs queued for it now.

        Robots fetches of other hosts that go to this host wait as before.
        """
        self._frontier.retire(host)
        for _ in range(_DROPPED_AT_ONCE):
            if (lease := self._frontier.pop(host)) is None:
                return
            self._frontier.acknowledge(lease, dropped=Verdict.TOO_SLOW.value)

    def _over(self, request: Request) -> None:
        """End a request that Scrapy has finished: the next commit acknowledges its page."""
        in_flight = self._requests.pop(request, None)
        if in_flight is None:
            return
        if in_flight.held is not None:
            in_flight.held.over()
        if in_flight.note is not None:
            # Before the acknowledgement: the next commit makes both durable.
            self._job.notes.hand_in(in_flight.note, request.meta)
        if in_flight.lease is None:
            return
        if in_flight.failure is not None:
            self._return_budget()
        self._frontier.acknowledge(in_flight.lease, dropped=in_flight.failure)

    def _return_budget(self) -> None:
        if self.page_budget is not None:
            self.page_budget += 1
        if self._node is not None and self._node.allowance is not None:
            self._node.allowance.give_back()

    # --- waking the engine ---

    def wake(self) -> None:
        """Make the engine ask for the next request."""
        slot = self._crawler.engine._slot
        if slot is not None:
            slot.nextcall.schedule()

    def _wake_when_due(self) -> None:
        due = self._frontier.next_due()
        if due is not None:
            self._wake_at(due)

    def _wake_at(self, due: float) -> None:
        """Wake the engine at ``due``, in seconds of the job clock.

        Do nothing if an earlier wake-up is set already.
        """
        if self._timer is not None and self._timer_due <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = call_later(max(0.0, due - self._frontier.now()), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    # --- counters ---

    def counted(self) -> Counter[str]:
        """Return what the frontier has counted since this start."""
        return self._frontier.counters - self._before
