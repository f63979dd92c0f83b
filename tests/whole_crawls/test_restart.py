"""A stopped crawl continues: no page is fetched twice after Ctrl-C, or missed after kill -9."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.reading import read_record
from krowlspider.archive.tools.check import check_folder
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.identity import identity
from tests.mockweb.oracle import reachable
from tests.powerloss.survivors import done_on_disk
from tests.support import warm
from tests.support.archived import assert_archived, stored
from tests.support.crawling import Crawl, frontier_view, scrapy
from tests.support.crawls import DELAY, AnyWeb, crawl_of, done_in, pages
from tests.support.simulated_crawl import interrupt, interrupted_when
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.simulated_loop import Script

# Without pages that answer 429 first: after a kill in between they would answer it again.
GRAPH = Graph(hosts=30, pages=15, seed=4, features=DEFAULT_FEATURES - {"busy", "crawl_delay"})


SMALL = replace(GRAPH, hosts=10, pages=10)


def fetched(web: AnyWeb, at_least: int) -> bool:
    return len(web.log()) >= at_least


def test_restart_after_sigint_fetches_no_page_twice(tmp_path: Path) -> None:
    with SimulatedWeb(graph=SMALL) as web:
        first = crawl_of(web, tmp_path, script=interrupted_when(lambda: fetched(web, 60))).run()
        assert first.stats["finish_reason"] == "shutdown"
        assert frontier_view(first.jobdir)["queued"] > 0
        between = len(web.log())
        second = crawl_of(web, tmp_path).run()
        assert 60 <= between < len(web.log())
        differences = reachable(web.graph, web.seeds()).differences(web.log())
        assert [line for line in differences if "robots.txt" not in line] == []
        assert violations(web.log(), min_delay=DELAY) == []
        assert_archived(second.jobdir, web.log())
        total = done_in(first.stats) + done_in(second.stats)
        assert done_in(frontier_view(first.jobdir)) == total == len(pages(web.log()))


@pytest.mark.slow
def test_invariant_5_nothing_is_missed_after_kill_9(tmp_path: Path) -> None:
    """After each of three kills, only pages that are not done on the disk are fetched again."""
    chance = random.Random(0)
    with MockWeb(graph=GRAPH) as web:
        uncommitted = 0
        for _ in range(3):
            crawl = crawl_of(web, tmp_path).start()
            goal = len(web.log()) + chance.randrange(20, 120)
            crawl.wait_until(lambda goal=goal: fetched(web, goal))  # type: ignore[misc]
            crawl.kill()
            fetched_once = {identity(entry.url) for entry in pages(web.log())}
            uncommitted += len(fetched_once) - done_on_disk(crawl.jobdir)
        last = crawl_of(web, tmp_path).run()
        assert reachable(web.graph, web.seeds()).differences(web.log(), at_least=True) == []
        refetched = len(pages(web.log())) - len({identity(e.url) for e in pages(web.log())})
        assert refetched <= uncommitted
        assert violations(web.log(), min_delay=DELAY) == []
        report = check_folder(last.jobdir / "warc")
        assert (report.open_files, report.problems) == (0, [])
        archived = {identity(url) for url, _ in stored(last.jobdir)}
        assert {identity(entry.url) for entry in pages(web.log())} <= archived
        assert frontier_view(last.jobdir)["queued"] == 0
        # An item of a page that was fetched again has an id of its own.
        identities = [item["warc_record_id"] for item in last.items]
        assert len(identities) == len(set(identities))
        assert {item["url"] for item in last.items} <= {url for url, _ in stored(last.jobdir)}
        for item in last.items:
            where = last.jobdir / "warc" / item["warc_file"]
            headers, _ = read_record(where, item["warc_offset"])
            assert headers["WARC-Record-ID"] == item["warc_record_id"]


def test_a_folder_in_use_is_refused_and_its_crawl_goes_on(tmp_path: Path) -> None:
    with SimulatedWeb(graph=SMALL) as web:

        def start_another() -> Script:
            yield lambda: fetched(web, 20) and (first.jobdir / "status.json").exists()
            second = Crawl(first.jobdir, arguments=first.arguments).run(code=2)
            assert f"is in use by process {os.getpid()}" in second.log.splitlines()[-1]
            shown = warm.run([sys.executable, "-m", "scrapy", "frontier", first.jobdir])
            assert b"is being crawled; its last status line, " in shown.stdout
            interrupt()

        first = crawl_of(web, tmp_path, script=start_another())
        first.run()
        assert frontier_view(first.jobdir)["queued"] > 0


def test_scrapy_frontier_shows_a_stopped_crawl_as_a_table(tmp_path: Path) -> None:
    with SimulatedWeb(graph=SMALL) as web:
        crawl = crawl_of(web, tmp_path, arguments={"max_pages": 40}).run()
    view = frontier_view(crawl.jobdir)
    shown = scrapy("frontier", crawl.jobdir).stdout.decode()
    assert f"hosts    {view['hosts']:,}\nqueued   {view['queued']:,}\ndone     40 pages (" in shown
    for title in ("most queued", "slowest", "due next"):
        assert f"\n{title}\n" in shown
    most = view["biggest"][0]
    assert any(
        line.split()[0] == str(most["queued"]) and line.endswith(most["host"])
        for line in shown.splitlines()
        if line
    )
