"""Runs a site on loopback until it is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import ssl
import threading
from typing import TYPE_CHECKING

from tests.mockweb.log import LogWriter
from tests.mockweb.protocol import Connection, Web

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mockweb.reply import Site

_BACKLOG = 4_096
"""A crawl opens connections to thousands of hosts at once, and they are all this one socket."""


async def serve(
    make_site: Callable[[int, int], Site], *, port: int, tls: bool, log: Path | None
) -> None:
    """Serves `make_site(port, tls_port)` until SIGTERM, SIGINT or the end of stdin.

    Prints `{"port": ..., "tls_port": ...}` when it takes requests; port 0 is any free one.
    """
    _raise_file_limit()
    loop = asyncio.get_running_loop()
    sockets = [_listen(port), *([_listen(0)] if tls else [])]
    ports = [one.getsockname()[1] for one in sockets]
    tls_port = ports[1] if tls else 0
    web = Web(make_site(ports[0], tls_port), LogWriter(log) if log is not None else None)
    servers = [await loop.create_server(lambda: Connection(web, tls=False), sock=sockets[0])]
    if tls:
        servers.append(
            await loop.create_server(
                lambda: Connection(web, tls=True), sock=sockets[1], ssl=certificate()
            )
        )
    stop = _stopper(loop)
    print(json.dumps({"port": ports[0], "tls_port": tls_port or None}), flush=True)
    await stop.wait()
    await _close(servers, web)


def _listen(port: int) -> socket.socket:
    # 0.0.0.0 because every 127.x.y.z is a host; a connection from elsewhere is closed at once.
    return socket.create_server(("0.0.0.0", port), backlog=_BACKLOG)


def _raise_file_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def certificate() -> ssl.SSLContext:
    """A context with the certificate of a throw-away authority."""
    import trustme  # noqa: PLC0415 - a quarter of the start, and few webs have TLS

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    trustme.CA().issue_cert("*.test", "127.0.0.1").configure_cert(context)
    return context


def _stopper(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """An event that is set by a signal or by the end of stdin, which comes when the parent dies."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def watch() -> None:
        # os.read, because sys.stdin's lock, held by a daemon thread, aborts the interpreter's end.
        while os.read(0, 4_096):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, daemon=True).start()
    return stop


async def _close(servers: list[asyncio.Server], web: Web) -> None:
    for server in servers:
        server.close()
    for transport in list(web.open):
        transport.abort()
    await web.idle.wait()
    if web.log is not None:
        web.log.close()
