"""Metrics for Prometheus: what a stat becomes, the settings, and the numbers of a real crawl."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler

from krowlspider import __version__
from krowlspider.config.checks import port_range
from krowlspider.extensions.metrics import Metrics
from krowlspider.job.meters import HISTOGRAMS, MEASURED, STATS
from krowlspider.job.metrics import SERIES_MAX, registry, text
from krowlspider.job.monitoring.page_server import reached_at
from krowlspider.job.provenance import own_address
from tests.mockweb import MockWeb
from tests.support.crawling import CONTACT, scrapy
from tests.support.crawls import crawl_of, page
from tests.support.debian import program
from tests.support.simulated_web import SimulatedWeb
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from scrapy.crawler import Crawler

    from tests.support.crawling import Crawl


def exposed(stats: Mapping[str, Any]) -> str:
    return text(registry(lambda: stats, {"spider": "broad", "version": "1"})).decode()


def series(said: str) -> dict[str, float]:
    """Each series, as ``name`` or ``name{label="value"}``, without what is of the process; read by
    the client's own parser, which refuses what is no metric."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(said):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found
            if not key.startswith(("process_", "python_", "krowl_crawl_info")):
                found[key] = sample.value
    return found


# --- what a stat becomes ---


@table(
    ("stat", "value", "metric", "exposed_value"),
    [
        ("krowl/frontier/done_count", 3, "krowl_frontier_done_total", 3),
        (
            "krowl/frontier/dropped_count/robots",
            2,
            'krowl_frontier_dropped_total{reason="robots"}',
            2,
        ),
        ("krowl/frontier/queued", 7, "krowl_frontier_queued", 7),
        ("krowl/dns/wait_seconds", 1.5, "krowl_dns_wait_seconds_total", 1.5),
        ("krowl/loop/lag_p99_ms", 12.5, "krowl_loop_lag_p99_seconds", 0.0125),
        ("downloader/request_count", 1, "scrapy_downloader_request_total", 1),
        (
            "downloader/response_status_count/200",
            4,
            'scrapy_downloader_response_status_total{status="200"}',
            4,
        ),
        ("log_count/WARNING", 1, 'scrapy_log_total{level="WARNING"}', 1),
        ("scheduler/enqueued", 5, "scrapy_scheduler_enqueued_total", 5),
        ("retry/count", 5, "scrapy_retry_total", 5),
        (
            "retry/reason_count/504 Gateway Time-out",
            1,
            'scrapy_retry_reason_total{reason="504 Gateway Time-out"}',
            1,
        ),
        (
            "downloader/exception_type_count/scrapy.exceptions.DownloadTimeoutError",
            1,
            (
                'scrapy_downloader_exception_type_total{reason="scrapy.exceptions.'
                'DownloadTimeoutError"}'
            ),
            1,
        ),
        ("spider_exceptions/count", 2, "scrapy_spider_exceptions_total", 2),
        (
            "spider_exceptions/ValueError",
            2,
            'scrapy_spider_exceptions_type_total{reason="ValueError"}',
            2,
        ),
        ("memusage/max", 1e8, "scrapy_memusage_max_bytes", 1e8),
        ("mine/shops_count", 1, "scrapy_mine_shops_total", 1),
    ],
)
def test_stat_becomes_a_prometheus_metric(
    stat: str, value: float, metric: str, exposed_value: float
) -> None:
    """Its name, its labels and its unit are those that Prometheus wants."""
    assert series(exposed({stat: value})) == {metric: exposed_value, "krowl_metrics_left_out": 0}


@pytest.mark.parametrize("value", ["finished", None, True, [1]])
def test_what_is_no_number_is_no_metric(value: object) -> None:
    assert series(exposed({"finish_reason": value})) == {"krowl_metrics_left_out": 0}


@table(
    "stat",
    [
        "mine/page_count/a.example",
        "mine/page_count/a.example:80",
        "mine/page_count/http://a.example/x",
        "mine/page_count/127.0.0.1",
        "mine/page_count/[::1]",
        "mine/page_count/x\n# TYPE y counter",
        "mine/page_count/",
        "a.example/page_count",
        "http://a.example/",
        "a.example",
    ],
)
def test_stat_that_names_a_host_is_left_out_and_counted(stat: str) -> None:
    said = exposed({stat: 1})
    assert series(said) == {"krowl_metrics_left_out": 1}
    assert "example" not in said


def test_stats_over_the_cap_are_left_out_and_counted() -> None:
    stats = {f"mine/word_count/w{number}": 1 for number in range(SERIES_MAX + 70)}
    found = series(exposed(stats))
    assert found.pop("krowl_metrics_left_out") == 70
    assert len(found) == SERIES_MAX


def test_of_two_stats_with_one_metric_the_first_has_it() -> None:
    assert series(exposed({"a/b": 1, "a_b": 2, "a/c_count": 3, "a/c_total": 4})) == {
        "scrapy_a_b": 1,
        "scrapy_a_c_total": 3,
        "krowl_metrics_left_out": 2,
    }


