"""Each metric of the table moves: in one crawl, or in the test that is named for it."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.job import crawls
from krowlspider.job.metrics import registry_of, text
from krowlspider.job.status import figures_wanted
from tests.support.crawling import ROOT
from tests.support.crawls import anchors, crawl_of, page
from tests.support.metricsdoc import rows
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

# Metrics that this crawl does not move, by the test that does.
UNMOVED = {
    "tests/archive/test_faults.py": ["krowl_archive_failed_total"],
    "tests/browser/test_pages.py": [
        *("krowl_browser_cut_total", "krowl_browser_failed_total", "krowl_browser_kept_total"),
        *("krowl_browser_page_failed_total", "krowl_browser_page_total"),
        *("krowl_browser_refused_total", "krowl_browser_request_total"),
    ],
    "tests/cluster/test_prometheus.py": [
        *("krowl_cluster_consul_seconds", "krowl_cluster_inbox_batch_seconds"),
        *("krowl_cluster_redis_seconds", "krowl_cluster_joined"),
        *("krowl_cluster_lease", "krowl_cluster_members", "krowl_cluster_ring"),
        *("krowl_cluster_sent_total", "krowl_cluster_taken_total"),
        *("krowl_frontier_foreign_total", "krowl_frontier_outbox"),
    ],
    "tests/cluster/test_inbox.py": ["krowl_cluster_inbox_messages"],
    "tests/cluster/test_inbox_junk.py": [
        *("krowl_cluster_dead_total", "krowl_cluster_dead_lost_total"),
    ],
    "tests/cluster/test_streams.py": ["krowl_cluster_again_total"],
    "tests/cluster/test_chaos_supervised.py": ["krowl_cluster_failed_total"],
    "tests/cluster/test_forwarder.py": ["krowl_cluster_held_total"],
    "tests/whole_crawls/test_bare_seeds.py": ["krowl_seeds_fallback_total"],
    "tests/cluster/test_pending_nodes.py": ["krowl_cluster_dead_nodes"],
    "tests/job/handover/test_sender.py": [
        *("krowl_cluster_moved_total", "krowl_cluster_moving", "krowl_cluster_arrived_total"),
    ],
    "tests/job/handover/test_hosts_that_stay.py": ["krowl_cluster_stays"],
    "tests/whole_crawls/test_site_hints.py": [
        *("krowl_recrawl_hinted_total", "krowl_recrawl_hinted_changed_total"),
        *("krowl_indexnow_refused_total", "krowl_indexnow_taken_total"),
    ],
    "tests/whole_crawls/test_policies.py": [
        *("krowl_policies_failed_total", "krowl_policies_faulty"),
        *("krowl_policies_reload_total", "krowl_policies_sheets"),
    ],
    "tests/whole_crawls/test_site_policies.py": [
        *("krowl_archive_left_out_total", "krowl_head_request_total"),
        "krowl_robots_overridden_total",
    ],
    "tests/hooks/test_calls.py": [
        *("krowl_hooks_cut_off_total", "krowl_hooks_failed_total", "krowl_hooks_slow_total"),
    ],
    "tests/whole_crawls/test_identity.py": [
        *("krowl_identity_challenged_total", "krowl_identity_refused_total"),
        *("krowl_identity_signed_total", "krowl_prices_asked_total"),
    ],
    "tests/engine/test_steering.py": ["krowl_control_change_total"],
    "tests/whole_crawls/test_disk_full.py": ["krowl_disk_pauses_total"],
    "tests/fetch/dns/test_resolver.py": [
        *("krowl_dns_cache_names", "krowl_dns_cached_total", "krowl_dns_failed_total"),
        *("krowl_dns_joined_total", "krowl_dns_question_total", "krowl_dns_seconds"),
        "krowl_dns_wait_seconds_total",
    ],
    "tests/commands/test_nothing_fetched.py": ["krowl_fetch_unknown_seed_total"],
    "tests/whole_crawls/test_close_notify.py": ["krowl_fetch_truncated_total"],
    "tests/extensions/test_loop_lag.py": [
        *("krowl_loop_lag_max_seconds", "krowl_loop_lag_p50_seconds", "krowl_loop_lag_seconds"),
        *("krowl_loop_lag_p999_seconds", "krowl_loop_lag_p99_seconds"),
        *("krowl_loop_recent_lag_max_seconds", "krowl_loop_recent_lag_p99_seconds"),
    ],
    "tests/extensions/test_metrics.py": ["krowl_metrics_left_out"],
    "tests/extensions/test_upload.py": [
        *("krowl_upload_bytes_total", "krowl_upload_failed_total", "krowl_upload_files_total"),
        "krowl_upload_waiting",
    ],
    "tests/extensions/test_watchdog.py": [
        *("krowl_watchdog_blamed_total", "krowl_watchdog_holds_total"),
        "krowl_watchdog_set_aside_total",
    ],
    "tests/job/test_meters.py": [
        *("krowl_leveldb_compaction_read_bytes_total", "krowl_leveldb_compaction_seconds_total"),
        *("krowl_leveldb_compaction_written_bytes_total", "krowl_leveldb_files"),
        "krowl_leveldb_size_bytes",
    ],
    "tests/whole_crawls/hostile/test_memory_limit.py": ["krowl_memory_waits_total"],
    "tests/middlewares/test_throttling.py": ["krowl_politeness_address_rested_total"],
    "tests/job/answers/test_outages.py": [
        *("krowl_politeness_blameless_total", "krowl_politeness_outages_total"),
    ],
    "tests/frontier/pages/test_rows.py": ["krowl_pages_validator_left_total"],
    "tests/whole_crawls/test_recrawl.py": [
        *("krowl_recrawl_asked_total", "krowl_recrawl_changed_total"),
        "krowl_recrawl_not_modified_total",
    ],
    "tests/frontier/test_due_pages.py": [
        *("krowl_recrawl_due_total", "krowl_recrawl_gone_total", "krowl_recrawl_late_seconds"),
        *("krowl_recrawl_postponed_total", "krowl_recrawl_threshold"),
    ],
    "tests/whole_crawls/test_proxies.py": ["krowl_politeness_parked_total"],
    "tests/whole_crawls/test_addresses.py": ["krowl_politeness_turned_back_total"],
    "tests/whole_crawls/test_seen.py": ["krowl_seen_false_positives_total", "krowl_seen_fill"],
}
# Objects that no garbage collection frees: a fault of a library in C.
NEVER = ["python_gc_objects_uncollectable_total"]


class Samples:
    """An extension that notes which metrics are there, and which are not 0, while a crawl runs."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._seen: dict[str, bool] = {}
        crawler.signals.connect(self._open, signals.engine_started)
        crawler.signals.connect(self._look, signals.response_downloaded)
        crawler.signals.connect(self._end, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _open(self) -> None:
        stats, crawl = self._crawler.stats.get_stats, crawls.crawl_of(self._crawler)
        self._registry = registry_of(crawl, stats, {"spider": "x", "version": "1"})
        job = crawl.job
        job.is_paused = True
        self._look()
        job.is_paused = False
        self._first = sorted(self._seen)

    def _look(self) -> None:
        self._crawler.signals.send_catch_log(figures_wanted)
        for line in text(self._registry).decode().splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                name = series.partition("{")[0].removesuffix("_count")
                self._seen[name] = self._seen.get(name, False) or float(value) > 0

    def _end(self) -> None:
        self._look()
        path = Path(self._crawler.settings["JOBDIR"]).with_name("seen.json")
        path.write_text(json.dumps([self._first, self._seen]))


SPEC = [
    {"host": "down.test", "path": "^", "body": "x" * 100, "close_early": 3},
    {"host": "busy.test", "path": "/", "status": 503, "retry_after": "1", "first": 1},
    page(
        "/robots.txt",
        "User-agent: *\nDisallow: /no\nSitemap: http://a.test:{port}/map.xml\n"
        "Sitemap: http://a.test:{port}/bad.xml",
        host="a.test",
    ),
    page(
        "/map.xml",
        "<urlset><url><loc>http://a.test:{port}/mapped</loc></url></urlset>",
        host="a.test",
    ),
    page("/bad.xml", "no map", host="a.test"),
    page(
        "/",
        anchors("/a", "/no", "/cut", "/gone", "mailto:x@a.test", *(f"/same{n}" for n in range(12)))
        + "<img src=/x.png><img src=data:,x>",
        host="a.test",
    ),
    page("/cut", "x" * 100, close_early=3),
    page("^/same", "the same page <a href=/a>x</a>"),
    {"path": "/x.png", "headers": {"Content-Type": "image/png"}, "body": "x"},
    page("^/$", "<p>a page", latency=0.1),
]


def test_each_metric_is_there_from_zero_and_moves(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC, tls=True) as web:
        settings = {
            "PROMETHEUS_ENABLED": 1,
            "PROMETHEUS_PORT": 0,
            "KROWL_SITEMAPS": 1,
            "KROWL_REQUISITES": "site",
            "RETRY_TIMES": 1,
            "CONCURRENT_REQUESTS": 1,
            "KROWL_DISK_FLOOR": 1000,
            "EXTENSIONS": json.dumps({f"{__name__}.Samples": 1000}),
        }
        seeds = [web.url(host) for host in ("a.test", "busy.test", "down.test")]
        seeds += [f"https://tls.test:{web.tls_port}/", "http://[", "http://127.0.0.1:1/"]
        crawl_of(web, tmp_path, seeds, settings=settings).run()
    first, seen = json.loads((tmp_path / "seen.json").read_text())
    names = {name for name, *_ in rows()}
    assert names - set(first) == set()
    unmoved = sorted(name for name in names if not seen[name])
    assert unmoved == sorted([*chain(*UNMOVED.values()), *NEVER])
    assert [path for path in UNMOVED if not (ROOT / path).exists()] == []
