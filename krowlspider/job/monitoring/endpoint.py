"""A web server for people and programs that watch a crawl, on aiohttp."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from socket import socket

    from krowlspider.job.monitoring.access import HostNames

    Route = Callable[[web.BaseRequest], web.StreamResponse | Awaitable[web.StreamResponse]]

# No traceback for each client that does not speak HTTP.
_logger = logging.getLogger(__name__)
_logger.addFilter(
    lambda line: not (line.exc_info and isinstance(line.exc_info[1], HttpProcessingError))
)

# Most bytes in a line of a request, and most header fields. Browsers send half as many.
_LINE_MAX = 8192
_FIELDS_MAX = 64
# Most connections at a time. One more closes the oldest, so that slow clients keep nobody out.
CLIENTS_MAX = 8
# Most of them that are sent events. Other pages ask from time to time.
_STREAMS_MAX = 4
# Most bytes of a body that are read after its answer, and the most seconds without any of them.
# Many clients read no answer before they have sent all, and a reset would take it from them.
REST_MAX = 16 * 1024 * 1024
_REST_WAIT = 1.0
# Seconds between two events.
_EVENT_INTERVAL = 1.0


def metrics_route(page: Callable[[], bytes]) -> Route:
    """Return the route of a page in Prometheus' text format."""
    kind = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
    return lambda _: web.Response(body=page(), headers=kind)


def health(_: web.BaseRequest) -> web.StreamResponse:
    """Answer while the event loop runs."""
    return web.Response(text="ok\n")


def readiness(why_not: Callable[[], str]) -> Route:
    """Return the route that says whether the crawl may fetch."""

    def answer(_: web.BaseRequest) -> web.StreamResponse:
        why = why_not()
        return web.Response(status=503 if why else 200, text=f"{why or 'ready'}\n")

    return answer


def refused(request: web.BaseRequest, status: int, why: str) -> web.Response:
    """Return an answer without a route: in JSON below ``/api/``, else as text."""
    if request.path.startswith("/api/"):
        return web.json_response({"error": why}, status=status)
    return web.Response(status=status, text=f"{why}\n")


class Events(web.StreamResponse):
    """Server-sent events (WHATWG HTML, section 9.2): what ``make`` returns, each second, until the
    client closes the connection."""

    def __init__(self, make: Callable[[], bytes]):
        super().__init__(headers={"Content-Type": "text/event-stream"})
        self.make = make


# What a request has for its route: a call that gives its client another ``time_limit``, and keeps
# its connection open though others come.
MORE_TIME: web.RequestKey[Callable[[], None]] = web.RequestKey("more_time")


