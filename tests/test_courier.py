"""What takes a request from the scheduler to the scraper does what Scrapy's engine does: one contract, both held to it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from krowlspider.settings import DOWNLOADER_MIDDLEWARES
from tests.crawling import Crawl
from tests.mockweb import MockWeb
from tests.test_crawl import page

if TYPE_CHECKING:
    from pathlib import Path

OURS, SCRAPYS = "krowlspider.downloader.Downloader", "tests.spiders.witness.EngineDownloader"
WEB = [
    page("/robots.txt", ""),
    page("/cut", "x" * 1000, close_early=500),
    page("/huge", "x" * 1000),
    {"path": "/gone", "status": 404},
    {"path": "/moved", "redirect": "/target"},
    page("^/", "fine"),
]
GOOD = [
    "request_scheduled",
    "request_reached_downloader",
    "response_downloaded",
    "request_left_downloader",
    "response_received",
]


def crawl(folder: Path, downloader: str) -> Crawl:
    """One whose requests end in every way there is."""
    with MockWeb(spec=WEB) as web:
        return Crawl(
            folder / "job",
            spider="endings",
            arguments={"root": web.url("ends.test", "")},
            settings={
                "SPIDER_MODULES": "tests.spiders",
                "RETRY_TIMES": 1,
                "DOWNLOADER": downloader,
                "DOWNLOADER_MIDDLEWARES": json.dumps(
                    {**DOWNLOADER_MIDDLEWARES, "tests.spiders.endings.EndingMiddleware": 500}
                ),
                "EXTENSIONS": json.dumps({"tests.spiders.witness.Witness": 500}),
                "LOG_LEVEL": "DEBUG",
            },
        ).run()


def told(crawl: Crawl) -> dict[str, Any]:
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


def test_all_that_can_become_of_a_request_is_told_and_counted_as_by_scrapys_engine(
    tmp_path: Path,
) -> None:
    ours, scrapys = (told(crawl(tmp_path / way[:6], way)) for way in (OURS, SCRAPYS))
    assert ours == scrapys
    assert ours["witness//generator"] == [*GOOD, "item_scraped"]
    assert ours["witness//raises"] == [*GOOD, "item_scraped", "spider_error"]
    assert ours["witness//moved"] == GOOD[:4]
    assert ours["witness//ignored"] == GOOD[:1]
    assert ours["witness//answered"] == [GOOD[0], GOOD[4]]
    assert ours["witness//cut"].count("request_left_downloader") == 2
