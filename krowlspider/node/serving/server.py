"""The server, which loads page and metrics for its first client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from krowlspider.config.checks import port_range
from krowlspider.crawl.monitoring.page_server import PageServer, is_loopback

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
        self._server: PageServer | None = None

    async def open(self, settings: Settings) -> str:
        """Listen, and return where, as the end of a sentence; "" if it is off, or fails."""
        if not settings.getbool("PROMETHEUS_ENABLED"):
            return ""
        host, path = settings["PROMETHEUS_HOST"], "/" + settings["PROMETHEUS_PATH"].lstrip("/")
        has_page = settings.getbool("KROWL_LIVE_PAGE") and is_loopback(host)
        self._server = PageServer([partial(self._routes, path, has_page=has_page)])
        url = await self._server.serve(host, port_range(settings["PROMETHEUS_PORT"]))
        page = f" page of all: {url}/ and" if has_page else ""
        return f";{page} metrics of all: {url}{path}" if url else ""

    def _routes(self, path: str, *, has_page: bool) -> Mapping[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.node.serving.metrics import Metrics  # noqa: PLC0415
        from krowlspider.node.serving.page import routes  # noqa: PLC0415

        page = routes(self._tree, self._figures) if has_page else {}
        return {**page, **Metrics(self._tree, path, self._processes, self._restarts).routes()}

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
