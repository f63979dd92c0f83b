"""The servers of a crawl: where they listen, and when the web server is loaded.

Listen for clients of metrics and live page, and load the web server when the first one comes, or
after some seconds. Loading aiohttp takes a tenth of the CPU time of a start, and most short crawls
have no client. In a busy crawl it takes a second, for which no client should wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from krowlspider.config.checks import port_range
from krowlspider.job.monitoring.access import HostNames
from krowlspider.job.provenance import own_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scrapy.settings import BaseSettings

    from krowlspider.job.monitoring.endpoint import Endpoint, Route

if TYPE_CHECKING:
    RouteMaker = Callable[[], Mapping[str, Route]]

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

# Seconds for which an answer is used again, and how many different ones are kept.
_FRESH = 1.0
_RECENT_MAX = 100
# Most seconds from the connection to the last byte of the answer.
_TIME_LIMIT = 5.0
# Seconds after which the web server is loaded though no client has come.
_LOAD_AFTER = 10.0


class ListenAddress(NamedTuple):
    """Where a server listens: at the first free one of ``ports``. ``what`` is served there.

    ``host_by`` and ``ports_by`` are the settings that say so.
    """

    host: str
    ports: range
    what: str = "metrics and live page"
    host_by: str = "PROMETHEUS_HOST"
    ports_by: str = "PROMETHEUS_PORT"


class RecentAnswers:
    """Answers by their key, each used again for a second: many clients cannot keep the event loop
    busy. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        # When each was made.
        self._known: dict[str, tuple[float, Any]] = {}

    def get(self, key: str, make: Callable[[], _T]) -> _T:
        """Return the answer, which ``make`` returns if the last one is too old."""
        now = self._clock()
        made, answer = self._known.get(key, (-inf, None))
        if now - made >= _FRESH:
            answer = make()
            if len(self._known) >= _RECENT_MAX:
                self._known.clear()
            self._known[key] = now, answer
        known: _T = answer
        return known

    def forget(self) -> None:
        """Make each answer anew: the crawl has been changed."""
        self._known.clear()


class PageServer:
    """Serves the routes of some makers on the running event loop.

    The clients are as of `Endpoint`. The first ones wait in the listening socket until it is there:
    it is loaded for them, or ``load_after`` seconds after `open`. They ask by one of its ``names``.
    """

    def __init__(
        self,
        makers: Iterable[RouteMaker],
        time_limit: float = _TIME_LIMIT,
        on_clients: Callable[[int], None] = lambda _: None,
        load_after: float = _LOAD_AFTER,
        names: HostNames | None = None,
    ):
        self._makers = makers
        self._names = names or HostNames()
        self._on_clients = on_clients
        self._time_limit = time_limit
        self._load_after = load_after
        self._timer: asyncio.TimerHandle | None = None
        self._socket: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        self._endpoint: Endpoint | None = None

    async def open(self, host: str, ports: range) -> tuple[str, int]:
        """Listen at the first port that is free; return its address and port.

        :raises OSError: no port is free, or the address is not this machine's
        """
        loop = asyncio.get_running_loop()
        flags = socket.AI_PASSIVE
        found = await loop.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=flags)
        family, *_, place = found[0]
        for port in ports:
            try:
                self._socket = listening = socket.create_server((place[0], port), family=family)
            except OSError:
                if port == ports[-1]:
                    raise
            else:
                break
        listening.setblocking(False)
        loop.add_reader(listening, self._client_came, listening)
        self._timer = loop.call_later(self._load_after, self._begin, listening)
        address: tuple[str, int] = listening.getsockname()[:2]
        return address

    async def serve(self, place: ListenAddress) -> str:
        """Listen as `open`, and return the URL of the root without its slash. If that fails, log it
        and return ""."""
        ports, nothing = place.ports, place.what.replace(" and ", " and no ")
        try:
            address, port = await self.open(place.host, ports)
        except socket.gaierror as error:
            _logger.warning(
                "No %s: %s=%s has no address (%s); give another, or PROMETHEUS_ENABLED=False",
                *(nothing, place.host_by, place.host, error.strerror),
            )
            return ""
        except OSError as error:
            _logger.warning(
                "No %s: no free port in %s=%s at %s (%s); give others, or PROMETHEUS_ENABLED=False",
                *(nothing, place.ports_by, ",".join(map(str, sorted({ports[0], ports[-1]})))),
                *(place.host, os.strerror(error.errno) if error.errno else error),
            )
            return ""
        shown = f"[{address}]" if ":" in address else address
        if ports[0] not in {0, port}:
            _logger.warning("Port %d is taken: %s at port %d instead", ports[0], place.what, port)
        return f"http://{shown}:{port}"

    def _client_came(self, listening: socket.socket) -> None:
        self._on_clients(1)
        self._begin(listening)

    def _begin(self, listening: socket.socket) -> None:
        assert self._timer is not None
        self._timer.cancel()
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._starting = loop.create_task(self._start(listening))

    async def _start(self, listening: socket.socket) -> None:
        try:
            endpoint, routes = await asyncio.to_thread(self._load)
        except Exception:
            # Otherwise each client would wait for ever, and nobody would know why.
            _logger.exception("Metrics and live page are not served")
            self._on_clients(0)
            listening.close()
            self._socket = None
            return
        self._endpoint = endpoint(routes, self._time_limit, self._on_clients, self._names)
        await self._endpoint.listen(listening)
        self._socket = None

    def _load(self) -> tuple[type[Endpoint], dict[str, Route]]:
        from krowlspider.job.monitoring.endpoint import Endpoint  # noqa: PLC0415 - slow

        return Endpoint, {path: route for make in self._makers for path, route in make().items()}

    def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._timer is not None:
            self._timer.cancel()
        if self._starting is not None:
            self._starting.cancel()
        elif self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
        if self._socket is not None:
            self._socket.close()
        if self._endpoint is not None:
            self._endpoint.close()


