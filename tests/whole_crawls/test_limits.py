"""Settings have the effect they state, in a real crawl."""

from __future__ import annotations

import base64
import gzip
import itertools
import logging
import socket
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.reading import read_record
from krowlspider.crawl.start_log import log_strike
from krowlspider.frontier.entry import Entry
from tests.mockweb.audit import violations
from tests.support.archived import assert_archived
from tests.support.crawling import frontier_view, write_seeds
from tests.support.crawls import anchors, crawl_of, failures, one_page, page, pages, paths
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb, SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

ROBOTS = page("/robots.txt", "", status=404)


@pytest.mark.parametrize(
    ("rule", "setting", "kind"),
    [
        ({"latency": 40}, {}, "first_byte_timeout"),
        ({"body": "x" * 9000, "drip": 1000}, {"DOWNLOAD_TIMEOUT": 0.5}, "total_timeout"),
        ({"body": "x" * 2000}, {"DOWNLOAD_MAXSIZE": 1000}, "too_large"),
        (
            {
                "headers": {"Content-Encoding": "gzip"},
                "body_base64": base64.b64encode(gzip.compress(b"x" * 100_000)).decode(),
            },
            {"DOWNLOAD_MAXSIZE": 10_000},
            "too_large",
        ),
        ({"body": "x" * 2000, "close_early": 1000}, {}, "disconnect"),
    ],
)
def test_page_over_a_limit_is_dropped_with_its_reason(
    tmp_path: Path, rule: dict[str, Any], setting: dict[str, Any], kind: str
) -> None:
    """The bytes that came are archived."""
    with SimulatedWeb(spec=[ROBOTS, {"path": "/p", **rule}]) as web:
        crawl = one_page(web, tmp_path, "/p", code=0 if kind == "too_large" else 4, **setting)
        assert failures(crawl) == {kind: 1}
        assert crawl.stats[f"krowl/frontier/dropped_count/{kind}"] == 1
        assert crawl.items == []
        answered = kind != "first_byte_timeout"
        assert crawl.stats["krowl/archive/records_count"] == 2 + 2 * (1 + answered)


def test_body_below_the_minimum_rate_is_an_error_of_its_host(tmp_path: Path) -> None:
    rule = {"body": "x" * 90_000, "drip": 400}
    with SimulatedWeb(spec=[ROBOTS, {"path": "/p", **rule}]) as web:
        crawl = one_page(web, tmp_path, "/p", code=4)
        assert failures(crawl) == {"too_slow": 1}
        assert f"Fetch given up: {web.url('a.test', '/p')} (host a.test:" in crawl.log
        assert crawl.stats["krowl/frontier/dropped_count/too_slow"] == 1
        assert crawl.stats["krowl/archive/records_count"] == 2 + 2 * 2
        assert "krowl/politeness/blameless_count" not in crawl.stats
        (asked,) = [entry for entry in web.log() if entry.path == "/p"]
        assert 10 <= asked.end - asked.start <= 22


@pytest.mark.parametrize(
    ("listens", "settings", "kind"),
    [
        (socket.SOCK_STREAM, {"KROWL_CONNECT_TIMEOUT": 0.3}, "connect_timeout"),
        (socket.SOCK_STREAM, {}, "total_timeout"),
        (socket.SOCK_DGRAM, {"KROWL_DNS_TIMEOUT": 0.3}, "dns_timeout"),
        (socket.SOCK_DGRAM, {}, "total_timeout"),
    ],
)
def test_silent_servers_are_waited_for_as_set(
    tmp_path: Path, listens: socket.SocketKind, settings: dict[str, Any], kind: str
) -> None:
    """One server accepts connections but never speaks TLS; a name server never answers."""
    with socket.socket(socket.AF_INET, listens) as silent, SimulatedRawWeb({}) as web:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        if listens is socket.SOCK_STREAM:
            seed = f"https://127.0.0.1:{web.port}/"
        else:
            settings = {"KROWL_RESOLVE": None, "KROWL_DNS_SERVERS": f"127.0.0.1:{port}", **settings}
            seed = "http://a.example/"
        crawl = SimulatedCrawl(
            tmp_path / "job",
            arguments={"seeds": write_seeds(tmp_path / "seeds.txt", [seed])},
            settings={"RETRY_TIMES": 0, "DOWNLOAD_TIMEOUT": 1, **settings},
        ).run(code=4)
    assert failures(crawl) == {kind: 1}


