"""The registry of a crawl's metrics, and their text."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from krowlspider.crawl.metrics.figures import figures
from krowlspider.crawl.metrics.stats import ZEROS, StatsCollector
from krowlspider.crawl.metrics.table import HISTOGRAMS, MEASURED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from krowlspider.crawl.job import Job
    from krowlspider.crawl.meters import Histogram


class JobCollector(Collector):
    """The metrics of `HISTOGRAMS` and `MEASURED`, read from a job at the time of a scrape."""

    def __init__(self, job: Job):
        self._job = job

    def collect(self) -> Iterator[Metric]:
        job = self._job
        assert job.meters is not None
        job.meters.count()
        for name, meter, text in HISTOGRAMS:
            yield _histogram(name, text, getattr(job.meters, meter))
        values = figures(job)
        for name, kind, text, label, labels in MEASURED:
            family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
                name, text, labels=[label] if label else []
            )
            value = values[name]
            if isinstance(value, dict):
                for each in labels:
                    family.add_metric([each], value.get(each, 0))
            else:
                family.add_metric([], value)
            yield family


def _histogram(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    # A copy: another thread may count meanwhile.
    counts = accumulate(list(histogram.counts))
    buckets = list(zip(bounds, map(float, counts), strict=True))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=histogram.sum)


def registry(stats: Callable[[], Mapping[str, Any]], about: Mapping[str, str]) -> CollectorRegistry:
    """Return a registry of the stats, the process metrics (memory, CPU, files) and the crawl.

    ``about`` has the labels of ``krowl_crawl_info``.
    """
    made = CollectorRegistry()
    made.register(StatsCollector(stats))
    Info("krowl_crawl", "What crawl this is.", registry=made).info(dict(about))
    ProcessCollector(registry=made)
    GCCollector(registry=made)
    return made


def registry_of(
    job: Job, stats: Callable[[], Mapping[str, Any]], about: Mapping[str, str]
) -> CollectorRegistry:
    """Return a registry of all metrics of a job."""
    made = registry(lambda: {**ZEROS, **stats()}, about)
    made.register(JobCollector(job))
    return made


def text(registry: CollectorRegistry) -> bytes:
    """Return the metrics in text format 0.0.4, which every version of Prometheus reads."""
    return generate_latest(registry)
