"""The download handler: fetches, passes the exact bytes to the archive, returns a response."""

from __future__ import annotations

import hashlib
import logging
import sys
from functools import cached_property, lru_cache, partial
from http import HTTPStatus
from http.client import NOT_MODIFIED
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import StopDownload
from scrapy.http import Headers, HtmlResponse
from scrapy.responsetypes import responsetypes
from scrapy.utils.asyncio import run_in_thread
from twisted.python.failure import Failure
from w3lib.encoding import DEFAULT_ENCODING_TRANSLATION

from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.write.records import Capture, Receipt, RecordIds, Wire
from krowlspider.engine.logformatter import is_heard
from krowlspider.engine.scheduler import Scheduler
from krowlspider.fetch.errors import Exchange, FetchError, LocalExhausted, StopFetch, TooLarge
from krowlspider.fetch.http.head import split_target, without_secrets
from krowlspider.fetch.memory import FetchMemory, StoredResponse
from krowlspider.frontier.entry import Fetched, validators_in
from krowlspider.frontier.pages.row import is_as_new_as
from krowlspider.job.answers.retries import TRUNCATED, LastTries, as_scrapy
from krowlspider.job.crawls import job_of
from krowlspider.job.parts import keeps_pages
from krowlspider.job.recrawl import OFF, Refetch
from krowlspider.politeness.delay import THROTTLING
from krowlspider.politeness.loop_cost import HEAVY, own_rest
from krowlspider.recrawl.validators import Meaning
from krowlspider.recrawl.validators import headers_of as headers_of_conditions
from krowlspider.urls.encoding import HTML, computed_type
from krowlspider.urls.page.headers import PAYMENTS, SIGNATURES, price_in, values_of

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Coroutine, Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.archive.reading import Location
    from krowlspider.fetch.http.head import Origin, Proxy, Target
    from krowlspider.fetch.signing import Signer
    from krowlspider.job.flights import Flights
    from krowlspider.job.hooking.page_hooks import PageHooks
    from krowlspider.job.in_flight import InFlight
    from krowlspider.job.sites import Sites

# No codec has the name "unknown", so a page that declares punycode has no charset. Browsers do not
# know punycode, and Python decodes it in quadratic time.
DEFAULT_ENCODING_TRANSLATION["punycode"] = "unknown"


