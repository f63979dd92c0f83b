"""Pipelines that download media work, as politely and durably as pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from krowlspider.engine import awaited
from krowlspider.engine.awaited import AwaitedRequests
from tests.mockweb.audit import violations
from tests.support.archived import assert_archived
from tests.support.crawling import frontier_view
from tests.support.crawls import DELAY, anchors, page, pages, paths
from tests.support.simulated_crawl import SimulatedCrawl, interrupted_when
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.crawling import Crawl

ROBOTS = page("/robots.txt", "User-agent: *\nDisallow: /secret")


def gallery(*links: str) -> list[dict[str, Any]]:
    return [
        ROBOTS,
        page("^/page/", anchors(*links)),
        {"path": "/moved", "redirect": "http://img.test:{port}/target"},
        page("/flaky", "ill", status=500, first=1),
        page("/gone", "gone", status=404),
        page("^/", "a file"),
    ]


LINKS = ("/a", "http://img.test:{port}/b", "/secret/c", "/moved", "/flaky", "/gone", "data:,hello")


def crawl_of_files(
    web: SimulatedWeb, folder: Path, count: int = 1, **settings: Any
) -> SimulatedCrawl:
    return SimulatedCrawl(
        folder / "job",
        spider="collecting",
        arguments={"root": web.url("shop.test", ""), "pages": count},
        settings={
            "SPIDER_MODULES": "tests.support.spiders",
            "FILES_STORE": folder / "files",
            **settings,
        },
    )


def names(crawl: Crawl) -> list[list[str]]:
    """Return the paths of the files of each item, sorted."""
    return sorted(
        sorted(urlsplit(file["url"]).path for file in item["files"]) for item in crawl.items
    )


def test_files_are_fetched_by_the_rules_of_pages(tmp_path: Path) -> None:
    """Robots.txt, delays, retries, redirects and the archive."""
    with SimulatedWeb(spec=gallery(*LINKS)) as web:
        crawl = crawl_of_files(web, tmp_path)
        crawl.run()
        assert names(crawl) == [[",hello", "/a", "/b", "/flaky", "/moved"]]
        asked = sorted(paths(web.log()))
        assert asked == ["/a", "/b", "/flaky", "/flaky", "/gone", "/moved", "/page/0", "/target"]
        allowed = lambda _, path: not path.startswith("/secret")
        assert violations(web.log(), min_delay=lambda _: DELAY, allowed=allowed) == []
        assert_archived(crawl.jobdir, web.log())
        view = frontier_view(crawl.jobdir)
        assert (view["queued"], view["dropped"]) == (0, {"robots": 1})
        assert {path.read_bytes() for path in (tmp_path / "files/full").iterdir()} >= {b"hello"}


TWENTY = 20


def test_pages_that_wait_for_files_do_not_stop_the_crawl(tmp_path: Path) -> None:
    """Though they fill the scraper, more files are awaited than requests may be in flight, and all
    hosts share an address that takes one request at a time."""
    links = [f"http://img{name}.test:{{port}}/{name}" for name in range(5)]
    with SimulatedWeb(spec=gallery(*links)) as web:
        crawl = crawl_of_files(
            web,
            tmp_path,
            count=TWENTY,
            SCRAPER_SLOT_MAX_ACTIVE_SIZE=1,
            CONCURRENT_REQUESTS=2,
            KROWL_IP_CONCURRENCY=1,
            KROWL_IP_DELAY_MIN=0.3,
        )
        crawl.run()
        assert len(crawl.items) == TWENTY
        assert set(map(len, names(crawl))) == {5}
        # The pipeline downloads a file once.
        assert len(pages(web.log())) == TWENTY + 5
        assert violations(web.log(), min_delay=lambda _: DELAY) == []


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_page_without_its_files_is_fetched_again(end: str, tmp_path: Path) -> None:
    """And no file for which no page waits any more."""
    files = [f"/{name}" for name in range(5)]
    with SimulatedWeb(spec=gallery(*files)) as web:
        first = crawl_of_files(web, tmp_path, count=3, KROWL_DELAY_MIN=1)

        def two_files() -> bool:
            return "/1" in paths(web.log())

        if end == "killed":
            first.run_until_killed(web, two_files)
        else:
            first.script = interrupted_when(two_files)
            first.run()
        assert paths(web.log())[:3] == ["/page/0", "/0", "/1"]
        asked = len(web.log())
        second = crawl_of_files(web, tmp_path, count=0).run()
        # What the pipeline has stored is not downloaded again.
        again = sorted(entry.path for entry in web.log()[asked:] if entry.path not in files[:2])
        assert again == [*files[2:], "/page/0", "/page/1", "/page/2"]
        assert names(second) == [files] * 3
        view = frontier_view(second.jobdir)
        assert view["queued"] == 0
        assert view["dropped"]["not_awaited"] >= 3


def test_files_of_a_host_out_of_reach_fail(tmp_path: Path) -> None:
    """So that the page does not wait for a day."""
    bad = [f"http://bad.test:{{port}}/bad/{number}" for number in range(20)]
    cut = page("^/bad/", "x" * 100, close_early=5)
    with SimulatedWeb(spec=[cut, *gallery("http://dead.test:19999/x", *bad, "/a")]) as web:
        crawl = crawl_of_files(web, tmp_path)
        crawl.run()
        assert names(crawl) == [["/a"]]
        assert "its host is tried again much later" in crawl.log


def test_a_look_at_the_hosts_of_files_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are looked at each time: each may have to be read from disk."""
    monkeypatch.setattr(awaited, "_LOOKED_AT", 5)
    looks: list[set[str]] = [set()]
    look, is_out = AwaitedRequests._look, AwaitedRequests._is_out

    def begun(self: AwaitedRequests, send: Callable[[], None]) -> None:
        looks.append(set())
        look(self, send)

    def noted(self: AwaitedRequests, name: str) -> bool:
        looks[-1].add(name)
        return is_out(self, name)

    monkeypatch.setattr(AwaitedRequests, "_look", begun)
    monkeypatch.setattr(AwaitedRequests, "_is_out", noted)
    links = [f"http://img{name}.test:{{port}}/{name}" for name in range(30)]
    with SimulatedWeb(spec=gallery(*links)) as web:
        crawl = crawl_of_files(web, tmp_path, KROWL_IP_CONCURRENCY=1, KROWL_IP_DELAY_MIN=0.3)
        crawl.run()
        assert len(names(crawl)[0]) == 30
    # The first looks were at each request as it came.
    assert max(map(len, looks[1:])) == 5
    assert len(set().union(*looks[1:])) > 5