class Endpoint(web.Server):
    """A server on the running event loop. ``routes`` has what answers GET, by path, and POST, by
    ``POST`` and path.

    Clients can neither keep the loop busy nor fill memory or log. ``time_limit`` is the most
    seconds from the connection to the last byte of the answer; for events, to write one of them.
    ``on_clients`` is called with the number of clients that wait for an answer when it changes.
    Requests by another name than ``names`` are refused, and POST from pages of another origin.
    There are at most ``clients_max`` connections.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        time_limit: float,
        on_clients: Callable[[int], None],
        names: HostNames,
        clients_max: int = CLIENTS_MAX,
    ):
        super().__init__(
            self._answer,
            access_log=None,
            logger=_logger,
            max_line_size=_LINE_MAX,
            max_headers=_FIELDS_MAX,
            # Here the rest of a request's body is read within bounds of bytes too.
            lingering_time=0,
            # The events of a client that has gone end.
            handler_cancellation=True,
        )
        self._routes = routes
        self._names = names
        self._clients_max = clients_max
        self._time_limit = time_limit
        self._server: asyncio.Server | None = None
        # Open connections, the oldest first, and those with a long answer or a long file.
        self._clients: dict[web.RequestHandler, asyncio.Transport] = {}
        self._senders: dict[web.RequestHandler, asyncio.Transport] = {}
        self._limits: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._streams = 0
        self._on_clients = on_clients

    async def listen(self, listening: socket) -> None:
        """Accept the clients of a socket, which belongs to the server from now on."""
        self._server = await asyncio.get_running_loop().create_server(self, sock=listening)

    def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
        for client in (*self._clients.values(), *self._senders.values()):
            client.abort()

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of an accepted client. It counts as waiting from now on: the turns
        until it is connected are short already."""
        self._on_clients(self._waiting + 1)
        return super().__call__()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        loop = asyncio.get_running_loop()
        self._limits[handler] = loop.call_later(self._time_limit, transport.abort)
        self._clients[handler] = transport
        if len(self._clients) > self._clients_max:
            self._clients.pop(next(iter(self._clients))).abort()
        self._count()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._clients.pop(handler, None)
        self._senders.pop(handler, None)
        if (limit := self._limits.pop(handler, None)) is not None:
            limit.cancel()
        self._count()

    def _give_time(self, handler: web.RequestHandler) -> None:
        """Let a client of a long answer take another ``time_limit``. It does not wait any more: the
        crawl goes on as if nobody watched."""
        if (limit := self._limits.get(handler)) is None or handler.transport is None:
            return
        limit.cancel()
        loop = asyncio.get_running_loop()
        self._limits[handler] = loop.call_later(self._time_limit, handler.transport.abort)
        if (client := self._clients.pop(handler, None)) is not None:
            self._senders[handler] = client
            self._count()

    def _count(self) -> None:
        self._on_clients(self._waiting)

    @property
    def _waiting(self) -> int:
        # Those that are sent events do not wait.
        return max(0, len(self._clients) - self._streams)

    def _refusal(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer to a request that another site's page may have made; else None."""
        host = request.headers.get("Host", "")
        own = (request.transport and request.transport.get_extra_info("sockname")) or ("",)
        if not self._names.has(host, own[0]):
            why = "ask by the address of this server"
            if not self._names.is_local:
                why += ", or name this host in KROWL_METRICS_NAMES"
            return refused(request, 421, why)
        # A token in the hands of another site's page is a mistake.
        origin = request.headers.get("Origin")
        if request.method == "POST" and origin is not None and origin != f"http://{host}":
            return refused(request, 403, "a page of another site gives no orders here")
        return None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, posted = request.path, f"POST {request.path}"
        named = {"GET": path, "HEAD": path, "POST": posted}.get(request.method, "")
        answer: web.StreamResponse | None
        if (answer := self._refusal(request)) is not None:
            pass
        elif (route := self._routes.get(named)) is not None:
            give_time: Callable[[], None] = partial(self._give_time, request.protocol)
            request[MORE_TIME] = give_time
            made = route(request)
            answer = await made if isawaitable(made) else made
        elif path in self._routes or posted in self._routes:
            methods = ("GET, HEAD", path), ("POST", posted)
            allowed = ", ".join(name for name, each in methods if each in self._routes)
            answer = refused(request, 405, f"this path takes {allowed}")
            answer.headers["Allow"] = allowed
        else:
            answer = refused(request, 404, "there is nothing at this path")
        if isinstance(answer, Events) and self._streams >= _STREAMS_MAX:
            answer = web.Response(status=503, text="enough clients are sent events\n")
        answer.force_close()
        if isinstance(answer, Events) and request.method == "GET":
            await self._send(answer, request)
        elif not request.content.is_eof():
            await answer.prepare(request)
            await answer.write_eof()
            await _read_rest(request)
        return answer

    async def _send(self, events: Events, request: web.BaseRequest) -> None:
        if (limit := self._limits.pop(request.protocol, None)) is not None:
            limit.cancel()
        self._streams += 1
        self._count()
        try:
            await events.prepare(request)
            while True:
                async with asyncio.timeout(self._time_limit):
                    await events.write(events.make())
                await asyncio.sleep(_EVENT_INTERVAL)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams -= 1
            self._count()


async def _read_rest(request: web.BaseRequest) -> None:
    """Discard what follows of a body, within bounds; the time limit of the connection holds."""
    left = REST_MAX
    ends = TimeoutError, ConnectionError, web.RequestPayloadError, HttpProcessingError
    with suppress(*ends):
        while left > 0 and not request.content.is_eof():
            async with asyncio.timeout(_REST_WAIT):
                left -= len(await request.content.readany())
