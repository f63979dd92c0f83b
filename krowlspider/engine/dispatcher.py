"""Decide which request is sent next, wake the engine, and say what a crawl waits for at its end.

`Dispatcher`: the frontier says which host is next, and which of its pages. The robots gate decides
about the page. While it cannot decide, a robots fetch is sent in place of the page.

`Waker`: Scrapy's engine asks for requests only after an event, and at its heartbeat every 5 s. The
waker makes it ask when the next host is due.
"""

from __future__ import annotations

import logging
from math import ceil, inf
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.utils.asyncio import CallLaterResult, call_later

from krowlspider.errors import counted, duration
from krowlspider.fetch.errors import ConnectTimeout
from krowlspider.frontier.entry_queues import FELL_BACK, Lease
from krowlspider.frontier.hosts.host import SEED_PRIORITY, Health, Host, RobotsFetch
from krowlspider.frontier.robots.gate import Verdict
from krowlspider.frontier.schedule.ownership import ROUND
from krowlspider.frontier.store.schema import host_key
from krowlspider.frontier.work_mark import mark_of
from krowlspider.internals.engine import wake
from krowlspider.job.in_flight import InFlight
from krowlspider.urls.canonical import DATA_HOST, authority_of
from krowlspider.urls.robots_groups import BODY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.core.engine import ExecutionEngine

    from krowlspider.engine.awaited import AwaitedRequests
    from krowlspider.fetch.signing import Signer
    from krowlspider.frontier.entry import Entry
    from krowlspider.job.codec import RequestCodec
    from krowlspider.job.flights import Flights
    from krowlspider.job.head_requests import HeadFirst
    from krowlspider.job.intake import Intake
    from krowlspider.job.job import Job
    from krowlspider.job.limits import PageBudget
    from krowlspider.job.recrawl import Recrawl, Refetch
    from krowlspider.job.sites import Sites


