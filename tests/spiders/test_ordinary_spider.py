"""An ordinary Scrapy spider runs on the project's scheduler, and goes on after it was killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.archived import Records, assert_archived
from tests.support.crawling import Crawl, frontier_view
from tests.support.crawls import done_in, page, pages
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path


SHOP = [
    page("/", "<a href=/item/one>one</a>"),
    page("^/item/", "an item"),
    page("/form", "thanks"),
    page("/json", "thanks"),
    page("/urgent", "now"),
    page("/target", "here"),
    {"path": "/gone", "status": 404, "body": "gone"},
    {"path": "/moved", "redirect": "/target"},
]


# One item at a time takes a way of its own through what Scrapy does with them.
BOTH_WAYS = pytest.mark.parametrize("items_at_once", [1, 16])


def shop_crawl(web: SimulatedWeb, folder: Path, **settings: Any) -> SimulatedCrawl:
    return SimulatedCrawl(
        folder / "job",
        spider="ordinary",
        arguments={"root": web.url("shop.test", "")},
        settings={"SPIDER_MODULES": "tests.support.spiders", **settings},
    )


def of_kind(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["kind"] == kind]


@BOTH_WAYS
def test_requests_of_an_ordinary_spider_work_as_in_scrapy(
    tmp_path: Path, items_at_once: int
) -> None:
    """Callbacks, meta, POST bodies, errbacks and redirects."""
    with SimulatedWeb(spec=SHOP) as web:
        crawl = shop_crawl(web, tmp_path, CONCURRENT_ITEMS=items_at_once).run()
        items, root = crawl.items, web.url("shop.test", "")
        assert of_kind(items, "start item") == [{"kind": "start item"}]
        assert of_kind(items, "index") == [{"kind": "index", "note": "kept", "pair_is_tuple": True}]
        assert sorted(item["name"] for item in of_kind(items, "item")) == ["one", "two"]
        assert {item["depth"] for item in of_kind(items, "item")} == {1}
        assert sorted((item["method"], item["sent"]) for item in of_kind(items, "echo")) == [
            ("POST", "q=a+b"),
            ("POST", '{"n": 1}'),
            ("POST", '{"n": 2}'),
        ]
        assert of_kind(items, "moved") == [
            {"kind": "moved", "url": f"{root}/target", "via": [f"{root}/moved"]}
        ]
        assert of_kind(items, "error") == [{"kind": "error", "status": 404}]
        (engine,) = of_kind(items, "engine")
        status = engine["status"]
        assert [value for value in status.values() if "exception" in str(value)] == []
        # The page with dont_filter is still to come.
        assert status["len(engine.scheduler.dqs or [])"] == 1
        assert of_kind(items, "again") == [{"kind": "again"}]
        assert crawl.stats["spider_exceptions/ValueError"] == 1
        assert [entry.path for entry in pages(web.log())][:2] == ["/", "/urgent"]
        assert_archived(crawl.jobdir, web.log())
        (note,) = Records.of(crawl.jobdir / "warc").of_kind("metadata")
        assert (note.url, note.block_fields) == (
            f"{root}/target",
            [("redirected-from", f"{root}/moved"), ("via", f"{root}/moved")],
        )
        assert done_in(crawl.stats) == len(pages(web.log()))
        assert crawl.stats["krowl/frontier/fetched_count/redirect"] == 1


def test_requests_survive_a_kill_with_all_they_hold(tmp_path: Path) -> None:
    """Body, meta and callbacks."""
    with SimulatedWeb(spec=SHOP) as web:
        first = shop_crawl(web, tmp_path, KROWL_DELAY_MIN=0.3)
        # The index has been parsed and committed: its requests are on disk, most of them not sent.
        first.run_until_killed(web, lambda: len(pages(web.log())) >= 3)
        second = shop_crawl(web, tmp_path).run()
        paths = [entry.path for entry in pages(web.log())]
        for path, times in {"/item/one": 1, "/item/two": 1, "/form": 1, "/json": 2}.items():
            assert paths.count(path) >= times, path
        assert {item["sent"] for item in of_kind(second.items, "echo")} >= {'{"n": 2}'}


def test_start_that_raises_ends_with_code_1(
    tmp_path: Path,
) -> None:
    """When all that it had queued is done."""
    with SimulatedWeb(spec=SHOP) as web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            spider="failing",
            arguments={"root": web.url("shop.test", "")},
            settings={"SPIDER_MODULES": "tests.support.spiders"},
        ).run(code=1)
        assert "ValueError: a start of a user may fail" in crawl.log
        assert crawl.stats["finish_reason"] == "start_error"
        assert [entry.path for entry in pages(web.log())] == ["/"]
        assert frontier_view(crawl.jobdir)["done"] == 1


ENDINGS = [
    page("/robots.txt", ""),
    page("/cut", "x" * 1000, close_early=500),
    page("/huge", "x" * 1000),
    {"path": "/gone", "status": 404},
    {"path": "/moved", "redirect": "/target"},
    page("^/", "fine"),
]


def crawl_endings(folder: Path, direct: int = 1, **settings: Any) -> tuple[Crawl, list[str]]:
    """A crawl whose requests end in every way there is, and the paths that were asked for."""
    middlewares = {"tests.support.spiders.endings.EndingMiddleware": 500}
    with SimulatedWeb(spec=ENDINGS) as web:
        crawl = SimulatedCrawl(
            folder / "job",
            spider="endings",
            arguments={"root": web.url("ends.test", ""), "direct": direct},
            settings={
                "SPIDER_MODULES": "tests.support.spiders",
                "RETRY_TIMES": 1,
                "DOWNLOADER_MIDDLEWARES": json.dumps(middlewares),
                **settings,
            },
        ).run()
        return crawl, [entry.path for entry in pages(web.log())]


@BOTH_WAYS
def test_every_end_of_a_request_acknowledges_it(tmp_path: Path, items_at_once: int) -> None:
    """With the right reason."""
    crawl, asked = crawl_endings(tmp_path, CONCURRENT_ITEMS=items_at_once)
    assert sorted(item["end"] for item in crawl.items) == [
        "async",
        "before the exception",
        "coroutine",
        "direct download 200",
        "errback ResponseDataLossError",
        "generator",
    ]
    view = frontier_view(crawl.jobdir)
    assert view["queued"] == 0
    # Eleven with a callback less the ignored one, the redirect's target, the replacement, and the
    # one that a callback awaits.
    assert done_in(view) == 13
    assert view["fetched"]["redirect"] == 1
    assert view["dropped"] == {"disconnect": 1, "ignored": 1, "too_large": 1}
    assert sorted(asked) == sorted(
        [
            "/generator",
            "/async",
            "/coroutine",
            "/raises",
            "/nothing",
            "/gone",
            "/moved",
            "/target",
            "/replacement",
            "/direct",
            "/awaited",
            "/cut",
            "/cut",
            "/huge",
        ]
    )
