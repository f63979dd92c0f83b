"""Two nodes by Consul crawl capsules: each page is asked for once, whoever comes and goes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.cluster.ring.ring import Member, Ring
from tests.cluster.nodes import Cluster
from tests.gemini.capsules import CapsuleProcess
from tests.gemini.tree import Tree
from tests.gemini.visits import counts, hasty, unasked
from tests.mockweb import MockWeb
from tests.support.crawling import frontier_view, scrapy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.crawling import Crawl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DELAY = 0.3
# In the line of status that a log has for each second.
_PAGES = re.compile(r"extensions\.status\] INFO: (\d+) pages?\b")
SETTINGS: dict[str, Any] = {
    "KROWL_GEMINI": "1",
    "KROWL_GEMINI_DELAY_MIN": DELAY,
    "KROWL_DELAY_MIN": DELAY,
}


def fetched(job: Path) -> set[str]:
    """Return the pages that a node has fetched with success, by its rows."""
    lines = scrapy("frontier", job, "--pages", "--json").stdout.splitlines()
    return {row["url"] for row in map(json.loads, lines) if row["status"] == 20}


def test_capsules_are_handed_over(tmp_path: Path) -> None:
    """One node begins, a second one comes and takes over its part, and the first one leaves while
    pages are left: none is lost or asked for again, and the delay of each capsule holds."""
    tree = Tree(hosts=8, pages=24, filler=20)
    with CapsuleProcess(tree, tmp_path) as server, MockWeb(spec=[]) as web:
        tree = server.tree
        with Cluster(tmp_path / "nodes", web, [tree.seed], **SETTINGS) as cluster:
            a = cluster.start("a")
            cluster.until(lambda: len(server.visits()) >= 40)
            b = cluster.start("b")
            cluster.until(lambda: _done(b) >= 10)
            cluster.leave("a")
            cluster.wait_all()
            left = [frontier_view(tmp_path / "nodes" / node)["queued"] for node in "ab"]
            pages = {node: fetched(tmp_path / "nodes" / node) for node in "ab"}
            assert cluster.pending_nodes == []
        visits = server.stop()
    assert left == [0, 0]
    wanted = tree.all_pages() | tree.redirects() | tree.others()
    asked = counts(visits)
    assert {url: count for url, count in asked.items() if count > 1 and url in wanted} == {}
    assert wanted == {url for url in asked if not url.endswith("/robots.txt")}
    assert hasty(visits, DELAY) == []
    assert unasked(visits) == []
    # Rows go to the new owner too.
    assert pages == {"a": set(), "b": tree.all_pages()}
    done = [crawl.stats["krowl/frontier/done_count"] for crawl in (a, b)]
    assert sum(done) == len(tree.all_pages())
    assert min(done) > 0
    ring = Ring([Member("a"), Member("b")])
    assert {ring.owner(f"capsule-{host}.test") for host in range(tree.hosts)} == {"a", "b"}


def _done(crawl: Crawl) -> int:
    """Return the pages that a running node has done, by its last line of status."""
    return max(map(int, _PAGES.findall(crawl.log)), default=0)
