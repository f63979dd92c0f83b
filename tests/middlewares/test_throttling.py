"""A host's throttling is obeyed in whatever form it comes, and no answer keeps a crawl running."""

from __future__ import annotations

import base64
import gzip
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawling import frontier_view
from tests.support.crawls import crawl_of, page, pages
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

ROBOTS = page("/robots.txt", "", status=404)
# A port of the simulated network without a server.
NOBODY = 9999
BIG = "#" + "x" * 600_000 + "\n"
COMMENTS = "".join(f"# {n * 7919}\n" for n in range(200_000))
NOTHING = "User-agent: *\nDisallow: /\n"
CODED: dict[str, Any] = {"headers": {"Content-Encoding": "gzip"}}


def coded(text: bytes) -> dict[str, Any]:
    """Return the keys of a rule for a body with a content coding."""
    return {**CODED, "body_base64": base64.b64encode(text).decode()}


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        ({"body": "x" * 3000}, {"DOWNLOAD_MAXSIZE": 2000}),
        (coded(b"not gzip at all"), {}),
    ],
)
def test_503_with_a_useless_body_is_still_throttling(
    tmp_path: Path, body: dict[str, Any], settings: dict[str, Any]
) -> None:
    busy = {"path": "/busy", "status": 503, "retry_after": "1", "first": 1, **body}
    spec = [ROBOTS, busy, page("^/", "x")]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url("a.test", path) for path in ("/busy", "/1", "/2")]
        crawl = crawl_of(web, tmp_path, seeds, settings=settings).run()
        entries = pages(web.log())
        assert sorted(entry.path for entry in entries) == ["/1", "/2", "/busy", "/busy"]
        after = next(b.start - a.end for a, b in pairwise(entries) if a.status == 503)
        assert after >= 1.0
        assert crawl.stats["krowl/politeness/throttling_count"] == 1
        assert crawl.stats["krowl/frontier/done_count"] == 3


@pytest.mark.parametrize(
    "robots",
    [
        coded(gzip.compress((NOTHING + COMMENTS).encode(), 1)),
        {"status": 302, "headers": {"Location": "/rules"}, "body": BIG},
    ],
)
def test_robots_txt_too_large_to_read_allows_nothing(
    tmp_path: Path, robots: dict[str, Any]
) -> None:
    spec = [{"path": "/robots.txt", **robots}, page("/rules", NOTHING), page("/", "x")]
    with SimulatedWeb(spec=spec) as web:
        crawl_of(web, tmp_path, [web.url("a.test")], settings={"RETRY_TIMES": 0}).run(code=4)
        assert {entry.path for entry in web.log()} <= {"/robots.txt", "/rules"}


@pytest.mark.parametrize("rest", [COMMENTS, "#\n" * 6_000_000], ids=["received", "decoded"])
def test_start_of_a_coded_robots_txt_counts(tmp_path: Path, rest: str) -> None:
    """It is over 500 KiB as received, or over 10 MB once decoded: RFC 9309, section 2.5."""
    body = gzip.compress(f"User-agent: *\nDisallow: /no\n{rest}".encode(), 1)
    spec = [{"path": "/robots.txt", **coded(body)}, page("^/", "x")]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url("a.test", path) for path in ("/no", "/yes")]
        crawl = crawl_of(web, tmp_path, seeds).run()
        assert [entry.path for entry in pages(web.log())] == ["/yes"]
        assert crawl.stats["krowl/frontier/dropped_count/robots"] == 1


def test_a_crawl_delay_holds_for_a_name_with_its_root_dot_too(tmp_path: Path) -> None:
    robots = page("/robots.txt", "User-agent: *\nCrawl-delay: 1")
    with SimulatedWeb(spec=[robots, page("^/", "x")]) as web:
        resolve = '{"a.test": "127.0.0.1"}'
        seeds = [f"http://a.test.:{web.port}/{number}" for number in range(3)]
        crawl_of(web, tmp_path, seeds, settings={"KROWL_RESOLVE": resolve}).run()
        assert {entry.host for entry in web.log()} == {f"a.test:{web.port}"}
        gaps = [b.start - a.end for a, b in pairwise(web.log())]
        assert len(gaps) == 3
        assert min(gaps) >= 0.99


def test_delay_longer_than_robots_ttl_does_not_starve_pages(
    tmp_path: Path,
) -> None:
    robots = page("/robots.txt", "User-agent: *\nCrawl-delay: 1")
    with SimulatedWeb(spec=[robots, page("^/", "x")]) as web:
        seeds = [web.url("a.test", f"/{number}") for number in range(3)]
        crawl_of(web, tmp_path, seeds, settings={"KROWL_ROBOTS_TTL": 0.2}).run()
        assert sorted(entry.path for entry in pages(web.log())) == ["/0", "/1", "/2"]


def test_dead_hosts_do_not_keep_the_next_starts_from_ending(tmp_path: Path) -> None:
    """Their errors are kept, so the backoff grows from start to start."""
    with SimulatedWeb(spec=[ROBOTS, page("/", "x")]) as web:
        seeds = [web.url("a.test"), f"http://dead.test:{NOBODY}/"]
        for start in range(4):
            begun = clocks.now
            crawl = crawl_of(web, tmp_path, seeds).run(code=4 if start else 0)
            assert crawl.stats["krowl/frontier/deferred"] == 1
            assert clocks.now - begun < 40, start
        assert frontier_view(crawl.jobdir)["queued"] == 1
        assert "deferred     1 of the URLs left" in crawl.log
        assert f"scrapy frontier {crawl.jobdir} --host NAME says when" in crawl.log


def test_robots_txt_at_a_deferred_host_ends_the_crawl(
    tmp_path: Path,
) -> None:
    """The host that redirects there is deferred too."""
    to = {"path": "/robots.txt", "redirect": f"http://dead.test:{NOBODY}/robots.txt"}
    with SimulatedWeb(spec=[to, page("/", "x")]) as web:
        seeds = [f"http://dead.test:{NOBODY}/", web.url("a.test")]
        for _ in range(3):
            crawl = crawl_of(web, tmp_path, seeds).run(code=4)
            assert crawl.stats["krowl/frontier/deferred"] == 2
        assert pages(web.log()) == []


def test_body_of_tiny_chunks_is_given_up_early(
    tmp_path: Path,
) -> None:
    chunks = b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n"
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    tiny = {"path": "/tiny", "raw_base64": base64.b64encode(raw).decode()}
    with SimulatedWeb(spec=[ROBOTS, tiny, page("/", "x")]) as web:
        seeds = [web.url("a.test", "/tiny"), web.url("b.test")]
        crawl = crawl_of(web, tmp_path, seeds, settings={"RETRY_TIMES": 0}).run()
        assert crawl.stats["krowl/fetch/failed_count/protocol"] == 1
        assert crawl.stats["krowl/frontier/done_count"] == 1
