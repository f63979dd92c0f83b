"""Seeds without a scheme: one try of https, then http."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.archived import assert_archived
from tests.support.crawling import frontier_view, write_seeds
from tests.support.crawls import page, pages
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_loop import clocks, servers
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.crawling import Crawl

ROBOTS = page("/robots.txt", "", status=404)
HOME = page("/", "<title>Home</title>")
# No seed waits for a retry, which comes after 30 s.
AT_ONCE = 5.0
BOTH = pytest.mark.parametrize("obey", [True, False])


def crawled(folder: Path, seeds: Sequence[str], **settings: Any) -> Crawl:
    file = write_seeds(folder / "seeds.txt", seeds)
    return SimulatedCrawl(
        folder / "job",
        arguments={"seeds": file},
        settings={"KROWL_RETRY_DELAY": 30, **settings},
    ).run()


def assert_no_failure(crawl: Crawl, fallbacks: int) -> None:
    assert crawl.stats["krowl/seeds/fallback_count"] == fallbacks
    assert not [name for name in crawl.stats if "failed_count" in name or "dropped" in name]
    assert crawl.stats.get("retry/count", 0) == 0
    assert frontier_view(crawl.jobdir)["dropped"] == {}


@BOTH
@pytest.mark.parametrize("port", ["", ":8080"])
def test_a_host_without_https_is_tried_once(tmp_path: Path, obey: bool, port: str) -> None:
    """Its port refuses, or speaks no TLS. Its http URL follows at once, and nothing has failed."""
    with SimulatedWeb(spec=[ROBOTS, HOME], port=8080 if port else 80) as web:
        names = [f"h{number}.test{port}" for number in range(20)]
        begun = clocks.monotonic()
        crawl = crawled(tmp_path, names, ROBOTSTXT_OBEY=obey)
        assert sorted(item["url"] for item in crawl.items) == sorted(
            f"http://{name}/" for name in names
        )
        assert_no_failure(crawl, 20)
        assert crawl.stats["krowl/frontier/done_count"] == 20
        assert crawl.stats["downloader/exception_count"] == 20
        assert max(entry.end for entry in web.log()) - begun < AT_ONCE
        assert_archived(crawl.jobdir, web.log())


@BOTH
def test_http_that_redirects_to_https_is_followed(tmp_path: Path, obey: bool) -> None:
    """The first try may have failed by chance."""
    spec = [ROBOTS, {"path": "/", "redirect": "https://a.test/"}]
    secure = SimulatedWeb(spec=[ROBOTS, HOME], tls=True)
    secure.tls_port = 443
    with SimulatedWeb(spec=spec, port=80) as web, secure:
        tls, tries = servers[443], []

        def first_fails() -> Any:
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionResetError
            return tls()

        servers[443] = first_fails
        crawl = crawled(tmp_path, ["a.test"], ROBOTSTXT_OBEY=obey)
        (item,) = crawl.items
        assert (item["url"], item["redirected_from"]) == ("https://a.test/", ["http://a.test/"])
        assert_no_failure(crawl, 1)
        assert [entry.path for entry in pages([*web.log(), *secure.log()])] == ["/", "/"]


def test_pages_of_a_host_without_https_fall_back_together(tmp_path: Path) -> None:
    """Its port is tried once for all of them."""
    spec = [ROBOTS, page("^/", "<title>Page</title>")]
    with SimulatedWeb(spec=spec, port=80) as web:
        crawl = crawled(tmp_path, [f"a.test/{number}" for number in range(20)])
        assert sorted(item["url"] for item in crawl.items) == sorted(
            f"http://a.test/{number}" for number in range(20)
        )
        assert len(pages(web.log())) == 20
        assert crawl.stats["downloader/exception_count"] == 1
        assert_no_failure(crawl, 20)


def test_an_http_seed_of_the_same_host_is_fetched_once(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[ROBOTS, HOME], port=80) as web:
        crawl = crawled(tmp_path, ["a.test", "http://a.test/", "b.test", "http://b.test/"])
        assert len(crawl.items) == len(pages(web.log())) == 2
        assert_no_failure(crawl, 2)


def test_other_https_urls_of_the_host_are_tried_as_often_as_any(tmp_path: Path) -> None:
    """They are no guess. They wait for the host, whose http URL goes on."""
    with SimulatedWeb(spec=[ROBOTS, HOME], port=80) as web:
        crawl = crawled(tmp_path, ["a.test", "https://a.test/page"])
        assert [item["url"] for item in crawl.items] == ["http://a.test/"]
        assert len(pages(web.log())) == 1
        assert crawl.stats["krowl/seeds/fallback_count"] == 1
        assert frontier_view(crawl.jobdir)["queued"] == 1
