"""``python -m tests.support.metricsdoc``: write docs/metrics.md from the table of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.job.meters import HISTOGRAMS, MEASURED, STATS
from krowlspider.job.metrics import is_counter, metric_name
from krowlspider.node.metrics import OWN
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "metrics.md"
HEAD = """# Metrics

Every metric of http://127.0.0.1:9410/metrics; `make docs` writes this page anew. All of them are
there from zero, with the values of their labels. Times are in seconds, sizes in bytes. No metric
and no label has a host or a URL in it. Counters and histograms are of this start of the crawl.

[stats.md](stats.md) explains the reasons. Stats that are not in this table, of Scrapy or of your
own spiders, become metrics [by the same rule](stats.md#prometheus). A histogram `x` has the series
`x_bucket`, `x_sum` and `x_count`. The histograms `krowl_fetch_...` are of requests with an answer;
connection and TLS only of new connections. `krowl_fetch_failed_total` counts requests without a
usable answer. [logs-and-metrics.md](logs-and-metrics.md#prometheus-and-grafana) shows dashboards
and alert rules that use them.

`scrapy node` serves the metrics of all its processes under the same names. Counters and histograms
are sums; a gauge has a series for each process, with the label `process`. Only `scrapy node` has
`krowl_node_...`.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""
# Metrics of the process, which prometheus-client makes.
PROCESS = (
    ("process_cpu_seconds_total", "counter", "", "CPU time of the process."),
    ("process_resident_memory_bytes", "gauge", "", "Resident memory."),
    ("process_virtual_memory_bytes", "gauge", "", "Virtual memory."),
    ("process_open_fds", "gauge", "", "Open files and sockets."),
    ("process_max_fds", "gauge", "", "Most open files and sockets."),
    ("process_start_time_seconds", "gauge", "", "When the process started, in epoch seconds."),
    ("python_gc_collections_total", "counter", "generation", "Garbage collections."),
    ("python_gc_objects_collected_total", "counter", "generation", "Objects collected."),
    ("python_gc_objects_uncollectable_total", "counter", "generation", "Objects that stay."),
    ("krowl_crawl_info", "gauge", "spider, version", "1, with what crawl this is as labels."),
    (
        "krowl_metrics_left_out",
        "gauge",
        "",
        "Stats left out: names of hosts, names used twice, those over 800.",
    ),
)


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, labels and meaning of every metric of a crawl."""
    for stat, known in STATS.items():
        kind = "counter" if is_counter(stat) else "gauge"
        yield metric_name(stat), kind, known.label, known.help
    for observed in HISTOGRAMS:
        yield observed.name, "histogram", "", observed.help
    for metric in MEASURED:
        name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        yield name, metric.kind, metric.label, metric.help
    yield from PROCESS


def page() -> str:
    """Return the text of docs/metrics.md."""
    lines = (
        f"| `{name}` | {kind} | {f'`{label}`' if label else ''} | {text} |"
        for name, kind, label, text in sorted([*rows(), *OWN])
    )
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
