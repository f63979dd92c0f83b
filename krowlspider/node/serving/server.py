"""The server, which loads page and metrics for its first client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from krowlspider.crawl.metrics.server import shown
from krowlspider.crawl.monitoring.servers import Servers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scrapy.settings import Settings

    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.node.figures import Figures
    from krowlspider.node.tree import Tree


class Serving:
    """Serves what ``figures`` and the processes of ``tree`` have, from `open` to `close`.

    ``restarts`` returns how many processes were started again.
    """

    def __init__(
        self, tree: Tree, processes: Sequence[str], figures: Figures, restarts: Callable[[], int]
    ):
        self._tree = tree
        self._processes = processes
        self._figures = figures
        self._restarts = restarts
        self._servers: Servers | None = None
        self._routes: Mapping[str, Route] | None = None

    async def open(self, settings: Settings) -> str:
        """Listen, and return where, as the end of a sentence; "" if it is off, or fails."""
        if not settings.getbool("PROMETHEUS_ENABLED"):
            return ""
        path = "/" + settings["PROMETHEUS_PATH"].lstrip("/")
        self._servers = Servers(partial(self._metrics, path), self._page)
        page, metrics = await self._servers.open(settings)
        places = [
            *([f"page of all: {page}/"] if page else []),
            *([f"metrics of all: {shown(metrics)}{path}"] if metrics else []),
        ]
        return f"; {' and '.join(places)}" if places else ""

    def _metrics(self, path: str) -> Mapping[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.node.serving.metrics import Metrics  # noqa: PLC0415

        # Both servers may ask for it.
        if self._routes is None:
            metrics = Metrics(self._tree, path, self._processes, self._restarts)
            self._routes = metrics.routes()
        return self._routes

    def _page(self) -> Mapping[str, Route]:
        from krowlspider.node.serving.page import routes  # noqa: PLC0415

        return routes(self._tree, self._figures)

    def close(self) -> None:
        if self._servers is not None:
            self._servers.close()
