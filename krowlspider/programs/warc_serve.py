"""``scrapy warc serve``: a CDX server of crawls, and the bytes of their WARC files."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aiohttp import web

HOST, PORT = "127.0.0.1", 8091
# Seconds in which a client takes a piece of an answer.
_TIME_LIMIT = 30.0
# Connections at a time: a browser has six to a wayback, and several may read.
_CLIENTS_MAX = 64
_ORIGIN = re.compile(r"\*|https?://[^/\s]+")
_ABOUT = """A CDX server of krowlspider.

pywb's config.yaml:

collections:
  crawl:
    index_paths: cdx+{url}/cdx
    archive_paths: {url}/warc/

OutbackCDX's parameters, and the XML of OpenWayback: {url}/outbackcdx
"""


def serve(
    folders: Sequence[Path],
    *,
    host: str,
    port: int,
    origin: str,
    listens: Callable[[str], object],
) -> None:
    """Serve ``folders`` until SIGINT, SIGTERM or SIGHUP. ``listens`` is called with the URL.

    ``origin`` is the one whose pages may read the answers in a browser, "*" for any, "" for none.

    :raises KrowlError: the address cannot be listened at, or the origin is none
    """
    if origin and not _ORIGIN.fullmatch(origin):
        raise KrowlError(
            f"--cors {origin} is not an origin: give https://replay.example.org, or '*'"
        )
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise KrowlError(
            f"nothing can listen at port {port} of {host}: {reason}; give another --port or --bind"
        ) from None
    asyncio.run(_serve(folders, host, listening, origin, listens))


async def _serve(
    folders: Sequence[Path],
    host: str,
    listening: socket.socket,
    origin: str,
    listens: Callable[[str], object],
) -> None:
    # aiohttp is slow to import, and no other word of the command needs it.
    from krowlspider.cdx.archives import Archives  # noqa: PLC0415
    from krowlspider.cdx.route import CdxRoute  # noqa: PLC0415
    from krowlspider.cdx.warc_files import WithFiles  # noqa: PLC0415
    from krowlspider.job.monitoring.access import HostNames  # noqa: PLC0415
    from krowlspider.job.monitoring.endpoint import Endpoint, health  # noqa: PLC0415

    address, port = listening.getsockname()[:2]
    url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    if origin:
        headers["Access-Control-Allow-Origin"] = origin
    routes = CdxRoute(Archives(folders), headers).routes()
    routes |= {"/": lambda request: _about(url, request), "/healthz": health}
    endpoint = Endpoint(
        WithFiles(routes, folders, origin),
        _TIME_LIMIT,
        lambda _: None,
        HostNames.of(host),
        _CLIENTS_MAX,
    )
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    listening.setblocking(False)
    await endpoint.listen(listening)
    listens(url)
    await ended.wait()
    endpoint.close()


def _about(url: str, _: web.BaseRequest) -> web.StreamResponse:
    from aiohttp import web  # noqa: PLC0415

    return web.Response(text=_ABOUT.format(url=url))
