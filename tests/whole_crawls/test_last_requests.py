"""While the last requests of a crawl hang, its status line says for what it waits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.mockweb.audit import violations
from tests.support.crawls import AT_ONCE, ROBOTS, crawl_of, page, paths
from tests.support.simulated_crawl import interrupted_when
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.crawling import Crawl

WEB = [ROBOTS, page("/quick", "x"), page("/slow", "x", latency=29)]
SETTINGS = {"KROWL_STATUS_INTERVAL": 5, "DOWNLOAD_TIMEOUT": 45, **AT_ONCE}


def lines(crawl: Crawl) -> list[str]:
    """Return the status lines from the first one on that has no page left to send."""
    found = re.findall(r"INFO: (\S+ (?:of \S+ )?pages?\b.*\|.*)", crawl.log)
    return [line for line in found if " 2 in flight" in line]


def seeds(web: SimulatedWeb) -> list[str]:
    places = [("a.test", "/quick"), ("b.test", "/slow"), ("c.test", "/slow")]
    return [web.url(host, path) for host, path in places]


def assert_becomes_fewer(matches: list[re.Match[str] | None]) -> None:
    """Check that each line names fewer seconds than the one before."""
    seconds = [int(match[1]) for match in matches if match]
    assert len(seconds) == len(matches) >= 4
    assert seconds == sorted(set(seconds), reverse=True)
    assert 45 >= seconds[0] > seconds[-1] > 16


def test_no_time_left_is_estimated_while_the_last_pages_hang(tmp_path: Path) -> None:
    """The seconds of the last requests become fewer."""
    with SimulatedWeb(spec=WEB) as web:
        limit = {"max_pages": 3}
        crawl = crawl_of(web, tmp_path, seeds(web), settings=SETTINGS, arguments=limit).run()
        found = lines(crawl)
        waits = re.compile(r"1 of 3 pages, waits for the last 2 requests \(at most (\d+) s\) \| ")
        assert_becomes_fewer([waits.match(line) for line in found])


def test_a_crawl_that_is_stopped_names_what_it_waits_for(tmp_path: Path) -> None:
    """The seconds left become fewer, whatever limits the crawl has."""
    with SimulatedWeb(spec=WEB) as web:
        limits = {"CLOSESPIDER_TIMEOUT": 600, "CLOSESPIDER_PAGECOUNT": 50, **SETTINGS}
        script = interrupted_when(lambda: len(web.log()) >= 4)
        crawl = crawl_of(
            web,
            tmp_path,
            seeds(web),
            settings=limits,
            arguments={"max_pages": 50},
            script=script,
        ).run()
        assert crawl.stats["finish_reason"] == "shutdown"
        found = lines(crawl)
        assert not any(" left" in line for line in found)
        ends = [line.rpartition(" | ")[2] for line in found]
        waits = re.compile(r"stopping, waits for 2 requests \(at most (\d+) s\)")
        assert_becomes_fewer([waits.fullmatch(end) for end in ends])


@pytest.mark.parametrize("slow", [29, 200])
def test_robots_fetches_end_with_the_last_page(tmp_path: Path, slow: float) -> None:
    """No page may need them any more. The next start fetches them, and the pages of their hosts."""
    moved = {"host": "c.test", "path": "/robots.txt", "redirect": "http://b.test:{port}/robots.txt"}
    hangs = {"host": "b.test", **ROBOTS, "latency": slow}
    with SimulatedWeb(spec=[hangs, moved, *WEB]) as web:
        found = [web.url(host, "/quick") for host in ("a.test", "b.test", "c.test")]
        crawl = crawl_of(web, tmp_path, found, settings=SETTINGS, arguments={"max_pages": 1}).run()
        log = web.log()
        assert crawl.stats["finish_reason"] == "max_pages"
        assert paths(log) == ["/quick"]
        assert [each.complete for each in log if each.host.startswith("b.test")] == [False]
        assert max(each.end for each in log) - min(each.start for each in log) < 10
        if slow < SETTINGS["DOWNLOAD_TIMEOUT"]:
            crawl_of(web, tmp_path, found, settings=SETTINGS).run()
            assert paths(web.log()) == ["/quick"] * 3
            assert violations(web.log(), min_delay=0) == []
