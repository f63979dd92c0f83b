"""Requests that a spider or a pipeline waits for: ``crawler.engine.download_async()``; and those of
the browser.

Each is queued like any page, so that robots.txt, delays and shares hold for it and it is archived.
Its queue entry holds only a token. The request itself, and who waits for it, are in memory: after
a restart nobody waits, and the entry is dropped when it is popped.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from scrapy.exceptions import DownloadFailedError, IgnoreRequest
from twisted.python.failure import Failure

from krowlspider.frontier.entry import AWAITED, SUBREQUEST, Entry
from krowlspider.frontier.entry_queues import Candidate, Lease
from krowlspider.frontier.hosts.host import DEFERRED, SEED_PRIORITY, Health
from krowlspider.internals.engine import is_closing
from krowlspider.politeness.delay import next_try
from krowlspider.urls.canonical import domain_of, host_of, normalise

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterator

    from scrapy import Request
    from scrapy.core.engine import ExecutionEngine
    from scrapy.http import Response

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.job.flights import Flights
    from krowlspider.job.intake import Intake

# Above the priorities of pages: a page in memory waits for an awaited request. A page in the
# browser waits for many, which come before the seeds of their hosts too.
_PRIORITY = SEED_PRIORITY
_OF_BROWSER = SEED_PRIORITY + 2
# Seconds between two looks for hosts that are out of reach, and for the end of the crawl.
_LOOK = 0.25
# Most hosts that are tried in one pop.
_TRIED = 8
# Most hosts checked in one look, as each may have to be read from disk. The next look goes on.
_LOOKED_AT = 100


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request that a caller waits for.

    ``future`` receives its response, or a request that replaces it, such as a redirect's target:
    Scrapy's engine downloads that next.
    """

    request: Request
    future: Future[Response | Request]

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class AwaitedRequests:
    """Queues awaited requests, and hands their results to the callers that wait for them.

    While ``most`` of them wait, or ``most_pages`` pages are in the browser or wait for it, no page
    is popped, because pages add more of them. With ``is_node``, this process is a node of a
    cluster, which takes none. ``same_site``: the browser gets only what is of its page's domain.
    """

    def __init__(
        self,
        engine: ExecutionEngine,
        frontier: Frontier,
        intake: Intake,
        flights: Flights,
        *,
        most: int,
        most_pages: int,
        is_node: bool,
        same_site: bool,
    ):
        # All awaited requests, by token.
        self.waiting: dict[bytes, _Waiter] = {}
        # Those that were popped and are under way, by the request that is sent.
        self.sent: dict[Request, _Waiter] = {}
        self._engine = engine
        self._is_node = is_node
        self._schedule = frontier.schedule
        self._intake = intake
        self._flights = flights
        self._most = most
        self._most_pages = most_pages
        self._same_site = same_site
        # Pages that are in the browser, or wait for it.
        self.pages = 0
        # All awaited requests, by host and token; the hosts take turns.
        self._hosts: dict[str, dict[bytes, _Waiter]] = {}
        self._looking = False
        self._run = os.urandom(8)
        self._numbers = count()

    @property
    def are_many(self) -> bool:
        """Return whether no page may be popped before some of them are done."""
        return len(self.waiting) >= self._most or self.pages >= self._most_pages

    @contextmanager
    def page(self) -> Iterator[None]:
        """Count a page of the browser."""
        self.pages += 1
        try:
            yield
        finally:
            self.pages -= 1

    async def fetch(
        self, request: Request, send: Callable[[], None], *, page: str | None = None
    ) -> Response | Request:
        """Queue a request, and return its response or the request that replaces it.

        ``send``, the same in each call, sends one awaited request, if its host is due, even if the
        engine takes no more pages. For a request of the browser, ``page`` is the URL of its page:
        then the rules for requisites hold.

        :raises IgnoreRequest: it may not be fetched, or the crawl ends
        :raises DownloadFailedError: its host is out of reach, or there is a cluster
        """
        entry, host = self._entry(request, page)
        waiter = _Waiter(request, asyncio.get_running_loop().create_future())
        token = entry.request[1:]
        self.waiting[token] = waiter
        self._hosts.setdefault(host, {})[token] = waiter
        try:
            priority = _PRIORITY if page is None else _OF_BROWSER
            if not self._intake.add([Candidate(host, None, entry, priority)], is_exempt=True):
                raise IgnoreRequest(f"{request} has no room in the queue")
            self._intake.wake()
            if not self._looking:
                self._look_later(send)
            return await waiter.future
        finally:
            del self.waiting[token]
            del self._hosts[host][token]
            if not self._hosts[host]:
                del self._hosts[host]

    def _entry(self, request: Request, page: str | None) -> tuple[Entry, str]:
        """Return the queue entry and the host of a request. Raises the errors of `fetch`."""
        url = normalise(request.url)
        if url is None:
            raise self._refusal(request, "url")
        if self._is_node:
            raise DownloadFailedError(
                f"{request} is not downloaded: in a cluster, yield it instead"
            )
        host = host_of(url)
        if reason := self._reason(request, url, host, page):
            raise self._refusal(request, reason)
        if self._is_out(host):
            raise _out_of_reach(request)
        tries = request.meta.get("retry_times", 0) + request.meta.get("throttling_times", 0)
        wait = next_try(tries, self._flights.retry_delay)
        due = self._schedule.now() + wait if tries else 0.0
        token = self._run + next(self._numbers).to_bytes(8)
        if page is None:
            return Entry(url, retries=tries, due=due, request=AWAITED + token), host
        return Entry(url, due=due, request=SUBREQUEST + token, via=page, path="E"), host

    def _reason(self, request: Request, url: str, host: str, page: str | None) -> str | None:
        """Return why a request must not be queued; None if it may be."""
        intake = self._intake
        if page is None:
            is_stray = "redirect_times" in request.meta
            return intake.refusal(url, host, 0, None, is_stray=is_stray)
        via = host_of(page)
        if self._same_site and domain_of(host) != domain_of(via):
            return "requisite_site"
        if reason := intake.refusal(url, host, 0, via, is_stray=True, is_requisite=True):
            return reason
        return None if intake.requisite_budget.take(host) else "requisite_budget"

    def _refusal(self, request: Request, reason: str) -> IgnoreRequest:
        self._intake.count_dropped(reason)
        return IgnoreRequest(f"{request} is not downloaded: {reason}")

    # --- from the pop to the result ---

    def is_left_over(self, lease: Lease) -> bool:
        """Return whether the entry of a lease is of an awaited request whose caller is gone."""
        return lease.entry.is_awaited and lease.entry.request[1:] not in self.waiting

    def refuse(self, lease: Lease, reason: str) -> None:
        """Fail the awaited request of a lease, which was dropped at its pop for ``reason``."""
        if (waiter := self.waiting.get(lease.entry.request[1:])) is not None:
            waiter.fail(IgnoreRequest(f"{waiter.request} is not downloaded: {reason}"))

    def request(self, lease: Lease) -> Request:
        """Return the request to send for the entry of a lease, which is awaited."""
        waiter = self.waiting[lease.entry.request[1:]]
        # A copy: the engine counts the original as under way by itself.
        request: Request = waiter.request.copy()
        self.sent[request] = waiter
        return request

    def settle(self, request: Request, result: Response | Request | Failure) -> bool:
        """Hand a result to the caller that waits for it; return False if nobody awaits it."""
        waiter = self.sent.pop(request, None)
        if waiter is None:
            return False
        in_flight = self._flights.get(request)
        if in_flight is not None and in_flight.lease is None:
            # It was not sent, and is back in its queue: its caller waits on.
            return True
        if isinstance(result, Failure):
            assert result.value is not None
            waiter.fail(result.value)
        elif not waiter.future.done():
            waiter.future.set_result(result)
        return True

    def hosts(self, most: int = _TRIED) -> list[str]:
        """Return up to ``most`` hosts of awaited requests; they take turns from call to call."""
        found = list(islice(self._hosts, most))
        for name in found:
            self._hosts[name] = self._hosts.pop(name)
        return found

    # --- failing what will not be sent ---

    def _look_later(self, send: Callable[[], None]) -> None:
        self._looking = bool(self.waiting)
        if self._looking:
            asyncio.get_running_loop().call_later(_LOOK, self._look, send)

    def _look(self, send: Callable[[], None]) -> None:
        """Fail requests that will not be sent.

        If nothing is under way, send one: pages in memory may keep the engine from sending the
        requests that they wait for.
        """
        if is_closing(self._engine):
            self._give_up()
        else:
            for name in filter(self._is_out, self.hosts(_LOOKED_AT)):
                for waiter in self._hosts[name].values():
                    waiter.fail(_out_of_reach(waiter.request))
            if not (self._flights.on_the_wire or self._engine.paused):
                send()
        self._look_later(send)

    def _is_out(self, name: str) -> bool:
        """Return whether a host is deferred or retired."""
        host = self._schedule.cache.get(name)
        return host.state is DEFERRED or host.health is Health.RETIRED

    def _give_up(self) -> None:
        """Fail all at the end of the crawl. Any page under way may wait for one of them, so all
        pages are fetched again."""
        self._flights.keep_queued()
        for waiter in self.waiting.values():
            waiter.fail(IgnoreRequest(f"{waiter.request} is not downloaded: the crawl ends"))


def _out_of_reach(request: Request) -> DownloadFailedError:
    return DownloadFailedError(f"{request} is not downloaded: its host is tried again much later")