@pytest.mark.parametrize(("delay", "connections"), [(16, 5), (1, 1)])
def test_an_unused_connection_is_kept_for_a_while(
    tmp_path: Path, delay: float, connections: int
) -> None:
    links = "".join(f"<a href=/{number}>x</a>" for number in range(3))
    with SimulatedWeb(spec=[ROBOTS, page("/", links), page("^/", "leaf")]) as web:
        one_page(web, tmp_path, "/", KROWL_DELAY_MIN=delay)
        assert len(web.log()) == 5
        assert len({entry.conn for entry in web.log()}) == connections


def test_answers_that_are_too_large_do_not_slow_the_host_down(tmp_path: Path) -> None:
    links = "".join(f"<a href=/big{number}>x</a>" for number in range(6))
    spec = [ROBOTS, page("/", links), page("^/big", "x" * 3000)]
    with SimulatedWeb(spec=spec) as web:
        crawl = one_page(web, tmp_path, "/", DOWNLOAD_MAXSIZE=2000)
        entries = web.log()
        assert failures(crawl) == {"too_large": 6}
        assert max(b.start - a.end for a, b in itertools.pairwise(entries)) < 0.5
        assert crawl.stats["downloader/response_status_count/200"] == 7


def test_dead_reused_connection_waits_for_the_delay(
    tmp_path: Path,
) -> None:
    links = "<a href=/a>x</a><a href=/b>x</a>"
    spec = [ROBOTS, page("/", links), page("/a", "a", close_early=0, first=1), page("^/", "fine")]
    with SimulatedWeb(spec=spec) as web:
        crawl = crawl_of(
            web, tmp_path, [web.url("a.test")], settings={"KROWL_DELAY_MIN": 0.3}
        ).run()
        assert [entry.path for entry in pages(web.log())].count("/a") == 2
        assert violations(web.log(), min_delay=0.3) == []
        assert crawl.stats["downloader/request_count"] == len(web.log())


def test_warc_files_rotate_by_size_into_the_folder_that_is_set(tmp_path: Path) -> None:
    links = "".join(f"<a href=/{number}>x</a>" for number in range(12))
    spec = [ROBOTS, page("/", links)]
    spec += [
        {"path": f"/{number}", "size": 400_000, "headers": {"Content-Type": "image/png"}}
        for number in range(12)
    ]
    noise = [dict(rule) for rule in spec]
    for number, rule in enumerate(noise[2:]):
        rule.pop("size")
        rule["body_base64"] = base64.b64encode(_noise(number)).decode()
    with SimulatedWeb(spec=noise) as web:
        folder = tmp_path / "elsewhere"
        crawl = one_page(
            web,
            tmp_path,
            "/",
            KROWL_WARC_DIR=folder,
            KROWL_WARC_PREFIX="my-crawl",
            KROWL_WARC_MAX_SIZE=1024 * 1024,
        )
        files = sorted(folder.glob("my-crawl-*.warc.gz"))
        assert 4 <= len(files) == crawl.stats["krowl/archive/files_count"] <= 6
        assert not (crawl.jobdir / "warc").exists()
        (crawl.jobdir / "warc").symlink_to(folder)
        assert_archived(crawl.jobdir, web.log())
        for item in crawl.items:
            headers, _ = read_record(folder / item["warc_file"], item["warc_offset"])
            assert headers["WARC-Target-URI"] == item["url"]


def _noise(seed: int) -> bytes:
    import random  # noqa: PLC0415

    return random.Random(seed).randbytes(400_000)


