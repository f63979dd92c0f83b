"""``scrapy warc serve``: a CDX server of crawls, and the bytes of their WARC files."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError
from krowlspider.programs import http_serving

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from aiohttp import web

    from krowlspider.job.monitoring.endpoint import Route

HOST, PORT = "127.0.0.1", 8091
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
    make = partial(_routes, folders, origin)
    http_serving.serve(host, port, make, listens=listens, way="--port or --bind")


def _routes(folders: Sequence[Path], origin: str, url: str) -> Mapping[str, Route]:
    # aiohttp is slow to import, and no other word of the command needs it.
    from krowlspider.cdx.archives import Archives  # noqa: PLC0415
    from krowlspider.cdx.route import CdxRoute  # noqa: PLC0415
    from krowlspider.cdx.warc_files import WithFiles  # noqa: PLC0415
    from krowlspider.job.monitoring.endpoint import health  # noqa: PLC0415

    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    if origin:
        headers["Access-Control-Allow-Origin"] = origin
    routes = CdxRoute(Archives(folders), headers).routes()
    routes |= {"/": lambda request: _about(url, request), "/healthz": health}
    return WithFiles(routes, folders, origin)


def _about(url: str, _: web.BaseRequest) -> web.StreamResponse:
    from aiohttp import web  # noqa: PLC0415

    return web.Response(text=_ABOUT.format(url=url))
