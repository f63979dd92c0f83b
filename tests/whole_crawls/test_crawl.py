"""Whole crawls of the mock web by the real command fetch each reachable page once, politely."""

from __future__ import annotations

import gzip
from collections import Counter
from tempfile import gettempdir
from typing import TYPE_CHECKING

import pytest

from krowlspider import __version__
from krowlspider.archive.reading import read_record
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.folder import FolderSite, folder_oracle
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.oracle import reachable
from tests.support.archived import Records, assert_archived, is_archived
from tests.support.crawling import CONTACT, Crawl, frontier_view, write_seeds
from tests.support.crawls import DELAY, QUICK, crawl_of, done_in, impolite, is_redirect, page, pages
from tests.support.realdocs import documentation
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mockweb.log import Entry


@pytest.mark.slow
def test_web_of_300_hosts_is_fetched_exactly_once(tmp_path: Path) -> None:
    """With cycles, duplicates, disallowed parts, 404s, redirects, 429s and 503s, crawl-delays,
    codings and slow pages."""
    features = DEFAULT_FEATURES | {"robots_trouble"}
    graph = Graph(hosts=300, pages=8, seed=11, by_name=True, features=features)
    with SimulatedWeb(graph=graph) as web:
        seeds = web.seeds()[:3]
        crawl = crawl_of(web, tmp_path, seeds).run()
        entries = web.log()
        expected = reachable(web.graph, seeds)
        assert expected.differences(entries) == []
        assert impolite(web) == []
        assert_archived(crawl.jobdir, entries)
        assert_numbers_are_the_servers(crawl, entries)
        assert crawl.complaints == []


def assert_numbers_are_the_servers(crawl: Crawl, entries: list[Entry]) -> None:
    stats, asked = crawl.stats, pages(entries)
    again = [entry for entry in asked if entry.status in {429, 503}]
    assert stats["finish_reason"] == "finished"
    assert stats["downloader/request_count"] == len(entries)
    assert stats["downloader/response_count"] == len(entries)
    for status, count in Counter(entry.status for entry in entries).items():
        assert stats[f"downloader/response_status_count/{status}"] == count
    assert stats["robotstxt/response_count"] == len(entries) - len(asked)
    assert stats.get("retry/count", 0) == len(again)
    redirects = sum(map(is_redirect, asked))
    assert stats["krowl/frontier/done_count"] == len(asked) - len(again) - redirects
    assert stats.get("krowl/frontier/fetched_count/redirect", 0) == redirects
    assert stats["krowl/frontier/fetched_count/robots"] == len(entries) - len(asked)
    refused = stats.get("krowl/frontier/dropped_count/robots", 0)
    assert stats["scheduler/enqueued"] == len(asked) - len(again) + refused
    by_redirect = len(Records.of(crawl.jobdir / "warc").of_kind("metadata"))
    chains = [item for item in crawl.items if "redirected_from" in item]
    assert bool(redirects) == bool(by_redirect)
    assert len(chains) <= by_redirect <= redirects
    archived = sum(map(is_archived, entries))
    assert stats["krowl/archive/records_count"] == 2 * archived + by_redirect + 2
    view = frontier_view(crawl.jobdir)
    assert (view["queued"], done_in(view)) == (0, len(asked) - len(again))
    loops = stats.get("krowl/frontier/dropped_count/redirect_loop", 0)
    reasons = {"robots": refused, "redirect_loop": loops}
    assert view["dropped"] == {name: count for name, count in reasons.items() if count}
    items = crawl.items
    assert Counter((item["url"], item["status"]) for item in items) == Counter(
        (entry.url, entry.status)
        for entry in asked
        if entry not in again and not is_redirect(entry)
    )


