"""The downloader seam says when nothing more is to be popped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector

from krowlspider.engine.downloader import Downloader
from krowlspider.job.crawls import job_of
from krowlspider.spiders.broad import BroadSpider
from tests.archive.captures import capture
from tests.support.crawling import CONTACT
from tests.support.simulation import Simulation, Web, in_memory

if TYPE_CHECKING:
    from pathlib import Path


async def test_nothing_is_popped_while_the_archive_queue_is_full(tmp_path: Path) -> None:
    """Bodies count; what is written does not."""
    size = capture(1).size
    assert size == sum(
        map(len, (capture(1).payload, capture(1).response_bytes, capture(1).request_bytes))
    )

    settings = Settings()
    settings.setmodule("krowlspider.settings")
    changes = {"JOBDIR": str(tmp_path / "job")}
    settings.setdict({"KROWL_CONTACT": CONTACT, "ADDONS": {}, **changes})
    crawler = Crawler(BroadSpider, settings)
    crawler.stats = MemoryStatsCollector(crawler)
    downloader = Downloader(crawler)
    job = job_of(crawler)
    archive = job.archive
    archive.queue_bytes = 2 * size
    archive.write(capture(1))
    assert not downloader.needs_backout()
    archive.write(capture(2))
    # The loop has not had a turn in which to hear that they are written.
    assert downloader.needs_backout()
    await archive.sync()
    assert not downloader.needs_backout()
    await job.close()


async def test_nothing_is_popped_before_the_spider_is_opened(tmp_path: Path) -> None:
    """The engine may be woken while it opens the spider."""
    crawl = Simulation(Web(), in_memory(), tmp_path)
    crawl.discover(["http://a.test/"])
    assert not crawl.crawler.engine._start_scheduled_request()
    assert crawl.job.frontier.queued == 1
