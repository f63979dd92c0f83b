"""Settings have the effect they state, in a real crawl."""

from __future__ import annotations

import base64
import gzip
import random
import socket
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.reading import read_record
from tests.mockweb.audit import violations
from tests.support.archived import assert_archived
from tests.support.crawling import frontier_view, write_seeds
from tests.support.crawls import anchors, crawl_of, crawled, dropped, failures, page, pages, paths
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb, SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

ROBOTS = page("/robots.txt", "", status=404)
LEAF = page("^/", "leaf")
ONCE = {"RETRY_TIMES": 0}
ZIPPED = base64.b64encode(gzip.compress(b"x" * 100_000)).decode()


def links(count: int) -> str:
    return anchors(*(f"/{number}" for number in range(count)))


# --- bounds of a fetch ---


@pytest.mark.parametrize(
    ("rule", "setting", "kind"),
    [
        ({"latency": 40}, {}, "first_byte_timeout"),
        ({"body": "x" * 9000, "drip": 1000}, {"DOWNLOAD_TIMEOUT": 0.5}, "total_timeout"),
        ({"body": "x" * 90_000, "drip": 400}, {}, "too_slow"),
        ({"body": "x" * 2000}, {"DOWNLOAD_MAXSIZE": 1000}, "too_large"),
        (
            {"headers": {"Content-Encoding": "gzip"}, "body_base64": ZIPPED},
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
    spec = [ROBOTS, {"path": "/p", **rule}]
    code = 0 if kind == "too_large" else 4
    crawl, _ = crawled(tmp_path, spec, "a.test/p", code=code, **ONCE, **setting)
    assert failures(crawl) == dropped(crawl) == {kind: 1}
    assert crawl.items == []
    answered = kind != "first_byte_timeout"
    assert crawl.stats["krowl/archive/records_count"] == 2 + 2 * (1 + answered)
    if kind == "too_slow":
        assert "Fetch given up: http://a.test:" in crawl.log
        assert "krowl/politeness/blameless_count" not in crawl.stats


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
        seed = f"https://127.0.0.1:{web.port}/"
        if listens is socket.SOCK_DGRAM:
            settings = {"KROWL_RESOLVE": None, "KROWL_DNS_SERVERS": f"127.0.0.1:{port}", **settings}
            seed = "http://a.example/"
        crawl = SimulatedCrawl(
            tmp_path / "job",
            arguments={"seeds": write_seeds(tmp_path / "seeds.txt", [seed])},
            settings={**ONCE, "DOWNLOAD_TIMEOUT": 1, **settings},
        ).run(code=4)
    assert failures(crawl) == {kind: 1}


def test_answers_that_are_too_large_do_not_slow_the_host_down(tmp_path: Path) -> None:
    spec = [ROBOTS, page("/", links(6)), page("^/", "x" * 3000)]
    crawl, log = crawled(tmp_path, spec, "a.test/", DOWNLOAD_MAXSIZE=2000, **ONCE)
    assert failures(crawl) == {"too_large": 6}
    assert max(b.start - a.end for a, b in pairwise(log)) < 0.5
    assert crawl.stats["downloader/response_status_count/200"] == 7


def test_dead_reused_connection_waits_for_the_delay(tmp_path: Path) -> None:
    dying = page("/a", "a", close_early=0, first=1)
    spec = [ROBOTS, page("/", anchors("/a", "/b")), dying, LEAF]
    crawl, log = crawled(tmp_path, spec, "a.test/", KROWL_DELAY_MIN=0.3)
    assert paths(log).count("/a") == 2
    assert violations(log, min_delay=0.3) == []
    assert crawl.stats["downloader/request_count"] == len(log)


# --- the archive ---


def test_warc_files_rotate_by_size_into_the_folder_that_is_set(tmp_path: Path) -> None:
    chance = random.Random(1)
    noise = [base64.b64encode(chance.randbytes(400_000)).decode() for _ in range(12)]
    png = {"Content-Type": "image/png"}
    pictures = [
        {"path": f"/{at}", "headers": png, "body_base64": body} for at, body in enumerate(noise)
    ]
    folder = tmp_path / "elsewhere"
    chosen = {"KROWL_WARC_PREFIX": "my-crawl", "KROWL_WARC_MAX_SIZE": 1024 * 1024}
    spec = [ROBOTS, page("/", links(12)), *pictures]
    crawl, log = crawled(tmp_path, spec, "a.test/", KROWL_WARC_DIR=folder, **chosen)
    files = sorted(folder.glob("my-crawl-*.warc.gz"))
    assert 4 <= len(files) == crawl.stats["krowl/archive/files_count"] <= 6
    assert not (crawl.jobdir / "warc").exists()
    (crawl.jobdir / "warc").symlink_to(folder)
    assert_archived(crawl.jobdir, log)
    for item in crawl.items:
        headers, _ = read_record(folder / item["warc_file"], item["warc_offset"])
        assert headers["WARC-Target-URI"] == item["url"]


def test_archive_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
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


# --- caps of the frontier ---


def test_urls_that_a_cap_drops_are_named(tmp_path: Path) -> None:
    """During the crawl and at its end, with setting, number and host."""
    slow = {"KROWL_DOMAIN_BUDGET": 6, "KROWL_DELAY_MIN": 5}
    crawl, log = crawled(tmp_path, [ROBOTS, page("/", links(20)), LEAF], "a.test/", **slow)
    assert dropped(crawl) == {"domain_budget": 15}
    assert len(pages(log)) == 6
    during, end = crawl.complaints
    for line, when in ((during, "so far"), (end, "in this run")):
        text = f"15 URLs dropped {when} ({log[0].host}: 15). They are"
        assert f"WARNING: KROWL_DOMAIN_BUDGET = 6: {text}" in line


def test_links_beyond_the_caps_of_the_frontier_are_fetched(tmp_path: Path) -> None:
    """They lead to many domains: each has its share."""
    many = anchors(*(f"http://h{number}.test:{{port}}/" for number in range(40)))
    spec = [ROBOTS, page("/", many, host="a.test"), LEAF]
    crawl, log = crawled(tmp_path, spec, "a.test/", KROWL_FRONTIER_MAX=20)
    assert len(pages(log)) == 41
    assert crawl.complaints == []


def test_links_beyond_a_hosts_places_are_fetched_last(tmp_path: Path) -> None:
    """Each once, with no warning: 8 places, 20 links of its own and 20 of another domain."""
    own, others = ([f"/{start}{number}" for number in range(20)] for start in ("", "b"))
    elsewhere = anchors(*(f"http://a.test:{{port}}{path}" for path in others))
    homes = [page("/", anchors(*own), host="a.test"), page("/", elsewhere, host="b.test")]
    spec = [ROBOTS, *homes, LEAF]
    crawl, log = crawled(tmp_path, spec, "a.test/", "b.test/", KROWL_HOST_QUEUE_MAX=8)
    fetched = paths([entry for entry in log if entry.host.startswith("a.test")])
    assert sorted(fetched) == sorted(["/", *own, *others])
    assert [path for path in fetched if path in own] == own
    assert [path for path in fetched if path in others] == others
    assert fetched[-16:] == others[-16:]
    assert crawl.stats["krowl/frontier/done_count"] == 42
    assert crawl.complaints == []


def test_a_greater_cap_takes_dropped_seeds_at_the_next_start(tmp_path: Path) -> None:
    """As the warning says."""
    with SimulatedWeb(spec=[ROBOTS, LEAF]) as web:
        seeds = [web.url("a.test", f"/{number}") for number in range(20)]
        for settings, left, warnings in (({"KROWL_DOMAIN_BUDGET": 5}, 4, 1), ({}, 18, 0)):
            crawl = crawl_of(web, tmp_path, seeds, arguments={"max_pages": 1}, settings=settings)
            assert len(crawl.run().complaints) == warnings
            assert frontier_view(crawl.jobdir)["queued"] == left


def test_a_domain_has_at_most_its_share_of_requests_in_flight(tmp_path: Path) -> None:
    spec = [ROBOTS, {"path": "/", "body": "x", "latency": 0.2}]
    hosts = [f"h{number}.site.test/" for number in range(6)]
    _, log = crawled(tmp_path, spec, *hosts, KROWL_DOMAIN_CONCURRENCY=3)
    slow = pages(log)
    assert max(sum(o.start <= entry.start < o.end for o in slow) for entry in slow) == 3


# --- links, redirects and retries ---


def test_same_domain_stays_within_it(tmp_path: Path) -> None:
    """It holds for redirects as for links."""
    away = "http://{}.other.test:{{port}}/"
    home = anchors("http://b.site.test:{port}/", away.format("a"), "/moved")
    moved = {"path": "/moved", "redirect": away.format("b")}
    spec = [ROBOTS, page("/", home), moved]
    crawl, log = crawled(tmp_path, spec, "a.site.test/", arguments={"same_domain": 1})
    assert {entry.host.partition(":")[0] for entry in log} == {"a.site.test", "b.site.test"}
    assert dropped(crawl)["domain"] >= 2


def test_redirects_end_after_redirect_max_times(tmp_path: Path) -> None:
    spec = [ROBOTS, *({"path": f"/{hop}", "redirect": f"/{hop + 1}"} for hop in range(20))]
    crawl, log = crawled(tmp_path, spec, "a.test/0", REDIRECT_MAX_TIMES=3)
    assert paths(log) == ["/0", "/1", "/2", "/3"]
    assert dropped(crawl) == {"redirects": 1}


@pytest.mark.parametrize("asked", ["1.5", "1500 ms, 1"])
def test_retry_after_is_kept(tmp_path: Path, asked: str) -> None:
    busy = {"path": "/p", "status": 503, "headers": {"Retry-After": asked}, "first": 1}
    _, log = crawled(tmp_path, [ROBOTS, busy, page("/p", "x")], "a.test/p")
    first, second = pages(log)
    assert 1.5 <= second.start - first.end < 3


def test_failed_page_is_tried_again_after_others(tmp_path: Path) -> None:
    names = [f"/{number}" for number in range(25)]
    bad = {"path": "/bad", "status": 500, "first": 1}
    spec = [ROBOTS, bad, page("/", anchors("/bad", *names)), LEAF]
    crawl, log = crawled(tmp_path, spec, "a.test/", KROWL_RETRY_DELAY=0.4, RETRY_TIMES=1)
    first, second = (entry for entry in log if entry.path == "/bad")
    assert second.start - first.end >= 0.4
    asked = paths(log)
    # Neither at once nor after all others.
    assert asked[:2] == ["/", "/bad"]
    assert asked[2] != "/bad" != asked[-1]
    assert sorted(asked) == sorted(["/", "/bad", "/bad", *names])
    assert crawl.stats["retry/count"] == 1


@pytest.mark.slow
def test_chain_of_pages_is_followed_to_its_end(tmp_path: Path) -> None:
    """Due hosts wake the engine while the only page is between downloader and callback."""
    chain = [
        page(f"/{n}", f"<a href=/{n + 1}>next</a><a href=http://s{n}.test:{{port}}/>x</a>")
        for n in range(150)
    ]
    none = {"KROWL_DELAY_MIN": 0.003, "KROWL_DELAY_FACTOR": 0}
    crawl, log = crawled(tmp_path, [ROBOTS, *chain, LEAF], "chain.test/0", **none)
    assert len(pages(log)) == 151 + 150
    assert frontier_view(crawl.jobdir)["queued"] == 0


# --- robots.txt ---


def robots(rule: str, **more: Any) -> dict[str, Any]:
    return page("/robots.txt", f"User-agent: *\n{rule}", **more)


def test_crawl_delay_is_kept(tmp_path: Path) -> None:
    spec = [robots("Crawl-delay: 1"), page("/", anchors("/p")), LEAF]
    _, log = crawled(tmp_path, spec, "a.test/")
    assert len(log) == 3
    assert violations(log, min_delay=1.0) == []
    assert log[-1].start - log[0].start < 4


def test_shared_robots_txt_with_too_long_a_delay_retires_its_hosts(tmp_path: Path) -> None:
    """It is fetched once."""
    to = {"path": "/robots.txt", "redirect": "http://slow.test:{port}/robots.txt"}
    others = [f"h{number}.test" for number in range(3)]
    spec = [robots("Crawl-delay: 500", host="slow.test"), *({"host": h, **to} for h in others)]
    seeds = [f"{host}/" for host in ("slow.test", *others)]
    crawl, log = crawled(tmp_path, [*spec, LEAF], *seeds, code=4, KROWL_CRAWL_DELAY_MAX=400)
    assert [entry.path for entry in log if entry.host.startswith("slow.test")] == ["/robots.txt"]
    assert pages(log) == []
    assert dropped(crawl) == {"crawl_delay": 4}


def test_host_too_slow_on_one_scheme_only_is_retired(tmp_path: Path) -> None:
    """On the other scheme there is no server."""
    with SimulatedWeb(spec=[robots("Crawl-delay: 3"), page("/", anchors("/z")), LEAF]) as web:
        seeds = [web.url("a.test", "/y").replace("http:", "https:"), web.url("a.test")]
        crawl_of(web, tmp_path, seeds, arguments={"max_pages": 1}).run()
        slower = {"KROWL_CRAWL_DELAY_MAX": 1}
        crawl = crawl_of(web, tmp_path, seeds, settings=slower).run(code=4)
    (line,) = crawl.complaints
    assert "No page was fetched: Crawl-delay too long: 2" in line
    assert dropped(crawl)["crawl_delay"] >= 1


def test_robots_txt_is_asked_again_when_it_has_expired(tmp_path: Path) -> None:
    spec = [robots("Allow: /"), page("/", links(8)), LEAF]
    _, log = crawled(tmp_path, spec, "a.test/", KROWL_ROBOTS_TTL=0.5, KROWL_DELAY_MIN=0.2)
    assert len(log) - len(pages(log)) >= 3
    assert len(pages(log)) == 9


def test_host_without_readable_robots_txt_keeps_its_urls(tmp_path: Path) -> None:
    """They wait for the next start."""
    broken = {"path": "/robots.txt", "status": 500, "first": 3}
    spec = [broken, robots("Disallow: /b"), page("/", anchors("/a", "/b")), page("/a", "x")]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url("a.test")]
        first = crawl_of(web, tmp_path, seeds).run(code=4)
        assert pages(web.log()) == []
        assert first.stats["finish_reason"] == "finished"
        assert frontier_view(first.jobdir)["queued"] == 1
        assert "1 left" in first.log
        second = crawl_of(web, tmp_path, seeds).run()
        assert paths(web.log()) == ["/", "/a"]
        assert frontier_view(second.jobdir)["queued"] == 0


def test_robots_txt_that_redirect_in_a_ring_allow_the_hosts(tmp_path: Path) -> None:
    """The hosts are crawled politely."""
    ring = ["r0.test", "r1.test", "r2.test"]
    spec = [
        {"host": host, "path": "/robots.txt", "redirect": f"http://{after}:{{port}}/robots.txt"}
        for host, after in zip(ring, ring[1:] + ring[:1], strict=True)
    ]
    _, log = crawled(tmp_path, [*spec, LEAF], *(f"{host}/" for host in ring))
    assert sorted(entry.host.partition(":")[0] for entry in pages(log)) == ring
    assert violations(log, min_delay=0.05) == []


# --- the log, and what Scrapy says ---


def test_the_log_says_how_it_goes_and_how_it_ended(tmp_path: Path) -> None:
    contact = "crawl@example.org"
    more = {"KROWL_DELAY_MIN": 0.3, "KROWL_CONTACT": contact}
    crawl, _ = crawled(tmp_path, [ROBOTS, page("/", links(8)), LEAF], "a.test/", **more)
    lines = [line for line in crawl.log.splitlines() if "pages/s | " in line]
    assert len(lines) >= 2
    assert all(part in lines[0] for part in ("pages | ", "URLs queued on 1 host", " KB"))
    for said in (
        "pages done   9 (",
        "answers      200: 9, 404: 1 (robots.txt and retries included)",
        "URLs         9 queued, 0 known already, 0 dropped, 0 left",
        f"folder       {crawl.jobdir}",
        f"WARNING: KROWL_CONTACT={contact} is at a reserved domain: no site owner can reach you",
    ):
        assert said in crawl.log


def test_what_scrapy_says_of_a_download_is_said(tmp_path: Path) -> None:
    spec = [ROBOTS, page("^/(plain|stopped|failed)", "x" * 300_000), page("/slow", "x", latency=3)]
    with SimulatedWeb(spec=spec, tls=True) as web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            spider="listening",
            arguments={"root": web.url("a.test", ""), "secure": web.url("b.test", "", tls=True)},
            settings={"SPIDER_MODULES": "tests.support.spiders", **ONCE},
        ).run()
    items = {item["url"].split("/")[-1]: item for item in crawl.items if "https" not in item["url"]}
    plain, stopped = items["plain"], items["stopped"]
    said = (plain["ip"], plain["protocol"], plain["certificate"])
    assert said == ("127.0.0.1", "HTTP/1.1", False)
    assert (plain["flags"], plain["declared"], plain["got"]) == ([], 300_000, 300_000)
    assert stopped["flags"] == ["download_stopped"]
    assert 0 < stopped["got"] < 300_000
    assert items["failed"]["error"] == "StopDownload"
    assert items["slow"]["error"] == "DownloadTimeoutError"
    secure = [item["certificate"] for item in crawl.items if item["url"].startswith("https")]
    assert secure == [True]
    assert dropped(crawl)["stopped"] == 1
