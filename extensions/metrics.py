"""Extension: serve the stats of the crawl to Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider import __version__
from krowlspider.engine.control import Control
from krowlspider.job.crawls import Crawl, crawl_of
from krowlspider.job.metrics import registry_of, text
from krowlspider.job.monitoring.access import METRICS, PAGE, forget_urls, note_url
from krowlspider.job.monitoring.page_server import RecentAnswers, Servers, reached_at, shown
from krowlspider.job.status import figures_wanted

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from krowlspider.job.monitoring.endpoint import Route


class Metrics:
    """Serves the metrics of the crawl: its stats, histograms and gauges, as of each request.

    :raises NotConfigured: PROMETHEUS_ENABLED is off
    """

    def __init__(self, crawler: Crawler):
        if not crawler.settings.getbool("PROMETHEUS_ENABLED"):
            raise NotConfigured
        self._crawler = crawler
        self._server: MetricsServer | None = None
        # The engine starts when this has ended, and then the log names the address.
        crawler.signals.connect(self._start, signals.spider_opened)
        crawler.signals.connect(self._stop, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def _start(self) -> None:
        settings, crawl = self._crawler.settings, crawl_of(self._crawler)
        labels = {"spider": crawl.job.spider, "version": __version__}
        self._registry = registry_of(crawl, self._crawler.stats.get_stats, labels)
        path = "/" + settings["PROMETHEUS_PATH"].lstrip("/")
        why_not = Control(self._crawler).why_nothing_is_sent
        self._server = MetricsServer(crawl, path, self._text, why_not)
        await self._server.start(settings)

    def _text(self) -> bytes:
        self._crawler.signals.send_catch_log(figures_wanted)
        return text(self._registry)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.close()


class MetricsServer:
    """Serves what ``text`` returns at ``path``, and the page of ``crawl.page``. ``why_not`` returns
    why the crawl may not fetch, "" if it may."""

    def __init__(
        self, crawl: Crawl, path: str, text: Callable[[], bytes], why_not: Callable[[], str]
    ):
        self._crawl = crawl
        self._path = path
        self._text = text
        self._why_not = why_not
        self._recent = RecentAnswers()
        self._servers = Servers(self._routes, crawl.page, crawl.job.loop_turns.serve)

    async def start(self, settings: BaseSettings) -> None:
        """Listen, and tell the folder, the cluster and the log where. If that fails, log it."""
        folder, watched = self._crawl.job.folder.path, []
        page, metrics = await self._servers.open(settings)
        if page:
            note_url(folder, PAGE, page)
            watched.append(f"page {page}/")
        if metrics:
            url = shown(metrics) + self._path
            note_url(folder, METRICS, url)
            watched.append(f"metrics {url}")
            if (node := self._crawl.node) is not None:
                node.cluster.serve_metrics(*reached_at(metrics))
        self._crawl.watched_at[:0] = watched

    def _routes(self) -> dict[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.job.monitoring import endpoint  # noqa: PLC0415

        page = endpoint.metrics_route(lambda: self._recent.get("metrics", self._text))
        ready = endpoint.readiness(self._why_not)
        return {"/healthz": endpoint.health, "/readyz": ready, self._path: page}

    def close(self) -> None:
        self._servers.close()
        forget_urls(self._crawl.job.folder.path)
