"""The server of a crawl's metrics, and of what else the crawl serves beside them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krowlspider.crawl.archiving.provenance import own_address
from krowlspider.crawl.monitoring.page_note import METRICS, PAGE, forget_urls, note_url
from krowlspider.crawl.monitoring.page_server import PageServer, Recent

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.crawl.job import Job
    from krowlspider.crawl.monitoring.endpoint import Route


def reached_at(url: str) -> tuple[str, int]:
    """Return the address and port at which other machines reach the server at ``url``."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ip_address(host).is_unspecified:
        host = own_address() or host
    return host, parts.port or 0


class MetricsServer:
    """Serves what ``text`` returns at ``path``, and what is in ``job.served``."""

    def __init__(self, job: Job, path: str, text: Callable[[], bytes]):
        self._job = job
        self._path = path
        self._text = text
        self._recent = Recent()
        self._served = {**job.served, "metrics": (path, self._routes)}
        makers = [make for _, make in self._served.values()]
        self._server = PageServer(makers, on_clients=job.turns.serve)

    async def start(self, host: str, ports: range) -> None:
        """Listen, and tell the folder, the cluster and the log where. If that fails, log it."""
        job = self._job
        if url := await self._server.serve(host, ports):
            if "page" in self._served:
                note_url(job.folder.path, PAGE, url)
            note_url(job.folder.path, METRICS, url + self._path)
            if job.node is not None:
                job.node.cluster.serve_metrics(*reached_at(url))
            job.watched_at[:0] = [f"{name} {url}{at}" for name, (at, _) in self._served.items()]

    def _routes(self) -> dict[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.crawl.monitoring.endpoint import health, metrics_route  # noqa: PLC0415

        page = metrics_route(lambda: self._recent.get("metrics", self._text))
        return {"/healthz": health, self._path: page}

    def close(self) -> None:
        self._server.close()
        forget_urls(self._job.folder.path)
