"""The scheduler seam: Scrapy's engine on one side, the frontier and the robots gate on the other."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import CloseSpider
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import build_from_crawler, load_object

from krowlspider.archive.errors import ArchiveError
from krowlspider.codec import RequestCodec, request_limits
from krowlspider.exchange import Exchange
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.frontier import Candidate, Lease
from krowlspider.frontier.hosts import State
from krowlspider.frontier.outbox import Foreign, foreign_mark
from krowlspider.frontier.poison import mark_of
from krowlspider.frontier.robots import Errand, Verdict
from krowlspider.frontier.schema import host_key
from krowlspider.frontier.store import STORE_ERRORS
from krowlspider.job import Job
from krowlspider.listeners import send_where_heard
from krowlspider.politeness.loopcost import HEAVY, NOTICED, LoopCost, alone
from krowlspider.politeness.pace import next_try
from krowlspider.politeness.robots import BODY_MAX
from krowlspider.processing import PageReader, mark_work, tell, tell_holds
from krowlspider.turnstile import AT_ONCE
from krowlspider.urls.canonical import normalise
from krowlspider.urls.exclude import Exclusions
from krowlspider.urls.host import authority_of, host_of
from krowlspider.urls.scope import Scope

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from krowlspider.archive.capture import Note
    from krowlspider.dupefilter import DupeFilter
    from krowlspider.fetch.memory import Held
    from krowlspider.frontier.hosts import Host

logger = logging.getLogger(__name__)

# Seconds that one turn of the event loop may spend on entries that robots.txt refuses. One verdict takes 4 µs with
# ordinary rules and some ms with the longest.
_TURN = 0.01
# Entries refused in one turn of a host at most, and seconds after which its turn ends.
_REFUSALS_A_HOST = 20
_HOST_TURN = 0.002
# Hosts named in the log for a robots.txt that takes too long to match.
_WARNINGS = 5
# URLs of a retired host dropped in one go, 10 ms; the rest when it is popped.
_DROPPED_AT_ONCE = 1000
# Why a crawl ends for all nodes of its cluster: there is nobody to hand anything over to.
_FOR_ALL = {"finished", "nodes_left", "cluster_stop", "cluster_pages"}
# Where the authority of "http://" or "https://" has begun, at the latest.
_AUTHORITY = 8


def _finder(page: str) -> Callable[[str], str]:
    """`host_of`, but most links lead to the host of their ``page``, which need not be cut out of each then."""
    if not page:
        return host_of
    own, here = host_of(page), page[: page.index("/", _AUTHORITY) + 1]
    return lambda url: own if url.startswith(here) else host_of(url)


def _ignore(response: object) -> None:
    """Callback of a robots.txt request: its middleware has read it."""


@dataclass(slots=True, eq=False)
class Transit:
    """A request on its way: a leased page, or an errand for robots.txt.

    ``wait`` is what the politeness middleware found: seconds from the end of the request to the host's next, on
    top of which the host's delay is the least.
    ``rest`` is the same for the time that the turn took of the event loop.
    ``failure`` is the reason the page is dropped unless it is queued again. ``hold`` keeps the host out of the
    heap until its robots.txt is known, ``resting`` for minutes or a day. ``blameless`` says that neither host nor page is to
    blame for the failure; ``unpopped`` that the page is back where it was; ``turned_back`` that nothing was sent.
    ``note`` is what the archive is to be told of the fetch when the request is over. ``mark`` is that of the page at work
    (`page_mark`), once it is made. ``held`` are the bytes that it has in memory.
    """

    host: Host
    url: str
    lease: Lease | None = None
    errand: Errand | None = None
    wait: float = 0.0
    rest: float = 0.0
    failure: str | None = None
    hold: bool = False
    resting: bool = False
    blameless: bool = False
    unpopped: bool = False
    turned_back: bool = False
    note: Note | None = None
    mark: bytes = b""
    held: Held | None = None


class Scheduler(BaseScheduler):
    """Requests by host, politely, and on disk until they are done.

    ``scope`` decides which discovered URLs are queued, ``exclusions`` which of all URLs are left alone, those that are
    queued already too. ``page_budget`` is how many more pages may be popped; None
    is no limit.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)
        dupefilter: type[DupeFilter] = load_object(crawler.settings["DUPEFILTER_CLASS"])
        self._df = build_from_crawler(dupefilter, crawler)
        self._retry_delay = crawler.settings.getfloat("KROWL_RETRY_DELAY")
        self._obey_robots = crawler.settings.getbool("ROBOTSTXT_OBEY")
        self._keeps_via = crawler.settings.getbool("KROWL_WARC_METADATA")
        self._transits: dict[Request, Transit] = {}
        self._timer: CallLaterResult | None = None
        self._timer_due = 0.0
        self.page_budget: int | None = None
        # Told of each robots.txt that comes: authority, sitemaps as written there (none where there is no robots.txt),
        # depth of the page that waits.
        self.on_robots: Callable[[str, list[str], int], None] | None = None
        self._cost = LoopCost()
        # Hosts named for a robots.txt that takes too long to match.
        self._undecided: set[str] = set()
        # Requests handed to the engine in this turn of the loop.
        self._in_turn = 0
        # Requests sent and not ended.
        self.on_the_wire = 0
        self.exclusions = Exclusions()
        self.scope = Scope(
            max_depth=0,
            allow=(),
            deny=(),
            same_host=False,
            same_domain=False,
            max_url_length=crawler.settings.getint("URLLENGTH_LIMIT"),
        )

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    # --- opening and closing ---

    def open(self, spider: Spider) -> None:
        """:raises JobError: the job's folder cannot be used"""
        self._codec = RequestCodec(spider, request_limits(self._crawler.settings))
        self._job.open()
        self._frontier = self._job.frontier
        self._gate = self._job.robots
        self._node = self._job.node
        self._gate.come = self._robots_come
        self._before = self._frontier.counters.copy()
        # What this start has set aside counts as dropped by it.
        self._before["dropped/poison"] -= sum(blame.poisoned for blame in self._job.blames)
        for blame in self._job.blames:
            tell(blame, self._job.folder.path)
        tell_holds(self._job.holds, self._job.folder.path)
        self._watch_completions()
        if self._node is not None:
            self._exchange = Exchange(
                self,
                self._job,
                self._codec,
                self._node,
                identify=self._df.identity,
                settings=self._crawler.settings,
            )
            self._node.on_over = self._all_over
            self._node.on_stop = self._all_stop
            self._crawler.signals.connect(self._idle, signals.spider_idle)
        self._job.on_room = self.wake
        self._job.memory.on_room = self.wake
        reader = spider if isinstance(spider, PageReader) else None
        scraper = self._crawler.engine.scraper
        mark_work(scraper, self._job, self.transit, reader, self._charge_page)
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
        """Have the engine say when a request is over.

        The engine has no signal for it. Its slot forgets a request exactly once, after the callback's or
        errback's output is exhausted or a middleware's replacement has been scheduled: the one place that sees
        every end.
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

    def _idle(self) -> None:
        if self._node is not None and self._node.spent:
            raise CloseSpider("cluster_pages")

    async def join(self) -> None:
        """Begin to deal with the other nodes, if there are any; return when it is known whose a URL is. To be awaited
        when ``scope``, ``page_budget`` and ``on_robots`` are set, and before anything is queued.

        :raises CloseSpider: it will not be known
        """
        if self._node is not None:
            if not self._node.running:
                self._node.run(self._exchange)
            await self._node.known.wait()
            if not self._node.knows:
                raise CloseSpider("no_cluster")

    @property
    def paused(self) -> bool:
        """Whether the crawl waits for room on its disk: what is discovered is kept in memory."""
        return self._job.full is not None

    # --- in ---

    def enqueue_request(self, request: Request) -> bool:
        """Queue a request durably. One that is in transit goes back to its host, with its new counts, to be tried again
        later.

        False when it is known or refused; each refusal is counted with its reason.
        """
        transit = self._transits.get(request)
        if transit is not None and (transit.unpopped or transit.turned_back or transit.errand):
            # It is back where it was, or over.
            return True
        url = normalise(request.url)
        if url is None:
            return self._refuse("url")
        try:
            entry = self._codec.entry(request, url)
        except ValueError as error:
            logger.error("%s cannot be queued: %s", request, error)
            return self._refuse("unserializable")
        if transit is not None and transit.lease is not None:
            self._put_back(transit, transit.lease, entry)
            return True
        host = host_of(url)
        if reason := self.scope.refusal(url, host, entry.depth, None):
            return self._refuse(reason)
        if entry.redirects and ":" in host and not self.may_link(host):
            return self._refuse("port")
        if self.exclusions.hold_for(url):
            return self._refuse("exclude")
        # Scrapy has start requests fetched whether they are known or not; but in a ring all nodes have the same.
        in_common = self._node is not None and request.meta.get("is_start_request", False)
        always = request.dont_filter and not in_common
        key = None if always else self._df.identity(request, url)
        if self._node is not None and (owner := self._node.others([host])[0]) is not None:
            return self._exchange.send_off(owner, Candidate(host, key, entry, request.priority))
        if key is not None and self.knows((key,), lambda _: host)[0]:
            return False
        return bool(self.add([Candidate(host, key, entry, request.priority)]))

    def knows(self, keys: Sequence[bytes], host_at: Callable[[int], str]) -> list[bool]:
        """As `Frontier.knows`.

        :raises StoreError: it cannot be told; as of `_add`"""
        try:
            return self._frontier.knows(keys, host_at)
        except STORE_ERRORS as error:
            self._job.fail(error)
            raise

    def may_link(self, host: str) -> bool:
        """As `LinkedPorts.admits`, for a host with a port that a stranger's link or redirect leads
        to.

        :raises StoreError: as of `add`"""
        try:
            return self._frontier.linked_ports.admits(host)
        except STORE_ERRORS as error:
            self._job.fail(error)
            raise

    def is_linked_port(self, transit: Transit) -> bool:
        """Whether a request goes to a port that was found by a link, and is not one that any host
        may have."""
        name = transit.host.name
        return ":" in name and self._frontier.linked_ports.is_linked(name)

    def add(
        self,
        candidates: list[Candidate],
        foreign: Sequence[Foreign] = (),
        decided: Sequence[bytes] = (),
        via: str = "",
    ) -> int:
        """Queue what is not known, as `Frontier.queue`.

        :raises StoreError: it cannot be written; nothing is acknowledged from then on, its page neither
        """
        try:
            return self._frontier.queue(candidates, foreign, decided, via)
        except STORE_ERRORS as error:
            self._job.fail(error)
            raise

    def _put_back(self, transit: Transit, lease: Lease, entry: Entry) -> None:
        before = lease.entry
        entry.url, entry.strikes = before.url, before.strikes
        entry.via, entry.hop = before.via, before.hop
        tries = entry.retries + entry.distress
        if tries > before.retries + before.distress:
            entry.due = self._frontier.now() + next_try(tries, self._retry_delay)
        self._frontier.replace(lease, entry)
        transit.lease = None
        self._return_budget()

    def _refuse(self, reason: str) -> bool:
        self.count_dropped(reason)
        return False

    def count_dropped(self, reason: str, count: int = 1) -> None:
        """Count URLs that are not queued, with their reason."""
        self._frontier.counters[f"dropped/{reason}"] += count

    def discover(
        self,
        urls: Iterable[str],
        *,
        depth: int,
        via: str | None = None,
        page: str = "",
        hop: str = "L",
        redirects: int = 0,
        chain: tuple[str, ...] = (),
        bare: frozenset[str] = frozenset(),
        request: Callable[[str], Request] | None = None,
    ) -> int:
        """Take normalised URLs found on a page, or given as seeds, in bulk; return how many were new.

        ``via`` is the host of the page, ``page`` its URL and ``hop`` how it names them, as of an `Entry`: kept where
        KROWL_WARC_METADATA wants it. Those in ``bare`` are seeds that fall back to http. ``chain`` are the URLs
        whose redirects led here: where the last of them has the same identity, as behind a session id, it has made that
        known without being the page, and the URL is queued all the same. Where they are no plain pages, ``request``
        makes the request of each; what they are is known then, whatever their extension says.
        """
        urls = list(urls)
        found = self._job.hasher.keys(urls)
        host_in = _finder(page)
        owners = None if self._node is None else self._node.others(list(map(host_in, urls)))
        itself = bool(chain) and found == self._job.hasher.keys(chain[-1:])
        keys: Sequence[bytes | None] = [None] if itself else found
        # First, as most links are: what is known is in scope, or was when it was found.
        known = [False] if itself else self._known_here(found, lambda at: host_in(urls[at]), owners)
        exclusions = self.exclusions
        refusal = self.scope.refusal
        keeps = bool(page) and self._keeps_via
        candidates = []
        foreign: list[Foreign] = []
        for at in [at for at, is_known in enumerate(known) if not is_known]:
            url, identity = urls[at], keys[at]
            host = host_in(url)
            reason = refusal(url, host, depth, via)
            if reason and not (request and reason == "extension"):
                self.count_dropped(reason)
                continue
            if ":" in host and via is not None and not self.may_link(host):
                self.count_dropped("port")
                continue
            if exclusions.patterns and exclusions.hold_for(url):
                self.count_dropped("exclude")
                continue
            if request:
                entry = self._codec.entry(request(url), url)
            else:
                entry = Entry(url, depth, redirects, bare=url in bare, chain=chain)
            if keeps:
                entry.via, entry.hop = page, hop
            if owners is not None and (owner := owners[at]) is not None:
                foreign += self._exchange.outgoing(owner, host, identity, entry)
            else:
                candidates.append(Candidate(host, identity, entry))
        added = self.add(candidates, foreign, via=via or "")
        if added:
            self.wake()
        return added

    def _known_here(
        self, keys: list[bytes], host_at: Callable[[int], str], owners: list[str | None] | None
    ) -> list[bool]:
        """Which identities are known; those that other nodes own, as sent to them."""
        if owners is None or not any(owners):
            return self.knows(keys, host_at)
        marks = [
            (host_at(at), key) if owner is None else foreign_mark(owner, key)
            for at, (key, owner) in enumerate(zip(keys, owners, strict=True))
        ]
        return self.knows([key for _, key in marks], lambda at: marks[at][0])

    # --- out ---

    @property
    def rests(self) -> bool:
        """Whether nothing is left to do here, and nothing to send to other nodes."""
        is_starting = self._crawler.engine._start is not None
        frontier = self._frontier
        # A budget that is used up leaves work for others, and what only this node can read is for nobody.
        stays = self._exchange.stays
        is_hopeful = frontier.hopeful and not 0 < frontier.queued - frontier.put_off_queued <= stays
        return not (
            is_starting
            or is_hopeful
            or self._job.stalled is not None
            or self._transits
            or frontier.leased
            or frontier.outbox.depth
        )

    def has_pending_requests(self) -> bool:
        node = self._node
        if node is not None and not (node.over or node.spent or self.page_budget == 0):
            return True
        return self._has_work()

    def _has_work(self) -> bool:
        # A response between the downloader and the scraper is in neither of them for a moment.
        if self._job.stalled is not None:
            return True
        is_spent = self.page_budget == 0 or (self._node is not None and self._node.spent)
        return bool(self._transits) or (self._frontier.hopeful and not is_spent)

    def next_request(self) -> Request | None:
        if self.page_budget == 0 or self._job.failure is not None or self.paused:
            return None
        if self._node is not None and not self._node.ready:
            return None
        if not self._job.memory.admits():
            return None
        if self._in_turn >= AT_ONCE:
            # The engine asks until nothing comes, and all that it is given it sends in this turn of the loop.
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
            # What robots.txt and exclusions say is worked out there.
            mark = mark_of(host_key(host.name))
            request = self._job.mark.during(mark, self._next_of, host, begun)
            if request is not None:
                self.charge(self._transits[request], clock() - begun)
                return request
        self.wake()
        return None

    def _pop_probe(self) -> Host | None:
        """The host that is asked whether an outage is over: one that answered before it, where one
        is due."""
        for name in self._job.outages.to_probe():
            if (host := self._frontier.pop_named(name)) is not None:
                return host
        return self._frontier.pop_host()

    def charge(self, transit: Transit, took: float) -> None:
        """Have the host of a request rest for the seconds that it took of the event loop."""
        if took > HEAVY:
            transit.rest = max(transit.rest, self._cost.rest(took, self._frontier.now()))
        elif took > NOTICED:
            transit.rest = max(transit.rest, alone(took))

    def _charge_page(self, request: Request, took: float) -> None:
        """Have the host of a page rest for the seconds that reading the page took of the event
        loop."""
        if took > HEAVY and (transit := self._transits.get(request)) is not None:
            self._frontier.rest_longer(transit.host, alone(took))

    def _next_of(self, host: Host, begun: float) -> Request | None:
        """The host's next request, None when it has none that may be sent now.

        Its turn began at ``begun``, in seconds of the job clock.
        """
        # By turns, so that those whose robots.txt leads to this host do not hold up its pages.
        host.errand_last = bool(host.errands) and not (
            host.errand_last and host.queued and not host.waits
        )
        if host.errand_last:
            errand = host.errands.pop(0)
            assert isinstance(errand, Errand)
            if self.exclusions.hold_for(errand.url):
                self._gate.failed(errand, final=True)
                self._frontier.give_back(host)
                return None
            return self._send_errand(host, errand)
        put_off = False
        for _ in range(_REFUSALS_A_HOST):
            lease = self._frontier.pop(host)
            if lease is None:
                break
            url = lease.entry.url
            if self.exclusions.hold_for(url):
                self._frontier.acknowledge(lease, dropped="exclude")
                continue
            authority = authority_of(url)
            verdict = self._verdict(host, authority, url)
            if verdict is Verdict.ALLOWED:
                return self._send_page(host, lease)
            if verdict is Verdict.UNKNOWN:
                self._frontier.unpop(lease)
                return self._send_errand(host, self._own_errand(host, authority))
            put_off |= self._turn_away(lease, verdict)
            if self._frontier.now() > begun + _HOST_TURN:
                break
        now = self._frontier.now()
        if put_off and host.state is not State.RETIRED:
            self._frontier.put_off(host)
        else:
            self._frontier.give_back(host, self._cost.rest(now - begun, now))
        return None

    def _verdict(self, host: Host, authority: str, url: str) -> Verdict:
        if not self._obey_robots:
            return Verdict.ALLOWED
        if host.state is State.RETIRED:
            return Verdict.TOO_SLOW
        verdict = self._gate.verdict(authority, url)
        if verdict is Verdict.ALLOWED and self._gate.too_slow(host.name):
            self._frontier.retire(host)
            return Verdict.TOO_SLOW
        return verdict

    def _own_errand(self, host: Host, authority: str) -> Errand:
        """The errand for a host's own robots.txt: one that came back to it, or a new one."""
        for errand in host.errands:
            assert isinstance(errand, Errand)
            if errand.authority == authority:
                host.errands.remove(errand)
                return errand
        return self._gate.errand(authority, host)

    def _turn_away(self, lease: Lease, verdict: Verdict) -> bool:
        """Drop what robots.txt disallows. True for what stays queued until robots.txt can be had."""
        if verdict is Verdict.UNREACHABLE and not lease.entry.bare:
            self._frontier.replace(lease, lease.entry)
            return True
        if verdict is Verdict.UNREACHABLE:
            self.fall_back(lease.entry)
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

    def _robots_come(self, errand: Errand, sitemaps: list[str]) -> None:
        """A robots.txt has come, or is known not to be there."""
        if self.on_robots is None or (lease := self._frontier.pop(errand.host)) is None:
            return
        self._frontier.unpop(lease)
        base = errand.authority + "/"
        # Of one that shares the robots.txt, as www does, where the crawl keeps to the hosts of its seeds.
        if self.scope.refusal(base, host_of(base), 0, errand.host.name) != "host":
            self.on_robots(errand.authority, sitemaps, lease.entry.depth)

    def fall_back(self, entry: Entry) -> None:
        """A seed given without a scheme did not answer on https: try http."""
        self.discover([entry.url.replace("https:", "http:", 1)], depth=entry.depth)

    def _send_page(self, host: Host, lease: Lease) -> Request:
        if self._obey_robots:
            host.pace.floor = self._gate.crawl_delay(host.name)
        request = self._codec.request(lease.entry)
        self._transits[request] = Transit(host, lease.entry.url, lease=lease)
        self._sent(host)
        if self.page_budget is not None:
            self.page_budget -= 1
        if self._node is not None and self._node.allowance is not None:
            self._node.allowance.take()
        return request

    def _send_errand(self, host: Host, errand: Errand) -> Request:
        if errand.host is host and host.state is not State.RETIRED:
            host.become(State.ROBOTS)
        meta = {"download_maxsize": BODY_MAX + 1}
        request = Request(errand.url, callback=_ignore, dont_filter=True, meta=meta)
        self._transits[request] = Transit(host, errand.url, errand=errand)
        self._sent(host)
        return request

    def _sent(self, host: Host) -> None:
        self.on_the_wire += 1
        if self._job.outages.paused:
            self._job.outages.sent(host)

    # --- on the way, and the end ---

    def transit(self, request: Request) -> Transit | None:
        """What is known of a request on its way; None for one that did not come from this scheduler."""
        return self._transits.get(request)

    def locate(self, transit: Transit, address: str) -> bool:
        """The request is about to be sent to an address. False when KROWL_IP_CONCURRENCY of its hosts are in transit:
        it is to be turned back."""
        return self._frontier.locate(transit.host, address)

    def turn_back(self, transit: Transit, address: str) -> None:
        """A request that was not sent, for want of room at its address, goes back to where it was."""
        transit.turned_back = True
        self.on_the_wire -= 1
        errand = transit.errand
        if errand is not None and not (errand.host is transit.host and errand.is_fresh):
            # Else it is made anew at the next pop, and does not keep its host in memory.
            transit.host.errands.insert(0, errand)
        self.unpop(transit)
        self._frontier.turn_back(transit.host, address)

    def unpop(self, transit: Transit) -> None:
        """The page of a request goes back to where it was; its host is still in transit."""
        if transit.lease is not None:
            transit.unpopped = True
            self._frontier.unpop(transit.lease)
            transit.lease = None
            self._return_budget()

    def ended(self, transit: Transit) -> None:
        """The request has left the wire: its host may be fetched again, after its delay."""
        if transit.turned_back:
            return
        host = transit.host
        wait = max(transit.wait, transit.rest, self._job.rule.delay(host.pace))
        self.on_the_wire -= 1
        if host.state is State.RETIRED:
            # It has served the errand of another host.
            pass
        elif host.pace.distress or host.pace.errors:
            host.become(State.BACKING_OFF)
        elif not (transit.hold or host.waits):
            host.become(State.ACTIVE)
        if transit.errand is not None and self._gate.too_slow(host.name):
            self._retire(host)
        if transit.errand is not None:
            self._gate.outlast(transit.errand.authority, wait)
        if transit.hold:
            self._frontier.wait(host, wait)
        elif transit.resting and host.state is not State.RETIRED and not host.waits:
            self._frontier.put_off(host, wait)
        else:
            self._frontier.release(host, wait)

    def _retire(self, host: Host) -> None:
        """A host in transit asks for too slow a pace: what is queued need not wait to be dropped. The errands of
        others, for which it may still be asked, wait as ever."""
        self._frontier.retire(host)
        for _ in range(_DROPPED_AT_ONCE):
            if (lease := self._frontier.pop(host)) is None:
                return
            self._frontier.acknowledge(lease, dropped=Verdict.TOO_SLOW.value)

    def _over(self, request: Request) -> None:
        """The request is over for Scrapy: acknowledge its page with the next commit."""
        transit = self._transits.pop(request, None)
        if transit is None:
            return
        if transit.held is not None:
            transit.held.over()
        if transit.note is not None:
            # Before its page is acknowledged: the next commit makes both durable.
            self._job.notes.hand_in(transit.note, request.meta)
        if transit.lease is None:
            return
        if transit.failure is not None:
            self._return_budget()
        self._frontier.acknowledge(transit.lease, dropped=transit.failure)

    def _return_budget(self) -> None:
        if self.page_budget is not None:
            self.page_budget += 1
        if self._node is not None and self._node.allowance is not None:
            self._node.allowance.give_back()

    # --- waking the engine ---

    def wake(self) -> None:
        slot = self._crawler.engine._slot
        if slot is not None:
            slot.nextcall.schedule()

    def _wake_when_due(self) -> None:
        due = self._frontier.next_due()
        if due is not None:
            self._wake_at(due)

    def _wake_at(self, due: float) -> None:
        """``due`` is in seconds of the job clock."""
        if self._timer is not None and self._timer_due <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = call_later(max(0.0, due - self._frontier.now()), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    # --- figures ---

    def counted(self) -> Counter[str]:
        """What was counted since this start."""
        return self._frontier.counters - self._before
