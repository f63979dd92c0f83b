"""The registry of a crawl's metrics, and the figures of a job that are read at each scrape.

The registry of a crawl's metrics, and their text. Scrapy's stats are among them, without a host or
a URL in them.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
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

from krowlspider.job.meters import HISTOGRAMS, MEASURED, STATS, Histogram
from krowlspider.job.monitoring.disk_guard import memory_to_be_had

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from prometheus_client.core import Metric

    from krowlspider.job.crawls import Crawl
    from krowlspider.job.job import Job
    from krowlspider.job.nodes.node import Node

if TYPE_CHECKING:
    Figures: TypeAlias = Mapping[str, float | dict[str, float]]

_MB = 1024 * 1024


def figures(crawl: Crawl) -> Figures:
    """Return the counters and gauges of the table by their names."""
    job, node, meters = crawl.job, crawl.node, crawl.job.meters
    assert meters is not None
    return {
        "krowl_fetch_content_type": meters.content_types,
        "krowl_fetch_http_version": meters.http_versions,
        "krowl_fetch_tls_version": meters.tls_versions,
        "krowl_dns_cache_names": job.fetching.resolver.cached_names,
        "krowl_archive_queue_bytes": job.archive.queued,
        "krowl_archive_queue_limit_bytes": job.archive.queue_bytes,
        "krowl_memory_limit_bytes": job.memory.limit,
        "krowl_machine_memory_bytes": memory_to_be_had(),
        "krowl_process_threads": threading.active_count(),
        "krowl_crawl_paused": _paused(job, node),
        **_of_frontier(job),
        **_of_disks(job),
        **_of_leveldb(job),
        **_of_cluster(node),
    }


def _of_frontier(job: Job) -> Figures:
    schedule = job.frontier.schedule
    states = Counter(host.state for host in schedule.cache.hosts.values())
    due = schedule.next_due()
    return {
        "krowl_frontier_hosts_in_memory": {
            state.value.replace(" ", "_"): float(count) for state, count in states.items()
        },
        "krowl_frontier_oldest_due_seconds": (
            0.0 if due is None else max(0.0, job.frontier.now() - due)
        ),
    }


def _of_disks(job: Job) -> Figures:
    if job.guard is None:
        return {"krowl_disk_free_bytes": {}, "krowl_disk_floor_bytes": 0}
    free = job.guard.free_bytes
    return {
        "krowl_disk_free_bytes": {
            "archive": free.get(job.archive.directory, 0),
            "frontier": free.get(job.folder.path, 0),
        },
        "krowl_disk_floor_bytes": job.guard.floor,
    }


def _paused(job: Job, node: Node | None) -> dict[str, float]:
    return {
        "person": job.is_paused or (node is not None and node.is_paused),
        "disk": job.full is not None,
        "outage": bool(job.outages.is_out),
        "memory": job.memory.keeps_out,
        "cluster": node is not None and node.running and bool(node.waits_for),
    }


def _of_leveldb(job: Job) -> Figures:
    """Return the figures of ``leveldb.stats``, a table with a line for each level."""
    parts = ("files", "size", "compaction", "read", "written")
    found: dict[str, dict[str, float]] = {part: {} for part in parts}
    for line in job.store.property("stats").splitlines():
        level, *columns = line.split()
        if level.isdigit() and len(columns) == len(parts):
            for part, column in zip(parts, columns, strict=True):
                found[part][level] = float(column)

    def in_bytes(part: str) -> dict[str, float]:
        return {level: size * _MB for level, size in found[part].items()}

    return {
        "krowl_leveldb_files": found["files"],
        "krowl_leveldb_size_bytes": in_bytes("size"),
        "krowl_leveldb_memory_bytes": float(job.store.property("approximate-memory-usage") or 0),
        "krowl_leveldb_compaction_seconds": found["compaction"],
        "krowl_leveldb_compaction_read_bytes": in_bytes("read"),
        "krowl_leveldb_compaction_written_bytes": in_bytes("written"),
    }


def _of_cluster(node: Node | None) -> Figures:
    if node is None or not node.running:
        names = ("joined", "lease", "ring", "dead_nodes", "inbox_messages")
        return {f"krowl_cluster_{name}": 0 for name in names}
    view = node.cluster.view
    return {
        "krowl_cluster_joined": node.joined,
        "krowl_cluster_lease": node.cluster.has_lease,
        "krowl_cluster_ring": 0 if view is None else view.ring.number,
        "krowl_cluster_dead_nodes": len(node.dead_nodes),
        "krowl_cluster_inbox_messages": node.inbox_length,
    }


if TYPE_CHECKING:
    _Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily

# Most series from stats in one answer: some spiders make a stat of whatever they meet.
SERIES_MAX = 800
# A name has no dot, so it is no host's name.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z0-9_]+)*")
# The label behind a count: a few words ("504 Gateway Time-out"), or the path of a class. The last
# part of a path begins with a capital, as in no lower-case host name.
_LABEL = re.compile(r"[A-Za-z0-9_ '-]{1,64}|(?:[A-Za-z_]\w*\.){1,8}[A-Z]\w{0,63}", re.ASCII)
# Counters whose names do not end in "count".
_COUNTERS = {
    "dupefilter/filtered",
    "downloader/response_bytes",
    "krowl/dns/wait_seconds",
    "retry/max_reached",
    "scheduler/enqueued",
}
# Scrapy's sizes whose names have no unit.
_BYTES = {"memusage/max", "memusage/startup"}
# The stats of the table before anything is counted.
ZEROS = {
    f"{stat}/{value}" if value else stat: 0
    for stat, known in STATS.items()
    for value in known.values or ("",)
}


class PrometheusStats(Collector):
    """The stats at the time of a scrape.

    ``krowl/a/b_count/REASON`` becomes the counter ``krowl_a_b_total{reason="REASON"}``. Stats that
    do not count become gauges. Milliseconds become seconds. Scrapy's own stats start with
    ``scrapy_``. Values that are not numbers are skipped. Names and reasons that could name a host,
    and series over the cap, are left out and counted as ``krowl_metrics_left_out``.
    """

    def __init__(self, stats: Callable[[], Mapping[str, Any]]):
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        families: dict[str, tuple[str, _Family]] = {}
        series = left_out = 0
        # A copy, because a thread that logs may add a stat meanwhile.
        for stat, value in list(self._stats().items()):
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if series == SERIES_MAX:
                left_out += 1
                continue
            source, label = _parts(stat)
            name = metric_name(source)
            owner, family = families.get(name) or (source, None)
            # Stats such as a/b and a_b would be the same series twice, which makes the answer
            # invalid.
            if not _is_clean(source, label) or owner != source:
                left_out += 1
                continue
            if family is None:
                family = _family(name, source)
                families[name] = (source, family)
            scaled = value / 1000 if source.endswith("_ms") else value
            family.add_metric([] if label is None else [label], scaled)
            series += 1
        yield from (family for _, family in families.values())
        yield GaugeMetricFamily(
            "krowl_metrics_left_out",
            "Stats that are no metrics: they may name a host, or are too many.",
            left_out,
        )


def _parts(stat: str) -> tuple[str, str | None]:
    """Return the name of the counted stat, and the label behind it or None."""
    if stat.startswith("spider_exceptions/") and not stat.endswith("/count"):
        return "spider_exceptions/type_count", stat.partition("/")[2]
    head, found, label = stat.partition("_count/")
    return (f"{head}_count", label) if found else (stat, None)


def _is_clean(source: str, label: str | None) -> bool:
    return bool(_NAME.fullmatch(source) and (label is None or _LABEL.fullmatch(label)))


def is_counter(source: str) -> bool:
    return source.endswith(("_count", "/count")) or source in _COUNTERS


def metric_name(source: str) -> str:
    """Return the name of the samples, with ``_total`` for a counter."""
    ours = source if source.startswith("krowl/") else f"scrapy/{source}"
    name = ours.replace("/", "_")
    if is_counter(source):
        return name.removesuffix("_count") + "_total"
    if source in _BYTES:
        return f"{name}_bytes"
    return name.removesuffix("_ms") + "_seconds" if name.endswith("_ms") else name


def _family(name: str, source: str) -> _Family:
    kind = CounterMetricFamily if is_counter(source) else GaugeMetricFamily
    if (known := STATS.get(source)) is None:
        return kind(name, f"The stat {source}.", labels=["reason"])
    return kind(name, known.help, labels=[known.label or "reason"])


class CrawlCollector(Collector):
    """The metrics of `HISTOGRAMS` and `MEASURED`, read from a crawl at the time of a scrape."""

    def __init__(self, crawl: Crawl):
        self._crawl = crawl

    def collect(self) -> Iterator[Metric]:
        meters = self._crawl.job.meters
        assert meters is not None
        meters.count()
        for name, meter, text in HISTOGRAMS:
            yield _histogram(name, text, getattr(meters, meter))
        values = figures(self._crawl)
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
    made.register(PrometheusStats(stats))
    Info("krowl_crawl", "What crawl this is.", registry=made).info(dict(about))
    ProcessCollector(registry=made)
    GCCollector(registry=made)
    return made


def registry_of(
    crawl: Crawl, stats: Callable[[], Mapping[str, Any]], about: Mapping[str, str]
) -> CollectorRegistry:
    """Return a registry of all metrics of a crawl."""
    made = registry(lambda: {**ZEROS, **stats()}, about)
    made.register(CrawlCollector(crawl))
    return made


def text(registry: CollectorRegistry) -> bytes:
    """Return the metrics in text format 0.0.4, which every version of Prometheus reads."""
    return generate_latest(registry)
