"""While the last requests of a crawl hang, its status line says for what it waits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.support.crawls import AT_ONCE, ROBOTS, crawl_of, page
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
