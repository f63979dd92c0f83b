"""Extension: serve the stats of the crawl to Prometheus."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider import __version__
from krowlspider.config.checks import port_range
from krowlspider.crawl.archiving.provenance import own_address
from krowlspider.crawl.job import Job
from krowlspider.crawl.metrics.registry import registry_of, text
from krowlspider.crawl.monitoring.page_note import METRICS, PAGE, forget_urls, note_url
from krowlspider.crawl.monitoring.page_server import Page, PageServer
from krowlspider.crawl.status import figures_wanted

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.crawl.monitoring.endpoint import Route


def reached_at(url: str) -> tuple[str, int]:
    """Return the address and port at which other machines reach the server at ``url``."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ip_address(host).is_unspecified:
        host = own_address() or host
    return host, parts.port or 0


class Metrics:
    """Serves the metrics of the crawl: its stats, histograms and gauges, as of each request.

    :raises NotConfigured: PROMETHEUS_ENABLED is off
    """

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        if not settings.getbool("PROMETHEUS_ENABLED"):
            raise NotConfigured
        self._crawler = crawler
        self._host: str = settings["PROMETHEUS_HOST"]
        self._ports = port_range(settings["PROMETHEUS_PORT"])
        self._path = "/" + settings["PROMETHEUS_PATH"].lstrip("/")
        self._labels = {"spider": crawler.spidercls.name, "version": __version__}
        self._server: PageServer | None = None
        # The engine starts when this has ended, and then the log names the address.
        crawler.signals.connect(self._start, signals.spider_opened)
        crawler.signals.connect(self._stop, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def _start(self) -> None:
        job = Job.of(self._crawler)
        self._registry = registry_of(job, self._crawler.stats.get_stats, self._labels)
        served = {**job.served, "metrics": (self._path, self._routes)}
        makers = [make for _, make in served.values()]
        self._server = PageServer(makers, on_clients=job.turns.serve)
        if url := await self._server.serve(self._host, self._ports):
            if "page" in served:
                note_url(job.folder.path, PAGE, url)
            note_url(job.folder.path, METRICS, url + self._path)
            if job.node is not None:
                job.node.serve_metrics(*reached_at(url))
            job.watched_at[:0] = [f"{name} {url}{path}" for name, (path, _) in served.items()]

    def _routes(self) -> dict[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.crawl.monitoring.endpoint import health, metrics_route  # noqa: PLC0415

        return {"/healthz": health, self._path: metrics_route(Page(self._text).get)}

    def _text(self) -> bytes:
        self._crawler.signals.send_catch_log(figures_wanted)
        return text(self._registry)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            forget_urls(Job.of(self._crawler).folder.path)
