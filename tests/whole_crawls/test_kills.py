"""Many kill -9 in one crawl: no page is missed, and few are fetched again."""

from __future__ import annotations

import json
import random
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.indexes import indexes_in, make_indexes
from tests.archive.captures import undamaged
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.identity import identity
from tests.mockweb.oracle import reachable
from tests.powerloss.survivors import Survivors, done_on_disk
from tests.support.archived import valid_records
from tests.support.crawling import Crawl, frontier_view
from tests.support.crawls import crawl_of, pages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mockweb.log import Entry

KILLS = 15
# 2,000 pages and their redirects. Without pages that answer 429 first: after a kill in between they
# would answer it again.
GRAPH = Graph(hosts=125, pages=16, seed=9, features=DEFAULT_FEATURES - {"busy", "crawl_delay"})
# At most 85 pages a second, so that there are commits between two kills.
DELAY = 1.5
SETTINGS = {
    "KROWL_DELAY_MIN": DELAY,
    "KROWL_COMMIT_INTERVAL": 0.1,
    "KROWL_WARC_MAX_SIZE": 2_000_000,
}
# Most seconds until a page is committed, on a busy machine: a commit interval and a commit.
UNCOMMITTED_S = 1.0
# WARC bytes of a page: they show a crawl's progress without a request to the server.
PAGE_BYTES = 1700


def archived_bytes(crawl: Crawl) -> int:
    total = 0
    for path in (crawl.jobdir / "warc").glob("*.warc.gz*"):
        # A file that is finished at this moment is renamed.
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def kill_somewhere(crawl: Crawl, chance: random.Random) -> None:
    """Kill a crawl: one in five during the start, the others after up to 200 pages."""
    if chance.random() < 0.2:
        with pytest.raises(subprocess.TimeoutExpired):
            crawl.process.wait(chance.uniform(0, 1.5))
    else:
        goal = archived_bytes(crawl) + PAGE_BYTES * chance.randrange(200)
        crawl.wait_until(lambda: archived_bytes(crawl) > goal)
    crawl.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_crawl_is_whole_after_kill_9_at_15_moments(tmp_path: Path) -> None:
    """After each kill, only pages in flight or not yet committed are fetched again."""
    chance = random.Random(5)
    with MockWeb(graph=GRAPH) as web:
        expected = reachable(web.graph, web.seeds())
        assert len(expected.identities) > 2700
        entries: list[Entry] = []
        uncommitted = 0
        for _ in range(KILLS):
            before = len(entries)
            crawl = crawl_of(web, tmp_path, settings=SETTINGS, feed=False).start()
            kill_somewhere(crawl, chance)
            entries = pages(web.log())
            died = max((entry.end for entry in entries), default=0.0)
            uncommitted += sum(entry.end > died - UNCOMMITTED_S for entry in entries[before:])
            fetched = {entry.url for entry in entries}
            assert len(fetched) - done_on_disk(crawl.jobdir) <= uncommitted
        assert {identity(url) for url in fetched} < expected.identities
        crawl = crawl_of(web, tmp_path, settings=SETTINGS, feed=False).run()
        entries = web.log()
        asked = [identity(entry.url) for entry in pages(entries)]
        assert expected.differences(entries, at_least=True) == []
        assert len(asked) - len(set(asked)) <= uncommitted
        assert violations(entries, min_delay=DELAY) == []
        assert frontier_view(crawl.jobdir)["queued"] == 0
        report = json.loads((crawl.jobdir / "reports" / "report.json").read_text())
        tables = {name: table["rows"] for name, table in report["tables"].items()}
        answered = sum(row["done"] for row in tables["statuses"])
        kinds = {row["what"]: row["URLs"] for row in tables["fetched"]}
        assert answered == report["done"] + kinds.get("redirects", 0)
        assert sum(row["pages"] for row in tables["types"]) == report["done"]
        assert len(tables["seeds"]) == len(web.seeds())
        assert not [row for row in tables["seeds"] if row["outcome"] in {"queued", "deferred"}]
        left = Survivors.of(crawl.jobdir)
        assert left.faults(expected.identities, expected.refused) == []
        assert {left.hasher.key(url) for url in expected.identities} <= left.archived
        assert left.report.open_files == 0
        # A kill between the name of a mended file and its index leaves the index to be made.
        make_indexes(indexes_in(crawl.jobdir / "warc").missing, undamaged)
        # Check with tools that are not ours.
        valid_records(crawl.jobdir / "warc")
