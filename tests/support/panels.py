"""The panels of the dashboards. A query's key is its legend."""

from __future__ import annotations

from typing import NamedTuple


class Panel(NamedTuple):
    """A panel: its title, Grafana's unit, and its queries by their legends."""

    title: str
    unit: str
    queries: dict[str, str]


_OF = '{instance=~"$instance"}'
# One address of several processes tells them apart by `process`.
_EACH = "{{instance}} {{process}}"


def _now(name: str, by: str = "instance, process") -> str:
    return f"sum by ({by}) ({name}{_OF})"


def _rate(name: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({name}{_OF}[$__rate_interval]))"


def _each(title: str, unit: str, name: str) -> Panel:
    """Return a panel of a gauge by process."""
    return Panel(title, unit, {_EACH: _now(name)})


def _per_second(title: str, name: str, by: str = "", unit: str = "ops") -> Panel:
    """Return a panel of a counter by process, or by a label."""
    label = by or "instance"
    return Panel(title, unit, {f"{{{{{label}}}}}": _rate(name, label)})


def _times(title: str, name: str, unit: str = "s") -> Panel:
    """Return a panel of quantiles of a histogram."""
    buckets = _rate(f"{name}_bucket", "le")
    queries = {
        legend: f"histogram_quantile({quantile}, {buckets})"
        for legend, quantile in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99))
    }
    return Panel(title, unit, queries)


def _with_limit(title: str, unit: str, name: str, limit: str) -> Panel:
    return Panel(title, unit, {_EACH: _now(name), f"limit of {_EACH}": _now(limit)})