class Waker:
    """Makes the engine ask for the next request. ``now`` returns the job clock, in seconds."""

    def __init__(self, engine: ExecutionEngine, now: Callable[[], float]):
        self._engine = engine
        self._now = now
        self._timer: CallLaterResult | None = None
        self._due = 0.0

    def wake(self) -> None:
        """Make the engine ask in the next turn of the event loop."""
        wake(self._engine)

    def wake_at(self, due: float) -> None:
        """Make the engine ask at ``due``, in seconds of the job clock. An earlier time that is set
        already stays."""
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = call_later(max(0.0, due - self._now()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.wake()

    def cancel(self) -> None:
        """Cancel the time that is set."""
        if self._timer is not None:
            self._timer.cancel()


class LastRequests:
    """Says how many requests a crawl waits for before it ends, and for how long at most.

    ``timeout`` is the limit in seconds of a fetch without a ``download_timeout`` of its own.
    ``is_closing`` returns whether the crawl is being stopped, ``clock`` monotonic seconds.
    """

    def __init__(
        self,
        flights: Flights,
        budget: PageBudget,
        *,
        is_closing: Callable[[], bool],
        timeout: float,
        clock: Callable[[], float],
    ):
        self._flights = flights
        self._budget = budget
        self._is_closing = is_closing
        self._timeout = timeout
        self._clock = clock
        # The latest time at which the last request ends; None until the crawl is being stopped.
        self._end: float | None = None

    def stop_text(self) -> str:
        """Return what a crawl that is being stopped waits for; "" if it is not being stopped."""
        if not self._is_closing():
            return ""
        if self._end is None:
            self._end = self._clock() + self._longest
        if not (waiting := self._flights.on_the_wire):
            return "stopping"
        return f"stopping, waits for {counted(waiting, 'request')}{self._at_most(self._end)}"

    def limit_text(self) -> str:
        """Return what a crawl waits for whose page budget is spent; "" before it is spent."""
        waiting = self._flights.on_the_wire
        if not (waiting and self._budget.is_spent):
            return ""
        last = "the last request" if waiting == 1 else f"the last {counted(waiting, 'request')}"
        return f"waits for {last}{self._at_most(self._flights.last_sent + self._longest)}"

    def _at_most(self, end: float) -> str:
        """Return the words for the seconds until ``end``; "" once it is over."""
        left = end - self._clock()
        return f" (at most {_whole(left)})" if left > 0 else ""

    @property
    def _longest(self) -> float:
        """Return the longest time limit of the requests that were sent, in seconds."""
        return max(self._flights.time_limits(self._timeout), default=self._timeout)


def _whole(seconds: float) -> str:
    """Return a duration in whole seconds, rounded up: ``60 s``, ``2 min 5 s``."""
    whole = ceil(seconds)
    return f"{whole} s" if whole <= 60 else duration(whole)


logger = logging.getLogger(__name__)

# Seconds for which one call looks for a request. Matching a robots.txt takes some ms at worst, so
# entries that it refuses must not hold the event loop.
_TURN = 0.01
# Limits on the entries of one host that are refused after one pop of it: their number, and the
# seconds after which no more are looked at.
_REFUSALS_A_HOST = 20
_HOST_TURN = 0.002
# Entries in a row that are put behind the others of their host before it is deferred.
_PASSED_OVER_MAX = 200
# Most seconds for which a seed or a retry whose server rests is put off at a time.
_PUT_OFF = 60.0
# Seconds until hosts of awaited requests are looked at again.
_LOOK_AGAIN = 0.05
# Seconds until a host is looked at again whose next page waits for others of its seed to end, or
# for what is left of a limit of all nodes.
_SEED_WAIT = 0.5
# Most hosts named in warnings about a robots.txt that takes too long to match.
_WARNINGS = 5
# What a sheet with a permission overrides; and the authorities that are known to have one.
_REFUSED = (Verdict.DISALLOWED, Verdict.UNDECIDED)
_PERMITTED_MAX = 100_000


def _ignore(response: object) -> None:
    """Do nothing: callback of requests whose answer a middleware has read."""


class Dispatcher:
    """Pops the next page that may be fetched, or the robots fetch that must come first.

    ``on_page`` is called with host, authority and entry before a page is fetched: if the last page
    of the host had another authority, or it is the first one since the host was read into memory.
    """

    def __init__(
        self,
        job: Job,
        flights: Flights,
        intake: Intake,
        codec: RequestCodec,
        waker: Waker,
        *,
        awaited: AwaitedRequests,
        recrawl: Recrawl | None,
        head_first: HeadFirst | None,
        obey_robots: bool,
        on_page: Callable[[Host, str, Entry], None] | None,
    ):
        self._job = job
        self._frontier = job.frontier
        self._schedule = job.frontier.schedule
        self._gate = job.robots
        self._flights = flights
        self._intake = intake
        self._codec = codec
        self._waker = waker
        self._awaited = awaited
        self._recrawl = recrawl
        self._head_first = head_first
        self._seeds = job.frontier.seed_names
        self._obey_robots = obey_robots
        self._on_page = on_page
        # Hosts already named in a warning about a robots.txt that takes too long to match.
        self._undecided: set[str] = set()
        # Authorities whose permission to override robots.txt is archived, the oldest first.
        self._permitted: dict[str, None] = {}

    def next(self, *, awaited_only: bool = False) -> Request | None:
        """Return the next request; None when there is none to send now. Then the engine is woken
        when there may be one. ``awaited_only``: no page may be popped any more.

        :raises StoreError: the frontier cannot be read or written
        """
        outages, clock = self._job.outages, self._frontier.now
        is_out = outages.is_out
        if is_out:
            if (wait := outages.next_probe()) > 0:
                self._waker.wake_at(clock() + wait)
                return None
            # Asking for the next probe may have ended the outage.
            is_out = outages.is_out
        awaited = self._awaited
        if (awaited.waiting or awaited.pages) and not is_out:
            if (request := self.next_awaited()) is not None:
                return request
            if awaited_only or awaited.are_many:
                self._waker.wake_at(clock() + _LOOK_AGAIN)
                return None
        now = clock()
        end = now + _TURN
        seeds_only = self._flights.seeds_first.only()
        while now < end:
            host = self._pop_probe() if is_out else self._schedule.pop(seeds_only=seeds_only)
            if host is None:
                due = self._schedule.next_due(seeds_only=seeds_only)
                if seeds_only:
                    due = min(inf if due is None else due, self._flights.seeds_first.next_end())
                if due is not None and due < inf:
                    self._waker.wake_at(due)
                return None
            if (request := self._begin(host, seeds_only=seeds_only)) is not None:
                return request
            now = clock()
        self._waker.wake()
        return None

    def next_awaited(self) -> Request | None:
        """Return the next request of a host that has an awaited request queued; None if no such
        host is due. It may be a robots.txt fetch."""
        for name in self._awaited.hosts():
            host = self._schedule.pop_named(name)
            if host is not None and (request := self._begin(host)) is not None:
                return request
        return None

    def _begin(self, host: Host, *, seeds_only: bool = False) -> Request | None:
        """Return the next request of a popped host, which is in flight from now on; None if it has
        none that may be sent now."""
        signer = self._job.signer
        if signer is not None:
            if host.asks_signature:
                signer.recall(host.name)
            if self._cannot_sign(signer, host):
                return None
        begun = self._job.cpu()
        # Matching robots.txt and exclusions may hold the event loop: mark the host.
        mark = mark_of(host_key(host.name))
        found = self._job.mark.during(mark, self._next_of, host, begun, seeds_only)
        if found is None:
            return None
        request, in_flight = found
        self._flights.begin(request, in_flight)
        self._flights.charge(in_flight, self._job.cpu() - begun)
        return request

    def _cannot_sign(self, signer: Signer, host: Host) -> bool:
        """Defer a host that gets signed requests if none can be signed, and return whether that is
        so. Without a signature even its robots.txt may be another one."""
        if host.health is Health.RETIRED or not signer.fault(host.name):
            return False
        signer.warn_of(host.name)
        # With robots fetches it would be due at once.
        self._schedule.deferral.defer(host, ROUND if host.robots.fetches else 0.0)
        return True

    def _pop_probe(self) -> Host | None:
        """Pop the host to probe during an outage; return None if no host is due.

        Prefer a host that answered before the outage.
        """
        for name in self._job.outages.to_probe():
            if (host := self._schedule.pop_named(name)) is not None:
                return host
        return self._schedule.pop()

    def _next_of(
        self, host: Host, begun: float, seeds_only: bool
    ) -> tuple[Request, InFlight] | None:
        """Return the host's next request; None if it has none that may be sent now.

        ``begun`` is the CPU time at which the host was popped, in seconds. ``seeds_only``: of its
        pages, only seeds may be sent.
        """
        robots = host.robots
        # Alternate with pages, so that robots fetches for other hosts do not hold up this host.
        robots.served_last = bool(robots.fetches) and not (
            robots.served_last and host.queue.queued and not robots.awaited
        )
        if robots.served_last:
            return self._waiting_robots_fetch(host)
        defers, end, wait = False, self._frontier.now() + _HOST_TURN, 0.0
        # A silent server, and its rest in seconds.
        silent, silence = "", 0.0
        for _ in range(_REFUSALS_A_HOST):
            lease = self._frontier.queues.pop(host, seeds_only=seeds_only)
            if lease is None:
                break
            url = lease.entry.url
            refetch = self._refetch(lease) if lease.entry.is_again else None
            refusal = self._refusal(lease, refetch)
            if refusal is None:
                self._frontier.queues.unpop(lease)
                wait = _SEED_WAIT
                break
            if refusal:
                self._drop(lease, refusal)
                continue
            authority = authority_of(url)
            rest = self._job.silent_servers.rest(authority, self._frontier.now())
            verdict = Verdict.UNREACHABLE if rest else self._verdict(host, authority, url)
            if verdict is Verdict.ALLOWED and not self._keep_crawl_delay(host):
                verdict = Verdict.TOO_SLOW
            if verdict is Verdict.ALLOWED:
                if self._on_page is not None and host.robots.looked_at != authority:
                    self._report_page(host, lease, authority)
                host.robots.passed_over = 0
                return self._page(host, lease, refetch)
            if verdict is Verdict.UNKNOWN:
                self._frontier.queues.unpop(lease)
                return self._robots_request(host, self._own_robots_fetch(host, authority))
            defers |= self._refuse_by_robots(lease, verdict, rest)
            silent, silence = (authority, rest) if rest else (silent, silence)
            if self._frontier.now() > end:
                break
        if defers and self._is_to_defer(host, silent):
            self._schedule.deferral.defer(host, silence)
        else:
            took = self._job.cpu() - begun
            rest = self._flights.cost.rest(took, self._frontier.now())
            self._schedule.give_back(host, max(rest, wait))
        return None

    # --- pages ---

    def _refetch(self, lease: Lease) -> Refetch | None:
        """Return how a page is asked that is fetched again; None without conditions."""
        return None if self._recrawl is None else self._recrawl.refetch(lease.entry.url)

    def _refusal(self, lease: Lease, refetch: Refetch | None) -> str | None:
        """Return the reason to drop an entry before robots.txt is looked at; "" for none, None if
        it must wait for other pages of its seed, or for what other nodes have used of a limit."""
        if lease.entry.request and self._awaited.is_left_over(lease):
            return "not_awaited"
        if self._intake.exclusions.match(lease.entry.url):
            return "exclude"
        policies = self._job.policies
        if policies is not None and (reason := policies.refusal(lease)) != "":
            return reason
        is_done = (
            refetch is not None and self._recrawl is not None and self._recrawl.is_done(refetch)
        )
        if is_done:
            return "recrawled"
        if self._seeds is None or self._seeds.words is None:
            return ""
        return self._seeds.words.refusal(lease.entry)

    def _verdict(self, host: Host, authority: str, url: str) -> Verdict:
        """Return the decision about a page."""
        if not self._obey_robots or host.name == DATA_HOST:
            return Verdict.ALLOWED
        if host.health is Health.RETIRED:
            return Verdict.TOO_SLOW
        verdict = self._gate.verdict(authority, url)
        if verdict in _REFUSED and self._job.sites is not None:
            return self._overridden(self._job.sites, host, authority, url) or verdict
        return verdict

    def _overridden(self, sites: Sites, host: Host, authority: str, url: str) -> Verdict | None:
        """Return ALLOWED for a page that robots.txt refuses and a sheet permits; None if none does.

        The permission is archived once for each authority and start.
        """
        policy = sites.of(url, host.name)
        if policy is None or policy.robots != "override" or policy.permission is None:
            return None
        if authority not in self._permitted:
            if len(self._permitted) >= _PERMITTED_MAX:
                del self._permitted[next(iter(self._permitted))]
            self._permitted[authority] = None
            sheet = sites.sheet_of(url, host.name, "permission")
            self._job.notes.permission(f"{authority}/robots.txt", policy.permission, sheet)
        self._frontier.counters["robots_overridden"] += 1
        return Verdict.ALLOWED

    def _keep_crawl_delay(self, host: Host) -> bool:
        """Set the Crawl-delay of a host, and return True. If it is too long, retire the host
        instead."""
        if not self._obey_robots or host.name == DATA_HOST:
            return True
        delay = self._gate.crawl_delay(host.name)
        if delay > self._gate.crawl_delay_max:
            self._schedule.retire(host)
            return False
        host.rate.floor = delay
        return True

    def _refuse_by_robots(self, lease: Lease, verdict: Verdict, rest: float) -> bool:
        """Drop an entry that robots.txt does not allow.

        If robots.txt cannot be fetched now, or the server rests for ``rest`` seconds, keep the
        entry queued and return True. If the entry is a seed without a scheme, queue its http URL in
        its place and return False.
        """
        if self._job.hooks is not None and verdict is Verdict.DISALLOWED:
            self._job.hooks.pages.is_disallowed(InFlight(lease.host, lease.entry.url, lease))
        if verdict is Verdict.UNREACHABLE:
            return self._put_off(lease, rest)
        if lease.entry.is_awaited:
            self._drop(lease, verdict.value)
            return False
        if verdict is Verdict.UNDECIDED:
            self._name_undecided(lease.host.name)
        self._frontier.acknowledge(lease, dropped=verdict.value)
        return False

    def _put_off(self, lease: Lease, rest: float) -> bool:
        """Put an entry behind the others of its host. ``rest`` is that of its server."""
        if lease.entry.is_awaited:
            self._drop(lease, ConnectTimeout.kind if rest else Verdict.UNREACHABLE.value)
            return False
        if lease.entry.may_fall_back:
            self._intake.fall_back(lease.entry)
            self._frontier.acknowledge(lease, FELL_BACK)
            return False
        if rest and (lease.entry.due or lease.priority == SEED_PRIORITY):
            # It comes before pages of the other server, and tries of these may be behind it.
            lease.entry.due = self._frontier.now() + min(rest, _PUT_OFF)
        self._frontier.queues.replace(lease, lease.entry)
        lease.host.robots.passed_over += 1
        return True

    def _is_to_defer(self, host: Host, silent: str) -> bool:
        """Return whether no entry of a host may be sent. It begins anew then.

        A crawl may end without a host that is deferred. So a ``silent`` server is tried in place of
        it, until the host has as many errors in a row as any other one that is deferred.
        """
        passed_over = host.robots.passed_over
        is_retired = host.health is Health.RETIRED
        if is_retired or passed_over < min(host.queue.queued, _PASSED_OVER_MAX):
            return False
        host.robots.passed_over = 0
        if not silent or self._job.rule.of(host.name).resting(host.rate):
            return True
        self._job.silent_servers.try_again(silent)
        return False

    def _drop(self, lease: Lease, reason: str) -> None:
        if lease.entry.is_awaited:
            self._awaited.refuse(lease, reason)
        self._frontier.acknowledge(lease, dropped=reason)

    def _name_undecided(self, host: str) -> None:
        if host not in self._undecided and len(self._undecided) < _WARNINGS:
            self._undecided.add(host)
            logger.warning(
                "robots.txt of %s takes too long to match: URLs that it does not decide in some ms"
                " are dropped and counted as robots_undecided",
                host,
            )

    def _report_page(self, host: Host, lease: Lease, authority: str) -> None:
        assert self._on_page is not None
        if not lease.entry.is_part:
            host.robots.looked_at = authority
            self._on_page(host, authority, lease.entry)

    def _page(self, host: Host, lease: Lease, refetch: Refetch | None) -> tuple[Request, InFlight]:
        entry = lease.entry
        if self._head_first is not None and self._head_first.asks(entry, host.name):
            request = Request(
                entry.url, _ignore, "HEAD", dont_filter=True, meta={"dont_cache": True}
            )
            return request, InFlight(host, entry.url, lease=lease, is_head=True)
        is_awaited = entry.request and entry.is_awaited
        request = self._awaited.request(lease) if is_awaited else self._codec.request(entry)
        return request, InFlight(host, entry.url, lease=lease, refetch=refetch)

    # --- robots.txt ---

    def _waiting_robots_fetch(self, host: Host) -> tuple[Request, InFlight] | None:
        """Return the request for the first robots fetch that waits at a host; None if the URL is
        excluded."""
        robots_fetch = host.robots.fetches.pop(0)
        if self._intake.exclusions.match(robots_fetch.url):
            self._job.robots_fetches.failed(robots_fetch, final=True)
            self._schedule.give_back(host)
            return None
        return self._robots_request(host, robots_fetch)

    def _own_robots_fetch(self, host: Host, authority: str) -> RobotsFetch:
        """Return the fetch of the host's own robots.txt.

        It is the fetch that waits at this host, or a new one.
        """
        for robots_fetch in host.robots.fetches:
            if robots_fetch.authority == authority:
                host.robots.fetches.remove(robots_fetch)
                return robots_fetch
        return RobotsFetch(authority, host, authority + "/robots.txt")

    def _robots_request(self, host: Host, robots_fetch: RobotsFetch) -> tuple[Request, InFlight]:
        if robots_fetch.host is host and host.health is not Health.RETIRED:
            host.set_health(Health.ROBOTS)
        meta = {"download_maxsize": BODY_MAX + 1, "dont_merge_cookies": True, "dont_cache": True}
        request = Request(robots_fetch.url, callback=_ignore, dont_filter=True, meta=meta)
        return request, InFlight(host, robots_fetch.url, robots_fetch=robots_fetch)
