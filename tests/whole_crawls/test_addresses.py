"""KROWL_IP_CONCURRENCY: hosts of many domains on one machine, in a real crawl."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.mockweb.audit import violations
from tests.support.archived import assert_archived
from tests.support.crawls import crawl_of, page, pages
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mockweb.log import Entry

ROBOTS = page("/robots.txt", "", status=404)
LINKS = "<a href=/1>x</a><a href=/2>x</a>"


def busiest(entries: list[Entry]) -> int:
    """Return the most requests in flight at a time."""
    return max(sum(o.start <= entry.start < o.end for o in entries) for entry in entries)


@pytest.mark.parametrize("limit", [1, 3])
def test_invariant_1_address_has_its_share_in_flight(tmp_path: Path, limit: int) -> None:
    """Twelve domains share an address, two another. robots.txt counts, too."""
    spec = [{**ROBOTS, "latency": 0.02}, {**page("/", LINKS), "latency": 0.1}, page("^/", "leaf")]
    with SimulatedWeb(spec=spec) as web:
        crowd = [f"crowd{number}.test" for number in range(12)]
        others = ["other1.test", "other2.test"]
        resolve = dict.fromkeys(crowd, "127.0.0.1") | dict.fromkeys(others, "127.0.0.2")
        crawl = crawl_of(
            web,
            tmp_path,
            [web.url(host) for host in crowd + others],
            settings={"KROWL_IP_CONCURRENCY": limit, "KROWL_RESOLVE": json.dumps(resolve)},
        ).run()
        log = web.log()
        shared = [entry for entry in log if entry.host.startswith("crowd")]
        assert busiest(shared) == limit
        assert busiest([entry for entry in log if entry.host.startswith("other")]) <= min(limit, 2)
        assert len(pages(log)) == 3 * 14
        assert len({entry.url for entry in log}) == len(log) == 4 * 14
        assert violations(log, min_delay=0.05) == []
        stats = crawl.stats
        assert stats["krowl/politeness/turned_back_count"] >= 1
        assert stats["downloader/request_count"] == len(log)
        assert stats["krowl/frontier/done_count"] == 3 * 14
        assert not any(name.startswith("krowl/frontier/dropped_count") for name in stats)
        assert crawl.complaints == []
        assert_archived(tmp_path / "job", log)


def test_page_refused_at_its_address_uses_no_budget(
    tmp_path: Path,
) -> None:
    """It does not count as one of ``max_pages``."""
    spec = [ROBOTS, {**page("/", "leaf"), "latency": 0.05}]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url(f"h{number}.test") for number in range(12)]
        crawl = crawl_of(
            web,
            tmp_path,
            seeds,
            arguments={"max_pages": 7},
            # Without robots.txt, the first request to a host is a page.
            settings={"KROWL_IP_CONCURRENCY": 1, "ROBOTSTXT_OBEY": 0},
        ).run()
        assert len(pages(web.log())) == 7
        assert crawl.stats["krowl/politeness/turned_back_count"] >= 1
        assert crawl.stats["krowl/frontier/queued"] == 5