def _links(count: int) -> str:
    return "".join(f"<a href=/{number}>x</a>" for number in range(count))


def test_urls_that_a_cap_drops_are_named(tmp_path: Path) -> None:
    """During the crawl and at its end, with setting, number and host."""
    with SimulatedWeb(spec=[ROBOTS, page("/", _links(20)), page("^/", "leaf")]) as web:
        slow = {"KROWL_DOMAIN_BUDGET": 6, "KROWL_DELAY_MIN": 5}
        crawl = one_page(web, tmp_path, "/", **slow)
        assert crawl.stats["krowl/frontier/dropped_count/domain_budget"] == 15
        assert len(pages(web.log())) == 6
        during, end = crawl.complaints
        for line, when in ((during, "so far"), (end, "in this run")):
            text = f"15 URLs dropped {when} (a.test:{web.port}: 15). They are"
            assert f"WARNING: KROWL_DOMAIN_BUDGET = 6: {text}" in line


def test_links_beyond_the_caps_of_the_frontier_are_fetched(tmp_path: Path) -> None:
    """They lead to many domains: each has its share."""
    with SimulatedWeb(spec=[ROBOTS]) as web:
        port = web.port
    links = anchors(*(f"http://h{number}.test:{port}/" for number in range(40)))
    spec = [ROBOTS, page("/", links, host="a.test"), page("^/", "leaf")]
    with SimulatedWeb(spec=spec, port=port) as web:
        crawl = one_page(web, tmp_path, "/", KROWL_FRONTIER_MAX=20)
        assert len(pages(web.log())) == 41
        assert crawl.complaints == []


def test_links_beyond_a_hosts_places_are_fetched_last(tmp_path: Path) -> None:
    """Each once, with no warning: 8 places, 20 links of its own and 20 of another domain."""
    with SimulatedWeb(spec=[ROBOTS]) as web:
        port = web.port
    elsewhere = anchors(*(f"http://a.test:{port}/b{number}" for number in range(20)))
    spec = [
        ROBOTS,
        page("/", _links(20), host="a.test"),
        page("/", elsewhere, host="b.test"),
        page("^/", "leaf"),
    ]
    with SimulatedWeb(spec=spec, port=port) as web:
        seeds = [web.url("a.test"), web.url("b.test")]
        crawl = crawl_of(web, tmp_path, seeds, settings={"KROWL_HOST_QUEUE_MAX": 8}).run()
        fetched = paths([entry for entry in web.log() if entry.host.startswith("a.test")])
        own = [f"/{number}" for number in range(20)]
        others = [f"/b{number}" for number in range(20)]
        assert sorted(fetched) == sorted(["/", *own, *others])
        assert [path for path in fetched if path in own] == own
        assert [path for path in fetched if path in others] == others
        assert fetched[-16:] == others[-16:]
        assert crawl.stats["krowl/frontier/done_count"] == 42
        assert crawl.complaints == []


def test_all_seeds_of_one_host_are_queued(tmp_path: Path) -> None:
    """KROWL_HOST_QUEUE_MAX does not hold for them."""
    with SimulatedWeb(spec=[ROBOTS, page("^/", "leaf")]) as web:
        seeds = [web.url("a.test", f"/{number}") for number in range(2500)]
        settings = {"KROWL_HOST_QUEUE_MAX": 1000}
        crawl = crawl_of(web, tmp_path, seeds, arguments={"max_pages": 1}, settings=settings).run()
        assert frontier_view(crawl.jobdir)["queued"] == 2499
        assert crawl.complaints == []


@pytest.mark.parametrize("host", ["a.test", "b.test"])
def test_all_links_of_a_hub_are_queued(tmp_path: Path, host: str) -> None:
    """With the default, on the hub's own host or on one of another domain."""
    with SimulatedWeb(spec=[ROBOTS]) as web:
        port = web.port
    links = "".join(f"<a href=http://{host}:{port}/{number}>x</a>" for number in range(2500))
    with SimulatedWeb(spec=[ROBOTS, page("/", links), page("^/", "leaf")], port=port) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], arguments={"max_pages": 1}).run()
        assert frontier_view(crawl.jobdir)["queued"] == 2500
        assert crawl.complaints == []