PART = st.text("ab_/. \"'\\\n{}0:", min_size=1, max_size=6)
NAMES = st.one_of(
    PART,
    st.builds("{}_count/{}".format, PART, PART),
    st.builds("krowl/{}_ms".format, PART),
    st.sampled_from(sorted(STATS)),
)


@given(st.dictionaries(NAMES, st.integers() | st.floats(), max_size=40))
def test_any_stat_name_is_readable_or_counted_as_left_out(
    stats: dict[str, float],
) -> None:
    found = series(exposed(stats))
    assert len(found) - 1 + found["krowl_metrics_left_out"] == len(stats)


def test_what_crawl_it_is_and_what_its_process_takes_is_said_too() -> None:
    said = exposed({})
    assert 'krowl_crawl_info{spider="broad",version="1"} 1.0' in said
    assert re.search(r"^process_resident_memory_bytes \d", said, re.MULTILINE)


@pytest.mark.slow
def test_prometheus_own_tool_finds_nothing_to_complain_of() -> None:
    subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=exposed(dict.fromkeys(STATS, 1)),
        text=True,
        check=True,
        capture_output=True,
    )


# --- settings ---


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        (9410, range(9410, 9411)),
        ("9410", range(9410, 9411)),
        ([9410], range(9410, 9411)),
        ([9410, 9420], range(9410, 9421)),
        ("9410,9420", range(9410, 9421)),
        (0, range(1)),
    ],
)
def test_a_port_is_a_number_or_the_first_and_the_last_of_several(
    value: object, ports: range
) -> None:
    assert port_range(value) == ports


@table("value", ["", [], "x", -1, 65_536, [2, 1], [1, 2, 3], "1,2,3", [None], {}])
def test_what_is_no_port_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        port_range(value)


def test_turned_off_it_is_not_there() -> None:
    with pytest.raises(NotConfigured):
        build_from_crawler(Metrics, get_crawler(settings_dict={"PROMETHEUS_ENABLED": False}))


def test_address_for_others_is_the_one_listened_at_or_our_own() -> None:
    assert reached_at("http://127.0.0.1:9410") == ("127.0.0.1", 9410)
    assert reached_at("http://[::1]:9411") == ("::1", 9411)
    assert reached_at("http://0.0.0.0:9410") == (own_address() or "0.0.0.0", 9410)


# --- whole crawls ---

# All numbers must be fresh because somebody asks, not because it is time.
UNSEEN = {"KROWL_STATUS_INTERVAL": 1000, "PROMETHEUS_PORT": 0}
URL = re.compile(r"metrics (http://127\.0\.0\.1:\d+/[^\s;]+)")
SITE = [
    page("/robots.txt", "User-agent: *\nDisallow: /no"),
    page("/", "".join(f"<a href=/{path}>x</a>" for path in ("a", "b", "no", "missing", "a"))),
    page("/a", "<a href=/>home</a>"),
    page("/b", "x" * 5000),
    page("/slow", "slow", latency=20),
]


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        said: str = response.read().decode()
    return said


def url_of(crawl: Crawl) -> str:
    crawl.wait_until(lambda: URL.search(crawl.log) is not None)
    found = URL.search(crawl.log)
    assert found is not None
    return found[1]


def test_while_a_crawl_runs_its_metrics_are_its_numbers_of_now(tmp_path: Path) -> None:
    with MockWeb(spec=SITE) as web:
        seeds = [web.url("a.test"), web.url("b.test", "/slow")]
        settings = {**UNSEEN, "EXTENSIONS": '{"krowlspider.extensions.live_page.LivePage": null}'}
        crawl = crawl_of(web, tmp_path, seeds, settings=settings).start()
        url = url_of(crawl)
        with urllib.request.urlopen(url.replace("/metrics", "/healthz")) as response:
            assert response.read() == b"ok\n"
        seen: dict[str, float] = {}

        def held() -> bool:
            """All is done but the slow page."""
            seen.update(series(scrape(url)))
            return seen["krowl_frontier_done_total"] == 4

        crawl.wait_until(held)
        said = scrape(url)
        asked = len(web.log())
        crawl.kill()
    assert seen["krowl_frontier_in_flight"] == 1
    assert seen["krowl_frontier_queued"] == 0
    assert seen["scrapy_scheduler_enqueued_total"] == 6
    assert seen['krowl_frontier_dropped_total{reason="robots"}'] == 1
    assert seen["scrapy_downloader_request_total"] == asked
    assert seen['scrapy_downloader_response_status_total{status="404"}'] == 1
    assert seen["krowl_loop_lag_max_seconds"] < 10
    assert seen["krowl_metrics_left_out"] == 0
    assert f'krowl_crawl_info{{spider="broad",version="{__version__}"}} 1.0' in said
    # Neither a host nor a URL, nor who crawls, is in it.
    for secret in ("a.test", "b.test", "http", CONTACT):
        assert secret not in re.sub("# .*|krowl_(crawl|fetch_http)", "", said)


