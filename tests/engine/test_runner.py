"""What takes a request from the scheduler to the scraper does what Scrapy's engine does: one
contract, both held to it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.spiders.test_ordinary_spider import crawl_endings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.crawling import Crawl

SCRAPYS = {
    "DOWNLOADER": "tests.support.spiders.witness.EngineDownloader",
    "SCHEDULER": "tests.support.spiders.witness.EngineScheduler",
}
GOOD = [
    "request_scheduled",
    "request_reached_downloader",
    "response_downloaded",
    "request_left_downloader",
    "response_received",
]


def outcome(crawl: Crawl) -> dict[str, Any]:
    """What the signals, the log and the counters say, but for times and ports."""
    said = {key: value for key, value in crawl.stats.items() if key.startswith("witness/")}
    counted = (
        "response",
        "item_",
        "spider_exceptions",
        "scheduler",
        "downloader/request",
        "finish_reason",
    )
    said |= {key: value for key, value in crawl.stats.items() if key.startswith(counted)}
    said |= {"empty": crawl.stats["empty"], "items": sorted(map(str, crawl.items))}
    lines = [
        line
        for line in crawl.log.splitlines()
        if re.search(r"scrapy\.core\.(engine|scraper)\]", line)
    ]
    said["log"] = sorted(re.sub(r"^.*?\[scrapy|:\d{4,5}", "", line) for line in lines)
    return said


def test_runner_signals_and_counts_as_scrapys_engine_does(
    tmp_path: Path,
) -> None:
    """For every end that a request can have."""
    witness = json.dumps({"tests.support.spiders.witness.Witness": 500})
    crawls = [
        # Only the runner of the project hands a direct download to who waits for it.
        crawl_endings(tmp_path / name, 0, EXTENSIONS=witness, LOG_LEVEL="DEBUG", **way)[0]
        for name, way in (("ours", {}), ("scrapys", SCRAPYS))
    ]
    ours, scrapys = map(outcome, crawls)
    assert ours == scrapys
    assert ours["witness//generator"] == [*GOOD, "item_scraped"]
    assert ours["witness//raises"] == [*GOOD, "item_scraped", "spider_error"]
    assert ours["witness//moved"] == GOOD[:4]
    assert ours["witness//ignored"] == GOOD[:1]
    assert ours["witness//answered"] == [GOOD[0], GOOD[4]]
    assert ours["witness//cut"].count("request_left_downloader") == 2