def test_a_greater_cap_takes_dropped_seeds_at_the_next_start(tmp_path: Path) -> None:
    """As the warning says."""
    with SimulatedWeb(spec=[ROBOTS, page("^/", "leaf")]) as web:
        seeds = [web.url("a.test", f"/{number}") for number in range(20)]
        one = {"max_pages": 1}
        settings = {"KROWL_DOMAIN_BUDGET": 5}
        crawl = crawl_of(web, tmp_path, seeds, arguments=one, settings=settings).run()
        assert frontier_view(crawl.jobdir)["queued"] == 4
        assert len(crawl.complaints) == 1
        crawl = crawl_of(web, tmp_path, seeds, arguments=one).run()
        assert frontier_view(crawl.jobdir)["queued"] == 18


def test_all_start_requests_of_one_host_are_queued(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[ROBOTS, page("^/", "leaf")]) as web:
        urls = [web.url("a.test", f"/{number}") for number in range(9)]
        crawl = SimulatedCrawl(
            tmp_path / "job",
            spider="starting",
            arguments={"urls": " ".join(urls)},
            settings={"SPIDER_MODULES": "tests.support.spiders", "KROWL_HOST_QUEUE_MAX": 1},
        ).run()
        assert len(pages(web.log())) == 9
        assert crawl.complaints == []


@pytest.mark.parametrize("limit", [1, 3])
def test_a_domain_has_at_most_its_share_of_requests_in_flight(tmp_path: Path, limit: int) -> None:
    spec = [ROBOTS, {"path": "/", "body": "x", "latency": 0.2}]
    with SimulatedWeb(spec=spec) as web:
        hosts = [web.url(f"h{number}.site.test") for number in range(6)]
        crawl_of(web, tmp_path, hosts, settings={"KROWL_DOMAIN_CONCURRENCY": limit}).run()
        slow = pages(web.log())
        busiest = max(
            sum(other.start <= entry.start < other.end for other in slow) for entry in slow
        )
        assert busiest == limit


def test_same_domain_stays_within_it(tmp_path: Path) -> None:
    """It holds for redirects as for links."""
    with SimulatedWeb(spec=[ROBOTS]) as web:
        port = web.port
    links = "".join(
        f"<a href={url}>x</a>"
        for url in (f"http://b.site.test:{port}/", f"http://a.other.test:{port}/", "/moved")
    )
    moved = {"path": "/moved", "redirect": f"http://b.other.test:{port}/"}
    with SimulatedWeb(spec=[ROBOTS, page("/", links), moved], port=port) as web:
        crawl = crawl_of(
            web, tmp_path, [web.url("a.site.test")], arguments={"same_domain": 1}
        ).run()
        assert {entry.host for entry in web.log()} == {f"a.site.test:{port}", f"b.site.test:{port}"}
        assert crawl.stats["krowl/frontier/dropped_count/domain"] >= 2


def test_redirects_end_after_redirect_max_times(tmp_path: Path) -> None:
    spec = [ROBOTS] + [{"path": f"/{hop}", "redirect": f"/{hop + 1}"} for hop in range(20)]
    with SimulatedWeb(spec=spec) as web:
        crawl = one_page(web, tmp_path, "/0", REDIRECT_MAX_TIMES=3)
        assert [entry.path for entry in pages(web.log())] == ["/0", "/1", "/2", "/3"]
        assert crawl.stats["krowl/frontier/dropped_count/redirects"] == 1


@pytest.mark.parametrize("asked", ["1.5", "1500 ms, 1"])
def test_retry_after_is_kept(tmp_path: Path, asked: str) -> None:
    headers = {"Retry-After": asked}
    spec = [
        ROBOTS,
        {"path": "/p", "status": 503, "headers": headers, "first": 1},
        page("/p", "x"),
    ]
    with SimulatedWeb(spec=spec) as web:
        one_page(web, tmp_path, "/p")
        first, second = pages(web.log())
        assert 1.5 <= second.start - first.end < 3


