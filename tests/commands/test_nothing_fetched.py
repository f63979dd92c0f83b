"""A crawl that fetched no page ends with a warning and an exit code of its own."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from krowlspider.job.answers.host_feedback import why_nothing_was_fetched
from tests.fetch.nameserver import nameserver_in_thread
from tests.mockweb import MockWeb
from tests.support.crawling import Crawl, write_seeds
from tests.support.crawls import page
from tests.support.simulated_crawl import SimulatedCrawl, interrupted_when
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.frontier.frontier import Frontier

QUICK = {"RETRY_TIMES": 0}
NO_RETRY = {"RETRY_ENABLED": False}


def warnings(crawl: Crawl) -> list[str]:
    lines = (line for line in crawl.complaints if "No page was fetched" in line)
    return [line.partition(" WARNING: ")[2] for line in lines]


def crawl_from(folder: Path, *seeds: str, **settings: Any) -> Crawl:
    arguments = {"seeds": write_seeds(folder / "seeds.txt", seeds)}
    return Crawl(folder / "job", arguments=arguments, settings={**QUICK, **settings})


def simulated(folder: Path, *seeds: str, **settings: Any) -> SimulatedCrawl:
    arguments = {"seeds": write_seeds(folder / "seeds.txt", seeds)}
    return SimulatedCrawl(folder / "job", arguments=arguments, settings={**QUICK, **settings})


TROUBLE = "answers 429, 503 or, for robots.txt, 5xx: 1. Start the crawl again later."
PRIVATE = ("http://10.0.0.1/", "http://192.168.0.1/", "http://127.0.0.1:81/")


@pytest.mark.parametrize(
    ("spec", "seeds", "settings", "said", "again"),
    [
        (
            [],
            PRIVATE,
            {},
            *2 * ("address not public: 2, connection failed: 1. KROWL_ALLOW_ADDRESSES",),
        ),
        # Until a URL was queued, at each start.
        (
            [],
            ("http://a.test/1", "http://a.test/11", "http://a.test/22222222"),
            {"URLLENGTH_LIMIT": 20},
            *2 * ("excluded: 2, URL too long: 1. Change",),
        ),
        # Then nothing is left to do.
        (
            [page("/robots.txt", "User-agent: *\nDisallow: /")],
            ("http://a.test/", "http://b.test/"),
            {},
            "forbidden by robots.txt: 2. Choose seeds that robots.txt allows.",
            "",
        ),
        ([page("/", "x", status=503)], ("http://a.test/",), NO_RETRY, TROUBLE, ""),
        ([page("/robots.txt", "", status=500)], ("http://a.test/",), NO_RETRY, TROUBLE, TROUBLE),
        # One page is enough, with any status. The next start tries the deferred host only.
        ([page("/", "x")], ("http://a.test/", PRIVATE[0]), {}, "", "address not public: 1"),
        ([page("/", "x", status=404)], ("http://a.test/",), {}, "", ""),
    ],
)
def test_the_cause_is_named_at_each_start(
    tmp_path: Path,
    *,
    spec: list[dict[str, Any]],
    seeds: tuple[str, ...],
    settings: dict[str, Any],
    said: str,
    again: str,
) -> None:
    (exclude := tmp_path / "exclude.txt").write_text("a.test/1")
    if "URLLENGTH_LIMIT" in settings:
        settings = {**settings, "KROWL_EXCLUDE": exclude}
    with SimulatedWeb(spec=spec, port=80):
        for expected in (said, again):
            crawl = simulated(tmp_path, *seeds, **settings).run(code=4 if expected else 0)
            found = warnings(crawl)
            assert len(found) == bool(expected)
            assert all(line.startswith(f"No page was fetched: {expected}") for line in found)
    assert ("No URL is queued" in crawl.log) == (not again)


def test_unknown_names_are_warned_of_until_they_are_tried_again(tmp_path: Path) -> None:
    seeds = ["http://a.example/", "http://b.example/"]
    with nameserver_in_thread({}) as zone:
        servers = f"127.0.0.1:{zone.port}"
        crawl = crawl_from(tmp_path, *seeds, KROWL_DNS_SERVERS=servers).run(code=4)
        # The hosts are parked: this start tries neither.
        again = crawl_from(tmp_path, *seeds, KROWL_DNS_SERVERS=servers).run(code=4)
    assert warnings(crawl) == [
        "No page was fetched: unknown name: 2. Check the spelling of the seeds."
    ]
    (line,) = warnings(again)
    assert "URLs left on hosts that do not answer: 2. They are tried again within a day" in line


def test_resumed_crawl_without_an_answer_is_warned_of(tmp_path: Path) -> None:
    """Earlier starts have fetched pages. It has no seeds."""
    links = "".join(f"<a href=http://{name}.example/>x</a>" for name in "abc")
    spec = [page("/", links)]
    with MockWeb(spec=spec) as web, nameserver_in_thread({}) as zone:
        servers = {**QUICK, "KROWL_DNS_SERVERS": f"127.0.0.1:{zone.port}"}
        first = crawl_from(tmp_path, web.url("a.test"))
        first.arguments = {**first.arguments, "max_pages": 1}
        first.run()
        tried = Crawl(first.jobdir, settings=servers).run(code=4)
        # The hosts are parked.
        parked = Crawl(first.jobdir, settings=servers).run(code=4)
    assert "fetched: unknown name in a link: 3. Pages named these hosts" in warnings(tried)[0]
    assert "fetched: URLs left on hosts that do not answer: 3" in warnings(parked)[0]
    assert "Nothing to crawl" not in parked.log
    assert "No URL is queued" not in parked.log


def test_finished_jobdir_started_without_seeds_is_told(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[page("/", "x")]) as web:
        first = simulated(tmp_path, web.url("a.test")).run()
        assert "No URL is queued" not in first.log
        again = SimulatedCrawl(first.jobdir).run()
    (line,) = again.complaints
    assert "No URL is queued: give new seeds" in line


@pytest.mark.parametrize("new", [True, False])
def test_resumed_crawl_that_fails_is_warned_of(tmp_path: Path, new: bool) -> None:
    """Whether its seeds are new or known."""
    with SimulatedWeb(spec=[page("/", "<a href=/2>x</a>"), page("/2", "x")]) as web:
        first = simulated(tmp_path, web.url("a.test"))
        first.arguments = {**first.arguments, "max_pages": 1}
        first.run()
        seed = "http://10.0.0.1/" if new else web.url("a.test")
    again = simulated(tmp_path, seed).run(code=4)
    assert again.stats["downloader/request_count"] >= 1
    assert len(warnings(again)) == 1


@pytest.mark.parametrize(
    ("reason", "fetched"),
    [("ignored", True), ("stopped", True), ("too_large", True), ("decode", True), ("reset", False)],
)
def test_page_that_is_not_wanted_counts_as_fetched(reason: str, fetched: bool) -> None:
    """Unlike a failure of the host."""
    frontier = cast("Frontier", SimpleNamespace(counters=Counter(), deferred_queued=0))
    counted = Counter({"queued": 2, f"dropped/{reason}": 1})
    why = why_nothing_was_fetched(
        frontier, counted, {"krowl/fetch/failed_count/reset": 1}, alone=True
    )
    assert bool(why) is not fetched


@pytest.mark.parametrize(
    ("argument", "value", "target"),
    [("same_host", 1, "www.a.test"), ("same_domain", 1, "b.test"), ("allow", "/a$", "a.test")],
)
def test_seed_redirects_out_of_scope_are_warned_of(
    tmp_path: Path, argument: str, value: object, target: str
) -> None:
    """By the names of the first ones; redirects of linked pages are not named."""
    away = f"http://{target}:{{port}}/to"
    moved = [{"path": f"/{n}", "redirect": away, "status": 301} for n in range(5)]
    spec = [*moved, page("/a", "<a href=/4>x</a>"), page("^/to", "x")]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url("a.test", path) for path in ("/0", "/1", "/2", "/3", "/a")]
        crawl = simulated(tmp_path, *seeds)
        crawl.arguments = {**crawl.arguments, argument: value}
        (line,) = crawl.run().complaints
        to = web.url(target, "/to")
        named = ", ".join(f"{seed} to {to} ({argument})" for seed in seeds[:3])
        assert f"not followed: {named}, 1 more. Give the targets as seeds" in line
        again = simulated(tmp_path, to)
        again.arguments = {**again.arguments, argument: value}
        assert again.run().complaints == []
        assert "/to" in [entry.path for entry in web.log()]


def test_interrupted_crawl_is_not_one_that_fetched_nothing(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[page("/robots.txt", "", latency=10.0)]) as web:
        crawl = simulated(tmp_path, web.url("a.test"), "http://10.0.0.1/")
        crawl.script = interrupted_when(lambda: "KROWL_ALLOW_ADDRESSES" in crawl.log)
        assert warnings(crawl.run()) == []


@pytest.mark.parametrize("wanted", [True, False])
def test_ordinary_spider_that_fetched_nothing_is_warned_of(tmp_path: Path, wanted: bool) -> None:
    with SimulatedWeb(spec=[page("/", "x")]) as web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            spider="starting",
            arguments={"urls": web.url("a.test") if wanted else "http://10.0.0.1/"},
            settings={"SPIDER_MODULES": "tests.support.spiders", **QUICK},
        ).run(code=0 if wanted else 4)
        assert len(warnings(crawl)) == (0 if wanted else 1)


@pytest.mark.parametrize("item", [False, True])
def test_spider_that_makes_no_request_is_warned_of(tmp_path: Path, item: bool) -> None:
    """Scrapy does not call start_requests(). Only items are something made, too."""
    crawl = SimulatedCrawl(
        tmp_path / "job",
        spider="old",
        arguments={"item": 1} if item else {},
        settings={"SPIDER_MODULES": "tests.support.spiders", **QUICK},
    ).run(code=0 if item else 4)
    (line,) = warnings(crawl) or [""]
    assert ("the spider made no request. Give it start_urls" in line) is not item