class LastScrape:
    """An extension that asks its own crawl for its metrics when the spider is closed, by HTTP."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        crawler.signals.connect(self._closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def _closed(self) -> None:
        folder = Path(self._crawler.settings["JOBDIR"])
        found = URL.search(next(folder.parent.glob("*.log")).read_text())
        assert found is not None
        (folder / "metrics.txt").write_text(await run_in_thread(scrape, found[1]))


def test_at_the_end_each_number_of_the_stats_is_in_the_metrics(tmp_path: Path) -> None:
    extensions = {f"{__name__}.LastScrape": 1000}
    with MockWeb(spec=SITE[:-1]) as web:
        settings = {**UNSEEN, "EXTENSIONS": json.dumps(extensions)}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).run()
    said = (crawl.jobdir / "metrics.txt").read_text()
    found = {name: value for name, value in series(said).items() if name in said}
    # What goes on changing: the loop's lag, and the lines of the log and the feed that end the
    # crawl.
    passing = ("krowl/loop/", "log_count/", "feedexport/")
    numbers = {
        name: value
        for name, value in crawl.stats.items()
        if isinstance(value, int | float) and not name.startswith(passing)
    }
    expected = series(exposed(numbers))
    del expected["krowl_metrics_left_out"]
    assert {name: found.get(name) for name in expected} == expected
    # The others of the table are there too, without having moved.
    measured = tuple(metric.name for metric in (*HISTOGRAMS, *MEASURED))
    others = ("krowl_loop_", "scrapy_log_", "scrapy_feedexport_", "krowl_metrics_", *measured)
    more = {name: found[name] for name in found.keys() - expected.keys()}
    assert {n: value for n, value in more.items() if value and not n.startswith(others)} == {}
    metrics = found
    assert metrics["krowl_frontier_done_total"] == numbers["krowl/frontier/done_count"] == 4
    assert metrics["krowl_archive_bytes_total"] == numbers["krowl/archive/bytes_count"]
    assert (
        metrics['scrapy_downloader_response_status_total{status="200"}']
        == numbers["downloader/response_status_count/200"]
    )
    # Each of ours says what it is.
    ours = {name.partition("_count/")[0] for name in numbers if name.startswith("krowl/")}
    assert {name for name in ours if name not in STATS and f"{name}_count" not in STATS} == set()


def test_without_a_port_a_crawl_says_so_and_goes_on(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE[:-1]) as web, socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"PROMETHEUS_ENABLED": 1, "PROMETHEUS_PORT": taken.getsockname()[1]}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).run()
    assert crawl.stats["krowl/frontier/done_count"] == 4
    (complaint,) = crawl.complaints
    assert "No metrics and no live page: no free port in PROMETHEUS_PORT=" in complaint
    assert "in use" in complaint


def test_metrics_are_elsewhere_and_control_stays_at_home(tmp_path: Path) -> None:
    """Others have the metrics and nothing else, by the names of their address; this machine has
    all of it."""
    settings = {
        "PROMETHEUS_ENABLED": 1,
        "PROMETHEUS_PORT": 0,
        "PROMETHEUS_HOST": "0.0.0.0",
        "KROWL_CONTROL_PORT": 0,
        "KROWL_METRICS_NAMES": "node-a",
    }
    with MockWeb(spec=SITE) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test", "/slow")], settings=settings)
        crawl.start()
        pattern = r"page http://(127\.0\.0\.1):(\d+)/; metrics http://([\d.]+):(\d+)/metrics"
        crawl.wait_until(lambda: re.search(pattern, crawl.log) is not None)
        found = re.search(pattern, crawl.log)
        assert found is not None
        local, control, own, port = found.groups()
        page, metrics = f"http://{local}:{control}", f"http://{own}:{port}"
        public = ("/metrics", "/healthz", "/readyz")
        for path in public:
            for url, headers in (
                (metrics, {}),
                (metrics, {"Host": "node-a:9410"}),
                (metrics, {"Host": socket.gethostname()}),
                (f"http://127.0.0.1:{port}", {}),
                (page, {}),
                (page, {"Host": f"localhost:{control}"}),
            ):
                assert status_of(url + path, headers) == 200, (url, path, headers)
            for url in (metrics, page):
                for host in ("rebound.test", f"rebound.test:{port}", "192.0.2.1"):
                    assert status_of(url + path, {"Host": host}) == 421, (url, path, host)
        for path in ("/", "/live.js", "/events", "/api/v1/status", "/api/v1/pause"):
            assert status_of(metrics + path, {}) == 404
        assert status_of(page + "/", {}) == 200
        assert status_of(page + "/", {"Host": "node-a"}) == 421
        assert (crawl.jobdir / "live-page").read_text() == f"{page}\n"
        assert (crawl.jobdir / "metrics-page").read_text() == f"{metrics}/metrics\n"
        assert b"broad" in scrapy("top", crawl.jobdir, "--once").stdout
        assert crawl.complaints == []
        # An orderly end would wait for the slow page.
        crawl.kill()


def status_of(url: str, headers: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
