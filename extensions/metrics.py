"""Extension: serve the stats of the crawl to Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider import __version__
from krowlspider.crawl.job import Job
from krowlspider.crawl.metrics.registry import registry_of, text
from krowlspider.crawl.metrics.server import MetricsServer
from krowlspider.crawl.status import figures_wanted
from krowlspider.engine.control import Control

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


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
        settings, job = self._crawler.settings, Job.of(self._crawler)
        labels = {"spider": job.spider, "version": __version__}
        self._registry = registry_of(job, self._crawler.stats.get_stats, labels)
        path = "/" + settings["PROMETHEUS_PATH"].lstrip("/")
        why_not = Control(self._crawler).why_nothing_is_sent
        self._server = MetricsServer(job, path, self._text, why_not)
        await self._server.start(settings)

    def _text(self) -> bytes:
        self._crawler.signals.send_catch_log(figures_wanted)
        return text(self._registry)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
