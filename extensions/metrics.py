"""Extension: the figures of the crawl for Prometheus, at http://PROMETHEUS_HOST:PROMETHEUS_PORT/PROMETHEUS_PATH."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from scrapy import signals
from scrapy.exceptions import NotConfigured

from extensions.status import figures_wanted
from krowlspider import __version__
from krowlspider.checkers import port_range
from krowlspider.metrics import registry, text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# Seconds that an answer is given again: however many ask, making one takes under half a per cent of the loop.
_FRESH = 1.0
# Bytes of a request; Prometheus sends 300.
_HEAD_MAX = 8192
# Seconds from the connection to the last byte of the answer.
_PATIENCE = 5.0
# Connections at once; for one more the oldest goes, so that who is slow keeps nobody else out.
_CLIENTS_MAX = 8


class Page:
    """What ``make`` makes, again at most once a second by ``clock``."""

    def __init__(self, make: Callable[[], bytes], clock: Callable[[], float] = time.monotonic):
        self._make = make
        self._clock = clock
        self._end = float("-inf")
        self._made = b""

    def get(self) -> bytes:
        now = self._clock()
        if now >= self._end:
            self._made = self._make()
            self._end = now + _FRESH
        return self._made


def answer(head: bytes, path: bytes, page: Callable[[], bytes]) -> bytes:
    """The whole answer to a request, of which ``head`` is the line and the fields; a body is not looked at."""
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return _plain(b"400 Bad Request")
    method, target, _ = words
    if target.partition(b"?")[0] != path:
        return _plain(b"404 Not Found")
    if method not in {b"GET", b"HEAD"}:
        return _plain(b"405 Method Not Allowed", b"Allow: GET, HEAD\r\n")
    whole = _plain(b"200 OK", body=page(), kind=CONTENT_TYPE_PLAIN_0_0_4.encode())
    return whole if method == b"GET" else whole[: whole.index(b"\r\n\r\n") + 4]


def _plain(
    status: bytes, fields: bytes = b"", body: bytes = b"", kind: bytes = b"text/plain"
) -> bytes:
    return (
        b"HTTP/1.1 %b\r\n%bContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
        % (status, fields, kind, len(body), body)
    )


class Endpoint:
    """A web server of one page, on the loop that calls it, which no client can keep busy or fill.

    It is our own because twisted.web takes a body of any length, on the disk from 100 kB on, and its time-out begins
    anew with each byte.
    """

    def __init__(self, path: bytes, page: Callable[[], bytes], patience: float = _PATIENCE):
        self._path = path
        self._page = page
        self._patience = patience
        self._server: asyncio.Server | None = None
        # The oldest first.
        self._clients: dict[asyncio.Task[None], None] = {}

    async def open(self, host: str, ports: range) -> tuple[str, int]:
        """Listen at the first of the ports that is free; the address and port that it is.

        :raises OSError: there is none, or the address is not this machine's
        """
        for port in ports:
            try:
                self._server = await asyncio.start_server(
                    self._connected, host, port, limit=_HEAD_MAX
                )
            except OSError:
                if port == ports[-1]:
                    raise
            else:
                break
        assert self._server is not None
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients[client] = None
        client.add_done_callback(partial(self._over, writer))
        if len(self._clients) > _CLIENTS_MAX:
            oldest = next(iter(self._clients))
            del self._clients[oldest]
            oldest.cancel()

    def _over(self, writer: asyncio.StreamWriter, client: asyncio.Task[None]) -> None:
        # Here, as a task that is cancelled before its first step runs none of its code.
        writer.transport.abort()
        self._clients.pop(client, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Who cuts the connection, asks at length or is too slow has no answer.
        with suppress(TimeoutError, asyncio.LimitOverrunError, EOFError, ConnectionError):
            async with asyncio.timeout(self._patience):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(head, self._path, self._page))
                writer.close()
                # Until all is sent.
                await writer.wait_closed()


class Metrics:
    """Serves the stats as they are when somebody asks; `krowlspider.metrics` has the rule of their names."""

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        if not settings.getbool("PROMETHEUS_ENABLED"):
            raise NotConfigured
        self._crawler = crawler
        self._host: str = settings["PROMETHEUS_HOST"]
        self._ports = port_range(settings["PROMETHEUS_PORT"])
        self._path = "/" + settings["PROMETHEUS_PATH"].lstrip("/")
        self._endpoint = Endpoint(self._path.encode(), Page(self._text).get)
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def _start(self) -> None:
        assert self._crawler.spider is not None
        self._registry = registry(
            self._crawler.stats.get_stats,
            {"spider": self._crawler.spider.name, "version": __version__},
        )
        try:
            host, port = await self._endpoint.open(self._host, self._ports)
        except OSError as error:
            logger.warning("There are no metrics for Prometheus: %s", error)
        else:
            shown = f"[{host}]" if ":" in host else host
            logger.info("Metrics for Prometheus at http://%s:%d%s", shown, port, self._path)

    def _text(self) -> bytes:
        self._crawler.signals.send_catch_log(figures_wanted)
        return text(self._registry)

    def _stop(self) -> None:
        self._endpoint.close()