def test_small_web_is_fetched_exactly_once(
    tmp_path: Path,
) -> None:
    """In a process that is started cold. Items name the record of each page."""
    with MockWeb(graph=Graph(hosts=6, pages=5, seed=3, features=QUICK)) as web:
        crawl = crawl_of(web, tmp_path, web.seeds()[:1], cold=True).run()
        entries = web.log()
        assert reachable(web.graph, web.seeds()[:1]).differences(entries) == []
        assert impolite(web) == []
        assert_archived(crawl.jobdir, entries)
        assert_numbers_are_the_servers(crawl, entries)
        for item in crawl.items:
            headers, _ = read_record(crawl.jobdir / "warc" / item["warc_file"], item["warc_offset"])
            assert headers["WARC-Target-URI"] == item["url"]
        assert {entry.ua for entry in entries} == {f"krowlspider/{__version__} (+{CONTACT})"}
        assert crawl.complaints == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_2000_real_documentation_pages_are_fetched_exactly_once(tmp_path: Path) -> None:
    docs = documentation()
    with MockWeb(folder=docs, hosts=300) as web:
        site = FolderSite(docs, 300, web.port)
        seeds = [url for path, url in site.urls.items() if path.endswith("/index.html")]
        # The oracle also includes images, and duplicate links.
        everything = {"KROWL_SKIP_EXTENSIONS": ""}
        crawl = crawl_of(web, tmp_path, seeds, settings=everything).run()
        entries = web.log()
        expected = folder_oracle(docs, 300, web.port, seeds)
        assert len(expected) >= 2000
        assert Counter(entry.url for entry in pages(entries)) == Counter(expected)
        assert violations(entries, min_delay=DELAY) == []
        assert_archived(crawl.jobdir, entries)
        assert_numbers_are_the_servers(crawl, entries)
        assert crawl.complaints == []


def test_https_is_crawled_as_http_is(tmp_path: Path) -> None:
    graph = Graph(hosts=6, pages=3, seed=5, by_name=True, tls=True, features=QUICK)
    with SimulatedWeb(graph=graph) as web:
        crawl = crawl_of(web, tmp_path).run()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert any(entry.tls for entry in web.log())
        assert_archived(crawl.jobdir, web.log())


def test_without_delays_a_host_has_one_request_at_a_time(
    tmp_path: Path,
) -> None:
    """It fetches the same pages."""
    with SimulatedWeb(graph=Graph(hosts=20, pages=20, seed=8, features=QUICK)) as web:
        none = {"KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0}
        crawl = crawl_of(web, tmp_path, settings=none).run()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert impolite(web, delay=0.0) == []
        assert_numbers_are_the_servers(crawl, web.log())


def test_seeds_given_again_are_not_fetched_again(tmp_path: Path) -> None:
    with SimulatedWeb(graph=Graph(hosts=3, pages=2, seed=1, features=QUICK)) as web:
        crawl_of(web, tmp_path).run()
        before = len(web.log())
        again = crawl_of(web, tmp_path).run()
        assert len(web.log()) == before
        assert again.stats["dupefilter/filtered"] == 3


@pytest.mark.parametrize(
    ("settings", "items"),
    [
        ({}, 0),
        ({"ITEM_PIPELINES": '{"tests.support.spiders.taking.TakingPipeline": 1}'}, 1),
        ({"LOG_LEVEL": "DEBUG"}, 1),
        ({"CLOSESPIDER_ITEMCOUNT": 100}, 1),
    ],
    ids=["nobody", "a pipeline", "a log that shows them", "a listener"],
)
def test_pages_are_items_where_something_takes_them(
    tmp_path: Path, settings: dict[str, object], items: int
) -> None:
    with SimulatedWeb(graph=Graph(hosts=3, pages=2, seed=1, features=frozenset())) as web:
        crawl = crawl_of(web, tmp_path, settings=settings, feed=False).run()
        done = crawl.stats["krowl/frontier/done_count"]
        assert done == len(pages(web.log()))
        assert crawl.stats.get("item_scraped_count", 0) == items * done
        # robots.txt makes no items.
        assert crawl.stats["response_received_count"] == done
        assert_archived(crawl.jobdir, web.log())


@pytest.mark.parametrize("limit", [1, 7])
def test_max_pages_stops_after_exactly_that_many(tmp_path: Path, limit: int) -> None:
    with SimulatedWeb(graph=Graph(hosts=5, pages=10, seed=2, features=QUICK)) as web:
        crawl = crawl_of(web, tmp_path, arguments={"max_pages": limit}).run()
        assert len(pages(web.log())) == limit
        assert crawl.stats["finish_reason"] == "max_pages"
        assert frontier_view(crawl.jobdir)["queued"] > 0


def test_max_depth_and_same_host_bound_the_crawl(tmp_path: Path) -> None:
    with SimulatedWeb(graph=Graph(hosts=5, pages=10, seed=2, features=QUICK)) as web:
        crawl_of(web, tmp_path, web.seeds()[:1], arguments={"max_depth": 1, "same_host": 1}).run()
        expected = reachable(web.graph, web.seeds()[:1], max_depth=1, same_host=True)
        assert expected.differences(web.log()) == []


def test_page_met_too_deep_is_fetched_when_met_less_deep(tmp_path: Path) -> None:
    """The host's queue is in order: /1, /late, /2, and the links of /late."""
    rules = [
        page("/", "<a href=/1>x</a><a href=/late>x</a>"),
        page("/1", "<a href=/2>x</a>"),
        page("/2", "<a href=/target>x</a><a href=/never>x</a>"),
        {"path": "/late", "redirect": "/later"},
        page("/later", "<a href=/target>x</a>"),
        page("/target", "<a href=/never>x</a>"),
    ]
    with SimulatedWeb(spec=rules) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], arguments={"max_depth": 2}).run()
        asked = [entry.path for entry in pages(web.log())]
        assert asked == ["/", "/1", "/late", "/2", "/later", "/target"]
        # /target once, /never twice.
        assert crawl.stats["krowl/frontier/dropped_count/depth"] == 3
        assert frontier_view(crawl.jobdir)["dropped"] == {"depth": 3}
        assert {item["url"]: item["depth"] for item in crawl.items}[
            web.url("a.test", "/target")
        ] == 2