# Where page and API are served beside metrics that others can reach.
CONTROL_HOST = "127.0.0.1"


class Servers:
    """Serves ``metrics`` at PROMETHEUS_HOST. There ``page`` is served too, if that is a loopback
    address without other names; else it has a server of its own on one.

    ``on_clients`` is called with the number of clients that wait for an answer when it changes.
    """

    def __init__(
        self,
        metrics: RouteMaker,
        page: RouteMaker | None,
        on_clients: Callable[[int], None] = lambda _: None,
    ):
        self._metrics = metrics
        self._page = page
        self._on_clients = on_clients
        self._waiting: dict[int, int] = {}
        self._servers: list[PageServer] = []

    async def open(self, settings: BaseSettings) -> tuple[str, str]:
        """Listen; return the URLs of the roots of page and metrics without their slash. One that is
        off, or failed, is ""; a failure is logged."""
        host = settings["PROMETHEUS_HOST"]
        place = ListenAddress(host, port_range(settings["PROMETHEUS_PORT"]))
        names = HostNames.of(host, settings.getlist("KROWL_METRICS_NAMES"))
        if self._page is None:
            return "", await self._server([self._metrics], names).serve(
                place._replace(what="metrics")
            )
        makers = [self._page, self._metrics]
        if names.is_local:
            url = await self._server(makers, names).serve(place)
            return url, url
        metrics = await self._server([self._metrics], names).serve(place._replace(what="metrics"))
        control = ListenAddress(
            CONTROL_HOST,
            port_range(settings["KROWL_CONTROL_PORT"]),
            "live page",
            ports_by="KROWL_CONTROL_PORT",
        )
        return await self._server(makers, HostNames()).serve(control), metrics

    def _server(self, makers: list[RouteMaker], names: HostNames) -> PageServer:
        at = len(self._servers)

        def count(clients: int) -> None:
            self._waiting[at] = clients
            self._on_clients(sum(self._waiting.values()))

        server = PageServer(makers, on_clients=count, names=names)
        self._servers.append(server)
        return server

    def close(self) -> None:
        """Stop listening, and close all connections."""
        for server in self._servers:
            server.close()


def reached_at(url: str) -> tuple[str, int]:
    """Return the address and port at which other machines reach the server at ``url``."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ip_address(host).is_unspecified:
        host = own_address() or host
    return host, parts.port or 0


def shown(url: str) -> str:
    """Return a URL with an address at which a server can be asked."""
    host, port = reached_at(url)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
