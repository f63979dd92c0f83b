"""The download handler: fetches, passes the exact bytes to the archive, returns a response."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    NotSupported,
    ResponseDataLossError,
    StopDownload,
)
from scrapy.http import Headers
from scrapy.responsetypes import responsetypes
from twisted.python.failure import Failure
from w3lib.encoding import DEFAULT_ENCODING_TRANSLATION

from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.write.capture import Capture, Wire
from krowlspider.archive.write.records import new_id
from krowlspider.crawl.job import Job
from krowlspider.engine.crash_marking import page_mark
from krowlspider.engine.listeners import is_heard
from krowlspider.engine.loop_throttle import LoopThrottle
from krowlspider.engine.scheduler import Scheduler
from krowlspider.fetch import errors
from krowlspider.fetch.exchange import StopFetch
from krowlspider.fetch.memory import Held

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.archive.reading import Location
    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.fetch.exchange import Exchange

logger = logging.getLogger(__name__)

# No codec has the name "unknown", so a page that declares punycode has no charset. Browsers do not
# know punycode, and Python decodes it in quadratic time.
DEFAULT_ENCODING_TRANSLATION["punycode"] = "unknown"

_address = lru_cache(maxsize=65_536)(ip_address)

# Fetch errors and their Scrapy exceptions, which retry middlewares and errbacks know. The first
# match counts.
_SCRAPY_ERRORS: Sequence[tuple[type[errors.FetchError], type[Exception]]] = (
    (errors.NameFailed, CannotResolveHostError),
    (errors.AddressForbidden, IgnoreRequest),
    (errors.ConnectRefused, DownloadConnectionRefusedError),
    (errors.ConnectTimeout, DownloadTimeoutError),
    (errors.FirstByteTimeout, DownloadTimeoutError),
    (errors.TotalTimeout, DownloadTimeoutError),
    (errors.TooLarge, DownloadCancelledError),
    (errors.ConnectionLost, ResponseDataLossError),
    (errors.FetchError, DownloadFailedError),
)


def failure_kind(error: BaseException) -> str:
    """Return one word for the reason of a failed download, for counters."""
    cause = error.__cause__
    if isinstance(error, StopDownload):
        return "stopped"
    return cause.kind if isinstance(cause, errors.FetchError) else "error"


def is_final(error: BaseException) -> bool:
    """Return whether the same fetch would fail again.

    That is so for a name that does not exist, a forbidden address, and an answer of no use.
    """
    return is_answer(error) or isinstance(
        error.__cause__, errors.NameNotFound | errors.NameMalformed | errors.AddressForbidden
    )


def is_answer(error: BaseException) -> bool:
    """Return whether the host answered and the crawler refused the answer.

    That is so for a body over the limit, a broken content coding and a stopped download.
    """
    return isinstance(error, StopDownload) or isinstance(
        error.__cause__, errors.TooLarge | errors.DecodeFailed
    )


def answer_to(error: BaseException) -> Exchange | None:
    """Return the answer that came before a download failed; None if no head had come."""
    cause = error.__cause__
    return cause.exchange if isinstance(cause, errors.FetchError) else None


class _Signals:
    """Send Scrapy's signals for headers and body as they come."""

    def __init__(self, crawler: Crawler, request: Request):
        self._crawler = crawler
        self._request = request
        self.stop: StopDownload | None = None

    def headers(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        length = next(
            (int(v) for k, v in headers if k.lower() == b"content-length" and v.isdigit()), None
        )
        self._send(signals.headers_received, headers=_headers(headers), body_length=length)

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

    ``request.meta["krowl_warc"]`` is a future of the ``Location`` of the response record. It is not
    set for a status in KROWL_WARC_SKIP_STATUS. A body over DOWNLOAD_MAXSIZE, a cut connection and a
    timeout raise Scrapy's exceptions. Bytes that came before are archived, marked as truncated.
    """

    def __init__(self, crawler: Crawler):
        super().__init__(crawler)
        settings = crawler.settings
        self._job = Job.of(crawler)
        # Looked up once, because Scrapy's own collector wraps its attributes at each access.
        self._count = crawler.stats.inc_value
        self._throttle = LoopThrottle(asyncio.get_running_loop())
        # Whether the archive has failed and this has been logged.
        self._failed = False
        self._timeout = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._max_size = settings.getint("DOWNLOAD_MAXSIZE")
        self._skipped = {int(status) for status in settings.getlist("KROWL_WARC_SKIP_STATUS")}
        defaults = {
            "User-Agent": self._job.user_agent,
            **settings.getdict("DEFAULT_REQUEST_HEADERS"),
        }
        self._defaults = [
            (name.title().encode(), str(value).encode("latin-1"))
            for name, value in defaults.items()
            if value is not None
        ]

    async def download_request(self, request: Request) -> Response:
        meta = request.meta
        if meta.get("proxy"):
            raise NotSupported(
                "krowlspider fetches directly: the 'proxy' meta key is not supported"
            )
        in_flight = self._in_flight(request)
        observer = self._observer(request)
        held = in_flight.held = Held(self._job.memory)
        try:
            exchange = await self._job.client.fetch(
                in_flight.url,
                request.method,
                self._request_headers(request),
                request.body,
                timeout=meta.get("download_timeout", self._timeout),
                # 0 is no limit, as in Scrapy.
                max_size=meta.get("download_maxsize", self._max_size) or sys.maxsize,
                observer=observer,
                admit=partial(self._scheduler().reserve_address, in_flight),
                linked=self._scheduler().is_linked_port(in_flight),
                held=held,
            )
        except errors.FetchError as error:
            await self._throttle()
            if error.exchange is not None:
                self._archive(request, in_flight, error.exchange)
            in_flight.note = self._job.notes.failed(in_flight, error, in_flight.note, request.meta)
            raise _as_scrapy(error) from error
        await self._throttle()
        self._archive(request, in_flight, exchange)
        # The rest of the exchange is counted by `_archive` until it is written.
        held.become(len(exchange.body))
        try:
            # Decoders and parsers in C read untrusted bytes here and may crash: mark the page.
            mark = page_mark(self._job.frontier, in_flight)
            headers, body = _headers(exchange.headers), exchange.body
            if body and (coding := headers.pop(b"Content-Encoding", None)):
                most = max(self._max_size, meta.get("download_maxsize", 0))
                body = await self._job.decoders.decode(mark, body, coding[-1], most, held)
            response = self._job.mark.during(mark, _response, request, exchange, headers, body)
        except errors.FetchError as error:
            error.exchange = exchange
            in_flight.note = self._job.notes.failed(in_flight, error, in_flight.note, request.meta)
            raise _as_scrapy(error) from error
        if observer is not None and observer.stop is not None:
            response.flags.append("download_stopped")
            if observer.stop.fail:
                observer.stop.response = response
                raise observer.stop
        return response

    def _in_flight(self, request: Request) -> InFlight:
        """Return the record of a request in flight.

        Its URL is the discovered one, which Scrapy's Request may have escaped differently.
        """
        in_flight = self._scheduler().in_flight(request)
        assert in_flight is not None
        return in_flight

    def _scheduler(self) -> Scheduler:
        scheduler = self.crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler

    def _observer(self, request: Request) -> _Signals | None:
        """Return a sender of Scrapy's signals; None if nobody listens to them."""
        for signal in (signals.headers_received, signals.bytes_received):
            if is_heard(self.crawler, signal):
                return _Signals(self.crawler, request)
        return None

    def _request_headers(self, request: Request) -> list[tuple[bytes, bytes]]:
        if not request.headers:
            return self._defaults
        own = [(name, value) for name, values in request.headers.items() for value in values]
        named = {name for name, _ in own}
        return own + [(name, value) for name, value in self._defaults if name not in named]

    def _archive(self, request: Request, in_flight: InFlight, exchange: Exchange) -> None:
        request.meta["download_latency"] = exchange.times.latency
        count = self._count
        count("downloader/response_count")
        count(f"downloader/response_status_count/{exchange.status}")
        count("downloader/response_bytes", len(exchange.response_bytes))
        # The answer to robots.txt is always archived: it shows why a host was crawled or not.
        if exchange.status in self._skipped and in_flight.robots_fetch is None:
            return
        identity = new_id()
        capture = _capture(exchange, identity)
        written = self._job.archive.write(capture)
        self._job.memory.grow(capture.size)
        written.add_done_callback(partial(self._written, capture.size))
        request.meta["krowl_warc"] = written
        in_flight.note = self._job.notes.fetched(in_flight, exchange, identity, request.meta)

    def _written(self, size: int, written: Future[Location]) -> None:
        self._job.memory.shrink(size)
        error = None if written.cancelled() else written.exception()
        if error is None:
            return
        self.crawler.stats.inc_value("krowl/archive/failed_count")
        # A failed archive fails for every capture in flight: log it once.
        if not (self._failed and isinstance(error, ArchiveError)):
            logger.error("A capture was not archived: %s", error)
        self._failed |= isinstance(error, ArchiveError)


def _response(request: Request, exchange: Exchange, headers: Headers, body: bytes) -> Response:
    kind = responsetypes.from_args(headers=headers, url=exchange.url, body=body)
    response = kind(
        url=exchange.url,
        status=exchange.status,
        body=body,
        request=request,
        ip_address=_address(exchange.peer.address),
        protocol=f"HTTP/{exchange.version}",
        certificate=exchange.peer.certificate,
    )
    # Set afterwards, because the constructor would copy the headers name by name.
    response.headers = headers
    return response


def _capture(exchange: Exchange, identity: str) -> Capture:
    media_type = b""
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
        wire=Wire(exchange.peer.address, exchange.version, exchange.peer.tls),
    )


def _headers(pairs: list[tuple[bytes, bytes]]) -> Headers:
    # `Headers.appendlist` is quadratic in the lines of a hostile head. `Headers.update` is not
    # needed: names and values are normalised already.
    headers = Headers()
    grouped: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        grouped.setdefault(name.title(), []).append(value)
    dict.update(headers, grouped)
    return headers


def _as_scrapy(error: errors.FetchError) -> Exception:
    for kind, scrapy_error in _SCRAPY_ERRORS:
        if isinstance(error, kind):
            return scrapy_error(str(error))
    raise AssertionError(f"no Scrapy exception for {type(error).__name__}")
