"""Scrapy's settings of politeness hold in crawls, as the log of the web shows."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.support.crawling import Crawl
from tests.support.crawls import anchors, crawl_of, page
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb
from tests.support.spiders.delaying import DELAYS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.mockweb import Entry

# A redirect, and two pages that fail at first, one of them with 503.
SITE = [
    page("/", anchors("/1", "/2", "/moved", "/sick", "/busy")),
    {"path": "/moved", "redirect": "/3"},
    {"path": "/sick", "first": 1, "status": 500},
    {"path": "/busy", "first": 1, "status": 503},
    page("^/", "x"),
]
PAGES = {"/robots.txt", "/", "/1", "/2", "/3", "/moved", "/sick", "/busy"}


def gaps(log: Iterable[Entry], host: str) -> list[float]:
    """Return the seconds from the end of each request to a host to the next."""
    entries = sorted((e for e in log if e.host.startswith(host)), key=lambda entry: entry.start)
    return [after.start - before.end for before, after in pairwise(entries)]


def test_download_delay_holds_for_every_request_and_a_slot(tmp_path: Path) -> None:
    """For robots.txt, redirects, retries, and the first request after a kill; not for much longer
    than it is."""
    delays = {"a.test": 2.0, "b.test": 7.0, "c.test": 0.5}
    slots = {"b.test": {"delay": 7}, "c.test": {"delay": 0.5}}
    settings = {"DOWNLOAD_DELAY": 2, "DOWNLOAD_SLOTS": json.dumps(slots)}
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url(host) for host in delays]
        crawl = crawl_of(web, tmp_path, seeds, settings=settings)
        assert isinstance(crawl, SimulatedCrawl)
        # Each host has been asked, and its last request has ended just now.
        crawl.run_until_killed(web, lambda: len(gaps(web.log(), "b.test")) >= 2)
        crawl_of(web, tmp_path, seeds, settings=settings).run()
        log = web.log()
        found = violations(log, min_delay=lambda host: delays[host.partition(":")[0]])
        assert found == []
        for host, delay in delays.items():
            assert {entry.path for entry in log if entry.host.startswith(host)} == PAGES
            assert delay <= min(gaps(log, host)) < 1.1 * delay


def delaying_crawl(folder: Path, *urls: str, **arguments: object) -> Crawl:
    return Crawl(
        folder / "job",
        spider="delaying",
        arguments={"urls": " ".join(urls), **arguments},
        settings={"SPIDER_MODULES": "tests.support.spiders"},
    )


def test_delays_of_a_spider_hold_and_the_rest_is_named(tmp_path: Path) -> None:
    with MockWeb(spec=SITE) as web:
        crawl = delaying_crawl(tmp_path, *map(web.url, DELAYS)).run()
        log = web.log()
    assert violations(log, min_delay=lambda host: DELAYS[host.partition(":")[0]]) == []
    assert [len(gaps(log, host)) for host in DELAYS] == [2, 2]
    named = [line.partition("] WARNING: ")[2] for line in crawl.complaints]
    assert [line.partition(":")[0] for line in named if " no effect" in line] == [
        "CONCURRENT_REQUESTS_PER_DOMAIN=8 has no effect",
        "AUTOTHROTTLE_START_DELAY=4 has no effect",
        "DOWNLOAD_SLOTS has parts with no effect (concurrency of b.test)",
        "download_slot='mine' in the meta of <GET http",
    ]
