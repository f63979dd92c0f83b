"""The server, which loads page and metrics for its first client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from krowlspider.crawl.monitoring.access import CONTROL_TOKEN, PAGE, Secret, forget_urls, note_url
from krowlspider.crawl.monitoring.servers import Servers, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.settings import Settings

    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.node.serving.together import Served


class Serving:
    """Serves page, API and metrics of all processes of a crawl, from `open` to `close`."""

    def __init__(self, crawl: Served):
        self._crawl = crawl
        self._token: Secret | None = None
        self._servers: Servers | None = None
        self._routes: Mapping[str, Route] | None = None

    async def open(self, settings: Settings) -> str:
        """Listen, and return where, as the end of a sentence; "" if it is off, or fails."""
        if not settings.getbool("PROMETHEUS_ENABLED"):
            return ""
        path = "/" + settings["PROMETHEUS_PATH"].lstrip("/")
        given = settings["KROWL_CONTROL_TOKEN"]
        self._token = Secret(given)
        page_maker = partial(self._page, self._token.text, given)
        self._servers = Servers(partial(self._metrics, path), page_maker)
        page, metrics = await self._servers.open(settings)
        if page:
            note_url(self._crawl.tree.path, PAGE, page)
        where = self._token.keep(self._crawl.tree.path / CONTROL_TOKEN) if page else ""
        places = [
            *([f"page of all: {page}/"] if page else []),
            *([f"token of its buttons {where}"] if where else []),
            *([f"metrics of all: {shown(metrics)}{path}"] if metrics else []),
        ]
        return "".join(f"; {place}" for place in places)

    def _metrics(self, path: str) -> Mapping[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.node.serving.metrics import Metrics  # noqa: PLC0415

        # Both servers may ask for it.
        if self._routes is None:
            crawl = self._crawl
            metrics = Metrics(crawl.tree, path, crawl.processes, crawl.restarts)
            self._routes = metrics.routes()
        return self._routes

    def _page(self, token: str, given: str) -> Mapping[str, Route]:
        from krowlspider.node.serving.crawl import CrawlOfAll  # noqa: PLC0415

        return CrawlOfAll(self._crawl, token, given).routes()

    def close(self) -> None:
        if self._servers is not None:
            self._servers.close()
        if self._token is not None:
            self._token.forget()
        forget_urls(self._crawl.tree.path)
