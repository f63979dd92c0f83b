"""Scrapy's stats as Prometheus metrics, without a host or a URL in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from prometheus_client.core import Metric

    _Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily

# Most series from stats in one answer: some spiders make a stat of whatever they meet.
SERIES_MAX = 500
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
# Label names of the families whose label is not a reason.
_LABELS = {
    "downloader/response_status_count": "status",
    "robotstxt/response_status_count": "status",
    "log_count": "level",
}
HELP = {
    "downloader/request_count": "Requests sent, robots.txt and retries included.",
    "downloader/response_count": "Answers, those of robots.txt and retries included.",
    "downloader/response_status_count": "Answers by status code.",
    "downloader/response_bytes": "Bytes of the answers' heads and bodies.",
    "downloader/exception_count": "Requests that ended without an answer.",
    "dupefilter/filtered": "URLs that were known already.",
    "item_scraped_count": "Items that the spider made.",
    "log_count": "Lines of the log, by level.",
    "memusage/max": "Most resident memory since the start, bytes.",
    "response_received_count": "Answers that came to the spider.",
    "retry/count": "Requests that are sent again.",
    "retry/max_reached": "Pages that were given up after the last try.",
    "robotstxt/response_count": "Answers to requests for robots.txt.",
    "scheduler/enqueued": "URLs queued.",
    "krowl/archive/bytes_count": "Bytes of WARC written, compressed.",
    "krowl/archive/failed_count": "Pages whose bytes cannot be a WARC record.",
    "krowl/archive/files_count": "WARC files begun.",
    "krowl/archive/records_count": "WARC records written.",
    "krowl/archive/revisits_count": "Revisit records, written in place of a known body.",
    "krowl/control/change_count": "Changes to the crawl by a person, by kind.",
    "krowl/disk/pauses_count": "Times that the crawl waited for room on its disk.",
    "krowl/dns/cached_count": "Names found in the cache.",
    "krowl/dns/failed_count": "Names without an address, by kind of failure.",
    "krowl/dns/joined_count": "Calls that waited for a look-up under way.",
    "krowl/dns/question_count": "Questions to the DNS.",
    "krowl/dns/wait_seconds": "Time of look-ups, all together.",
    "krowl/fetch/failed_count": "Fetches without an answer that is of use, by kind of failure.",
    "krowl/fetch/unknown_seed_count": "Look-ups that found no host for a seed.",
    "krowl/frontier/done_count": "Pages acknowledged.",
    "krowl/frontier/dropped_count": "URLs dropped, by reason.",
    "krowl/frontier/due": "Hosts that could be asked now, of those in memory.",
    "krowl/frontier/hosts": "Hosts with URLs queued.",
    "krowl/frontier/in_flight": "Requests sent and not ended.",
    "krowl/frontier/deferred": "URLs queued for hosts that are deferred.",
    "krowl/frontier/queued": "URLs queued now, those that are deferred included.",
    "krowl/links/left_count": "Links left before they were URLs to decide on, by reason.",
    "krowl/loop/lag_p50_ms": "How late the event loop is, median since the start.",
    "krowl/loop/lag_p99_ms": "How late the event loop is, 99 % since the start.",
    "krowl/loop/lag_p999_ms": "How late the event loop is, 99.9 % since the start.",
    "krowl/loop/lag_max_ms": "How late the event loop is, most since the start.",
    "krowl/loop/recent_lag_p99_ms": "How late the event loop was, 99 % of KROWL_STATUS_INTERVAL.",
    "krowl/loop/recent_lag_max_ms": "How late the event loop was, most of KROWL_STATUS_INTERVAL.",
    "krowl/memory/held_bytes": "Bytes of bodies in memory.",
    "krowl/memory/waits_count": "Times that a body or the next request waited for memory.",
    "krowl/pages/duplicate_count": "Pages whose links were left: the host sent the body before.",
    "krowl/politeness/blameless_count": "Failures that count against no host.",
    "krowl/politeness/throttling_count": "Answers 429 and 503.",
    "krowl/politeness/outages_count": "Outages of our own network or name servers.",
    "krowl/politeness/parked_count": "Times that a host was parked for a day.",
    "krowl/politeness/turned_back_count": "Requests not sent for want of room at their address.",
    "krowl/politeness/address_rested_count": "Times that an address backed off.",
    "krowl/seeds/bad_count": "Seed lines skipped as bad.",
    "krowl/seeds/read_count": "Seed lines read.",
    "krowl/seen/expected_losses": "URLs that the seen filter took for known, at most.",
    "krowl/seen/false_positives_count": "Mistakes of the seen filter that were found.",
    "krowl/seen/fill": "Part of the seen filter that is full, 0 to 1.",
    "krowl/seen/keys": "URLs in the seen set.",
    "krowl/seen/layers": "Layers of the seen filter.",
    "krowl/sitemaps/bad_count": "Answers in place of sitemaps that are none.",
    "krowl/sitemaps/read_count": "Sitemaps read.",
    "krowl/sitemaps/url_count": "URLs in sitemaps.",
    "krowl/upload/bytes_count": "Bytes verified in the bucket.",
    "krowl/upload/failed_count": "Tries to upload a file that failed.",
    "krowl/upload/files_count": "Files verified in the bucket.",
    "krowl/upload/waiting": "Files that are not uploaded yet.",
    "krowl/watchdog/blamed_count": "Holds of the event loop for which a host is blamed.",
    "krowl/watchdog/holds_count": "Times that the event loop was held for over 5 s.",
    "krowl/watchdog/set_aside_count": "Hosts that were set aside at the start for their holds.",
}


class StatsCollector(Collector):
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
            name = _metric_name(source)
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


def _is_counter(source: str) -> bool:
    return source.endswith(("_count", "/count")) or source in _COUNTERS


def _metric_name(source: str) -> str:
    """Return the name of the samples, with ``_total`` for a counter."""
    ours = source if source.startswith("krowl/") else f"scrapy/{source}"
    name = ours.replace("/", "_")
    if _is_counter(source):
        return name.removesuffix("_count") + "_total"
    return name.removesuffix("_ms") + "_seconds" if name.endswith("_ms") else name


def _family(name: str, source: str) -> _Family:
    kind = CounterMetricFamily if _is_counter(source) else GaugeMetricFamily
    help_text = HELP.get(source, f"The stat {source}.")
    return kind(name, help_text, labels=[_LABELS.get(source, "reason")])


def registry(stats: Callable[[], Mapping[str, Any]], about: Mapping[str, str]) -> CollectorRegistry:
    """Return a registry of the stats, the process metrics (memory, CPU, files) and the crawl.

    ``about`` has the labels of ``krowl_crawl_info``.
    """
    made = CollectorRegistry()
    made.register(StatsCollector(stats))
    Info("krowl_crawl", "What crawl this is.", registry=made).info(dict(about))
    ProcessCollector(registry=made)
    return made


def text(registry: CollectorRegistry) -> bytes:
    """Return the metrics in text format 0.0.4, which every version of Prometheus reads."""
    return generate_latest(registry)
