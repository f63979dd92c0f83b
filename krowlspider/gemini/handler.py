"""The download handler of gemini URLs: archives each answer, and returns a response."""

from __future__ import annotations

import codecs
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

from scrapy.http import Response, TextResponse
from scrapy.responsetypes import responsetypes

from krowlspider.engine.handler import DownloadHandler, capture_of, headers_of, ip_of, proxy_of
from krowlspider.fetch.errors import NoCloseNotify
from krowlspider.gemini.certificates import CertificatePins
from krowlspider.gemini.client import GeminiClient, origin_of
from krowlspider.gemini.protocol import SCHEME, media_type, server_of
from krowlspider.job.answers.retries import TRUNCATED_COUNT, LastTries
from krowlspider.urls.encoding import codec_for, encoding_named

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Coroutine
    from typing import Any

    from scrapy import Request
    from scrapy.crawler import Crawler

    from krowlspider.archive.reading import Location
    from krowlspider.archive.write.records import Capture
    from krowlspider.fetch.errors import Exchange, FetchError, Observer
    from krowlspider.fetch.http.head import Origin, Target
    from krowlspider.fetch.memory import FetchMemory
    from krowlspider.fetch.signing import Signer
    from krowlspider.job.in_flight import InFlight

logger = logging.getLogger(__name__)

# The value of KROWL_GEMINI_CERTIFICATES that accepts other certificates than before.
ACCEPT = "accept"


def response_of(request: Request, exchange: Exchange, body: bytes) -> Response:
    """Return the response for an exchange: of text if it is a success with such a type."""
    headers = headers_of(exchange.headers)
    values: dict[str, Any] = {
        "url": exchange.url,
        "status": exchange.status,
        "body": body,
        "request": request,
        "ip_address": ip_of(exchange.peer.address),
        "protocol": SCHEME,
        "certificate": exchange.peer.certificate,
    }
    kind = Response
    if (meta := headers.get(b"Content-Type")) is not None:
        found = media_type(meta.decode())
        kind = responsetypes.from_mimetype(found.essence)
    if issubclass(kind, TextResponse):
        encoding = encoding_named(found.charset) or "UTF-8"
        values["encoding"] = codecs.lookup(codec_for(encoding)).name
    response = kind(**values)
    response.headers = headers
    return response


class _FirstTries(LastTries):
    """Accepts an answer without close_notify at the first try.

    Its server seldom does better at the next one: another request would only cost it more.
    """

    def accepted(
        self, error: FetchError, in_flight: InFlight, meta: dict[str, Any]
    ) -> Exchange | None:
        """Return the answer of a failed fetch if it is to be accepted, and count it."""
        if not isinstance(error, NoCloseNotify):
            return None
        self._count(TRUNCATED_COUNT)
        return error.exchange


class GeminiHandler(DownloadHandler):
    """Fetch gemini URLs over connections of their own, and archive each answer as
    `DownloadHandler` does, which says what is in a request's meta.

    A response has the two digits of its status. The META of a success is in the header
    Content-Type, that of a redirect in Location, that of a failure in Meta. The flag "truncated"
    marks an answer whose server has ended TLS without close_notify.
    """

    def __init__(self, crawler: Crawler):
        super().__init__(crawler)
        settings, count = crawler.settings, self._count
        self._last_tries = _FirstTries(settings, count)
        self._least_delay = settings.getfloat("KROWL_GEMINI_DELAY_MIN")
        self._certificates = CertificatePins(
            self._job.store,
            accepts_changes=settings["KROWL_GEMINI_CERTIFICATES"] == ACCEPT,
            wall=self._job.wall,
            count=lambda word: count(f"krowl/gemini/certificate_count/{word}"),
        )
        self._gemini = GeminiClient(self._job.fetching.client, self._certificates)
        # By the id of a response record: the server and the certificate of which the same write
        # makes a record.
        self._recording: dict[str, tuple[str, bytes]] = {}

    @staticmethod
    def origin_of(url: str) -> Origin:
        return origin_of(url)

    async def download_request(self, request: Request) -> Response:
        in_flight = self._flights.get(request)
        assert in_flight is not None
        # At its usual port the frontier knows a Gemini server by its name, at others not.
        in_flight.must_wait(self._least_delay)
        return await super().download_request(request)

    def _exchange(
        self,
        request: Request,
        in_flight: InFlight,
        memory: FetchMemory,
        observer: Observer | None,
        sign: Callable[[Target, str], bytes] | None,
    ) -> Coroutine[None, None, Exchange]:
        meta = request.meta
        return self._gemini.fetch(
            in_flight.url,
            timeout=meta.get("download_timeout", self._timeout),
            max_size=self._size_limit(request) or sys.maxsize,
            observer=observer,
            admit=self._job.admission(in_flight.host, is_page=in_flight.robots_fetch is None),
            linked=self._job.frontier.linked_ports.is_linked(in_flight.host.name),
            memory=memory,
            spills=self._job.fetching.spills if in_flight.robots_fetch is None else None,
            proxy=proxy_of(request) if meta.get("proxy") else None,
        )

    def _signing(
        self, signer: Signer, request: Request, in_flight: InFlight
    ) -> Callable[[Target, str], bytes] | None:
        # A request has no place for a signature.
        return None

    def _learn_challenge(
        self, signer: Signer, in_flight: InFlight, exchange: Exchange, *, was_signed: bool
    ) -> None:
        """Do nothing: no server asks for a signature."""

    async def _decode(
        self, request: Request, in_flight: InFlight, exchange: Exchange, body: bytes
    ) -> Response:
        return response_of(request, exchange, body)

    def _capture(self, exchange: Exchange, identity: str) -> Capture:
        capture = capture_of(exchange, identity)
        capture.protocol = SCHEME
        server, certificate = server_of(exchange.url).server, exchange.peer.certificate
        if certificate is not None and self._certificates.lacks_record(server, certificate):
            capture.certificate = certificate
            self._recording[identity] = server, certificate
        return capture

    def _archive(self, request: Request, in_flight: InFlight, exchange: Exchange) -> None:
        super()._archive(request, in_flight, exchange)
        recording = self._recording.pop(request.meta.get("krowl_warc_id", ""), None)
        if recording is not None:
            request.meta["krowl_warc"].add_done_callback(partial(self._recorded, *recording))

    def _recorded(self, server: str, certificate: bytes, written: Future[Location]) -> None:
        if not written.cancelled() and written.exception() is None:
            self._certificates.recorded(server, certificate)