@lru_cache(maxsize=65_536)
def ip_of(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address; None for empty text: behind a proxy the address is unknown."""
    return ip_address(text) if text else None


def response_of(request: Request, exchange: Exchange, headers: Headers, body: bytes) -> Response:
    response = _class_of(headers, exchange.url, body)(
        url=exchange.url,
        status=exchange.status,
        body=body,
        request=request,
        ip_address=ip_of(exchange.peer.address),
        protocol=f"HTTP/{exchange.version}",
        certificate=exchange.peer.certificate,
    )
    # Set afterwards, because the constructor would copy the headers name by name.
    response.headers = headers
    return response


def _class_of(headers: Headers, url: str, body: bytes) -> type[Response]:
    """Return the class of a response: of HTML whenever browsers take it for HTML, else Scrapy's."""
    options = values_of(headers, b"X-Content-Type-Options")
    if computed_type(values_of(headers, b"Content-Type"), options, body).essence in HTML:
        return HtmlResponse
    return responsetypes.from_args(headers=headers, url=url, body=body)


def capture_of(exchange: Exchange, identity: str) -> Capture:
    media_type, stored = b"", exchange.stored
    for name, value in exchange.headers:
        if name.lower() == b"content-type":
            media_type = value
            break
    return Capture(
        identity=identity,
        url=exchange.url,
        request_bytes=exchange.request_bytes,
        response_bytes=exchange.response_bytes,
        head=exchange.head_length,
        payload=exchange.body,
        status=exchange.status,
        media_type=media_type.decode("latin-1"),
        started=exchange.times.started,
        truncated=exchange.truncated,
        wire=Wire(exchange.peer.address or None, exchange.version, exchange.peer.tls),
        stored=stored.mapped if stored is not None else None,
        stored_size=stored.size if stored is not None else 0,
    )


def headers_of(pairs: list[tuple[bytes, bytes]]) -> Headers:
    # `Headers.appendlist` is quadratic in the lines of a hostile head. `Headers.update` is not
    # needed: names and values are normalised already.
    headers = Headers()
    grouped: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        grouped.setdefault(name.title(), []).append(value)
    dict.update(headers, grouped)
    return headers


logger = logging.getLogger(__name__)


# Statuses of a page whose text is digested: that of HTTP, and that of Gemini.
_WITH_TEXT = (200, 20)
# Bytes from which a body is digested in a thread.
_LONG = 512 * 1024
# The User-Agent names who crawls: no request has another. Proxy-Authorization is for the proxy. No
# request offers a payment.
_NOT_SENT = frozenset({b"User-Agent", b"Proxy-Authorization", *PAYMENTS})


class _Signals:
    """Send Scrapy's signals for headers and body as they come."""

    def __init__(self, crawler: Crawler, request: Request):
        self._crawler = crawler
        self._request = request
        self.stop: StopDownload | None = None

    def headers(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        made = headers_of(headers)
        length = made.get(b"Content-Length") or b""
        size = int(length) if length.isdigit() else None
        self._send(signals.headers_received, headers=made, body_length=size)

    def data(self, chunk: bytes) -> None:
        self._send(signals.bytes_received, data=chunk)

    def _send(self, signal: object, **values: object) -> None:
        results = self._crawler.signals.send_catch_log(
            signal,
            request=self._request,
            spider=self._crawler.spider,
            dont_log=StopDownload,
            **values,
        )
        for _, result in results:
            if isinstance(result, Failure) and isinstance(result.value, StopDownload):
                self.stop = result.value
                raise StopFetch


class DownloadHandler(BaseDownloadHandler):
    """Fetch http and https, and archive each answer before anyone sees it.

    ``request.meta["krowl_warc"]`` is a future of the ``Location`` of the response record, and
    ``krowl_warc_id`` its WARC-Record-ID. They are not set for the answers 429 and 503. A body
    over DOWNLOAD_MAXSIZE, a cut connection and a timeout raise Scrapy's exceptions. Bytes that
    came before are archived, marked as truncated. An answer that may be cut (`NoCloseNotify`) does
    so too until the last try. That one returns it, with the flag "truncated".
    """

    # Returns what is archived of an exchange, given the id of its record.
    _capture = staticmethod(capture_of)

    def __init__(self, crawler: Crawler):
        super().__init__(crawler)
        settings = crawler.settings
        self._job = job_of(crawler)
        self._count = crawler.stats.inc_value
        self._log = self._job.crawl_log
        self._meters = self._job.meters
        self._sites = self._job.sites
        self._archives = settings.getbool("KROWL_ARCHIVE")
        self._archives_all = self._archives and self._sites is None
        # None without KROWL_HOOKS.
        self._hooks = None if self._job.hooks is None else self._job.hooks.pages
        self._throttle = self._job.throttle
        self._keeps_rows = keeps_pages(settings)
        self._algorithm: str = settings["KROWL_WARC_DIGEST"]
        self._digests_text = settings["KROWL_RECRAWL"] != OFF
        self._ids = RecordIds()
        self._last_tries = LastTries(settings, self._count)
        # Whether the archive has failed and this has been logged.
        self._failed = False
        self._timeout = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._max_size = settings.getint("DOWNLOAD_MAXSIZE")
        headers = {
            "User-Agent": self._job.user_agent,
            **settings.getdict("DEFAULT_REQUEST_HEADERS"),
        }
        self._defaults = [
            (name.title().encode(), str(value).encode("latin-1"))
            for name, value in headers.items()
            if value is not None
        ]

    @cached_property
    def _flights(self) -> Flights:
        return Scheduler.of(self.crawler).flights

    @staticmethod
    def origin_of(url: str) -> Origin:
        """Return the server of a URL of this handler's scheme."""
        return split_target(url).origin

    async def download_request(self, request: Request) -> Response:
        in_flight = self._flights.get(request)
        assert in_flight is not None
        observer = self._observer(request)
        exchange = await self._fetch(request, in_flight, observer)
        if self._log is not None:
            self._log.fetched(in_flight, exchange)
        if self._meters is not None:
            self._meters.fetched(exchange)
        if in_flight.trace is not None:
            in_flight.trace.answered(exchange)
        is_archived = (
            not in_flight.is_head
            and (self._archives_all or self._is_archived(in_flight))
            and (self._hooks is None or await self._is_kept(self._hooks, in_flight, exchange))
        )
        if is_archived:
            if exchange.stored is not None:
                await self._job.archive.room()
            self._archive(request, in_flight, exchange)
        else:
            self._leave_out(request, in_flight, exchange)
        assert in_flight.memory is not None
        # The rest of the exchange is counted by `_archive` until it is written.
        in_flight.memory.resize(len(exchange.body))
        body = exchange.body
        if exchange.stored is not None:
            body = await self._load(in_flight, in_flight.memory, exchange.stored)
        if not is_archived:
            await self._digest_payload(in_flight, body)
        response = await self._decode(request, in_flight, exchange, body)
        if self._digests_text and not exchange.truncated:
            await self._digest(in_flight, response)
        if exchange.truncated == "disconnect":
            response.flags.append(TRUNCATED)
        if observer is not None and observer.stop is not None:
            response.flags.append("download_stopped")
            if observer.stop.fail:
                observer.stop.response = response
                raise observer.stop
        return response

    async def _fetch(
        self, request: Request, in_flight: InFlight, observer: _Signals | None
    ) -> Exchange:
        meta = request.meta
        sign = (
            None
            if self._job.signer is None
            else self._signing(self._job.signer, request, in_flight)
        )
        in_flight.memory = FetchMemory(self._job.memory)
        try:
            exchange = await self._exchange(request, in_flight, in_flight.memory, observer, sign)
        except FetchError as error:
            if isinstance(error, TooLarge) and error.exchange and in_flight.robots_fetch:
                # RFC 9309, section 2.5: the start of a robots.txt that is too large counts.
                return error.exchange
            accepted = self._last_tries.accepted(error, in_flight, meta)
            if accepted is not None:
                await self._throttle()
                return accepted
            if self._log is not None:
                self._log.failed(in_flight, error)
            if in_flight.trace is not None:
                in_flight.trace.answered(error.exchange, error.kind)
            await self._throttle()
            if in_flight.is_head or not (self._archives_all or self._is_archived(in_flight)):
                raise as_scrapy(error) from error
            if error.exchange is not None and (
                self._hooks is None or await self._is_kept(self._hooks, in_flight, error.exchange)
            ):
                if error.exchange.stored is not None:
                    await self._job.archive.room()
                self._archive(request, in_flight, error.exchange)
            in_flight.note = self._job.notes.failed(in_flight, error, meta)
            raise as_scrapy(error) from error
        if self._job.signer is not None:
            self._learn_challenge(
                self._job.signer, in_flight, exchange, was_signed=sign is not None
            )
        await self._throttle()
        return exchange

    def _exchange(
        self,
        request: Request,
        in_flight: InFlight,
        memory: FetchMemory,
        observer: _Signals | None,
        sign: Callable[[Target, str], bytes] | None,
    ) -> Coroutine[None, None, Exchange]:
        """Return what sends a request and returns its exchange, or raises FetchError."""
        meta = request.meta
        return self._job.fetching.client.fetch(
            # The URL as discovered: Scrapy's Request may have escaped it differently.
            in_flight.url,
            request.method,
            self._request_headers(request, in_flight),
            request.body,
            timeout=meta.get("download_timeout", self._timeout),
            max_size=self._size_limit(request) or sys.maxsize,
            observer=observer,
            admit=self._job.admission(in_flight.host, is_page=in_flight.robots_fetch is None),
            linked=self._job.frontier.linked_ports.is_linked(in_flight.host.name),
            memory=memory,
            spills=self._job.fetching.spills if in_flight.robots_fetch is None else None,
            proxy=proxy_of(request) if meta.get("proxy") else None,
            sign=sign,
        )

    def _signing(
        self, signer: Signer, request: Request, in_flight: InFlight
    ) -> Callable[[Target, str], bytes] | None:
        """Return what signs a request as it is sent; None for one that is not signed.

        One with such headers of a spider keeps those alone: with two of them no signature is valid.
        """
        name = in_flight.host.name
        if not signer.signs(name) or not SIGNATURES.isdisjoint(request.headers):
            return None
        return partial(signer.lines, name)

    def _learn_challenge(
        self, signer: Signer, in_flight: InFlight, exchange: Exchange, *, was_signed: bool
    ) -> None:
        host = in_flight.host
        in_flight.is_challenged = signer.answered(
            host.name, exchange.status, exchange.headers, was_signed=was_signed, count=self._count
        )
        host.asks_signature = host.asks_signature or signer.knows(host.name)

    async def _load(
        self, in_flight: InFlight, memory: FetchMemory, stored: StoredResponse
    ) -> bytes:
        """Return the body of a large response, which waits for others to be read.

        A response that a callback awaits does not wait: that callback's page may be one of them.
        """
        lease = in_flight.lease
        awaited = lease is not None and lease.entry.is_awaited
        try:
            return await self._job.fetching.spills.load(stored, memory, waits=not awaited)
        except OSError as error:
            failure = LocalExhausted(f"a large response cannot be read again: {error}")
            raise as_scrapy(failure) from failure

    async def _decode(
        self, request: Request, in_flight: InFlight, exchange: Exchange, body: bytes
    ) -> Response:
        headers = headers_of(exchange.headers)
        is_robots = in_flight.robots_fetch is not None
        try:
            if body and (coding := headers.pop(b"Content-Encoding", None)):
                # No decoder is without a bound: a few bytes may stand for any number.
                quarter = int(min(self._job.memory.limit / 4, sys.maxsize))
                most = self._size_limit(request) or quarter
                # Decoders in C read a stranger's bytes and may crash: mark the page.
                mark = in_flight.mark(self._job.frontier.queues)
                assert in_flight.memory is not None
                body = await self._job.fetching.decoders.decode(
                    mark, body, coding[-1], most, in_flight.memory, cuts=is_robots
                )
                if is_robots and exchange.truncated == "length" and len(body) < most:
                    raise TooLarge("what was received of it decodes to less than 500 KiB")
        except FetchError as error:
            error.exchange = exchange
            if self._archives_all or self._is_archived(in_flight):
                in_flight.note = self._job.notes.failed(in_flight, error, request.meta)
            raise as_scrapy(error) from error
        return response_of(request, exchange, headers, body)

    async def _digest(self, in_flight: InFlight, response: Response) -> None:
        """Have the text of a page compared at its commit with the text that it had before.

        Sitemaps and feeds have none: another date in one of them is a change. The host rests for a
        text that takes much CPU, as for a page that does to read: all pages wait for one thread.
        """
        lease = in_flight.lease
        fetched = None if lease is None or lease.entry.file else lease.fetched
        if fetched is None or fetched.status not in _WITH_TEXT or not response.body:
            return
        headers = response.headers
        options = values_of(headers, b"X-Content-Type-Options")
        found = computed_type(values_of(headers, b"Content-Type"), options, response.body)
        mark = in_flight.mark(self._job.frontier.queues)
        decoders = self._job.fetching.decoders
        fetched.text, took = await decoders.digest(mark, response.body, found.essence)
        if took > HEAVY:
            in_flight.must_wait(own_rest(took))

    def _size_limit(self, request: Request) -> int:
        """Return the most bytes of a body, as received and again decoded; 0 for no limit, as in
        Scrapy."""
        return int(request.meta.get("download_maxsize", self._max_size))

    def _observer(self, request: Request) -> _Signals | None:
        """Return a sender of Scrapy's signals; None if nobody listens to them."""
        if is_heard(self.crawler, signals.headers_received, signals.bytes_received):
            return _Signals(self.crawler, request)
        return None

    def _request_headers(self, request: Request, in_flight: InFlight) -> list[tuple[bytes, bytes]]:
        headers = self._own_headers(request)
        if self._sites is not None:
            headers = self._with_sheets(self._sites, in_flight, headers)
        if in_flight.refetch is not None:
            return [*headers, *headers_of_conditions(in_flight.refetch.sent)]
        return headers

    def _with_sheets(
        self, sites: Sites, in_flight: InFlight, own: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """Return the headers of a request with those of the sheets that cover its URL."""
        policy = sites.of(in_flight.url, in_flight.host.name)
        if policy is None:
            return own
        headers, in_flight.secrets = sites.headers(policy, in_flight.url, own)
        return headers

    def _own_headers(self, request: Request) -> list[tuple[bytes, bytes]]:
        if not request.headers:
            return self._defaults
        Scheduler.of(self.crawler).warnings.of_headers(request)
        own = [(name, value) for name, values in request.headers.items() for value in values]
        own = [(name, value) for name, value in own if name not in _NOT_SENT]
        named = {name for name, _ in own}
        return own + [(name, value) for name, value in self._defaults if name not in named]

    @staticmethod
    async def _is_kept(hooks: PageHooks, in_flight: InFlight, exchange: Exchange) -> bool:
        """Return whether an answer is archived, as far as a hook decides that."""
        if hooks.archive is None:
            return True
        is_kept, redacted = await hooks.archives(in_flight, exchange)
        in_flight.redacted = tuple(sorted(redacted))
        return is_kept

    def _archive(self, request: Request, in_flight: InFlight, exchange: Exchange) -> None:
        meta = request.meta
        meta["download_latency"] = exchange.times.latency
        in_flight.received = exchange.response_size
        self._count_answer(exchange.status, in_flight.received)
        # The host asked for rest, and the page is fetched again. The answer to robots.txt is always
        # archived: it shows why a host was crawled or not.
        if exchange.status in THROTTLING and in_flight.robots_fetch is None:
            return
        identity = self._ids.new()
        capture = self._capture(exchange, identity)
        if "krowl_tag" in meta:
            capture.tag = meta["krowl_tag"]
        capture.redacted = in_flight.redacted
        if in_flight.secrets:
            capture.request_bytes = without_secrets(capture.request_bytes, in_flight.secrets)
        if self._keeps_rows and in_flight.lease is not None and request.method == "GET":
            capture.receipt = Receipt()
            fetched = self._fetched(exchange, capture.receipt, in_flight.refetch)
            in_flight.lease.fetched = fetched
            if in_flight.refetch is not None and exchange.status == NOT_MODIFIED:
                capture.says_nothing = fetched.meaning is not Meaning.NOT_MODIFIED
                capture.original = in_flight.refetch.original()
        written, size = self._job.archive.write(capture), capture.size
        self._job.memory.grow(size)
        written.add_done_callback(partial(self._written, size))
        if in_flight.trace is not None:
            written.add_done_callback(in_flight.trace.archived)
        meta["krowl_warc"], meta["krowl_warc_id"] = written, identity
        in_flight.note = self._job.notes.fetched(in_flight, exchange, identity, meta)

    def _is_archived(self, in_flight: InFlight) -> bool:
        """Return whether an answer is archived. If there is an archive, a robots.txt always is."""
        if self._sites is None or in_flight.robots_fetch is not None:
            return self._archives
        policy = self._sites.of(in_flight.url, in_flight.host.name)
        return self._archives and (policy is None or policy.archive is not False)

    def _leave_out(self, request: Request, in_flight: InFlight, exchange: Exchange) -> None:
        """Keep of an answer that is not archived what its row needs."""
        request.meta["download_latency"] = exchange.times.latency
        in_flight.received = exchange.response_size
        self._count_answer(exchange.status, in_flight.received)
        if in_flight.is_head or exchange.status in THROTTLING:
            return
        self._count("krowl/archive/left_out_count")
        if self._keeps_rows and in_flight.lease is not None and request.method == "GET":
            in_flight.lease.fetched = self._fetched(exchange, Receipt(), in_flight.refetch)

    async def _digest_payload(self, in_flight: InFlight, body: bytes) -> None:
        """Give the row of a page that is not archived the digest of its payload."""
        fetched = None if in_flight.lease is None else in_flight.lease.fetched
        if fetched is not None and body:
            digested = hashlib.new(self._algorithm, usedforsecurity=False)
            if len(body) > _LONG:
                await run_in_thread(digested.update, body)
            else:
                digested.update(body)
            fetched.receipt.payload = digested.digest()

    def _fetched(self, exchange: Exchange, receipt: Receipt, refetch: Refetch | None) -> Fetched:
        status = exchange.status
        etag, modified = validators_in(exchange.headers, self._count_left)
        meaning = Meaning.ORDINARY if refetch is None else refetch.meaning(status, etag, modified)
        if modified and is_as_new_as(modified, _date_in(exchange.headers)):
            # Only this answer tells by the clock of its server. A change in the rest of the second
            # would go unseen.
            self._count_left("modified")
            modified = b""
        price = ""
        if status == HTTPStatus.PAYMENT_REQUIRED:
            named = [value for name, value in exchange.headers if name.lower() == b"crawler-price"]
            price = price_in({b"Crawler-Price": named})
        asked = None if refetch is None else refetch.asked
        started = exchange.times.started
        return Fetched(started, status, etag, modified, meaning, receipt, price=price, asked=asked)

    def _count_left(self, validator: str) -> None:
        self._count(f"krowl/pages/validator_left_count/{validator}")

    def _count_answer(self, status: int, size: int) -> None:
        count = self._count
        count("downloader/response_count")
        count(f"downloader/response_status_count/{status}")
        count("downloader/response_bytes", size)

    def _written(self, size: int, written: Future[Location]) -> None:
        self._job.memory.shrink(size)
        error = None if written.cancelled() else written.exception()
        if error is None:
            return
        self._count("krowl/archive/failed_count")
        # A failed archive fails for every capture in flight: log it once.
        if not (self._failed and isinstance(error, ArchiveError)):
            logger.error("A capture was not archived: %s", error)
        self._failed |= isinstance(error, ArchiveError)


def _date_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    for name, value in headers:
        if len(name) == 4 and name.lower() == b"date":
            return value
    return b""


def proxy_of(request: Request) -> Proxy:
    """Return the proxy that a request's meta names.

    :raises ProxyInvalid: it is no usable URL
    """
    from krowlspider.fetch.proxy.protocols import parse_proxy  # noqa: PLC0415 - few crawls use one

    return parse_proxy(request.meta["proxy"], request.headers.get(b"Proxy-Authorization") or b"")
