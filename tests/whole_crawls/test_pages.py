"""Rows of pages agree with the archive, also after kills."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.indexes import indexes_in, make_indexes
from tests.archive.captures import undamaged
from tests.mockweb import MockWeb
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.support.archived import Records, stored, valid_records
from tests.support.crawling import Crawl, scrapy
from tests.support.crawls import crawl_of
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Graph(hosts=6, pages=8, seed=5)
# A kill and a start take three seconds: 200 of them are for those who change the rows.
KILLS = int(os.environ.get("KILLS", "7"))
# Commits and files end often, so that kills meet both.
SETTINGS = {"KROWL_COMMIT_INTERVAL": 0.1, "KROWL_WARC_MAX_SIZE": 100_000, "KROWL_DELAY_MIN": 0.5}


def lines(jobdir: Path, *options: object) -> list[dict[str, Any]]:
    done = scrapy("frontier", jobdir, "--pages", *options)
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_rows_agree(crawl: Crawl) -> None:
    """Assert that each row names a record in the archive that has its payload."""
    records = Records.of(crawl.jobdir / "warc")
    there = {
        (record.url, record["WARC-Date"]): record.all("WARC-Payload-Digest")
        for record in records.of_kind("response")
    }
    for line in lines(crawl.jobdir):
        date = line["warc_date"]
        # JSON leaves out the fraction of a whole second.
        exact = date if "." in date else f"{date.removesuffix('Z')}.000000Z"
        digests = there[line.get("warc_url", line["url"]), exact]
        assert digests in ([], [line["payload_digest"]])


def test_each_page_that_is_done_has_a_row(tmp_path: Path) -> None:
    with SimulatedWeb(graph=SMALL) as web:
        crawl = crawl_of(web, tmp_path).run()
        stats = crawl.stats
    valid_records(crawl.jobdir / "warc")
    assert_rows_agree(crawl)
    rows = lines(crawl.jobdir)
    done = stats["krowl/frontier/done_count"]
    redirects = stats.get("krowl/frontier/fetched_count/redirect", 0)
    assert len(rows) == done + redirects
    assert {row["url"] for row in rows} <= {url for url, _ in stored(crawl.jobdir)}
    missing = [row["url"] for row in rows if row["status"] == 404]
    assert missing == [row["url"] for row in lines(crawl.jobdir, "--status", 404)]
    assert lines(crawl.jobdir, "--since", "2999-01-01") == []
    (crawl.jobdir / "warc").rename(tmp_path / "elsewhere")
    url = next(row["url"] for row in rows if row["status"] == 200)
    found = json.loads(scrapy("frontier", crawl.jobdir, "--json", "--explain", url).stdout)
    assert (found["state"], found["captures"]) == ("fetched", 0)
    assert found["page"].startswith("status 200; fetched 1 time, last at ")


def test_without_the_setting_no_page_has_a_row(tmp_path: Path) -> None:
    with SimulatedWeb(graph=SMALL) as web:
        crawl = crawl_of(web, tmp_path, settings={"KROWL_PAGES": 0}).run()
    assert lines(crawl.jobdir) == []


def killed_often(folder: Path, graph: Graph, kills: int, chance: random.Random) -> Crawl:
    """Crawl a web with so many kills; return the crawl after the last start, which ends."""
    with MockWeb(graph=graph) as web:
        for _ in range(kills):
            crawl = crawl_of(web, folder, settings=SETTINGS, feed=False).start()
            goal = len(web.log()) + chance.randrange(1, 12)
            crawl.wait_until(lambda goal=goal: len(web.log()) >= goal)  # type: ignore[misc]
            crawl.kill()
        # No kill waits for pages any more.
        quick = {**SETTINGS, "KROWL_DELAY_MIN": 0.01}
        last = crawl_of(web, folder, settings=quick, feed=False).run()
    # A kill between the name of a mended file and its index leaves the index to be made.
    make_indexes(indexes_in(last.jobdir / "warc").missing, undamaged)
    return last


def assert_no_row_is_lost(crawl: Crawl) -> None:
    report = json.loads((crawl.jobdir / "reports" / "report.json").read_text())
    fetched = {row["what"]: row["URLs"] for row in report["tables"]["fetched"]["rows"]}
    rows = lines(crawl.jobdir)
    assert len({row["url"] for row in rows}) == len(rows)
    assert len(rows) == report["done"] + fetched.get("redirects", 0)
    assert_rows_agree(crawl)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_rows_and_archive_agree_after_many_kills(tmp_path: Path) -> None:
    # A busy machine asks for more between two looks at the web.
    features = DEFAULT_FEATURES - {"busy", "crawl_delay"}
    graph = Graph(hosts=100, pages=35 + KILLS, seed=6, features=features)
    assert_no_row_is_lost(killed_often(tmp_path, graph, KILLS, random.Random(2)))