def test_crawl_delay_is_kept(tmp_path: Path) -> None:
    robots = page("/robots.txt", "User-agent: *\nCrawl-delay: 1")
    with SimulatedWeb(spec=[robots, page("/", "<a href=/p>x</a>"), page("/p", "x")]) as web:
        one_page(web, tmp_path, "/")
        entries = web.log()
        assert len(entries) == 3
        assert violations(entries, min_delay=1.0) == []
        assert entries[-1].start - entries[0].start < 4


def test_a_host_that_asks_for_too_long_a_delay_is_retired(tmp_path: Path) -> None:
    robots = page("/robots.txt", "User-agent: *\nCrawl-delay: 500")
    with SimulatedWeb(spec=[robots, page("/", "x")]) as web:
        crawl = one_page(web, tmp_path, "/", code=4, KROWL_CRAWL_DELAY_MAX=400)
        assert [entry.path for entry in web.log()] == ["/robots.txt"]
        assert crawl.stats["krowl/frontier/dropped_count/crawl_delay"] == 1


def test_robots_txt_is_asked_again_when_it_has_expired(tmp_path: Path) -> None:
    links = "".join(f"<a href=/{number}>x</a>" for number in range(8))
    robots = page("/robots.txt", "User-agent: *\nAllow: /")
    with SimulatedWeb(spec=[robots, page("/", links), page("^/", "leaf")]) as web:
        one_page(web, tmp_path, "/", KROWL_ROBOTS_TTL=0.5, KROWL_DELAY_MIN=0.2)
        assert len(web.log()) - len(pages(web.log())) >= 3
        assert len(pages(web.log())) == 9


def test_host_without_readable_robots_txt_keeps_its_urls(
    tmp_path: Path,
) -> None:
    """They wait for the next start."""
    links = "<a href=/a>x</a><a href=/b>x</a>"
    broken = {"path": "/robots.txt", "status": 500, "first": 3}
    spec = [
        broken,
        page("/robots.txt", "User-agent: *\nDisallow: /b"),
        page("/", links),
        page("/a", "x"),
    ]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url("a.test")]
        first = crawl_of(web, tmp_path, seeds).run(code=4)
        assert pages(web.log()) == []
        assert first.stats["finish_reason"] == "finished"
        assert frontier_view(first.jobdir)["queued"] == 1
        assert "1 left" in first.log
        second = crawl_of(web, tmp_path, seeds).run()
        assert [entry.path for entry in pages(web.log())] == ["/", "/a"]
        assert frontier_view(second.jobdir)["queued"] == 0


def test_robots_txt_that_redirect_in_a_ring_allow_the_hosts(
    tmp_path: Path,
) -> None:
    """The hosts are crawled politely."""
    with SimulatedWeb(spec=[ROBOTS]) as web:
        port = web.port
    ring = ["r0.test", "r1.test", "r2.test"]
    spec = [
        {"host": host, "path": "/robots.txt", "redirect": f"http://{after}:{port}/robots.txt"}
        for host, after in zip(ring, ring[1:] + ring[:1], strict=True)
    ]
    with SimulatedWeb(spec=[*spec, page("/", "x")], port=port) as web:
        crawl_of(web, tmp_path, [web.url(host) for host in ring]).run()
        assert sorted(entry.host for entry in pages(web.log())) == [f"{h}:{port}" for h in ring]
        assert violations(web.log(), min_delay=0.05) == []


