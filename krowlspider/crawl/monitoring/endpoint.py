"""A web server for people and programs that watch a crawl, on aiohttp."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import socket

    Route = Callable[[web.BaseRequest], web.Response]

# No traceback for each client that does not speak HTTP.
_logger = logging.getLogger(__name__)
_logger.addFilter(
    lambda line: not (line.exc_info and isinstance(line.exc_info[1], HttpProcessingError))
)

# Most bytes in a line of a request, and most header fields. Browsers send half as many.
_LINE_MAX = 8192
_FIELDS_MAX = 64
# Most connections at a time. One more closes the oldest, so that slow clients keep nobody out.
_CLIENTS_MAX = 8


def metrics_route(page: Callable[[], bytes]) -> Route:
    """Return the route of a page in Prometheus' text format."""
    kind = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
    return lambda _: web.Response(body=page(), headers=kind)


class Endpoint(web.Server):
    """A server on the running event loop; ``routes`` has what answers GET at each path.

    Clients can neither keep the loop busy nor fill memory or log. ``time_limit`` is the most
    seconds from the connection to the last byte of the answer.
    """

    def __init__(self, routes: Mapping[str, Route], time_limit: float):
        super().__init__(
            self._answer,
            access_log=None,
            logger=_logger,
            max_line_size=_LINE_MAX,
            max_headers=_FIELDS_MAX,
            # A request's body is not read.
            lingering_time=0,
        )
        self._routes = routes
        self._time_limit = time_limit
        self._server: asyncio.Server | None = None
        # Open connections, the oldest first.
        self._clients: dict[web.RequestHandler, asyncio.Transport] = {}

    async def listen(self, listening: socket) -> None:
        """Accept the clients of a socket, which belongs to the server from now on."""
        self._server = await asyncio.get_running_loop().create_server(self, sock=listening)

    def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
        for client in self._clients.values():
            client.abort()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        asyncio.get_running_loop().call_later(self._time_limit, transport.abort)
        self._clients[handler] = transport
        if len(self._clients) > _CLIENTS_MAX:
            self._clients.pop(next(iter(self._clients))).abort()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._clients.pop(handler, None)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        route = self._routes.get(request.path)
        if route is None:
            answer = web.Response(status=404)
        elif request.method not in {"GET", "HEAD"}:
            answer = web.Response(status=405, headers={"Allow": "GET, HEAD"})
        else:
            answer = route(request)
        answer.force_close()
        return answer
