"""The server of a crawl's metrics, and of what else the crawl serves beside them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krowlspider.crawl.archiving.provenance import own_address
from krowlspider.crawl.monitoring.page_note import METRICS, PAGE, forget_urls, note_url
from krowlspider.crawl.monitoring.page_server import Recent
from krowlspider.crawl.monitoring.servers import Servers

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from krowlspider.crawl.job import Job
    from krowlspider.crawl.monitoring.endpoint import Route


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


class MetricsServer:
    """Serves what ``text`` returns at ``path``, and the page of ``job.page``. ``why_not`` returns
    why the crawl may not fetch, "" if it may."""

    def __init__(self, job: Job, path: str, text: Callable[[], bytes], why_not: Callable[[], str]):
        self._job = job
        self._path = path
        self._text = text
        self._why_not = why_not
        self._recent = Recent()
        self._servers = Servers(self._routes, job.page, job.turns.serve)

    async def start(self, settings: BaseSettings) -> None:
        """Listen, and tell the folder, the cluster and the log where. If that fails, log it."""
        job, watched = self._job, []
        page, metrics = await self._servers.open(settings)
        if page:
            note_url(job.folder.path, PAGE, page)
            watched.append(f"page {page}/")
        if metrics:
            url = shown(metrics) + self._path
            note_url(job.folder.path, METRICS, url)
            watched.append(f"metrics {url}")
            if job.node is not None:
                job.node.cluster.serve_metrics(*reached_at(metrics))
        job.watched_at[:0] = watched

    def _routes(self) -> dict[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.crawl.monitoring import endpoint  # noqa: PLC0415

        page = endpoint.metrics_route(lambda: self._recent.get("metrics", self._text))
        ready = endpoint.readiness(self._why_not)
        return {"/healthz": endpoint.health, "/readyz": ready, self._path: page}

    def close(self) -> None:
        self._servers.close()
        forget_urls(self._job.folder.path)