@pytest.mark.slow
def test_chain_of_pages_is_followed_to_its_end(tmp_path: Path) -> None:
    """Due hosts wake the engine while the only page is between downloader and callback."""
    chain = [
        page(f"/{n}", f"<a href=/{n + 1}>next</a><a href=http://s{n}.test:{{port}}/>x</a>")
        for n in range(150)
    ]
    with SimulatedWeb(spec=[ROBOTS, *chain, page("^/", "end")]) as web:
        none = {"KROWL_DELAY_MIN": 0.003, "KROWL_DELAY_FACTOR": 0}
        crawl = crawl_of(web, tmp_path, [web.url("chain.test", "/0")], settings=none).run()
        assert len(pages(web.log())) == 151 + 150
        assert frontier_view(crawl.jobdir)["queued"] == 0


def test_the_log_says_how_it_goes_and_how_it_ended(tmp_path: Path) -> None:
    links = "".join(f"<a href=/{number}>x</a>" for number in range(8))
    with SimulatedWeb(spec=[ROBOTS, page("/", links), page("^/", "leaf")]) as web:
        crawl = one_page(web, tmp_path, "/", KROWL_DELAY_MIN=0.3)
        lines = [line for line in crawl.log.splitlines() if "pages/s | " in line]
        assert len(lines) >= 2
        for part in ("pages | ", "URLs queued on 1 host", " KB"):
            assert part in lines[0]
        assert "pages done   9 (" in crawl.log
        assert "answers      200: 9, 404: 1 (robots.txt and retries included)" in crawl.log
        assert "URLs         9 queued, 0 known already, 0 dropped, 0 left" in crawl.log
        assert f"folder       {crawl.jobdir}" in crawl.log


def test_a_contact_at_a_reserved_domain_is_warned_of(tmp_path: Path) -> None:
    contact = "crawl@example.org"
    said = f"WARNING: KROWL_CONTACT={contact} is at a reserved domain: no site owner can reach you"
    with SimulatedWeb(spec=[ROBOTS, page("^/", "leaf")]) as web:
        assert said in one_page(web, tmp_path / "reserved", "/", KROWL_CONTACT=contact).log
        assert "reserved domain" not in one_page(web, tmp_path / "own", "/").log


def test_what_scrapy_says_of_a_download_is_said(tmp_path: Path) -> None:
    spec = [ROBOTS, page("^/(plain|stopped|failed)", "x" * 300_000), page("/slow", "x", latency=3)]
    with SimulatedWeb(spec=spec, tls=True) as web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            spider="listening",
            arguments={"root": web.url("a.test", ""), "secure": web.url("b.test", "", tls=True)},
            settings={"SPIDER_MODULES": "tests.support.spiders", "RETRY_TIMES": 0},
        ).run()
        items = {item["url"].replace(str(web.port), "P"): item for item in crawl.items}
        plain = items["http://a.test:P/plain"]
        assert (plain["ip"], plain["protocol"], plain["certificate"]) == (
            "127.0.0.1",
            "HTTP/1.1",
            False,
        )
        assert (plain["flags"], plain["declared"], plain["got"]) == ([], 300_000, 300_000)
        stopped = items["http://a.test:P/stopped"]
        assert stopped["flags"] == ["download_stopped"]
        assert 0 < stopped["got"] < 300_000
        assert items["http://a.test:P/failed"]["error"] == "StopDownload"
        assert items["http://a.test:P/slow"]["error"] == "DownloadTimeoutError"
        assert [item["certificate"] for item in crawl.items if item["url"].startswith("https")] == [
            True
        ]
        assert crawl.stats["krowl/frontier/dropped_count/stopped"] == 1


def test_shared_robots_txt_retires_all_its_hosts(
    tmp_path: Path,
) -> None:
    """It is fetched once."""
    to = {"status": 301, "headers": {"Location": "http://slow.test:{port}/robots.txt"}}
    others = [f"h{number}.test" for number in range(3)]
    spec = [
        {"host": "slow.test", **page("/robots.txt", "User-agent: *\nCrawl-delay: 500")},
        *({"host": host, "path": "/robots.txt", **to} for host in others),
        page("/", "x"),
    ]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url(host) for host in ["slow.test", *others]]
        settings = {"KROWL_CRAWL_DELAY_MAX": 1}
        crawl = crawl_of(web, tmp_path, seeds, settings=settings).run(code=4)
        slow = [entry for entry in web.log() if entry.host.startswith("slow.test")]
        assert [entry.path for entry in slow] == ["/robots.txt"]
        assert crawl.stats["krowl/frontier/dropped_count/crawl_delay"] == 4