OVERVIEW = (
    _per_second("Pages done", "krowl_frontier_done_total"),
    _each("Requests in flight", "short", "krowl_frontier_in_flight"),
    _each("URLs queued", "short", "krowl_frontier_queued"),
    _per_second("Answers by status", "scrapy_downloader_response_status_total", "status"),
    _per_second("Answers by content type", "krowl_fetch_content_type_total", "content_type"),
    _per_second("Failed fetches by kind", "krowl_fetch_failed_total", "reason"),
    Panel(
        "Share of requests without a usable answer",
        "percentunit",
        {
            "{{instance}}": f"{_rate('krowl_fetch_failed_total')} /"
            f" clamp_min({_rate('scrapy_downloader_request_total')}, 1e-9)"
        },
    ),
    _per_second("Bytes received", "scrapy_downloader_response_bytes_total", unit="Bps"),
    _per_second("URLs dropped by reason", "krowl_frontier_dropped_total", "reason"),
    Panel(
        "Paused, by reason",
        "short",
        {"{{reason}}": f"max by (reason) (krowl_crawl_paused{_OF})"},
    ),
    _times("Whole fetch", "krowl_fetch_seconds"),
    _times("Size of answers", "krowl_fetch_size_bytes", "bytes"),
    _per_second("Lines of the log by level", "scrapy_log_total", "level"),
    Panel(
        "Time since the start of the process",
        "s",
        {_EACH: f"time() - process_start_time_seconds{_OF}"},
    ),
    Panel("Processes", "short", {"scraped": "count(krowl_crawl_info)", "up": "sum(up)"}),
)
FRONTIER = (
    Panel(
        "URLs queued",
        "short",
        {
            "all": _now("krowl_frontier_queued", "job"),
            "deferred": _now("krowl_frontier_deferred", "job"),
        },
    ),
    _each("Hosts with URLs queued", "short", "krowl_frontier_hosts"),
    _each("Hosts due", "short", "krowl_frontier_due"),
    _each("Time since the next host has been due", "s", "krowl_frontier_oldest_due_seconds"),
    Panel(
        "Hosts in memory by state",
        "short",
        {"{{state}}": _now("krowl_frontier_hosts_in_memory", "state")},
    ),
    Panel(
        "URLs queued and done",
        "ops",
        {
            "queued": _rate("scrapy_scheduler_enqueued_total", "job"),
            "done": _rate("krowl_frontier_done_total", "job"),
        },
    ),
    _per_second("Links that were known already", "scrapy_dupefilter_filtered_total"),
    _per_second("Links left out by reason", "krowl_links_left_total", "reason"),
    _times("Links of a page", "krowl_page_links", "short"),
    _each("URLs in the seen set", "short", "krowl_seen_keys"),
    _each("Fill of the seen filter", "percentunit", "krowl_seen_fill"),
    _each("Expected losses by the seen filter", "short", "krowl_seen_expected_losses"),
    _per_second("URLs of sitemaps", "krowl_sitemaps_url_total"),
    _times("Group commit", "krowl_commit_seconds"),
    _times("Batch of LevelDB", "krowl_leveldb_batch_seconds"),
)
POLITENESS = (
    _per_second("Throttled answers", "krowl_politeness_throttling_total"),
    _per_second("Retries", "scrapy_retry_total"),
    _per_second("Given up after the last try", "scrapy_retry_max_reached_total"),
    _per_second("Answers for robots.txt", "scrapy_robotstxt_response_status_total", "status"),
    Panel(
        "URLs dropped by robots.txt",
        "ops",
        {
            "{{reason}}": "sum by (reason) (rate(krowl_frontier_dropped_total"
            '{instance=~"$instance", reason=~"robots.*|crawl_delay"}[$__rate_interval]))'
        },
    ),
    _per_second("Hosts parked for a day", "krowl_politeness_parked_total"),
    _per_second("Addresses that backed off", "krowl_politeness_address_rested_total"),
    _per_second("Requests turned back at a full address", "krowl_politeness_turned_back_total"),
    _per_second("Outages of our side", "krowl_politeness_outages_total"),
    _per_second("Failures that count against no host", "krowl_politeness_blameless_total"),
    _times("First byte", "krowl_fetch_first_byte_seconds"),
    _times("DNS look-up", "krowl_dns_seconds"),
    _times("TCP connection", "krowl_fetch_connect_seconds"),
    _times("TLS handshake", "krowl_fetch_tls_seconds"),
    _per_second("Answers by version of TLS", "krowl_fetch_tls_version_total", "version"),
    _per_second("Answers by version of HTTP", "krowl_fetch_http_version_total", "version"),
    _per_second("DNS failures by kind", "krowl_dns_failed_total", "reason"),
    Panel(
        "DNS questions and cached names",
        "ops",
        {
            "questions": _rate("krowl_dns_question_total", "job"),
            "from the cache": _rate("krowl_dns_cached_total", "job"),
            "joined": _rate("krowl_dns_joined_total", "job"),
        },
    ),
    _each("Names in the DNS cache", "short", "krowl_dns_cache_names"),
)
ARCHIVE = (
    _per_second("Records written", "krowl_archive_records_total"),
    _per_second("Revisits written", "krowl_archive_revisits_total"),
    _per_second("Bytes written, compressed", "krowl_archive_bytes_total", unit="Bps"),
    _times("Records of a request and its answer", "krowl_archive_pair_seconds"),
    _with_limit(
        "Bytes that wait for the writer",
        "bytes",
        "krowl_archive_queue_bytes",
        "krowl_archive_queue_limit_bytes",
    ),
    _each("WARC files begun", "short", "krowl_archive_files_total"),
    _per_second("Captures that were not archived", "krowl_archive_failed_total"),
    Panel(
        "Free disk",
        "bytes",
        {
            f"{{{{disk}}}} of {_EACH}": _now("krowl_disk_free_bytes", "instance, process, disk"),
            f"floor of {_EACH}": _now("krowl_disk_floor_bytes"),
        },
    ),
    _each("Pauses for a full disk", "short", "krowl_disk_pauses_total"),
    _each("Files not uploaded", "short", "krowl_upload_waiting"),
    _per_second("Bytes uploaded", "krowl_upload_bytes_total", unit="Bps"),
    _per_second("Failed uploads", "krowl_upload_failed_total"),
)
CLUSTER = (
    _each("Nodes that live, as each node sees it", "short", "krowl_cluster_members"),
    _each("Lease", "short", "krowl_cluster_lease"),
    Panel(
        "Different rings",
        "short",
        {"rings": f"count(count_values('ring', krowl_cluster_ring{_OF}))"},
    ),
    _each("Dead nodes with work on their disks", "short", "krowl_cluster_dead_nodes"),
    _each("URLs in the outbox", "short", "krowl_frontier_outbox"),
    _each("Messages in the inbox", "short", "krowl_cluster_inbox_messages"),
    _per_second("Messages sent", "krowl_cluster_sent_total"),
    _per_second("Messages taken", "krowl_cluster_taken_total"),
    _per_second("Held back by full inboxes", "krowl_cluster_held_total"),
    _per_second("URLs of other nodes", "krowl_frontier_foreign_total"),
    Panel(
        "Hosts handed over and received",
        "ops",
        {
            "handed over": _rate("krowl_cluster_moved_total", "job"),
            "received": _rate("krowl_cluster_arrived_total", "job"),
        },
    ),
    _each("Hosts on their way", "short", "krowl_cluster_moving"),
    _each("Entries that only this node can read", "short", "krowl_cluster_stays"),
    _per_second("Unreadable messages", "krowl_cluster_dead_total"),
    _per_second("Failed calls of Redis by kind", "krowl_cluster_failed_total", "reason"),
    _times("Redis", "krowl_cluster_redis_seconds"),
    _times("Consul", "krowl_cluster_consul_seconds"),
    _times("Batch of the inbox", "krowl_cluster_inbox_batch_seconds"),
)
MACHINE = (
    Panel(
        "CPU of the process", "percentunit", {"{{instance}}": _rate("process_cpu_seconds_total")}
    ),
    _with_limit(
        "Resident memory",
        "bytes",
        "process_resident_memory_bytes",
        "krowl_machine_memory_bytes",
    ),
    _with_limit("Bodies in memory", "bytes", "krowl_memory_held_bytes", "krowl_memory_limit_bytes"),
    _per_second("Waits for memory", "krowl_memory_waits_total"),
    _with_limit("Open files", "short", "process_open_fds", "process_max_fds"),
    _each("Threads of Python", "short", "krowl_process_threads"),
    _times("Lag of the event loop", "krowl_loop_lag_seconds"),
    _each("Longest lag of the event loop, lately", "s", "krowl_loop_recent_lag_max_seconds"),
    _each("Holds of the event loop over 5 s", "short", "krowl_watchdog_holds_total"),
    _per_second("Garbage collections", "python_gc_collections_total", "generation"),
    _per_second("Objects collected", "python_gc_objects_collected_total", "generation"),
    Panel(
        "Tables of LevelDB by level", "short", {"{{level}}": _now("krowl_leveldb_files", "level")}
    ),
    Panel(
        "Size of LevelDB by level",
        "bytes",
        {"{{level}}": _now("krowl_leveldb_size_bytes", "level")},
    ),
    _each("Memory of LevelDB", "bytes", "krowl_leveldb_memory_bytes"),
    _per_second(
        "Time of LevelDB's merges", "krowl_leveldb_compaction_seconds_total", "level", "percentunit"
    ),
    Panel(
        "Bytes of LevelDB's merges",
        "Bps",
        {
            "read": _rate("krowl_leveldb_compaction_read_bytes_total", "job"),
            "written": _rate("krowl_leveldb_compaction_written_bytes_total", "job"),
        },
    ),
)
