"""The servers of a crawl: metrics where a person says, page and API on this machine alone."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krowlspider.config.checks import port_range
from krowlspider.crawl.archiving.provenance import own_address
from krowlspider.crawl.monitoring.host_names import HostNames
from krowlspider.crawl.monitoring.page_server import PageServer, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from krowlspider.crawl.monitoring.page_server import RouteMaker

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
        place = Place(host, port_range(settings["PROMETHEUS_PORT"]))
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
        control = Place(
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