def test_host_too_slow_on_one_scheme_only_is_retired(
    tmp_path: Path,
) -> None:
    """On the other scheme there is no server."""
    robots = page("/robots.txt", "User-agent: *\nCrawl-delay: 3")
    with SimulatedWeb(spec=[robots, page("/", "<a href=/z>x</a>"), page("/z", "x")]) as web:
        seeds = [web.url("a.test", path) for path in ("/y", "/")]
        seeds[0] = seeds[0].replace("http:", "https:")
        crawl_of(web, tmp_path, seeds, arguments={"max_pages": 1}).run()
        slower = {"KROWL_CRAWL_DELAY_MAX": 1}
        crawl = crawl_of(web, tmp_path, seeds, settings=slower).run(code=4)
        (line,) = crawl.complaints
        assert "No page was fetched: Crawl-delay too long: 2" in line
        assert crawl.stats["krowl/frontier/dropped_count/crawl_delay"] >= 1


def test_failed_page_is_tried_again_after_others(tmp_path: Path) -> None:
    names = [str(number) for number in range(25)]
    spec = [
        ROBOTS,
        {"path": "/bad", "status": 500, "first": 1},
        page("/bad", "better"),
        page("/", "".join(f"<a href=/{name}>x</a>" for name in ["bad", *names])),
        *(page(f"/{name}", "x") for name in names),
    ]
    with SimulatedWeb(spec=spec) as web:
        crawl = one_page(web, tmp_path, "/", KROWL_RETRY_DELAY=0.4, RETRY_TIMES=1)
        paths = [entry.path for entry in pages(web.log())]
        first, second = (entry for entry in pages(web.log()) if entry.path == "/bad")
        assert second.start - first.end >= 0.4
        # Neither at once nor after all others.
        assert paths[:2] == ["/", "/bad"]
        assert paths[2] != "/bad" != paths[-1]
        assert sorted(paths) == sorted(["/", "/bad", "/bad", *(f"/{name}" for name in names)])
        assert crawl.stats["retry/count"] == 1


def test_a_domain_has_a_budget_of_pages(tmp_path: Path) -> None:
    links = "".join(f"<a href=/{number}>x</a>" for number in range(9))
    with SimulatedWeb(
        spec=[ROBOTS, page("/", links), *(page(f"/{n}", "x") for n in range(9))]
    ) as web:
        crawl = one_page(web, tmp_path, "/", KROWL_DOMAIN_BUDGET=4)
        assert len(pages(web.log())) == 4
        assert crawl.stats["krowl/frontier/dropped_count/domain_budget"] == 6


def test_archive_folder_that_cannot_be_made_is_named(
    tmp_path: Path,
) -> None:
    """The error does not name the JOBDIR."""
    (tmp_path / "file").write_text("")
    seeds = write_seeds(tmp_path / "seeds.txt", ["http://127.0.0.1:81/"])
    for folder, reason in (
        ("/proc/x", "No such file or directory"),
        (tmp_path / "file" / "warc", "File exists"),
    ):
        crawl = SimulatedCrawl(
            tmp_path / "job", arguments={"seeds": seeds}, settings={"KROWL_WARC_DIR": folder}
        ).run(code=2)
        error = f"krowlspider: KROWL_WARC_DIR {folder} cannot be used: {reason}"
        assert crawl.log.splitlines()[-1] == error
        assert "Traceback" not in crawl.log


def test_a_page_that_the_process_died_over_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        log_strike(Entry("http://a.test/", strikes=1), tmp_path)
    assert [record.getMessage() for record in caplog.records] == [
        "The last process died while it worked on http://a.test/: strike 1 of 3"
    ]
