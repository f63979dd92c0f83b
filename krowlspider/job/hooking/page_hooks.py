"""The hooks that are called for requests in flight, and for pages that are read."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from scrapy.http import Response

from krowlspider.hooks.words import (
    Answer,
    Delay,
    Failed,
    HookError,
    Link,
    Redact,
    Url,
    state_of,
    state_text,
)
from krowlspider.politeness.delay import BACKOFF_MAX
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from scrapy import Request

    from krowlspider.fetch.errors import Exchange
    from krowlspider.hooks.calls import Call
    from krowlspider.job.in_flight import InFlight
    from krowlspider.politeness.delay import DelayPolicy

# Links of a page, as for those that the spider finds.
_LINKS_MAX = 10_000
# The same with repeats, and with what is no link.
_ITEMS_MAX = 10 * _LINKS_MAX


class DelayHook:
    """Calls `Hooks.compute_delay` once for each request of a host that has ended."""

    def __init__(self, call: Call):
        self._call = call

    def wait(self, in_flight: InFlight, rule: DelayPolicy, wait: float) -> float:
        """Return the seconds until the next request of a host, whose wait would be ``wait``.

        Crawl-delay and the least delay stay. So does all of the wait if the host asked for rest,
        failed, or was costly.
        """
        host, rate = in_flight.host.name, in_flight.host.rate
        least = max(rule.minimum, min(rate.floor, rule.crawl_delay_max))
        if rate.throttling or rate.errors or in_flight.wait > rule.delay(rate):
            least = wait
        lease = in_flight.lease
        last = None if lease is None else lease.answer
        status, size = (0, 0) if last is None else (last.status, last.size)
        answer = self._call.now(
            Delay(host, wait, least, rate.floor, rate.ema, status, size),
        )
        if answer is None:
            return wait
        if type(answer) not in (int, float) or not 0 <= answer < inf:
            self._call.failed(HookError(f"{answer!r} is no number of seconds"))
            return wait
        return max(least, min(float(answer), BACKOFF_MAX))


class PageHooks:
    """Calls the other hooks; each is None if it is not overridden."""

    def __init__(self, calls: dict[str, Call]):
        self.fetch = calls.get("fetch")
        self.archive = calls.get("archive")
        self.request_robots = calls.get("request_robots")
        self.fetched_robots = calls.get("fetched_robots")
        self.request_get = calls.get("request_get")
        self.error = calls.get("error")
        self.disallowed = calls.get("disallowed")
        self.visit = calls.get("visit")
        self.visited = calls.get("visited")

    @staticmethod
    def url(in_flight: InFlight) -> Url:
        """Return what hooks see of a request in flight."""
        lease = in_flight.lease
        if lease is None:
            return Url(in_flight.url, in_flight.host.name, 0)
        entry = lease.entry
        return Url(entry.url, lease.host.name, entry.depth, entry.via, state_of(entry.state))

    @staticmethod
    def state_text(in_flight: InFlight) -> str:
        """Return the state of a page as JSON; "" for none."""
        return "" if in_flight.lease is None else in_flight.lease.entry.state

    @staticmethod
    def _keep(in_flight: InFlight, url: Url, call: Call) -> None:
        """Keep the state that a hook has set for the page of a request."""
        if in_flight.lease is not None:
            try:
                in_flight.lease.entry.state = state_text(url.state, url.url)
            except HookError as error:
                call.failed(error)

    async def given_robots(self, in_flight: InFlight, request: Request) -> Response | None:
        """Return the robots.txt that `Hooks.request_robots` has; None: it is to be fetched."""
        call = self.request_robots
        if call is None:
            return None
        found = await call.answer(self.url(in_flight))
        if isinstance(found, str):
            # A lone surrogate is no text.
            found = found.encode(errors="replace")
        if found is None or isinstance(found, bytes):
            return found if found is None else Response(in_flight.url, body=found, request=request)
        call.failed(HookError(f"a robots.txt is text or bytes, not {type(found).__name__}"))
        return None

    async def robots_fetched(self, in_flight: InFlight, response: Response) -> None:
        if self.fetched_robots is not None:
            await self.fetched_robots.answer(self.url(in_flight), response)

    async def fetched(self, in_flight: InFlight, request: Request) -> Response | None:
        """Return the response that `Hooks.fetch` has; None: the page is to be fetched."""
        call, url = self.fetch, self.url(in_flight)
        assert call is not None
        found = await call.answer(url, request)
        self._keep(in_flight, url, call)
        if found is None or isinstance(found, Response):
            return found
        call.failed(HookError(f"a fetch returns a Response, not {type(found).__name__}"))
        return None

    async def gets(self, in_flight: InFlight, response: Response) -> bool | None:
        """Return whether GET follows an answer to HEAD; None: the crawl decides."""
        call, url = self.request_get, self.url(in_flight)
        if call is None:
            return None
        found = await call.answer(url, response)
        self._keep(in_flight, url, call)
        return call.verdict(found)

    async def archives(
        self, in_flight: InFlight, exchange: Exchange
    ) -> tuple[bool, frozenset[str]]:
        """Return whether an answer is archived, and the header fields that are redacted in it."""
        call = self.archive
        assert call is not None
        sent = exchange.request_bytes.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
        request = [(name, value.strip()) for name, _, value in (x.partition(b":") for x in sent)]
        headers = list(exchange.headers)
        answer = Answer(exchange.status, headers, request, exchange.response_size)
        found = await call.answer(self.url(in_flight), answer)
        if isinstance(found, Redact):
            return True, found
        if found is not None and not isinstance(found, bool):
            call.failed(HookError(f"{found!r:.100} is neither KEEP nor SKIP nor Redact(...)"))
        # The archive shows why a host was crawled or not.
        return found is not False or in_flight.robots_fetch is not None, frozenset()

    def failed(self, kind: str, in_flight: InFlight, reason: str, error: BaseException) -> None:
        if self.error is not None:
            self.error.now(Failed(kind, self.url(in_flight), reason, error))

    def is_disallowed(self, in_flight: InFlight) -> None:
        if self.disallowed is not None:
            self.disallowed.now(self.url(in_flight))

    async def links_of(
        self, in_flight: InFlight | None, response: Response
    ) -> tuple[list[str], dict[str, str]] | None:
        """Return the links that `Hooks.visit` has in place of the spider's, normalised, and their
        states as JSON; None: those of the spider."""
        call = self.visit
        if call is None or in_flight is None:
            return None
        url = self.url(in_flight)
        found = await call.answer(url, response)
        self._keep(in_flight, url, call)
        if found is None:
            return None
        items = call.items(found, _ITEMS_MAX)
        if items is None:
            return None
        try:
            return _links(items, response.url)
        except (HookError, TypeError, ValueError) as error:
            call.failed(error)
            return None

    async def has_visited(self, in_flight: InFlight | None, links: list[str]) -> None:
        if self.visited is not None and in_flight is not None:
            await self.visited.answer(self.url(in_flight), list(links))


def _links(found: list[Any], base: str) -> tuple[list[str], dict[str, str]]:
    """:raises HookError: one is no text or no `Link`, or they are too many"""
    urls: dict[str, None] = {}
    states: dict[str, str] = {}
    for each in found:
        link = Link(each) if isinstance(each, str) else each
        if not isinstance(link, Link):
            raise HookError(f"{each!r:.100} is neither text nor a Link")
        if len(urls) >= _LINKS_MAX:
            raise HookError(f"more than {_LINKS_MAX:,} links of {base[:300]}")
        url = normalise(link.url, base)
        if url is not None:
            urls[url] = None
            if text := state_text(link.state, url):
                states[url] = text
    return list(urls), states