def test_allow_and_deny_bound_the_crawl(tmp_path: Path) -> None:
    links = "".join(f"<a href=/{name}>x</a>" for name in ("a1", "a2", "b1", "a-no"))
    with SimulatedWeb(spec=[page("/", links), page("^/[ab]", "")]) as web:
        root = web.url("127.0.0.1")
        arguments = {"allow": "/$ /a", "deny": "no [?]"}
        crawl = crawl_of(web, tmp_path, [root], arguments=arguments).run()
        assert {entry.path for entry in pages(web.log())} == {"/", "/a1", "/a2"}
        assert crawl.stats["krowl/frontier/dropped_count/allow"] == 1
        assert crawl.stats["krowl/frontier/dropped_count/deny"] == 1


def test_bare_seeds_fall_back_to_http_and_a_bad_line_is_named(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[page("/", "<title>Hello</title>")]) as web:
        seeds = write_seeds(
            tmp_path / "seeds.txt",
            ["# a comment", "", f"one.test:{web.port}", "ftp://two.test/", "three .test"],
        )
        packed = tmp_path / "seeds.txt.gz"
        packed.write_bytes(gzip.compress(seeds.read_bytes()))
        crawl = SimulatedCrawl(
            tmp_path / "job", arguments={"seeds": packed}, settings={"RETRY_TIMES": 0}
        ).run()
        assert [item["title"] for item in crawl.items] == ["Hello"]
        assert f"http://one.test:{web.port}/" in [item["url"] for item in crawl.items]
        assert "seeds.txt.gz line 4 skipped" in crawl.log
        assert "seeds.txt.gz line 5 skipped" in crawl.log
        assert crawl.stats["krowl/seeds/bad_count"] == 2


def test_without_jobdir_a_temporary_folder_is_named(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[page("/", "")]) as web:
        crawl = crawl_of(web, tmp_path, [web.url("127.0.0.1")], settings={"JOBDIR": None}).run()
        assert len(pages(web.log())) == 1
        assert f"No JOBDIR: this crawl is stored in {gettempdir()}/krowlspider-" in crawl.log


def test_private_addresses_are_refused_unless_allowed(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[page("/", "")]) as web:
        crawl = crawl_of(
            web,
            tmp_path,
            [web.url("127.0.0.1"), web.url("name.test")],
            settings={"KROWL_ALLOW_ADDRESSES": None},
        ).run(code=4)
        assert web.log() == []
        assert crawl.stats["krowl/fetch/failed_count/address_forbidden"] == 2
